"""Records calls as ExecuTorch's event tracer does, for its Inspector.

A call is a run named `Execute`. It has these events, with times in nanoseconds:

- `Method::execute`, the whole call on the host;
- `DELEGATE_CALL` or `OPERATOR_CALL` for each instruction of the file, from its first kernel to its last;
- for an operator of a delegate, an event whose delegate_debug_id is the name of Pteron's node;
- for another operator, `native_call_` and its name, such as `native_call_add.out`.

A node that was fused from several instructions counts for the last one. The clock of the GPU has no relation
to the clock of the host, so the first kernel begins with the call. If there is a buffer for them, the outputs
of the method are recorded, and those of each instruction, which the Inspector compares with those of torch:
the last values that the nodes of an instruction write. A value that a fused node does not write is left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from pteron.api.method import Method
from pteron.api.profiling.profile import NodeProfile
from pteron.api.profiling.watched_call import WatchedCall, watch_call
from pteron.compiler.ir.dtypes import HOST_TYPES
from pteron.compiler.ir.values import Node, Tensor, Value
from pteron.pte import schema
from pteron.pte.etdump import (
    DebugBool,
    DebugEvent,
    DebugKind,
    DebugTensor,
    DebugValue,
    ETDump,
    ProfileEvent,
    RunData,
    RunEvent,
    etdump_bytes,
)
from pteron.pte.schema import ScalarType

EXECUTE = "Method::execute"
DELEGATE, OPERATOR = "DELEGATE_CALL", "OPERATOR_CALL"
SCALAR_TYPES = {name: ScalarType(kind) for kind, (name, _) in HOST_TYPES.items()}
_ORIGIN = re.compile(r"(delegate|instruction) (\d+)")


class EtdumpRecorder:
    """The calls of a program. `room` is the largest number of bytes of recorded outputs."""

    def __init__(self, room: int) -> None:
        self._room = room
        self._runs: list[RunData] = []
        self._data = bytearray()

    def execute(self, method: Method, plan: schema.ExecutionPlan, inputs: tuple[Any, ...]) -> list[Any]:
        """Call a method, and record the call."""
        instructions = Instructions(plan)
        made: dict[int, list[Any]] = {}

        def observe(node: Node, read: Callable[[Value], Any]) -> None:
            number = instructions.number(node)
            if number is not None:
                made[number] = [read(value) for value in node.writes if isinstance(value, Tensor)]

        call = watch_call(method, inputs, observe if self._room else None)
        events = [
            RunEvent(ProfileEvent(EXECUTE, start_time=call.begin, end_time=call.end)),
            *(RunEvent(event) for event in _instruction_events(method, instructions, call)),
            *(
                RunEvent(debug_event=event)
                for number, arrays in sorted(made.items())
                for event in self._values(arrays, instructions.name(number), number)
            ),
            *(RunEvent(debug_event=event) for event in self._values(call.outputs, EXECUTE)),
        ]
        self._runs.append(RunData("Execute", events=tuple(events)))
        return call.outputs

    def write(self, etdump_path: str | Path, data_path: str | Path) -> None:
        Path(etdump_path).write_bytes(etdump_bytes(ETDump(run_data=tuple(self._runs))))
        Path(data_path).write_bytes(self._data)

    def _values(self, arrays: list[Any], name: str, instruction: int = -1) -> Iterator[DebugEvent]:
        """The outputs of an instruction, or those of the method."""
        for output in arrays:
            if not hasattr(output, "shape"):
                continue
            array = np.ascontiguousarray(output)
            if array.dtype.name not in SCALAR_TYPES or len(self._data) + array.nbytes > self._room:
                continue
            tensor = DebugTensor(
                SCALAR_TYPES[array.dtype.name],
                array.shape,
                tuple(step // array.itemsize for step in array.strides),
                len(self._data),
            )
            self._data += array.tobytes()
            entry = DebugValue(DebugKind.TENSOR, tensor, output=DebugBool(instruction < 0))
            yield DebugEvent(instruction_id=instruction, debug_entry=entry, name=name)


class Instructions:
    """The instructions of a method, and the nodes that they became."""

    def __init__(self, plan: schema.ExecutionPlan) -> None:
        self._plan = plan
        self._items = [item.instr_args for item in plan.chains[0].instructions] if plan.chains else []
        self._calls = {
            item.delegate_index: number
            for number, item in enumerate(self._items)
            if isinstance(item, schema.DelegateCall)
        }

    def number(self, node: Node) -> int | None:
        """The number of the instruction that a node comes from."""
        found = _ORIGIN.findall(node.origin)
        if not found:
            return None
        kind, number = found[-1]
        return self._calls.get(int(number)) if kind == "delegate" else int(number)

    def is_delegate(self, number: int) -> bool:
        return number in self._calls.values()

    def name(self, number: int) -> str:
        """The name of the event for the part of an instruction that computes."""
        if self.is_delegate(number):
            return DELEGATE
        item = self._items[number] if number < len(self._items) else None
        if not isinstance(item, schema.KernelCall):
            return OPERATOR
        operator = self._plan.operators[item.op_index]
        return f"native_call_{operator.name.rpartition('::')[2]}.{operator.overload}"


def _instruction_events(
    method: Method, instructions: Instructions, call: WatchedCall
) -> Iterator[ProfileEvent]:
    nodes: dict[int, list[NodeProfile]] = {}
    for profile in call.nodes:
        number = instructions.number(method.graph.nodes[profile.index])
        if number is not None and _span(profile) is not None:
            nodes.setdefault(number, []).append(profile)
    for number in sorted(nodes):
        spans = [span for profile in nodes[number] if (span := _span(profile)) is not None]
        whole = min(begin for begin, _ in spans), max(end for _, end in spans)
        if instructions.is_delegate(number):
            yield _event(call, DELEGATE, number, whole)
            for profile, span in zip(nodes[number], spans, strict=True):
                yield _event(call, None, number, span, f"{profile.op} (node {profile.index})")
            continue
        yield _event(call, OPERATOR, number, whole)
        if instructions.name(number) != OPERATOR:
            yield _event(call, instructions.name(number), number, whole)


def _span(profile: NodeProfile) -> tuple[float, float] | None:
    spans = [dispatch.last for dispatch in profile.dispatches if dispatch.last is not None]
    return (spans[0][0], spans[-1][1]) if spans else None


def _event(
    call: WatchedCall, name: str | None, number: int, span: tuple[float, float], delegate: str | None = None
) -> ProfileEvent:
    begin, end = (call.begin + round(1e9 * seconds) for seconds in span)
    return ProfileEvent(
        name, instruction_id=number, delegate_debug_id_str=delegate, start_time=begin, end_time=end
    )
