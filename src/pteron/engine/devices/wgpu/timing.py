"""Measure the time of each kernel: a stopwatch replaces the function that records kernels.

Every dispatch gets its own compute pass between two timestamps. This has a cost, so only profiled calls do
it. If the adapter has no timestamps, only the times of the host are known.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import wgpu

from pteron.engine.devices.device import Command, Span

if TYPE_CHECKING:
    from pteron.engine.devices.wgpu.wgpu_device import WgpuDevice

TIMESTAMPS = "timestamp-query"
QUERIES_PER_SET = 4096  # the maximum in WebGPU
QUERY_NBYTES = 8


class WgpuStopwatch:
    """Times the calls while it is installed. `read` returns the spans of the last call's dispatches."""

    def __init__(self, device: WgpuDevice) -> None:
        self._device = device
        self._sets: list[Any] = []
        self._resolved: Any = None
        self._staging: Any = None
        self._count = 0

    def record(self, encoder: Any, commands: Iterable[Command]) -> None:
        self._record_each(encoder, list(commands))

    def _record_each(self, encoder: Any, commands: list[Command]) -> None:
        self._count = len(commands)
        self._make_room(2 * self._count)
        for number, item in enumerate(commands):
            place, query = divmod(2 * number, QUERIES_PER_SET)
            writes = {
                "query_set": self._sets[place],
                "beginning_of_pass_write_index": query,
                "end_of_pass_write_index": query + 1,
            }
            self._record_pass(encoder, [item], timestamp_writes=writes)
        left = 2 * self._count
        for number, queries in enumerate(self._sets):
            used = min(left, QUERIES_PER_SET)
            if used:
                offset = number * QUERIES_PER_SET * QUERY_NBYTES
                encoder.resolve_query_set(queries, 0, used, self._resolved, offset)
            left -= used
        if self._count:
            nbytes = 2 * self._count * QUERY_NBYTES
            encoder.copy_buffer_to_buffer(self._resolved, 0, self._staging, 0, nbytes)

    def _record_pass(self, encoder: Any, commands: Iterable[Command], **options: Any) -> None:
        compute = encoder.begin_compute_pass(**options)
        self._device.calls.encode(compute, commands)
        compute.end()

    def _make_room(self, queries: int) -> None:
        wanted = -(-queries // QUERIES_PER_SET)
        if wanted <= len(self._sets):
            return
        self.close()
        raw = self._device._device
        nbytes = wanted * QUERIES_PER_SET * QUERY_NBYTES
        usage = wgpu.BufferUsage.QUERY_RESOLVE | wgpu.BufferUsage.COPY_SRC
        self._sets = [raw.create_query_set(type="timestamp", count=QUERIES_PER_SET) for _ in range(wanted)]
        self._resolved = self._device._buffer(nbytes, usage, "timestamps")
        self._staging = self._device.staging(nbytes, "timestamps")

    def read(self) -> list[Span]:
        """One span per dispatch of the last call, in order."""
        if not self._count:
            return []
        nbytes = 2 * self._count * QUERY_NBYTES
        mapping = self._device.map(self._staging, nbytes, None)
        try:
            mapping.wait(None)
            ticks = memoryview(bytes(mapping.view)).cast("Q")[: 2 * self._count].tolist()
        finally:
            self._device.unmap(self._staging)
        period = self._device.calls.tick_nanoseconds(self._device._device)
        return [
            Span(period * begin, period * end) for begin, end in zip(ticks[::2], ticks[1::2], strict=True)
        ]

    def close(self) -> None:
        for queries in self._sets:
            queries.destroy()
        for buffer in (self._resolved, self._staging):
            if buffer is not None:
                self._device.free(buffer)
        self._sets, self._resolved, self._staging = [], None, None


@contextmanager
def stopwatch(device: WgpuDevice) -> Iterator[WgpuStopwatch]:
    """Time the device's calls inside the block. No other code may use the device in this time."""
    with device.lock:
        watch = WgpuStopwatch(device)
        device.timed = watch.record
        try:
            yield watch
        finally:
            device.timed = None
            watch.close()
