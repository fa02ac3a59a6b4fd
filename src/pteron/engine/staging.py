"""Staging buffers, and the pending results in them.

A result must survive interrupts. So a staging buffer knows whether it may be mapped, and which result it has.
The next user of the buffer cleans up after an interrupted read.
"""

from __future__ import annotations

import threading
import weakref
from asyncio import CancelledError
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

from pteron.compiler.plan.memory import aligned
from pteron.engine.buffers import Buffers
from pteron.engine.devices.device import Buffer, Copy, Device, Submission
from pteron.errors import PteronError

T = TypeVar("T")

IN_FLIGHT = 2  # results that may wait in staging buffers; a third call first reads the oldest result


class Staging:
    """A staging buffer, and the unread result in it."""

    def __init__(self, device: Device, buffer: Buffer) -> None:
        self.device = device
        self.buffer = buffer
        self.lock = threading.RLock()  # held while the buffer is read, and while it is freed
        self.owner: Callable[[], Pending[Any] | None] = lambda: None
        self.may_be_mapped = False
        self.closed = False

    @property
    def unread(self) -> Pending[Any] | None:
        """The result that still waits in the buffer.

        A result without references does not count, nor one whose call was interrupted before its end.
        """
        owner = self.owner()
        return owner if owner is not None and owner.waits_in(self) else None

    def unmap(self) -> None:
        if self.may_be_mapped:
            self.device.unmap(self.buffer)
            self.may_be_mapped = False


class StagingPool:
    """The staging buffers of a method: one at first, a second when two calls are in flight."""

    def __init__(self, buffers: Buffers, nbytes: int) -> None:
        self._buffers = buffers
        self._nbytes = nbytes
        self._all: list[Staging] = []  # the least recently used first
        if nbytes:
            self._add()

    @property
    def nbytes(self) -> int:
        return sum(staging.buffer.size for staging in self._all)

    @property
    def buffers(self) -> list[Buffer]:
        return [staging.buffer for staging in self._all]

    def _add(self) -> Staging:
        device = self._buffers.device
        self._all.append(Staging(device, self._buffers.staging(self._nbytes, "staging")))
        return self._all[-1]

    def take(self, owner: Pending[Any]) -> Staging:
        """A free, unmapped staging buffer. If there is none, the oldest unread result is read first."""
        staging = self._free() or self._oldest()
        staging.unmap()
        staging.owner = weakref.ref(owner)
        if staging is not self._all[-1]:
            self._all.sort(key=lambda other: other is staging)
        return staging

    def _free(self) -> Staging | None:
        # Take the last used one first. Then repeated calls use the same buffer, and can be recorded ahead.
        for staging in reversed(self._all):
            if staging.unread is None:
                return staging
        return self._add() if len(self._all) < IN_FLIGHT else None

    def _oldest(self) -> Staging:
        """The least recently used buffer, after its result was read."""
        staging = self._all[0]
        if (unread := staging.unread) is not None:
            unread.result()
        return staging

    def close(self) -> None:
        """Drop all buffers. Waits for a thread that is reading. Unread results are lost."""
        for staging in self._all:
            with staging.lock:
                staging.unmap()
                staging.closed = True


class Pending(Generic[T]):
    """A submitted call. `result()` waits for the GPU. `await pending` does not block the event loop.

    Attributes:
        done: Whether the result has been read.
    """

    def __init__(self, finish: Callable[[memoryview], T]) -> None:
        self._finish = finish
        self._staging: Staging | None = None
        self._nbytes = 0
        self._submission: Submission = None
        self._value: Any = None
        self.done = False

    @classmethod
    def ready(cls, value: T) -> Pending[T]:
        """A call that is already finished."""
        pending = cls(lambda _: value)
        pending._value, pending.done = value, True
        return pending

    def waits_in(self, staging: Staging) -> bool:
        return not self.done and self._staging is staging

    def arrives_in(self, staging: Staging, nbytes: int, submission: Submission) -> None:
        self._staging, self._nbytes, self._submission = staging, nbytes, submission

    def result(self, timeout: float | None = None) -> T:
        """Wait for the outputs of the call.

        Args:
            timeout: The maximum seconds to wait. Default: no limit.

        Raises:
            DeviceTimeout: The GPU needs more time. The result can still be asked for again.
            PteronError: The task that awaited the result was cancelled.
        """
        staging = self._staging
        if not self.done and staging is not None:
            with staging.lock:
                if not self.done and self._staging is staging:
                    self._value = self._fetch(staging, timeout)
                    self.done = True
                    self._staging = self._submission = None
        if not self.done:
            raise PteronError("the call was cancelled, so it has no result")
        value: T = self._value
        return value

    def _fetch(self, staging: Staging, timeout: float | None) -> T:
        if staging.closed:
            raise PteronError("the program was closed before this result was read")
        staging.unmap()
        staging.may_be_mapped = True
        mapping = staging.device.map(staging.buffer, self._nbytes, self._submission)
        try:
            mapping.wait(timeout)
            return self._finish(mapping.view)
        finally:
            staging.unmap()

    def __await__(self) -> Generator[Any, None, T]:
        return self._arrive().__await__()

    async def _arrive(self) -> T:
        staging = self._staging
        if self.done or staging is None:
            return self.result()
        try:
            return await staging.device.after(self._submission, self.result)
        except CancelledError:
            self._give_up(staging)
            raise

    def _give_up(self, staging: Staging) -> None:
        """Make the staging buffer free for the next call, unless a thread is reading it just now."""
        if staging.lock.acquire(blocking=False):
            if not self.done:
                self._staging = None
                staging.owner = lambda: None
            staging.lock.release()


def read_back(device: Device, buffer: Buffer, nbytes: int, finish: Callable[[memoryview], T]) -> T:
    """Read the first bytes of a buffer right now."""
    return read_parts(device, buffer, [(0, aligned(nbytes, 4))], finish)


async def read_back_async(
    device: Device, buffer: Buffer, nbytes: int, finish: Callable[[memoryview], T]
) -> T:
    """Read the first bytes of a buffer without blocking the event loop."""
    with _reading(device, buffer, [(0, aligned(nbytes, 4))], finish) as pending:
        return await pending


def read_parts(
    device: Device, buffer: Buffer, parts: Sequence[tuple[int, int]], finish: Callable[[memoryview], T]
) -> T:
    """Read parts (offset, bytes) of a buffer right now, one after the other into one block of memory."""
    with _reading(device, buffer, parts, finish) as pending:
        return pending.result()


@contextmanager
def _reading(
    device: Device, buffer: Buffer, parts: Sequence[tuple[int, int]], finish: Callable[[memoryview], T]
) -> Iterator[Pending[T]]:
    """A read of parts of a buffer. Its staging buffer is freed at the end of the block."""
    nbytes = sum(size for _, size in parts)
    owned = Buffers(device)
    try:
        with device.lock:
            device.check_usable()
            pool = StagingPool(owned, nbytes)
            pending = Pending(finish)
            staging = pool.take(pending)
            copies: list[Copy] = []
            place = 0
            for offset, size in parts:
                copies.append((buffer, offset, staging.buffer, place, size))
                place += size
            pending.arrives_in(staging, nbytes, device.submit((), (), copies))
        yield pending
    finally:
        owned.free()
