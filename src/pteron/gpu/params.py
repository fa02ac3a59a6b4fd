"""The parameters of a method: one uniform buffer with an aligned slot for each kernel and integer.

The host has a copy of the buffer. It tracks the bytes that are not written to the GPU yet, so an interrupt
between `put` and `flush` loses nothing.
"""

from __future__ import annotations

import struct
from collections.abc import Hashable

from pteron.gpu.buffers import Buffers
from pteron.gpu.device import Buffer, Device
from pteron.ir.live import LiveInt
from pteron.ir.values import ValueId
from pteron.plan.memory import aligned

INTEGER_NBYTES = 16


class Parameters:
    """Call `take` and `integer` while a method is loaded, then `allocate`, `put` and `flush`."""

    buffer: Buffer

    def __init__(self, alignment: int) -> None:
        self._alignment = alignment
        self._data = bytearray()
        self._integers: dict[Hashable, int] = {}  # the slots of SymInts and of constant integers
        self._first, self._last = 0, 0  # the range of bytes to write to the GPU

    @property
    def nbytes(self) -> int:
        return len(self._data)

    def take(self, nbytes: int) -> int:
        """The offset of a new slot."""
        offset = len(self._data)
        self._data.extend(bytes(aligned(nbytes, self._alignment)))
        return offset

    def integer(self, live: LiveInt) -> int:
        """The slot of an integer that kernels read."""
        key: Hashable = live.symint.id if live.symint is not None else ("constant", live.constant)
        if key not in self._integers:
            self._integers[key] = self.take(INTEGER_NBYTES)
        return self._integers[key]

    def allocate(self, buffers: Buffers) -> None:
        if not self._data:
            self.take(INTEGER_NBYTES)
        self.buffer = buffers.uniform(len(self._data), "parameters")

    @property
    def integer_slots(self) -> dict[ValueId, int]:
        """The offsets of the SymInts that kernels read."""
        return {ValueId(key): offset for key, offset in self._integers.items() if isinstance(key, int)}

    @property
    def constants(self) -> list[tuple[int, int]]:
        """The constant integers that kernels read: (offset, value)."""
        return [(offset, key[1]) for key, offset in self._integers.items() if isinstance(key, tuple)]

    def put_constants(self) -> None:
        for offset, value in self.constants:
            self.put(offset, struct.pack("<i", value))

    def put_integer(self, symint: ValueId, value: int) -> None:
        offset = self._integers.get(symint)
        if offset is not None:
            self.put(offset, struct.pack("<i", value))

    def put(self, offset: int, data: bytes) -> None:
        end = offset + len(data)
        if self._first == self._last:
            self._first, self._last = offset, end
        else:
            self._first, self._last = min(self._first, offset), max(self._last, end)
        self._data[offset:end] = data

    def flush(self, device: Device) -> None:
        """Write the changed bytes in one write."""
        if self._first < self._last:
            first = self._first & ~3
            device.write(self.buffer, first, memoryview(self._data)[first : self._last])
            self._first = self._last = 0
