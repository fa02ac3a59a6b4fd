"""Freeze a method: everything that a browser needs to run it at any live shape.

The engine runs on the recording device. Buffers, shader texts and bind groups are those of the load. The rule
of each node becomes a list of cases (`plan/formulas.py`): the conditions under which one holds, and its
launches, whose parameters and grids are formulas of the sizes and integers of a call. Equal parts are stored
once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from pteron.compiler.ir.dispatch import Dispatch, Number
from pteron.compiler.ir.dtypes import DType
from pteron.compiler.ir.formula import Formula
from pteron.compiler.ir.values import Node, Port, SymInt, Tensor, Value, ValueId
from pteron.compiler.ops.kernel import Kernel
from pteron.compiler.plan.dynamic import find_sizes
from pteron.compiler.plan.formulas import RuleRun
from pteron.compiler.plan.input_uses import index_inputs, input_elements
from pteron.compiler.plan.method_sizes import Domain
from pteron.compiler.plan.sweep import LiveGraph
from pteron.compiler.plan.traced import formula_of, number_of
from pteron.engine.arrays.numpy_arrays import convert_constant
from pteron.engine.devices.device import Buffer
from pteron.engine.devices.recording import RecordedBuffer, RecordingDevice, Write
from pteron.engine.executor import Executor
from pteron.engine.state import State
from pteron.engine.weight_store import WeightStore
from pteron.errors import UnsupportedError
from pteron.web.frozen_numbers import FrozenNumbers, Interned

FORMAT = 2
# Rules are run for so many points. If sizes have more, a rule that needs a case for each value is refused.
MOST_POINTS = 4096
MOST_CASES = 64
# Values of integers to try: the smallest, and those around which larger kernels take over.
INTEGERS = sorted({-1, *range(65), *(2**power + near for power in range(7, 21) for near in (-1, 0, 1))})


@dataclass(slots=True)
class FrozenMethod:
    """`header` describes the program. It refers to the bytes of `params`."""

    header: dict[str, Any]
    params: bytes
    weights: list[list[Write]]  # the contents of each buffer that never changes

    def packed(self) -> tuple[dict[str, Any], list[bytes]]:
        """The header, and the binary sections."""
        return self.header, [self.params]


def freeze(live: LiveGraph) -> FrozenMethod:
    """Find the cases of all rules, for the device that the method is planned for."""
    if live.graph.shared:
        raise UnsupportedError(
            f"the program cannot be frozen: method '{live.graph.name}' shares state with other methods, "
            "but a frozen program has one method: export it without share_mutable_buffers"
        )
    device = RecordingDevice(live.features)
    executor = Executor(live, device, WeightStore(device, convert_constant))
    state = State(executor.states)
    return _Freezer(live, device, executor, state).freeze()


class _Freezer:
    def __init__(self, live: LiveGraph, device: RecordingDevice, executor: Executor, state: State) -> None:
        self.live, self.device, self.executor, self.state = live, device, executor, state
        self.graph = live.graph
        self.found = find_sizes(live)
        self.domain = Domain.of(live, self.found)
        self.formulas = self.domain.derive(live, MOST_POINTS, INTEGERS)
        self.elements = {element.symint.id: element for element in input_elements(live)}
        self.names = [*self.domain.sizes, *dict.fromkeys(self.domain.integers.values())]
        self.numbers = FrozenNumbers(self.names)
        self.slots = executor.params.integer_slots
        self.indices = index_inputs(live)
        self.sites = {id(site): number for number, site in enumerate(executor.sites)}
        self.blocks, self.plans, self.cases = Interned[bytes](), Interned[str](), Interned[str]()
        self.texts = Interned[str]()
        self.planning: set[str] = set(self.domain.sizes)

    def freeze(self) -> FrozenMethod:
        nodes = [
            self._node(node, *runs) for node, runs in zip(self.graph.nodes, self.formulas.runs, strict=True)
        ]
        derived = [
            [slot, self.numbers.formula(self._integer(value))]
            for value, slot in self.slots.items()
            if self.formulas.values[value]
        ]
        written = self._written()
        offsets, params = _joined(list(self.blocks.numbers))
        pristine = {n: number_of_buffer(buffer) for n, buffer in self.executor.states.pristine.items()}
        # Groups with buffers of the state are made here, and listed below.
        sites = [[site.slot, self.executor.group(site, self.state).id] for site in self.executor.sites]
        header = {
            "format": FORMAT,
            "method": self.graph.name,
            "inputs": [self._input(port) for port in self.graph.inputs],
            "outputs": [self._output(port) for port in self.graph.outputs],
            "sizes": [self._size(name) for name in self.domain.sizes],
            "integers": list(self._integers()),
            "buffers": [buffer.size for buffer in self.device.buffers],
            "weights": list(written),
            "states": [[number_of_buffer(b), pristine.get(n)] for n, b in enumerate(self.state.buffers)],
            "params": number_of_buffer(self.executor.params.buffer),
            "staging": [number_of_buffer(buffer) for buffer in self.executor.staging.buffers],
            "constants": self.executor.params.constants,
            "pipelines": [
                {"label": p.label, "bindings": p.kinds, "text": browser_text(p.source)}
                for p in self.device.pipelines.values()
            ],
            "groups": [[group.pipeline.id, *_flat(group.buffers)] for group in self.device.groups],
            "sites": sites,
            "blocks": offsets,
            "texts": list(self.texts.numbers),
            "plans": list(map(json.loads, self.plans.numbers)),
            "cases": list(map(json.loads, self.cases.numbers)),
            "nodes": nodes,
            "derived": derived,
            "quotients": self.numbers.quotients,
        }
        return FrozenMethod(header, params, list(written.values()))

    # -- the cases of a node ------------------------------------------------------------------------

    def _node(self, node: Node, first: Node, runs: list[RuleRun]) -> list[Any]:
        """Pairs of a case, and the sites of its dispatches."""
        fixed = [
            run
            for run in runs
            if any(answer and not below for (_, below), answer in run.path.answers.items())
        ]
        if len(fixed) > MOST_CASES and self.domain.count > MOST_POINTS:
            raise UnsupportedError(
                f"the program cannot be frozen: {node.label} must be planned again for each size, and the "
                f"program has {self.domain.count} combinations of sizes: limit them with --bound, or run the "
                "engine itself in the browser, with Pyodide"
            )
        mine = dict(zip(self.live.values_of(first), self.live.values_of(node), strict=True))
        return [self._case(node, mine, run) for run in runs]

    def _case(self, node: Node, mine: dict[Value, Value], run: RuleRun) -> list[Any]:
        number = self.numbers.formula
        case: dict[str, Any] = {"when": self.numbers.path(run.path)}
        self._plans_on(formula for formula, _ in run.path.answers)
        sites: list[int] = []
        if run.plan is None:
            case["refusal"] = self.texts.number(f"{node.label}: {run.refusal}")
        else:
            chosen = self.executor.sites_of(node, run.plan)
            sites = [self.sites[id(site)] for site in chosen]
            case["plans"] = [
                self._dispatch(site.kernel, dispatch)
                for site, dispatch in zip(chosen, run.plan.dispatches, strict=True)
            ]
            case["ranges"] = [
                [
                    number(self._integer(mine[self.graph.values[guard.value]].id)),
                    *(number(formula_of(bound)) for bound in (guard.low, guard.high)),
                    self.texts.number(f"{node.label}: {guard.message}"),
                ]
                for guard in run.plan.guards
            ]
            case["contents"] = [
                [
                    place,
                    number(formula_of(rule.low)),
                    number(formula_of(rule.high)),
                    self.texts.number(rule.what),
                ]
                for rule in run.plan.contents
                for index, tensor, place in self.indices
                if index == node.index and mine[rule.tensor].id == tensor
            ]
            own = zip(
                (size for v in node.writes for size in self.formulas.values[v.id]),
                _all(run.results),
                strict=True,
            )
            self._plans_on(_all(run.results))
            case["own"] = [
                [self.numbers.name(name), number(formula)]
                for size, formula in own
                for name in size.names
                if name.startswith("#") and size == Formula.name(name) and size != formula
            ]
        text = json.dumps({key: value for key, value in case.items() if value or key == "refusal"})
        return [self.cases.number(text), *sites]

    def _dispatch(self, kernel: Kernel, dispatch: Dispatch) -> int:
        """A block of bytes, the parameters in it that vary (offset, is a float, formula), and the grid."""
        block = kernel.pack({name: _plain(value) for name, value in dispatch.params.items()})
        varying = [
            [field.offset + 4 * place, int(field.code == "f"), self.numbers.formula(formula_of(item))]
            for field in kernel.fields
            for place, item in enumerate(_items(dispatch.params[field.name]))
            if number_of(item) is not item
        ]
        grid = [self.numbers.formula(formula_of(size)) for size in dispatch.grid]
        self._plans_on(
            formula_of(item) for items in (*dispatch.params.values(), dispatch.grid) for item in _items(items)
        )
        return self.plans.number(json.dumps([self.blocks.number(block), varying, grid]))

    def _plans_on(self, formulas: Iterable[Formula]) -> None:
        """Note the names that plans depend on. Others only move what kernels read from uniform buffers."""
        self.planning.update(name for formula in formulas for name in formula.names)

    def _integer(self, value: ValueId) -> Formula:
        (formula,) = self.formulas.values[value]
        return formula

    # -- the load ---------------------------------------------------------------------------------

    def _size(self, name: str) -> dict[str, Any]:
        values = self.domain.sizes[name].values
        return {"name": name, "low": values[0], "high": values[-1], "step": values.step}

    def _shape(self, tensor: Tensor) -> list[Any]:
        return [self.numbers.formula(size) for size in self.formulas.values[tensor.id]]

    def _input(self, port: Port) -> dict[str, Any]:
        described: dict[str, Any] = {"name": port.name, "dtype": port.host_type}
        if isinstance(port.value, SymInt):
            return described | {"integer": self.numbers.name(self.domain.integers[port.value.id])}
        if not isinstance(port.value, Tensor):
            return described | {"fixed": port.value}
        return described | {
            **self._tensor(port.value),
            "max": port.max_shape,
            "sizes": self._shape(port.value),
            "dynamic": self.found.dims.get(port.value.id, ()),
            "resizable": port.resizable,
        }

    def _output(self, port: Port) -> dict[str, Any]:
        described: dict[str, Any] = {"name": port.name, "dtype": port.host_type}
        if isinstance(port.value, SymInt):
            return described | {"number": self.numbers.formula(self._integer(port.value.id))}
        if not isinstance(port.value, Tensor):
            return described | {"fixed": port.value}
        counter = self.graph.counts.get(port.value.id)
        counted = {} if counter is None else {"count": self._buffer(counter)}
        return (
            described
            | self._tensor(port.value)
            | {"max": port.max_shape, "sizes": self._shape(port.value), **counted}
        )

    def _tensor(self, tensor: Tensor) -> dict[str, Any]:
        if tensor.dtype is DType.complex64:
            raise UnsupportedError(
                f"the program cannot be frozen: {tensor} is complex, which JavaScript lacks"
            )
        return {"gpu": tensor.dtype.label, "buffer": self._buffer(tensor)}

    def _buffer(self, tensor: Tensor) -> int:
        return number_of_buffer(self.executor.buffer(tensor, self.state))

    def _integers(self) -> Iterator[dict[str, Any]]:
        """The integers that a call gives, in the order of their names."""
        values = [port.value for port in self.graph.inputs]
        for name in self.names[len(self.domain.sizes) :]:
            of = next(value for value, own in self.domain.integers.items() if own == name)
            element = self.elements.get(of)
            at = [] if element is None else [values.index(element.source), element.dim, element.index]
            yield {"name": name, "element": at or None, "planning": name in self.planning}

    def _written(self) -> dict[int, list[Write]]:
        """The contents of the buffers of constants, by the buffer's number."""
        written: dict[int, list[Write]] = {}
        for event in self.device.events:
            if isinstance(event, Write) and event.buffer.usage == "storage":
                written.setdefault(event.buffer.id, []).append(event)
        return written


def number_of_buffer(buffer: Buffer) -> int:
    assert isinstance(buffer, RecordedBuffer)
    return buffer.id


def _flat(buffers: tuple[tuple[RecordedBuffer, int, int], ...]) -> list[int]:
    return [number for buffer, offset, nbytes in buffers for number in (buffer.id, offset, nbytes)]


def _joined(blocks: list[bytes]) -> tuple[list[int], bytes]:
    """Blocks of bytes, one after another, and where each begins. The last number is the end."""
    offsets = [0]
    for block in blocks:
        offsets.append(offsets[-1] + len(block))
    return offsets, b"".join(blocks)


def browser_text(text: str) -> str:
    """A shader text for browsers. They require a line that wgpu refuses."""
    return f"enable subgroups;\n{text}" if re.search(r"\bsubgroup", text) else text


def _items(value: Number) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def _plain(value: Number) -> Any:
    """Traced numbers as 0."""
    items = tuple(item if number_of(item) is item else 0 for item in _items(value))
    return items if isinstance(value, tuple) else items[0]


def _all(results: list[tuple[Formula, ...]]) -> Iterator[Formula]:
    return (size for sizes in results for size in sizes)
