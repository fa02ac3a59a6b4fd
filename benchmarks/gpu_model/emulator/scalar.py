"""Makes scalar instructions executable."""

from __future__ import annotations

import re
from collections.abc import Callable

from benchmarks.gpu_model.emulator.lane_functions import COMPARE
from benchmarks.gpu_model.emulator.text import M32, M64, SCC, Instruction, Unsupported
from benchmarks.gpu_model.emulator.wave import Wave, as_signed


def _logic(name: str) -> Callable[[int, int], int] | None:
    return {
        "and": lambda a, b: a & b,
        "or": lambda a, b: a | b,
        "xor": lambda a, b: a ^ b,
        "and_not1": lambda a, b: a & ~b,
        "or_not1": lambda a, b: a | ~b,
        "nand": lambda a, b: ~(a & b),
        "nor": lambda a, b: ~(a | b),
        "xnor": lambda a, b: ~(a ^ b),
        "and_not0": lambda a, b: ~a & b,
        "or_not0": lambda a, b: ~a | b,
    }.get(name)


def scalar(i: Instruction) -> Callable[[Wave], None]:
    name, o = i.name, i.operands
    if match := re.fullmatch(r"s_(\w+?)_saveexec_b(32|64)", name):
        function = _logic(match[1])
        if function is None:
            raise Unsupported(i.text)

        def save(w: Wave) -> None:
            old, value = w.exec, function(w.get(o[1]), w.exec) & ((1 << w.lanes) - 1)
            w.put(o[0], old)
            w.set_exec(value)
            w.s[SCC] = int(value != 0)

        return save
    if match := re.fullmatch(r"s_(and|or|xor|and_not1|or_not1|nand|nor|xnor)_b(32|64)", name):
        function, mask = _logic(match[1]), (1 << int(match[2])) - 1

        def logic(w: Wave) -> None:
            value = function(w.get(o[1]), w.get(o[2])) & mask  # type: ignore[misc]
            w.put(o[0], value)
            w.s[SCC] = int(value != 0)

        return logic
    if match := re.fullmatch(r"s_cmpk?_(eq|lg|lt|le|gt|ge)_(i|u)(32|64)", name):
        compare, is_signed, bits = COMPARE[match[1]], match[2] == "i", int(match[3])

        def test(w: Wave) -> None:
            a, b = (w.get(x) & ((1 << bits) - 1) for x in o)
            if is_signed:
                a, b = as_signed(a, bits), as_signed(b, bits)
            w.s[SCC] = int(bool(compare(a, b)))

        return test
    if match := re.fullmatch(r"s_cselect_b(32|64)", name):
        return lambda w: w.put(o[0], w.get(o[1]) if w.s[SCC] else w.get(o[2]))
    if name in ("s_mov_b32", "s_mov_b64", "s_movk_i32"):
        bits = 64 if name.endswith("64") else 32
        if name == "s_movk_i32":
            value = as_signed(o[1].bits, 16) & M32
            return lambda w: w.put(o[0], value)
        return lambda w: w.put(o[0], w.get(o[1]) & ((1 << bits) - 1))
    if name == "s_cmovk_i32":
        value = as_signed(o[1].bits, 16) & M32
        return lambda w: w.put(o[0], value) if w.s[SCC] else None
    if name in ("s_cmov_b32", "s_cmov_b64"):
        return lambda w: w.put(o[0], w.get(o[1])) if w.s[SCC] else None
    if name in ("s_not_b32", "s_not_b64", "s_wqm_b64", "s_wqm_b32", "s_brev_b32"):
        mask = M64 if name.endswith("64") else M32

        def unary(w: Wave) -> None:
            value = w.get(o[1])
            if "not" in name:
                value = ~value & mask
            elif "brev" in name:
                value = int(f"{value & M32:032b}"[::-1], 2)
            w.put(o[0], value)
            w.s[SCC] = int(value != 0)

        return unary
    if name in _ARITHMETIC:
        function2 = _ARITHMETIC[name]

        def arithmetic(w: Wave) -> None:
            value, scc = function2(w.get(o[1]), w.get(o[2]) if len(o) > 2 else 0, w.s[SCC])
            w.put(o[0], value & M64 if o[0].count > 1 else value & M32)
            if scc is not None:
                w.s[SCC] = int(scc)

        return arithmetic
    if name in ("s_addk_i32", "s_mulk_i32"):
        value = as_signed(o[1].bits, 16)

        def by_constant(w: Wave) -> None:
            w.put(o[0], (w.get(o[0]) + value if name == "s_addk_i32" else w.get(o[0]) * value) & M32)

        return by_constant
    if match := re.fullmatch(r"s_bitcmp(0|1)_b(32|64)", name):
        wanted = int(match[1])

        def bit(w: Wave) -> None:
            w.s[SCC] = int((w.get(o[0]) >> (w.get(o[1]) & 63) & 1) == wanted)

        return bit
    raise Unsupported(i.text)


def _bfe(a: int, b: int, signed: bool, bits: int = 32) -> int:
    offset, width = b & (bits - 1), b >> 16 & 0x7F
    value = (a >> offset) & ((1 << width) - 1) if width else 0
    return as_signed(value, width) if signed and width else value


_ARITHMETIC: dict[str, Callable[[int, int, int], tuple[int, bool | None]]] = {
    "s_add_u32": lambda a, b, c: ((a & M32) + (b & M32), (a & M32) + (b & M32) > M32),
    "s_add_i32": lambda a, b, c: (a + b, not -(1 << 31) <= as_signed(a) + as_signed(b) < 1 << 31),
    "s_addc_u32": lambda a, b, c: ((a & M32) + (b & M32) + c, (a & M32) + (b & M32) + c > M32),
    "s_sub_u32": lambda a, b, c: (a - b, (a & M32) < (b & M32)),
    "s_sub_i32": lambda a, b, c: (a - b, not -(1 << 31) <= as_signed(a) - as_signed(b) < 1 << 31),
    "s_subb_u32": lambda a, b, c: (a - b - c, (a & M32) < (b & M32) + c),
    "s_mul_i32": lambda a, b, c: (a * b, None),
    "s_mul_hi_u32": lambda a, b, c: ((a & M32) * (b & M32) >> 32, None),
    "s_mul_hi_i32": lambda a, b, c: (as_signed(a) * as_signed(b) >> 32, None),
    "s_lshl_b32": lambda a, b, c: (a << (b & 31), (a << (b & 31)) & M32 != 0),
    "s_lshl_b64": lambda a, b, c: (a << (b & 63), (a << (b & 63)) & M64 != 0),
    "s_lshr_b32": lambda a, b, c: ((a & M32) >> (b & 31), (a & M32) >> (b & 31) != 0),
    "s_lshr_b64": lambda a, b, c: (a >> (b & 63), a >> (b & 63) != 0),
    "s_ashr_i32": lambda a, b, c: (as_signed(a) >> (b & 31), as_signed(a) >> (b & 31) != 0),
    "s_min_u32": lambda a, b, c: (min(a & M32, b & M32), (a & M32) < (b & M32)),
    "s_max_u32": lambda a, b, c: (max(a & M32, b & M32), (a & M32) > (b & M32)),
    "s_min_i32": lambda a, b, c: (min(as_signed(a), as_signed(b)), as_signed(a) < as_signed(b)),
    "s_max_i32": lambda a, b, c: (max(as_signed(a), as_signed(b)), as_signed(a) > as_signed(b)),
    "s_bfm_b32": lambda a, b, c: (((1 << (a & 31)) - 1) << (b & 31), None),
    "s_bfm_b64": lambda a, b, c: (((1 << (a & 63)) - 1) << (b & 63), None),
    "s_bfe_u32": lambda a, b, c: (_bfe(a, b, False), _bfe(a, b, False) != 0),
    "s_bfe_i32": lambda a, b, c: (_bfe(a, b, True), _bfe(a, b, True) != 0),
    **{
        f"s_lshl{n}_add_u32": lambda a, b, c, n=n: ((a << n) + b, ((a & M32) << n) + (b & M32) > M32)
        for n in (1, 2, 3, 4)
    },
    "s_bitreplicate_b64_b32": lambda a, b, c: (sum(3 << 2 * k for k in range(32) if a >> k & 1), None),
    "s_pack_ll_b32_b16": lambda a, b, c: (a & 0xFFFF | (b & 0xFFFF) << 16, None),
    "s_pack_lh_b32_b16": lambda a, b, c: (a & 0xFFFF | b & 0xFFFF0000, None),
    "s_pack_hh_b32_b16": lambda a, b, c: (a >> 16 & 0xFFFF | b & 0xFFFF0000, None),
    "s_bcnt1_i32_b32": lambda a, b, c: (bin(a & M32).count("1"), a & M32 != 0),
    "s_bcnt1_i32_b64": lambda a, b, c: (bin(a & M64).count("1"), a & M64 != 0),
    "s_ff1_i32_b32": lambda a, b, c: ((a & -a).bit_length() - 1 if a & M32 else M32, None),
    "s_ff1_i32_b64": lambda a, b, c: ((a & -a).bit_length() - 1 if a & M64 else M32, None),
    "s_ctz_i32_b32": lambda a, b, c: ((a & -a).bit_length() - 1 if a & M32 else M32, None),
    "s_ctz_i32_b64": lambda a, b, c: ((a & -a).bit_length() - 1 if a & M64 else M32, None),
    "s_flbit_i32_b32": lambda a, b, c: (32 - (a & M32).bit_length() if a & M32 else M32, None),
    "s_clz_i32_u32": lambda a, b, c: (32 - (a & M32).bit_length() if a & M32 else M32, None),
    "s_sext_i32_i16": lambda a, b, c: (as_signed(a, 16), None),
    "s_sext_i32_i8": lambda a, b, c: (as_signed(a, 8), None),
    "s_abs_i32": lambda a, b, c: (abs(as_signed(a)), as_signed(a) != 0),
}
