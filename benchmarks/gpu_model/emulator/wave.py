"""The registers of a wave."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.gpu_model.emulator.text import EXEC, M32, M64, NULL, VCC, Operand

DESCRIPTORS = 0xFFFF8000 << 32 | 0x10000  # the address of the descriptor set


# Registers that no program has. Instructions on parts of registers use them.
TEMPORARY = 256


class Wave:
    """The scalar and vector registers of a wave, and which of its lanes are active."""

    def __init__(
        self, lanes: int, lds: np.ndarray[Any, Any], buffers: dict[int, np.ndarray[Any, Any]]
    ) -> None:
        self.lanes, self.lds, self.buffers = lanes, lds, buffers
        self.v = np.zeros((TEMPORARY + 4, lanes), np.uint32)
        self.vf = self.v.view(np.float32)
        self.vi = self.v.view(np.int32)
        self.s = [0] * 256
        self.set_exec((1 << lanes) - 1)
        self.touched: Any = None  # the addresses of the last memory access, for the observer

    def constants(self, address: int, count: int) -> list[int]:
        """Words of the descriptor set. A descriptor: the buffer's number, 0, its size, a mark."""
        first = DESCRIPTORS & M32
        found = []
        for at in range(address - first, address - first + 4 * count, 4):
            number = at // 16
            memory = self.buffers.get(number)
            found.append([number & M32, 0, len(memory) if memory is not None else 0, 0xB0FF][at % 16 // 4])
        return found

    def set_exec(self, mask: int) -> None:
        mask &= (1 << self.lanes) - 1
        self.s[EXEC], self.s[EXEC + 1] = mask & M32, mask >> 32
        self.exec = mask
        self.full = mask == (1 << self.lanes) - 1
        self.active = self.mask(mask)

    @property
    def vcc(self) -> int:
        return self.s[VCC] | self.s[VCC + 1] << 32 if self.lanes == 64 else self.s[VCC]

    def mask(self, bits: int) -> np.ndarray[Any, Any]:
        raw = np.frombuffer(int(bits & M64).to_bytes(8, "little"), np.uint8)
        return np.unpackbits(raw, bitorder="little")[: self.lanes].astype(bool)

    def bits(self, values: np.ndarray[Any, Any]) -> int:
        """A mask of the active lanes where a condition holds."""
        return int.from_bytes(np.packbits(values & self.active, bitorder="little").tobytes(), "little")

    def get(self, o: Operand) -> int:
        """A scalar operand: 32 or 64 bits."""
        if o.kind == "literal":
            return o.bits
        if o.kind == "v":
            return int(self.v[o.index][0])
        if o.index == NULL:
            return 0
        return self.s[o.index] if o.count == 1 else self.s[o.index] | self.s[o.index + 1] << 32

    def put(self, o: Operand, value: int) -> None:
        if o.index == NULL:
            return
        if o.index in (EXEC, EXEC + 1):
            if o.count == 1 and self.lanes == 64:
                old = self.exec
                value = (old & ~M32 | value & M32) if o.index == EXEC else (old & M32 | (value & M32) << 32)
            self.set_exec(value)
            return
        self.s[o.index] = value & M32
        if o.count > 1:
            self.s[o.index + 1] = value >> 32 & M32

    def store(self, index: int, values: Any) -> None:
        """Write the active lanes of a vector register."""
        row = self.v[index]
        if self.full:
            row[:] = values
        else:
            np.copyto(row, values, where=self.active)


def as_signed(value: int, bits: int = 32) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def words_at(memory: np.ndarray[Any, Any], at: int, count: int) -> list[int]:
    """Words of a buffer; zeros beyond its end."""
    raw = bytes(memory[at : at + 4 * count].tobytes()) if 0 <= at < len(memory) else b""
    raw = raw.ljust(4 * count, b"\0")
    return [int.from_bytes(raw[4 * k : 4 * k + 4], "little") for k in range(count)]
