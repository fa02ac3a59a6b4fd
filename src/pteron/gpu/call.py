"""One call: the sweep, the parameters, the uploads, one submit, and a pending result.

Every step before the submit can be repeated, so a method still works after an interrupt. Two calls may be in
flight. The GPU works in order, so the second call may already write inputs and parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

from pteron.gpu.device import Buffer, Copy
from pteron.gpu.executor import Executor
from pteron.gpu.staging import Pending
from pteron.gpu.state import State
from pteron.ir.live import Live
from pteron.ir.values import Shape, Tensor, ValueId, numel
from pteron.plan.memory import aligned

T = TypeVar("T")


class Feed(NamedTuple):
    """The data for an input tensor: bytes in host memory, or a buffer on the GPU."""

    tensor: Tensor
    nbytes: int
    data: Any = None
    buffer: Buffer | None = None


class Read(NamedTuple):
    """The last part of a tensor, in a staging buffer. Copies begin and end at multiples of four bytes."""

    tensor: Tensor
    shape: Shape
    source: int
    place: int
    nbytes: int
    skip: int  # bytes from the start of the copy to the first element

    @classmethod
    def of(cls, tensor: Tensor, live: Shape, wanted: Shape, place: int) -> Read:
        end = numel(live) * tensor.dtype.itemsize
        start = end - numel(wanted) * tensor.dtype.itemsize
        source = start & ~3
        return cls(tensor, wanted, source, place, aligned(end - source, 4) if end else 0, start - source)

    def bytes_in(self, staged: memoryview) -> memoryview:
        return staged[self.place + self.skip : self.place + self.nbytes]


def prepare(
    executor: Executor,
    state: State,
    changes: Mapping[ValueId, Live],
    feeds: Iterable[Feed],
    agree: Callable[[], None],
) -> list[Copy]:
    """Sweep, write parameters and upload. Returns the copies that bring in what is on the GPU already."""
    executor.live.resize(changes, agree)
    executor.refresh()
    copies: list[Copy] = []
    for feed in feeds:
        target = executor.buffer(feed.tensor, state)
        if feed.buffer is not None:
            copies.append((feed.buffer, 0, target, 0, aligned(feed.nbytes, 4)))
        else:
            executor.device.write(target, 0, feed.data)
    return copies


def plan_reads(executor: Executor, last_row: bool) -> dict[ValueId, Read]:
    """How much of each output is read, and its position in the staging buffer."""
    shapes = [executor.live.shape(tensor) for tensor in executor.results]
    reads: dict[ValueId, Read]
    known_for, reads = executor.reads
    if known_for != (last_row, shapes):
        reads = _plan_reads(executor.results, shapes, last_row)
        executor.reads = (last_row, shapes), reads
    return reads


def _plan_reads(tensors: list[Tensor], shapes: list[Shape], last_row: bool) -> dict[ValueId, Read]:
    reads: dict[ValueId, Read] = {}
    place = 0
    for tensor, shape in zip(tensors, shapes, strict=True):
        if tensor.id not in reads:
            read = Read.of(tensor, shape, shape[-1:] if last_row and numel(shape) else shape, place)
            reads[tensor.id] = read
            place += aligned(read.nbytes, 8)
    return reads


def launch(
    executor: Executor,
    state: State,
    before: list[Copy],
    reads: Iterable[Read],
    finish: Callable[[memoryview], T],
) -> Pending[T]:
    """Submit the prepared call. `finish` makes the outputs from the bytes that were read back."""
    used = [read for read in reads if read.nbytes]
    if not used:
        executor.run(state, before, ())
        return Pending.ready(finish(memoryview(b"")))
    pending = Pending(finish)
    staging = executor.staging.take(pending)
    after: list[Copy] = [
        (executor.buffer(read.tensor, state), read.source, staging.buffer, read.place, read.nbytes)
        for read in used
    ]
    submission = executor.run(state, before, after) if before else executor.run_and_stage(state, after)
    pending.arrives_in(staging, used[-1].place + aligned(used[-1].nbytes, 8), submission)
    return pending
