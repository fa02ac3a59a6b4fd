"""Vector instructions whose operands are parts of registers, or registers of other lanes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from benchmarks.gpu_model.emulator.lane_functions import U32
from benchmarks.gpu_model.emulator.operands import reader
from benchmarks.gpu_model.emulator.text import M32, Instruction, Operand, Unsupported, outputs_of
from benchmarks.gpu_model.emulator.wave import TEMPORARY, Wave

# Makes the same instruction executable on plain registers.
Maker: TypeAlias = Callable[[Instruction], Callable[[Wave], None]]


def _selected(selected: str) -> tuple[int, int]:
    """The first bit, and the number of bits, of BYTE_2 or WORD_1."""
    width, _, part = selected.partition("_")
    bits = {"BYTE": 8, "WORD": 16}.get(width, 32)
    return bits * int(part or 0), bits


def with_parts(i: Instruction, make: Maker) -> Callable[[Wave], None]:
    """SDWA: an instruction on bytes or halves of registers, which are copied to other registers first."""
    changed, moves = list(i.operands), []
    first = len(outputs_of(i)) if not i.name.startswith("v_cmpx") else len(i.operands) - 2
    for number in range(2):
        place = first + number
        if place >= len(changed):
            continue
        shift, bits = _selected(i.modifiers.get(f"src{number}_sel", "DWORD"))
        if bits == 32:
            continue
        old = changed[place]
        moves.append(
            (
                TEMPORARY + number,
                reader(Operand(old.kind, old.index, 1, old.bits), "u"),
                shift,
                bits,
                old.extended,
            )
        )
        changed[place] = Operand("v", TEMPORARY + number, 1, 0, old.negative, old.absolute)
    shift, bits = _selected(i.modifiers.get("dst_sel", "DWORD"))
    target = changed[0]
    if bits < 32:
        if i.name.startswith(("v_cmp", "v_fmac")) or "_co_" in i.name:
            raise Unsupported(i.text)
        changed[0] = Operand("v", TEMPORARY + 2)
    modifiers = {k: v for k, v in i.modifiers.items() if k != "encoding"}
    plain = make(Instruction(i.name, changed, modifiers, i.text))
    keeps = i.modifiers.get("dst_unused") == "UNUSED_PRESERVE"

    def run(w: Wave) -> None:
        for register, read, start, width, is_signed in moves:
            value = np.asarray(read(w)) >> U32(start) & U32((1 << width) - 1)
            if is_signed:
                sign = U32(1 << (width - 1))
                value = (value ^ sign) - sign
            w.v[register][:] = value
        plain(w)
        if bits < 32:
            mask = U32(((1 << bits) - 1) << shift)
            part = w.v[TEMPORARY + 2] << U32(shift) & mask
            w.store(target.index, w.v[target.index] & ~mask | part if keeps else part)

    return run


def with_halves(i: Instruction, make: Maker) -> Callable[[Wave], None]:
    """A 16-bit instruction whose operands may be upper halves: op_sel of each source, and of the result."""
    chosen, changed, moves = i.modifiers["op_sel"], list(i.operands), []
    first = len(outputs_of(i))
    for number, upper in enumerate(chosen[: len(changed) - first]):
        old = changed[first + number]
        if upper:
            moves.append((TEMPORARY + number, reader(Operand(old.kind, old.index, 1, old.bits), "u")))
            changed[first + number] = Operand("v", TEMPORARY + number, 1, 0, old.negative, old.absolute)
    to_upper = len(chosen) > len(changed) - first and chosen[-1] and not i.name.startswith("v_cmp")
    target = changed[0]
    if to_upper:
        changed[0] = Operand("v", TEMPORARY + 3)
    kept = {k: v for k, v in i.modifiers.items() if k != "op_sel"}
    plain = make(Instruction(i.name, changed, kept, i.text))

    def run(w: Wave) -> None:
        for register, read in moves:
            w.v[register][:] = np.asarray(read(w)) >> U32(16)
        if to_upper:  # a multiply-add also reads it
            w.v[TEMPORARY + 3][:] = w.v[target.index] >> U32(16)
        plain(w)
        if to_upper:
            w.store(target.index, w.v[target.index] & U32(0xFFFF) | w.v[TEMPORARY + 3] << U32(16))

    return run


def across_lanes(i: Instruction, make: Maker) -> Callable[[Wave], None]:
    """DPP: the first source comes from another lane of the same row of 16 lanes."""
    m, first = i.modifiers, len(outputs_of(i))
    if i.operands[first].kind != "v":
        raise Unsupported(i.text)

    def lanes(count: int) -> tuple[Any, Any]:
        here = np.arange(count)
        row, at = here & ~15, here & 15
        if "dpp8" in m:
            return here & ~7 | np.array(m["dpp8"])[here & 7], np.ones(count, bool)
        if "quad_perm" in m:
            return here & ~3 | np.array(m["quad_perm"])[here & 3], np.ones(count, bool)
        for name, function in {
            "row_shl": lambda n: at + n,
            "row_shr": lambda n: at - n,
            "row_ror": lambda n: (at - n) % 16,
            "row_xmask": lambda n: at ^ n,
            "row_share": lambda n: np.full(count, n),
            "row_newbcast": lambda n: np.full(count, n),
        }.items():
            if name in m:
                source = function(m[name])
                return row | source & 15, (source >= 0) & (source < 16)
        if "row_mirror" in m:
            return row | 15 - at, np.ones(count, bool)
        if "row_half_mirror" in m:
            return row | at & 8 | 7 - (at & 7), np.ones(count, bool)
        raise Unsupported(i.text)

    lanes(32)
    old = i.operands[first]
    changed = list(i.operands)
    changed[first] = Operand("v", TEMPORARY, 1, 0, old.negative, old.absolute)
    kept = {k: v for k, v in m.items() if k in ("clamp", "mul", "div")}
    plain = make(Instruction(i.name, changed, kept, i.text))
    rows, banks = m.get("row_mask", 15), m.get("bank_mask", 15)
    # Without bound_ctrl, a lane whose source is not there is not written. With it, the source is 0.
    fetches, zeros = bool(m.get("fi", 0)), bool(m.get("bound_ctrl", 0))

    def run(w: Wave) -> None:
        source, inside = lanes(w.lanes)
        if not fetches:
            inside = inside & w.active[source]
        w.v[TEMPORARY][:] = np.where(inside, w.v[old.index][source], 0)
        here = np.arange(w.lanes)
        enabled = (rows >> (here // 16) & 1).astype(bool) & (banks >> (here // 4 % 4) & 1).astype(bool)
        if not zeros and "dpp8" not in m:
            enabled &= inside
        if enabled.all():
            plain(w)
            return
        saved = w.exec
        w.set_exec(w.bits(enabled))
        plain(w)
        w.set_exec(saved)

    return run


def permute_rows(i: Instruction) -> Callable[[Wave], None]:
    """Each lane reads any lane of its row of 16, or of the other row of its pair."""
    target, source, low, high = i.operands
    is_other = "x16" in i.name

    def run(w: Wave) -> None:
        nibbles = (w.get(low) & M32) | (w.get(high) & M32) << 32
        here = np.arange(w.lanes)
        chosen = np.array([nibbles >> 4 * (int(lane) & 15) & 15 for lane in here])
        row = here & ~15
        w.store(target.index, w.v[source.index][(row ^ 16 if is_other else row) | chosen].copy())

    return run
