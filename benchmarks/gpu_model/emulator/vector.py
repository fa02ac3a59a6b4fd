"""Makes vector instructions executable."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.gpu_model.emulator.lane_functions import COMPARE, U32, VECTOR, dot_bytes
from benchmarks.gpu_model.emulator.operands import reader, writer
from benchmarks.gpu_model.emulator.rearranged import across_lanes, permute_rows, with_halves, with_parts
from benchmarks.gpu_model.emulator.text import M32, VCC, Instruction, Operand, Unsupported
from benchmarks.gpu_model.emulator.wave import Wave
from benchmarks.gpu_model.emulator.wide_vector import carry, dot2, mad64, mix, packed, shift64


def vector(i: Instruction) -> Callable[[Wave], None]:
    name, operands = i.name, i.operands
    if i.modifiers.get("encoding") == "sdwa":
        return with_parts(i, vector)
    if i.modifiers.get("encoding"):
        return across_lanes(i, vector)
    if (
        "op_sel" in i.modifiers
        and any(i.modifiers["op_sel"])
        and not re.match(r"v_(pk_|fma_mix|permlane|dot|swap)", name)
    ):
        return with_halves(i, vector)
    if name == "v_swap_b16":
        return _swap_halves(i)
    if name in ("v_permlane16_b32", "v_permlanex16_b32"):
        return permute_rows(i)
    if name.startswith("v_cmp"):
        return _compare(i)
    if name in ("v_fmac_f32", "v_fmac_f16"):
        kind = "h" if name.endswith("f16") else "f"
        a, b, c = (reader(o, kind) for o in (operands[1], operands[2], Operand("v", operands[0].index)))
        return writer(operands[0], kind, lambda w: a(w) * b(w) + c(w), i)
    if name == "v_dot4c_i32_i8":
        a, b, c = (reader(o, "u") for o in (operands[1], operands[2], Operand("v", operands[0].index)))
        dot = dot_bytes(True, True)
        return writer(operands[0], "u", lambda w: dot(a(w), b(w), c(w)), i)
    if name.startswith("v_mbcnt"):
        shift = 32 if "_hi_" in name else 0
        mask, base = reader(operands[1], "u"), reader(operands[2], "u")

        def count(w: Wave) -> Any:
            bits = [int(x) for x in np.broadcast_to(mask(w), w.lanes)]
            below = [bin(b & ((1 << max(0, min(32, n - shift))) - 1)).count("1") for n, b in enumerate(bits)]
            return np.array(below, np.uint32) + base(w)

        return writer(operands[0], "u", count, i)
    if name in VECTOR:
        result, kinds, function = VECTOR[name]
        readers = [reader(o, kind) for o, kind in zip(operands[1:], kinds, strict=True)]
        if len(readers) == 1:
            (a,) = readers
            return writer(operands[0], result, lambda w: function(a(w)), i)
        if len(readers) == 2:
            a, b = readers
            return writer(operands[0], result, lambda w: function(a(w), b(w)), i)
        a, b, c = readers
        return writer(operands[0], result, lambda w: function(a(w), b(w), c(w)), i)
    if name in _SPECIAL_VECTOR:
        return _SPECIAL_VECTOR[name](i)
    raise Unsupported(i.text)


def _compare(i: Instruction) -> Callable[[Wave], None]:
    match = re.fullmatch(r"v_cmpx?_(\w+)_([fiu])(16|32|64)", i.name)
    is_x = i.name.startswith("v_cmpx")
    given = i.operands
    target = given[0] if len(given) == 3 else None
    if kind_of := re.fullmatch(r"v_cmpx?_class_f(16|32)", i.name):
        width = int(kind_of[1])
        value, classes = _bits_reader(given[-2], width), reader(given[-1], "u")

        def test(w: Wave) -> Any:
            return (np.asarray(classes(w)) >> _class_of(np.asarray(value(w)), width) & U32(1)).astype(bool)
    elif match is None or match[3] == "64" or match[1] not in COMPARE:
        raise Unsupported(i.text)
    else:
        kind = "h" if match[2] + match[3] == "f16" else match[2]
        if match[3] == "16" and kind != "h":
            return _compare_words(i, match[1], match[2] == "i", given, target, is_x)
        a, b, function = reader(given[-2], kind), reader(given[-1], kind), COMPARE[match[1]]

        def test(w: Wave) -> Any:
            return function(a(w), b(w))

    def run(w: Wave) -> None:
        found = w.bits(np.broadcast_to(test(w), w.lanes))
        if target is not None:
            w.put(target, found)
        if is_x:
            w.set_exec(found)

    return run


def _compare_words(
    i: Instruction, name: str, is_signed: bool, given: list[Operand], target: Operand | None, is_x: bool
) -> Callable[[Wave], None]:
    """16-bit integers."""
    a, b, function = reader(given[-2], "u"), reader(given[-1], "u"), COMPARE[name]

    def run(w: Wave) -> None:
        x, y = ((np.broadcast_to(read(w), w.lanes) & U32(0xFFFF)).astype(np.uint16) for read in (a, b))
        found = w.bits(function(x.view(np.int16), y.view(np.int16)) if is_signed else function(x, y))
        if target is not None:
            w.put(target, found)
        if is_x:
            w.set_exec(found)

    return run


def _bits_reader(o: Operand, width: int) -> Callable[[Wave], Any]:
    """The bits of a float. A constant is given as such, or as a number in the text."""
    plain = reader(Operand(o.kind, o.index, 1, o.bits), "u")
    mask, sign = U32((1 << width) - 1), U32(1 << (width - 1))
    if o.absolute or o.negative:
        return lambda w: (
            (np.asarray(plain(w)) & (mask ^ sign if o.absolute else mask)) ^ (sign if o.negative else U32(0))
        )
    return lambda w: np.asarray(plain(w)) & mask


def _class_of(bits: Any, width: int) -> Any:
    """0 signalling NaN, 1 quiet NaN, 2 -inf, 3 -normal, 4 -denormal, 5 -0, and 6 to 9 the positive ones
    from 0 to inf.

    The compiler also uses these tests to look at one bit of an integer: of a constant, the class is known.
    """
    fraction_bits, exponent_bits = (23, 8) if width == 32 else (10, 5)
    fraction = bits & U32((1 << fraction_bits) - 1)
    exponent = bits >> U32(fraction_bits) & U32((1 << exponent_bits) - 1)
    negative = (bits >> U32(width - 1)).astype(bool)
    top = U32((1 << exponent_bits) - 1)
    magnitude = np.where(
        exponent == top, 3, np.where(exponent != 0, 2, np.where(fraction != 0, 1, 0))
    )  # inf, normal, ...
    found = np.where(negative, 5 - magnitude, 6 + magnitude)
    quiet = fraction >> U32(fraction_bits - 1) & U32(1)
    return np.where((exponent == top) & (fraction != 0), quiet, found).astype(np.uint32)


def _cndmask(i: Instruction) -> Callable[[Wave], None]:
    # The signs of its operands change a bit, also if this is no float.
    signed = any(o.negative or o.absolute for o in i.operands[1:3])
    kind = "f" if signed else "u"
    a, b = reader(i.operands[1], kind), reader(i.operands[2], kind)
    mask = i.operands[3] if len(i.operands) > 3 else Operand("s", VCC, 1)  # a dual instruction has 32 lanes
    return writer(i.operands[0], kind, lambda w: np.where(w.mask(w.get(mask)), b(w), a(w)), i)


def _readlane(i: Instruction) -> Callable[[Wave], None]:
    target, source = i.operands[0], i.operands[1]
    if i.name.startswith("v_readfirstlane"):

        def first(w: Wave) -> None:
            lane = (w.exec & -w.exec).bit_length() - 1 if w.exec else 0
            w.put(target, int(w.v[source.index][lane]) if source.kind == "v" else w.get(source))

        return first
    lane = i.operands[2]
    return lambda w: w.put(target, int(w.v[source.index][w.get(lane) & (w.lanes - 1)]))


def _writelane(i: Instruction) -> Callable[[Wave], None]:
    target, source, lane = i.operands

    def run(w: Wave) -> None:
        w.v[target.index][w.get(lane) & (w.lanes - 1)] = w.get(source) & M32

    return run


def _swap(i: Instruction) -> Callable[[Wave], None]:
    a, b = i.operands[0].index, i.operands[1].index

    def run(w: Wave) -> None:
        old = w.v[a].copy()
        w.store(a, w.v[b].copy())
        w.store(b, old)

    return run


def _swap_halves(i: Instruction) -> Callable[[Wave], None]:
    a, b = i.operands[0].index, i.operands[1].index
    from_b, from_a = (U32(16 * upper) for upper in i.modifiers["op_sel"])

    def run(w: Wave) -> None:
        x, y = w.v[a] >> from_a & U32(0xFFFF), w.v[b] >> from_b & U32(0xFFFF)
        w.store(a, w.v[a] & ~(U32(0xFFFF) << from_a) | y << from_a)
        w.store(b, w.v[b] & ~(U32(0xFFFF) << from_b) | x << from_b)

    return run


_SPECIAL_VECTOR: dict[str, Callable[[Instruction], Callable[[Wave], None]]] = {
    "v_cndmask_b32": _cndmask,
    "v_readfirstlane_b32": _readlane,
    "v_readlane_b32": _readlane,
    "v_writelane_b32": _writelane,
    "v_swap_b32": _swap,
    **{f"v_{n}_co{ci}_u32": carry for n in ("add", "sub", "subrev") for ci in ("", "_ci")},
    "v_lshlrev_b64": shift64,
    "v_lshrrev_b64": shift64,
    "v_ashrrev_i64": shift64,
    "v_mad_u64_u32": mad64,
    "v_fma_mix_f32": mix,
    "v_fma_mixlo_f16": mix,
    "v_fma_mixhi_f16": mix,
    **dict.fromkeys(
        ("v_pk_add_f16", "v_pk_mul_f16", "v_pk_max_f16", "v_pk_min_f16", "v_pk_fma_f16", "v_pk_fmac_f16"),
        packed,
    ),
    "v_dot2_f32_f16": dot2,
    "v_dot2c_f32_f16": dot2,
}
