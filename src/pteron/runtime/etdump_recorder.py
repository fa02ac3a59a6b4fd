"""Records calls as ExecuTorch's event tracer does, for its Inspector.

A call is a run named `Execute`. It has these events, with times in nanoseconds:

- `Method::execute`, the whole call on the host;
- `DELEGATE_CALL` or `OPERATOR_CALL` for each instruction of the file, from its first kernel to its last;
- for an operator of a delegate, an event whose delegate_debug_id is the name of Pteron's node;
- for another operator, `native_call_` and its name, such as `native_call_add.out`.

A node that was fused from several instructions counts for the last one. The clock of the GPU has no relation
to the clock of the host, so the first kernel begins with the call. If there is a buffer for them, the outputs
of the method are recorded, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from pteron.api.method import Method
from pteron.api.profiling.profile import NodeProfile
from pteron.api.profiling.watched_call import WatchedCall, watch_call
from pteron.compiler.ir.dtypes import HOST_TYPES
from pteron.compiler.ir.values import Node
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
        call = watch_call(method, inputs)
        events = [
            RunEvent(ProfileEvent(EXECUTE, start_time=call.begin, end_time=call.end)),
            *(RunEvent(event) for event in _instruction_events(method, plan, call)),
            *(RunEvent(debug_event=event) for event in self._outputs(call.outputs)),
        ]
        self._runs.append(RunData("Execute", events=tuple(events)))
        return call.outputs

    def write(self, etdump_path: str | Path, data_path: str | Path) -> None:
        Path(etdump_path).write_bytes(etdump_bytes(ETDump(run_data=tuple(self._runs))))
        Path(data_path).write_bytes(self._data)

    def _outputs(self, outputs: list[Any]) -> Iterator[DebugEvent]:
        for output in outputs:
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
            entry = DebugValue(DebugKind.TENSOR, tensor, output=DebugBool(True))
            yield DebugEvent(debug_entry=entry, name=EXECUTE)


def _instruction_events(
    method: Method, plan: schema.ExecutionPlan, call: WatchedCall
) -> Iterator[ProfileEvent]:
    instructions = [item.instr_args for item in plan.chains[0].instructions] if plan.chains else []
    calls = {
        item.delegate_index: number
        for number, item in enumerate(instructions)
        if isinstance(item, schema.DelegateCall)
    }
    nodes: dict[int, list[NodeProfile]] = {}
    for profile in call.nodes:
        number = _instruction(method.graph.nodes[profile.index], calls)
        if number is not None and _span(profile) is not None:
            nodes.setdefault(number, []).append(profile)
    for number in sorted(nodes):
        spans = [span for profile in nodes[number] if (span := _span(profile)) is not None]
        whole = min(begin for begin, _ in spans), max(end for _, end in spans)
        item = instructions[number] if number < len(instructions) else None
        if isinstance(item, schema.DelegateCall):
            yield _event(call, "DELEGATE_CALL", number, whole)
            for profile, span in zip(nodes[number], spans, strict=True):
                yield _event(call, None, number, span, f"{profile.op} (node {profile.index})")
        else:
            yield _event(call, "OPERATOR_CALL", number, whole)
            if isinstance(item, schema.KernelCall):
                operator = plan.operators[item.op_index]
                name = operator.name.rpartition("::")[2]
                yield _event(call, f"native_call_{name}.{operator.overload}", number, whole)


def _instruction(node: Node, delegate_calls: dict[int, int]) -> int | None:
    """The number of the instruction that a node comes from."""
    found = _ORIGIN.findall(node.origin)
    if not found:
        return None
    kind, number = found[-1]
    return delegate_calls.get(int(number)) if kind == "delegate" else int(number)


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
