"""Vector instructions on pairs of registers, and on several halves or products at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.gpu_model.emulator.lane_functions import U32, low_word, wide
from benchmarks.gpu_model.emulator.operands import reader, with_signs, writer
from benchmarks.gpu_model.emulator.text import M32, M64, Instruction, Operand
from benchmarks.gpu_model.emulator.wave import Wave


def carry(i: Instruction) -> Callable[[Wave], None]:
    """Sums and differences with a carry."""
    target, carry_out = i.operands[0].index, i.operands[1]
    a, b = reader(i.operands[2], "u"), reader(i.operands[3], "u")
    carry_in = i.operands[4] if "_ci_" in i.name else None
    is_sum, is_reverse = "v_add" in i.name, "rev" in i.name

    def run(w: Wave) -> None:
        x, y = (
            np.broadcast_to(a(w), w.lanes).astype(np.int64),
            np.broadcast_to(b(w), w.lanes).astype(np.int64),
        )
        if is_reverse:
            x, y = y, x
        carry = w.mask(w.get(carry_in)).astype(np.int64) if carry_in is not None else 0
        value = x + y + carry if is_sum else x - y - carry
        w.put(carry_out, w.bits((value > M32) | (value < 0)))
        w.store(target, (value & M32).astype(np.uint32))

    return run


def _pair(w: Wave, o: Operand) -> Any:
    """A vector operand of 64 bits."""
    if o.kind == "v":
        return w.v[o.index].astype(np.uint64) | w.v[o.index + 1].astype(np.uint64) << np.uint64(32)
    if o.kind == "literal":
        return np.uint64(o.bits if o.bits <= M32 else o.bits & M64)
    return np.uint64(w.get(Operand("s", o.index, 2)))


def _store_pair(w: Wave, index: int, value: Any) -> None:
    value = np.broadcast_to(np.asarray(value, np.uint64), w.lanes)
    w.store(index, low_word(value))
    w.store(index + 1, (value >> np.uint64(32)).astype(np.uint32))


def shift64(i: Instruction) -> Callable[[Wave], None]:
    target, amount, value = i.operands[0].index, reader(i.operands[1], "u"), i.operands[2]

    def run(w: Wave) -> None:
        by, x = np.asarray(amount(w)).astype(np.uint64) & np.uint64(63), np.asarray(_pair(w, value))
        if i.name == "v_lshlrev_b64":
            _store_pair(w, target, x << by)
        elif i.name == "v_lshrrev_b64":
            _store_pair(w, target, x >> by)
        else:
            _store_pair(w, target, (x.view(np.int64) >> by.view(np.int64)).view(np.uint64))

    return run


def mad64(i: Instruction) -> Callable[[Wave], None]:
    target, a, b, c = (
        i.operands[0].index,
        reader(i.operands[2], "u"),
        reader(i.operands[3], "u"),
        i.operands[4],
    )
    return lambda w: _store_pair(w, target, wide(a(w)) * wide(b(w)) + np.asarray(_pair(w, c)))


def mix(i: Instruction) -> Callable[[Wave], None]:
    """A fused multiply-add whose operands are float32, or halves of registers."""
    is_half, is_high = i.modifiers.get("op_sel_hi", [0, 0, 0]), i.modifiers.get("op_sel", [0, 0, 0])
    readers = []
    for number, o in enumerate(i.operands[1:4]):
        if not is_half[number]:
            readers.append(reader(o, "f"))
            continue
        whole, shift = reader(Operand(o.kind, o.index, 1, o.bits), "u"), U32(16 if is_high[number] else 0)
        half = lambda w, whole=whole, shift=shift: (  # noqa: E731
            (np.asarray(whole(w)) >> shift & U32(0xFFFF))
            .astype(np.uint16)
            .view(np.float16)
            .astype(np.float32)
        )
        readers.append(with_signs(half, o))
    a, b, c = readers
    if i.name == "v_fma_mix_f32":
        return writer(i.operands[0], "f", lambda w: a(w) * b(w) + c(w), i)
    shift = U32(16 if i.name.endswith("hi_f16") else 0)
    index = i.operands[0].index

    def run(w: Wave) -> None:
        half = np.asarray(a(w) * b(w) + c(w), np.float32).astype(np.float16).view(np.uint16).astype(np.uint32)
        w.store(index, w.v[index] & ~(U32(0xFFFF) << shift) | half << shift)

    return run


def packed(i: Instruction) -> Callable[[Wave], None]:
    """Two halves at a time."""
    function = {
        "v_pk_add_f16": lambda a, b: a + b,
        "v_pk_mul_f16": lambda a, b: a * b,
        "v_pk_max_f16": np.fmax,
        "v_pk_min_f16": np.fmin,
        "v_pk_fma_f16": lambda a, b, c: a * b + c,
        "v_pk_fmac_f16": lambda a, b, c: a * b + c,
    }[i.name]
    sources = [*i.operands[1:], *([i.operands[0]] if i.name == "v_pk_fmac_f16" else [])]
    low, high = i.modifiers.get("op_sel", [0] * 3), i.modifiers.get("op_sel_hi", [1] * 3)
    negate = i.modifiers.get("neg_lo", [0] * 3), i.modifiers.get("neg_hi", [0] * 3)

    def half(w: Wave, n: int, upper: bool) -> Any:
        pick = (high if upper else low)[n]
        whole = np.broadcast_to(reader(sources[n], "u")(w), w.lanes)
        if sources[n].decimal:  # an inline constant is in the lower half
            whole = np.full(
                w.lanes, np.float16(np.uint32(sources[n].bits).view(np.float32)).view(np.uint16), np.uint32
            )
        value = (whole >> U32(16 * pick) & U32(0xFFFF)).astype(np.uint16).view(np.float16)
        return -value if negate[upper][n] else value

    def run(w: Wave) -> None:
        bits = [
            np.asarray(function(*(half(w, n, upper) for n in range(len(sources)))), np.float16)
            .view(np.uint16)
            .astype(np.uint32)
            for upper in (False, True)
        ]
        w.store(i.operands[0].index, bits[0] | bits[1] << U32(16))

    return run


def dot2(i: Instruction) -> Callable[[Wave], None]:
    a, b = reader(i.operands[1], "u"), reader(i.operands[2], "u")
    c = reader(i.operands[3] if len(i.operands) > 3 else i.operands[0], "f")

    def halves(x: Any) -> tuple[Any, Any]:
        x = np.asarray(x)
        return tuple(
            (x >> U32(s) & U32(0xFFFF)).astype(np.uint16).view(np.float16).astype(np.float32) for s in (0, 16)
        )  # type: ignore[return-value]

    def compute(w: Wave) -> Any:
        (a0, a1), (b0, b1) = halves(a(w)), halves(b(w))
        return a0 * b0 + a1 * b1 + c(w)

    return writer(i.operands[0], "f", compute, i)
