"""A device without a GPU: it records the calls that it gets.

Tests use it to measure the cost of a call on the host. It also lists the buffers, shader texts, bind groups,
commands and writes of a program without running it. Every read-back returns zeros.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pteron.compiler.ir.dispatch import GPU, MAX_GROUPS_PER_DIMENSION, Grid
from pteron.engine.devices.device import LIMITS, Command, Copy, Device, Submission, check_binding

# As few limits as possible: what is recorded here, any device may run.
UNLIMITED: Mapping[str, int] = {
    **dict.fromkeys(LIMITS, 2**63),
    "max-compute-workgroups-per-dimension": MAX_GROUPS_PER_DIMENSION,
    "min-uniform-buffer-offset-alignment": 256,
    "min-storage-buffer-offset-alignment": 256,
}


@dataclass(frozen=True, slots=True, eq=False)
class RecordedBuffer:
    id: int
    size: int
    usage: str  # storage, uniform or staging
    label: str


@dataclass(frozen=True, slots=True, eq=False)
class RecordedPipeline:
    id: int
    source: str
    label: str
    kinds: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class RecordedGroup:
    id: int
    pipeline: RecordedPipeline
    buffers: tuple[tuple[RecordedBuffer, int, int], ...]
    label: str


@dataclass(frozen=True, slots=True)
class RecordedCommand:
    pipeline: RecordedPipeline
    group: RecordedGroup
    grid: Grid


@dataclass(frozen=True, slots=True)
class Write:
    buffer: RecordedBuffer
    offset: int
    data: bytes | memoryview


@dataclass(frozen=True, slots=True)
class Clear:
    buffers: tuple[RecordedBuffer, ...]


@dataclass(frozen=True, slots=True)
class Submit:
    before: tuple[Copy, ...]
    commands: tuple[RecordedCommand, ...]
    after: tuple[Copy, ...]


@dataclass(slots=True)
class RecordingDevice(Device):
    """Records all calls: `buffers`, `pipelines` and `groups` by id, `events` in order."""

    route_features: frozenset[str] = frozenset({GPU})
    limits: Mapping[str, int] = field(default_factory=lambda: UNLIMITED)
    name: str = "recording"
    is_software: bool = False
    adapter: None = None
    allocations: int = 0
    compilations: int = 0
    lock: threading.RLock = field(default_factory=threading.RLock)
    buffers: list[RecordedBuffer] = field(default_factory=list)
    pipelines: dict[str, RecordedPipeline] = field(default_factory=dict)
    groups: list[RecordedGroup] = field(default_factory=list)
    events: list[Write | Clear | Submit] = field(default_factory=list)

    @property
    def allocated_nbytes(self) -> int:
        return sum(buffer.size for buffer in self.buffers)

    def check_usable(self) -> None:
        pass

    def storage(self, nbytes: int, label: str) -> RecordedBuffer:
        check_binding(self, nbytes, label)
        return self._buffer(nbytes, "storage", label)

    def uniform(self, nbytes: int, label: str) -> RecordedBuffer:
        return self._buffer(nbytes, "uniform", label)

    def staging(self, nbytes: int, label: str) -> RecordedBuffer:
        return self._buffer(nbytes, "staging", label)

    def _buffer(self, nbytes: int, usage: str, label: str) -> RecordedBuffer:
        self.allocations += 1
        self.buffers.append(RecordedBuffer(len(self.buffers), nbytes, usage, label))
        return self.buffers[-1]

    def free(self, buffer: Any) -> None:
        """Do nothing: the record keeps all buffers."""

    def write(self, buffer: Any, offset: int, data: Any) -> None:
        view = memoryview(data).cast("B")
        # What nobody can change, such as the bytes of a mapped file, need not be copied.
        self.events.append(Write(buffer, offset, view if view.readonly else bytes(view)))

    def clear(self, parts: Iterable[tuple[Any, int, int]]) -> None:
        self.events.append(Clear(tuple(buffer for buffer, _, _ in parts)))

    def pipeline(self, source: str, label: str, kinds: Sequence[str]) -> RecordedPipeline:
        if source not in self.pipelines:
            self.compilations += 1
            self.pipelines[source] = RecordedPipeline(len(self.pipelines), source, label, tuple(kinds))
        return self.pipelines[source]

    def bind_group(
        self, pipeline: RecordedPipeline, buffers: Iterable[tuple[Any, int, int]], label: str
    ) -> RecordedGroup:
        self.groups.append(RecordedGroup(len(self.groups), pipeline, tuple(buffers), label))
        return self.groups[-1]

    def command(self, pipeline: RecordedPipeline, group: RecordedGroup, grid: Grid) -> RecordedCommand:
        return RecordedCommand(pipeline, group, grid)

    def submit(
        self, before: Iterable[Copy], commands: Iterable[Command], after: Iterable[Copy]
    ) -> Submission:
        self.events.append(Submit(tuple(before), tuple(commands), tuple(after)))

    def map(self, staging: Any, nbytes: int, submission: Submission) -> Zeros:
        return Zeros(nbytes)

    def unmap(self, staging: Any) -> None:
        pass

    def wait(self) -> None:
        pass

    def reopen(self) -> RecordingDevice:
        return RecordingDevice(self.route_features, self.limits, self.name)

    def close(self) -> None:
        pass


class Zeros:
    """The result of every read-back: zeros."""

    def __init__(self, nbytes: int) -> None:
        self.view = memoryview(bytes(nbytes))

    def wait(self, timeout: float | None) -> None:
        pass
