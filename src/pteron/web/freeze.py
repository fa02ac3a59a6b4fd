"""Freeze a method: everything that a browser needs to run it, with a plan for each live point.

The engine runs on the recording device. Buffers, shader texts and bind groups are those of the load. A point
adds the list of launches (site, parameters, grid), the shapes of the outputs, and the ranges that inputs must
be in. Equal parameters and grids are stored once.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from pteron.compiler.ir.dispatch import Grid
from pteron.compiler.ir.dtypes import DType
from pteron.compiler.ir.live import Live
from pteron.compiler.ir.values import Port, SymInt, Tensor, ValueId
from pteron.compiler.plan.dynamic import find_sizes
from pteron.compiler.plan.input_uses import index_inputs, input_elements
from pteron.compiler.plan.sweep import LiveGraph
from pteron.engine.arrays.numpy_arrays import convert_constant
from pteron.engine.devices.device import Buffer
from pteron.engine.devices.recording import RecordedBuffer, RecordingDevice, Write
from pteron.engine.executor import Executor
from pteron.engine.state import State
from pteron.engine.weight_store import WeightStore
from pteron.errors import UnsupportedError
from pteron.web.live_points import Integers, Stated, live_points

FORMAT = 1
T = TypeVar("T")


@dataclass(slots=True)
class FrozenMethod:
    """`header` describes the program. `launches`, `grids` and `params` are the numbers that it refers to."""

    header: dict[str, Any]
    launches: list[int]  # of all points, one after another: (site, block of parameters, grid) each
    grids: list[int]  # three for each grid
    params: bytes
    weights: list[list[Write]]  # the contents of each buffer that never changes

    def packed(self) -> tuple[dict[str, Any], list[bytes]]:
        """The header, and the binary sections."""
        numbers = [struct.pack(f"<{len(part)}I", *part) for part in (self.launches, self.grids)]
        return self.header, [*numbers, self.params]


@dataclass(slots=True)
class Interned(Generic[T]):
    """Numbers for things that occur often."""

    numbers: dict[T, int] = field(default_factory=dict)

    def number(self, thing: T) -> int:
        return self.numbers.setdefault(thing, len(self.numbers))


def freeze(live: LiveGraph, stated: Stated | None = None) -> FrozenMethod:
    """Plan a method at all live points, or at those with the stated sizes, for the device that it is for.

    Raises `UnsupportedError` for a program that needs too many plans.
    """
    if live.graph.shared:
        raise UnsupportedError(
            f"the program cannot be frozen: method '{live.graph.name}' shares state with other methods, "
            "but a frozen program has one method: export it without share_mutable_buffers"
        )
    device = RecordingDevice(live.features)
    executor = Executor(live, device, WeightStore(device, convert_constant))
    state = State(executor.states)
    return _Freezer(live, device, executor, state).freeze(stated)


class _Freezer:
    def __init__(self, live: LiveGraph, device: RecordingDevice, executor: Executor, state: State) -> None:
        self.live, self.device, self.executor, self.state = live, device, executor, state
        self.graph = live.graph
        self.dims = find_sizes(live).dims
        self.integers = Integers.of(live)
        self.elements = {element.symint.id: element for element in input_elements(live)}
        self.roots = [*self.integers.moving, *self.integers.planning]
        self.root_numbers = {symint.id: number for number, symint in enumerate(self.roots)}
        self.slots = executor.params.integer_slots
        self.indices = index_inputs(live)
        self.sites = {id(site): number for number, site in enumerate(executor.sites)}
        self.blocks, self.grids, self.texts = Interned[bytes](), Interned[Grid](), Interned[str]()
        self.launches: list[int] = []

    def freeze(self, stated: Stated | None) -> FrozenMethod:
        points = [self._point(changes) for changes in live_points(self.live, self.integers, stated)]
        written = self._written()
        offsets, params = _joined(list(self.blocks.numbers))
        pristine = {n: number_of(buffer) for n, buffer in self.executor.states.pristine.items()}
        # Groups with buffers of the state are made here, and listed below.
        sites = [[site.slot, self.executor.group(site, self.state).id] for site in self.executor.sites]
        header = {
            "format": FORMAT,
            "method": self.graph.name,
            "inputs": [self._input(port) for port in self.graph.inputs],
            "outputs": [self._output(port) for port in self.graph.outputs],
            "integers": [self._integer(symint) for symint in self.roots],
            "buffers": [buffer.size for buffer in self.device.buffers],
            "weights": list(written),
            "states": [[number_of(b), pristine.get(n)] for n, b in enumerate(self.state.buffers)],
            "params": number_of(self.executor.params.buffer),
            "staging": [number_of(buffer) for buffer in self.executor.staging.buffers],
            "constants": self.executor.params.constants,
            "pipelines": [
                {"label": p.label, "bindings": p.kinds, "text": browser_text(p.source)}
                for p in self.device.pipelines.values()
            ],
            "groups": [[group.pipeline.id, *_flat(group.buffers)] for group in self.device.groups],
            "sites": sites,
            "blocks": offsets,
            "texts": list(self.texts.numbers),
            "points": points,
        }
        grids = [size for grid in self.grids.numbers for size in grid]
        return FrozenMethod(header, self.launches, grids, params, list(written.values()))

    # -- a point ----------------------------------------------------------------------------------

    def _point(self, changes: dict[ValueId, Live]) -> dict[str, Any]:
        """The current plan. `at`: the sizes of all dynamic dimensions, and the integers that plan."""
        live = self.live.current
        first = len(self.launches) // 3
        for _, launch in self.executor.launched():
            site = self.sites[id(launch.site)]
            self.launches += [site, self.blocks.number(launch.params), self.grids.number(launch.grid)]
        derived = [[slot, live[i]] for i, slot in self.slots.items() if i not in self.root_numbers]
        return {
            "at": [
                *(self.live.shape(t)[dim] for t in self._tensors() for dim in self.dims.get(t.id, ())),
                *(changes[symint.id] for symint in self.integers.planning),
            ],
            "launches": [first, len(self.launches) // 3],
            "shapes": [live[p.value.id] for p in self.graph.outputs if isinstance(p.value, Tensor)],
            "integers": [live[p.value.id] for p in self.graph.outputs if isinstance(p.value, SymInt)],
            "derived": [pair for pair in derived if pair[1] is not None],
            "ranges": list(self._ranges()),
            "contents": list(self._contents()),
        }

    def _tensors(self) -> Iterator[Tensor]:
        return (port.value for port in self.graph.inputs if isinstance(port.value, Tensor))

    def _ranges(self) -> Iterator[list[int]]:
        """(integer, low, high, message): where the plans are valid. The first node with a range speaks."""
        seen = set()
        for node, planned in zip(self.graph.nodes, self.live.plans, strict=True):
            assert planned is not None
            for guard in planned.guards:
                key = (guard.value, guard.low, guard.high)
                if guard.value in self.root_numbers and key not in seen:
                    seen.add(key)
                    text = self.texts.number(f"{node.label}: {guard.message}")
                    yield [self.root_numbers[guard.value], guard.low, guard.high, text]

    def _contents(self) -> Iterator[list[int]]:
        """(input, low, high, text): the range of an input's elements that are used as indices."""
        seen = set()
        for index, tensor, place in self.indices:
            planned = self.live.plans[index]
            assert planned is not None
            for rule in planned.contents:
                key = (place, rule.low, rule.high)
                if rule.tensor.id == tensor and key not in seen:
                    seen.add(key)
                    yield [*key, self.texts.number(rule.what)]

    # -- the load ---------------------------------------------------------------------------------

    def _input(self, port: Port) -> dict[str, Any]:
        described: dict[str, Any] = {"name": port.name, "dtype": port.host_type}
        if isinstance(port.value, SymInt):
            return described | {"integer": self.root_numbers[port.value.id]}
        if not isinstance(port.value, Tensor):
            return described | {"fixed": port.value}
        return described | {
            **self._tensor(port.value),
            "max": port.max_shape,
            "dynamic": self.dims.get(port.value.id, ()),
            "resizable": port.resizable,
        }

    def _output(self, port: Port) -> dict[str, Any]:
        described: dict[str, Any] = {"name": port.name, "dtype": port.host_type}
        if isinstance(port.value, SymInt):
            return described | {"integer": self.root_numbers.get(port.value.id, -1)}  # -1: the point has it
        if not isinstance(port.value, Tensor):
            return described | {"fixed": port.value}
        counter = self.graph.counts.get(port.value.id)
        counted = {} if counter is None else {"count": self._buffer(counter)}
        return described | self._tensor(port.value) | {"max": port.max_shape} | counted

    def _tensor(self, tensor: Tensor) -> dict[str, Any]:
        if tensor.dtype is DType.complex64:
            raise UnsupportedError(
                f"the program cannot be frozen: {tensor} is complex, which JavaScript lacks"
            )
        return {"gpu": tensor.dtype.label, "buffer": self._buffer(tensor)}

    def _buffer(self, tensor: Tensor) -> int:
        return number_of(self.executor.buffer(tensor, self.state))

    def _integer(self, symint: SymInt) -> dict[str, Any]:
        slot = self.slots.get(symint.id)
        described: dict[str, Any] = {"slot": slot, "planning": symint in self.integers.planning}
        element = self.elements.get(symint.id)
        if element is not None:
            values = [port.value for port in self.graph.inputs]
            described["element"] = [values.index(element.source), element.dim, element.index]
        return described

    def _written(self) -> dict[int, list[Write]]:
        """The contents of the buffers of constants, by the buffer's number."""
        written: dict[int, list[Write]] = {}
        for event in self.device.events:
            if isinstance(event, Write) and event.buffer.usage == "storage":
                written.setdefault(event.buffer.id, []).append(event)
        return written


def number_of(buffer: Buffer) -> int:
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
