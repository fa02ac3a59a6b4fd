"""Makes accesses to buffers and to workgroup memory executable."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.gpu_model.emulator.lane_functions import U32
from benchmarks.gpu_model.emulator.text import M32, Instruction, Operand, Unsupported
from benchmarks.gpu_model.emulator.wave import DESCRIPTORS, Wave, as_signed, words_at

_SIZES = {
    "b8": 1,
    "u8": 1,
    "i8": 1,
    "b16": 2,
    "u16": 2,
    "i16": 2,
    "b32": 4,
    "b64": 8,
    "b96": 12,
    "b128": 16,
    "b256": 32,
    "b512": 64,
}


def scalar_load(i: Instruction) -> Callable[[Wave], None]:
    target, base, offset = i.operands[0], i.operands[1], i.operands[2]
    count = target.count
    extra = i.modifiers.get("offset", 0)
    is_buffer = i.name.startswith("s_buffer")

    def run(w: Wave) -> None:
        at = w.get(offset) + extra
        if is_buffer:
            binding = w.s[base.index]
            w.touched = (binding, at, 4 * count)
            values = words_at(w.buffers[binding], at, count)
        else:
            address = w.get(base) + as_signed(at, 32)
            if address >> 32 == DESCRIPTORS >> 32:
                values = w.constants(address & M32, count)
            else:
                raise Unsupported(f"load from address {address:#x}: {i.text}")
            w.touched = (-1, address, 4 * count)
        for k, value in enumerate(values):
            w.s[target.index + k] = value

    return run


def buffer_access(i: Instruction) -> Callable[[Wave], None]:
    data, address, descriptor, scalar = i.operands[:4]
    kind = i.name.rpartition("_")[2]
    half = "high" if "_d16_hi_" in i.name else "low" if "_d16_" in i.name else ""
    if kind not in _SIZES or i.modifiers.get("idxen") or i.modifiers.get("lds") or i.modifiers.get("tfe"):
        raise Unsupported(i.text)
    size, is_load, constant = _SIZES[kind], "_load_" in i.name, i.modifiers.get("offset", 0)
    lane_offset = i.modifiers.get("offen")

    def run(w: Wave) -> None:
        binding = w.s[descriptor.index]
        if w.s[descriptor.index + 3] != 0xB0FF:
            raise Unsupported(f"not a descriptor of a buffer: {i.text}")
        memory = w.buffers[binding]
        at = np.full(w.lanes, w.get(scalar) + constant, np.int64)
        if lane_offset:
            at += w.v[address.index].astype(np.int64)
        at &= M32
        w.touched = (binding, at[w.active], size)
        _move(w, memory, at, size, kind, data, is_load, 0, half)

    return run


def _move(
    w: Wave,
    memory: np.ndarray[Any, Any],
    at: np.ndarray[Any, Any],
    size: int,
    kind: str,
    data: Operand,
    is_load: bool,
    shift: int = 0,
    half: str = "",
) -> None:
    """Copy `size` bytes per active lane between memory and registers. Accesses beyond the end are dropped."""
    if size < 4:
        inside = w.active & (at + size <= len(memory))
        if is_load:
            value = np.zeros(w.lanes, np.uint32)
            for k in range(size):
                value[inside] |= memory[at[inside] + k].astype(np.uint32) << U32(8 * k)
            if kind in ("i8", "i16"):
                sign = U32(1 << (8 * size - 1))
                value = (value ^ sign) - sign
            if half:  # the other half of the register stays
                old, value = w.v[data.index + shift], value & U32(0xFFFF)
                value = (
                    old & U32(0xFFFF) | value << U32(16) if half == "high" else old & U32(0xFFFF0000) | value
                )
            w.store(data.index + shift, value)
        else:
            for k in range(size):
                place = 8 * k + (16 if half == "high" else 0)
                memory[at[inside] + k] = (w.v[data.index + shift][inside] >> U32(place) & U32(255)).astype(
                    np.uint8
                )
        return
    words = memory[: len(memory) & ~3].view(np.uint32)
    for k in range(size // 4):
        place = (at >> 2) + k
        inside = w.active & (place < len(words))
        if is_load:
            value = np.zeros(w.lanes, np.uint32)
            value[inside] = words[place[inside]]
            w.store(data.index + shift + k, value)
        else:
            words[place[inside]] = w.v[data.index + shift + k][inside]


def local_access(i: Instruction) -> Callable[[Wave], None]:
    kind = i.name.rpartition("_")[2]
    half = "high" if "_d16_hi_" in i.name else "low" if "_d16_" in i.name else ""
    is_load = "_load_" in i.name
    two = "_2addr_" in i.name
    if kind not in _SIZES:
        raise Unsupported(i.text)
    size = _SIZES[kind]
    address = i.operands[1] if is_load else i.operands[0]
    if two:
        unit = size * (64 if "_stride64_" in i.name else 1)
        offsets = [i.modifiers.get("offset0", 0) * unit, i.modifiers.get("offset1", 0) * unit]
        parts = (
            [(i.operands[0], 0), (i.operands[0], size // 4)]
            if is_load
            else [(i.operands[1], 0), (i.operands[2], 0)]
        )
    else:
        offsets = [i.modifiers.get("offset", 0)]
        parts = [(i.operands[0] if is_load else i.operands[1], 0)]

    def run(w: Wave) -> None:
        base = w.v[address.index].astype(np.int64)
        w.touched = [(base[w.active] + offset, size) for offset in offsets]
        if is_load:  # the address may be overwritten by the first part
            saved = [base + offset for offset in offsets]
            for (data, shift), at in zip(parts, saved, strict=True):
                _move(w, w.lds, at, size, kind, data, True, shift, half)
        else:
            for (data, shift), offset in zip(parts, offsets, strict=True):
                _move(w, w.lds, base + offset, size, kind, data, False, shift, half)

    return run


def permute(i: Instruction) -> Callable[[Wave], None]:
    target, address, data = i.operands[:3]
    offset = i.modifiers.get("offset", 0)

    def run(w: Wave) -> None:
        w.touched = []
        lane = ((w.v[address.index].astype(np.int64) + offset) >> 2) & (w.lanes - 1)
        w.store(target.index, w.v[data.index][lane])

    return run


def local_add(i: Instruction) -> Callable[[Wave], None]:
    address, data, offset = i.operands[0], i.operands[1], i.modifiers.get("offset", 0)

    def run(w: Wave) -> None:
        at = w.v[address.index].astype(np.int64) + offset
        w.touched = [(at[w.active], 4)]
        words = w.lds.view(np.uint32)
        for lane in np.flatnonzero(w.active):
            words[at[lane] >> 2] += w.v[data.index][lane]

    return run
