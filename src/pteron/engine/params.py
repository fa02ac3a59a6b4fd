"""The parameters of a method: one uniform buffer with an aligned slot for each kernel and integer.

The host has a copy of the buffer. It tracks the bytes that are not written to the GPU yet, so an interrupt
between `put` and `flush` loses nothing.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from pteron.compiler.ir.live import Live, LiveInt
from pteron.compiler.ir.values import ValueId
from pteron.compiler.plan.memory import aligned
from pteron.engine.buffers import Buffers
from pteron.engine.devices.device import Buffer, Device

INTEGER_NBYTES = 16


class Parameters:
    """Call `take` and `integer` while a method is loaded, then `allocate`, `put` and `flush`."""

    buffer: Buffer

    def __init__(self, alignment: int) -> None:
        self._alignment = alignment
        self._data = bytearray()
        self._symints: dict[ValueId, int] = {}  # their slots
        self._put_symints: dict[ValueId, int] = {}  # the value that each has here
        self._constants: dict[int, int] = {}  # the slots of constant integers
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
        slots: dict[Any, int] = self._constants if live.symint is None else self._symints
        key = live.constant if live.symint is None else live.symint.id
        if key not in slots:
            slots[key] = self.take(INTEGER_NBYTES)
        return slots[key]

    def allocate(self, buffers: Buffers) -> None:
        if not self._data:
            self.take(INTEGER_NBYTES)
        self.buffer = buffers.uniform(len(self._data), "parameters")

    @property
    def integer_slots(self) -> dict[ValueId, int]:
        """The offsets of the SymInts that kernels read."""
        return self._symints

    @property
    def constants(self) -> list[tuple[int, int]]:
        """The constant integers that kernels read: (offset, value)."""
        return [(offset, value) for value, offset in self._constants.items()]

    def put_constants(self) -> None:
        for offset, value in self.constants:
            self.put(offset, struct.pack("<i", value))

    def put_integers(self, live: Sequence[Live]) -> None:
        """Put the SymInts that have changed."""
        for symint, offset in self._symints.items():
            value = live[symint]
            if value != self._put_symints.get(symint) and isinstance(value, int):
                self._put_symints.pop(symint, None)  # until it is put
                self.put(offset, struct.pack("<i", value))
                self._put_symints[symint] = value

    def put(self, offset: int, data: bytes) -> None:
        end = offset + len(data)
        if self._first == self._last:
            self._first, self._last = offset, end
        else:
            self._first, self._last = min(self._first, offset), max(self._last, end)
        self._data[offset:end] = data

    def contents(self, offset: int, nbytes: int) -> bytes:
        return bytes(self._data[offset : offset + nbytes])

    def flush(self, device: Device) -> None:
        """Write the changed bytes in one write."""
        if self._first < self._last:
            first = self._first & ~3
            device.write(self.buffer, first, memoryview(self._data)[first : self._last])
            self._first = self._last = 0
