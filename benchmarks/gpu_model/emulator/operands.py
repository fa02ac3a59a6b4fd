"""How vector instructions read their operands, and write their result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.gpu_model.emulator.lane_functions import U32
from benchmarks.gpu_model.emulator.text import M32, NULL, Instruction, Operand
from benchmarks.gpu_model.emulator.wave import Wave

_VIEWS = {"f": "vf", "u": "v", "i": "vi"}


_TYPES = {"f": np.float32, "u": np.uint32, "i": np.int32}


def reader(o: Operand, kind: str) -> Callable[[Wave], Any]:
    """A function that reads an operand of a vector instruction as f32, u32 or i32."""
    if kind == "h":
        return _half_reader(o)
    if o.kind == "v":
        view, index = _VIEWS[kind], o.index
        plain = {"vf": lambda w: w.vf[index], "v": lambda w: w.v[index], "vi": lambda w: w.vi[index]}[view]
    elif o.kind == "literal":
        bits = np.uint32(o.bits & M32)
        constant = bits.view(_TYPES[kind])
        plain = lambda w: constant  # noqa: E731
    else:
        index, dtype = o.index, _TYPES[kind]
        plain = (lambda w: np.uint32(w.s[index]).view(dtype)) if index != NULL else (lambda w: dtype(0))
    return with_signs(plain, o)


def with_signs(plain: Callable[[Wave], Any], o: Operand) -> Callable[[Wave], Any]:
    if o.absolute and o.negative:
        return lambda w: -np.abs(plain(w))
    if o.absolute:
        return lambda w: np.abs(plain(w))
    if o.negative:
        return lambda w: -plain(w)
    return plain


def _half_reader(o: Operand) -> Callable[[Wave], Any]:
    """The lower half as float16."""
    if o.kind == "literal":
        # An inline constant is printed as a float, and its bits here are those of a float32.
        number = np.uint32(o.bits & M32).view(np.float32)
        bits = np.float16(number) if o.bits > 0xFFFF else np.uint16(o.bits).view(np.float16)
        return with_signs(lambda w: bits, o)
    whole = reader(Operand(o.kind, o.index), "u")
    return with_signs(lambda w: (np.asarray(whole(w)) & 0xFFFF).astype(np.uint16).view(np.float16), o)


def writer(
    target: Operand, kind: str, compute: Callable[[Wave], Any], i: Instruction
) -> Callable[[Wave], None]:
    clamp, scale = (
        i.modifiers.get("clamp"),
        {2: 2.0, 4: 4.0}.get(i.modifiers.get("mul", 0), 0.5 if "div" in i.modifiers else None),
    )
    index = target.index

    def write(w: Wave) -> None:
        value = compute(w)
        if kind == "w":
            low = np.broadcast_to(np.asarray(value, np.uint32) & U32(0xFFFF), w.lanes)
            w.store(index, w.v[index] & U32(0xFFFF0000) | low)
            return
        if kind == "h":
            value = np.asarray(value, np.float16)
            if clamp:
                value = np.clip(value, 0, 1).astype(np.float16)
            low = value.view(np.uint16).astype(np.uint32)
            w.store(index, w.v[index] & U32(0xFFFF0000) | low)
            return
        if kind == "f":
            value = np.asarray(value, np.float32)
            if scale is not None:
                value = (value * np.float32(scale)).astype(np.float32)
            if clamp:
                value = np.clip(np.nan_to_num(value, nan=0.0), 0, 1).astype(np.float32)
            value = value.view(np.uint32)
        elif kind == "i":
            value = np.asarray(value, np.int32).view(np.uint32)
        w.store(index, value)

    return write
