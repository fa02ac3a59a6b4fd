"""What vector instructions compute in every lane."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.gpu_model.emulator.text import M32


def _to_u32(x: Any) -> Any:
    x = np.nan_to_num(np.trunc(np.asarray(x, np.float64)), nan=0.0, posinf=4294967295.0, neginf=0.0)
    return np.clip(x, 0, 4294967295).astype(np.uint64).astype(np.uint32)


def _to_i32(x: Any) -> Any:
    x = np.nan_to_num(np.trunc(np.asarray(x, np.float64)), nan=0.0, posinf=2147483647.0, neginf=-2147483648.0)
    return np.clip(x, -2147483648, 2147483647).astype(np.int64).astype(np.int32)


def wide(x: Any) -> Any:
    return np.asarray(x).astype(np.uint64)


def low_word(x: Any) -> Any:
    return (x & np.uint64(M32)).astype(np.uint32)


def _bfe_u(a: Any, offset: Any, width: Any) -> Any:
    width = np.asarray(width) & 31
    return (np.asarray(a) >> (np.asarray(offset) & 31)) & (
        (np.uint32(1) << width.astype(np.uint32)) - np.uint32(1)
    )


def _bfe_i(a: Any, offset: Any, width: Any) -> Any:
    width = (np.asarray(width) & 31).astype(np.int64)
    raw = _bfe_u(np.asarray(a).view(np.uint32), offset, width).astype(np.int64)
    sign = np.where(width > 0, np.int64(1) << np.maximum(width - 1, 0), 0)
    return ((raw ^ sign) - sign).astype(np.int32)


def _ldexp(a: Any, b: Any) -> Any:
    return np.ldexp(a, b).astype(np.float32)


def _pack_half(a: Any, b: Any) -> Any:
    low = np.asarray(a, np.float32).astype(np.float16).view(np.uint16).astype(np.uint32)
    high = np.asarray(b, np.float32).astype(np.float16).view(np.uint16).astype(np.uint32)
    return low | high << np.uint32(16)


def _bit_count(x: Any) -> Any:
    return np.array([bin(int(v)).count("1") for v in np.atleast_1d(x)], np.uint32)


def _first_high(x: Any) -> Any:
    """The number of leading zeros, or -1."""
    return np.array([32 - int(v).bit_length() if v else M32 for v in np.atleast_1d(x)], np.uint32)


def _first_low(x: Any) -> Any:
    return np.array([(int(v) & -int(v)).bit_length() - 1 if v else M32 for v in np.atleast_1d(x)], np.uint32)


def _reverse_bits(x: Any) -> Any:
    return np.array([int(f"{int(v):032b}"[::-1], 2) for v in np.atleast_1d(x)], np.uint32)


def dot_bytes(signed_a: bool, signed_b: bool) -> Callable[..., Any]:
    def dot(a: Any, b: Any, c: Any) -> Any:
        total = np.asarray(c).astype(np.int64)
        for k in range(4):
            x = (np.asarray(a) >> np.uint32(8 * k) & np.uint32(255)).astype(np.int64)
            y = (np.asarray(b) >> np.uint32(8 * k) & np.uint32(255)).astype(np.int64)
            x = np.where((x > 127) & signed_a, x - 256, x)
            y = np.where((y > 127) & signed_b, y - 256, y)
            total = total + x * y
        return (total & M32).astype(np.uint32)

    return dot


def _pick_bytes(a: Any, b: Any, selector: Any) -> Any:
    """Bytes of a (4 to 7) and b (0 to 3). 12 is 0, 13 and above 255, 8 to 11 are signs."""
    both, total = wide(a) << np.uint64(32) | wide(b), np.uint32(0)
    for k in range(4):
        choice = np.asarray(selector) >> U32(8 * k) & U32(255)
        byte = (both >> (np.minimum(choice, 7).astype(np.uint64) * np.uint64(8)) & np.uint64(255)).astype(
            np.uint32
        )
        sign = (
            both
            >> np.uint64(8) * ((choice - U32(8)) & U32(3)).astype(np.uint64) * np.uint64(2) + np.uint64(15)
            & np.uint64(1)
        ).astype(np.uint32) * U32(255)
        byte = np.where(
            choice < 8, byte, np.where(choice < 12, sign, np.where(choice == 12, U32(0), U32(255)))
        )
        total = total | byte.astype(np.uint32) << U32(8 * k)
    return total


U32 = np.uint32


# name: (type of the result, types of the operands, function)
VECTOR: dict[str, tuple[str, str, Callable[..., Any]]] = {
    "v_mov_b32": ("u", "u", lambda a: a),
    "v_not_b32": ("u", "u", lambda a: ~np.asarray(a)),
    "v_add_f32": ("f", "ff", lambda a, b: a + b),
    "v_sub_f32": ("f", "ff", lambda a, b: a - b),
    "v_subrev_f32": ("f", "ff", lambda a, b: b - a),
    "v_mul_f32": ("f", "ff", lambda a, b: a * b),
    "v_mul_legacy_f32": ("f", "ff", lambda a, b: np.where((a == 0) | (b == 0), np.float32(0), a * b)),
    "v_max_f32": ("f", "ff", np.fmax),
    "v_min_f32": ("f", "ff", np.fmin),
    "v_max3_f32": ("f", "fff", lambda a, b, c: np.fmax(np.fmax(a, b), c)),
    "v_min3_f32": ("f", "fff", lambda a, b, c: np.fmin(np.fmin(a, b), c)),
    "v_med3_f32": (
        "f",
        "fff",
        lambda a, b, c: np.median(np.stack(np.broadcast_arrays(a, b, c)), axis=0).astype(np.float32),
    ),
    "v_fma_f32": ("f", "fff", lambda a, b, c: a * b + c),
    "v_fmaak_f32": ("f", "fff", lambda a, b, c: a * b + c),
    "v_fmamk_f32": ("f", "fff", lambda a, k, b: a * k + b),
    "v_rcp_f32": ("f", "f", lambda a: np.float32(1) / a),
    "v_rcp_iflag_f32": ("f", "f", lambda a: np.float32(1) / a),
    "v_rsq_f32": ("f", "f", lambda a: np.float32(1) / np.sqrt(a)),
    "v_sqrt_f32": ("f", "f", np.sqrt),
    "v_exp_f32": ("f", "f", np.exp2),
    "v_log_f32": ("f", "f", np.log2),
    "v_sin_f32": ("f", "f", lambda a: np.sin(2 * np.pi * np.asarray(a, np.float64)).astype(np.float32)),
    "v_cos_f32": ("f", "f", lambda a: np.cos(2 * np.pi * np.asarray(a, np.float64)).astype(np.float32)),
    "v_floor_f32": ("f", "f", np.floor),
    "v_ceil_f32": ("f", "f", np.ceil),
    "v_trunc_f32": ("f", "f", np.trunc),
    "v_rndne_f32": ("f", "f", np.rint),
    "v_fract_f32": ("f", "f", lambda a: a - np.floor(a)),
    "v_ldexp_f32": ("f", "fi", _ldexp),
    "v_cvt_f32_i32": ("f", "i", lambda a: np.asarray(a).astype(np.float32)),
    "v_cvt_f32_u32": ("f", "u", lambda a: np.asarray(a).astype(np.float32)),
    "v_cvt_u32_f32": ("u", "f", _to_u32),
    "v_cvt_i32_f32": ("i", "f", _to_i32),
    "v_cvt_f32_f16": ("f", "h", lambda a: np.asarray(a).astype(np.float32)),
    "v_cvt_f16_f32": ("u", "f", lambda a: np.asarray(a).astype(np.float16).view(np.uint16).astype(np.uint32)),
    "v_cvt_pkrtz_f16_f32": ("u", "ff", _pack_half),
    "v_pack_b32_f16": ("u", "uu", lambda a, b: (a & U32(0xFFFF)) | (b << U32(16))),
    "v_add_u32": ("u", "uu", lambda a, b: np.add(a, b)),
    "v_sub_u32": ("u", "uu", lambda a, b: np.subtract(a, b)),
    "v_subrev_u32": ("u", "uu", lambda a, b: np.subtract(b, a)),
    "v_add3_u32": ("u", "uuu", lambda a, b, c: a + b + c),
    "v_add_i32": ("u", "uu", lambda a, b: np.add(a, b)),
    "v_sub_i32": ("u", "uu", lambda a, b: np.subtract(a, b)),
    "v_mul_lo_u32": ("u", "uu", lambda a, b: np.multiply(a, b)),
    "v_mul_hi_u32": ("u", "uu", lambda a, b: (wide(a) * wide(b) >> np.uint64(32)).astype(np.uint32)),
    "v_mul_hi_i32": (
        "i",
        "ii",
        lambda a, b: (np.asarray(a, np.int64) * np.asarray(b, np.int64) >> 32).astype(np.int32),
    ),
    "v_mul_u32_u24": ("u", "uu", lambda a, b: np.multiply(a & U32(0xFFFFFF), b & U32(0xFFFFFF))),
    "v_mul_i32_i24": ("u", "uu", lambda a, b: np.multiply(a, b)),
    "v_mad_u32_u24": ("u", "uuu", lambda a, b, c: (a & U32(0xFFFFFF)) * (b & U32(0xFFFFFF)) + c),
    "v_mad_i32_i24": ("u", "uuu", lambda a, b, c: a * b + c),
    "v_mad_u32_u16": ("u", "uuu", lambda a, b, c: (a & U32(0xFFFF)) * (b & U32(0xFFFF)) + c),
    "v_and_b32": ("u", "uu", lambda a, b: a & b),
    "v_or_b32": ("u", "uu", lambda a, b: a | b),
    "v_xor_b32": ("u", "uu", lambda a, b: a ^ b),
    "v_xnor_b32": ("u", "uu", lambda a, b: ~(a ^ b)),
    "v_or3_b32": ("u", "uuu", lambda a, b, c: a | b | c),
    "v_xor3_b32": ("u", "uuu", lambda a, b, c: a ^ b ^ c),
    "v_xad_u32": ("u", "uuu", lambda a, b, c: (a ^ b) + c),
    "v_and_or_b32": ("u", "uuu", lambda a, b, c: (a & b) | c),
    "v_lshlrev_b32": ("u", "uu", lambda a, b: np.left_shift(b, a & U32(31))),
    "v_lshrrev_b32": ("u", "uu", lambda a, b: np.right_shift(b, a & U32(31))),
    "v_ashrrev_i32": ("i", "ui", lambda a, b: np.right_shift(b, (np.asarray(a) & 31).astype(np.int32))),
    "v_lshl_add_u32": ("u", "uuu", lambda a, b, c: np.left_shift(a, b & U32(31)) + c),
    "v_add_lshl_u32": ("u", "uuu", lambda a, b, c: np.left_shift(a + b, c & U32(31))),
    "v_lshl_or_b32": ("u", "uuu", lambda a, b, c: np.left_shift(a, b & U32(31)) | c),
    "v_alignbit_b32": (
        "u",
        "uuu",
        lambda a, b, c: low_word(((wide(a) << np.uint64(32)) | wide(b)) >> (wide(c) & np.uint64(31))),
    ),
    "v_alignbyte_b32": (
        "u",
        "uuu",
        lambda a, b, c: low_word(
            ((wide(a) << np.uint64(32)) | wide(b)) >> (np.uint64(8) * (wide(c) & np.uint64(3)))
        ),
    ),
    "v_bfe_u32": ("u", "uuu", _bfe_u),
    "v_bfe_i32": ("i", "iuu", _bfe_i),
    "v_bfi_b32": ("u", "uuu", lambda m, a, b: (m & a) | (~np.asarray(m) & b)),
    "v_bfm_b32": ("u", "uu", lambda a, b: ((U32(1) << (a & U32(31))) - U32(1)) << (b & U32(31))),
    "v_bcnt_u32_b32": ("u", "uu", lambda a, b: _bit_count(a) + b),
    "v_bfrev_b32": ("u", "u", _reverse_bits),
    "v_ffbh_u32": ("u", "u", _first_high),
    "v_clz_i32_u32": ("u", "u", _first_high),
    "v_ffbl_b32": ("u", "u", _first_low),
    "v_ctz_i32_b32": ("u", "u", _first_low),
    "v_min_u32": ("u", "uu", np.minimum),
    "v_max_u32": ("u", "uu", np.maximum),
    "v_min_i32": ("i", "ii", np.minimum),
    "v_max_i32": ("i", "ii", np.maximum),
    "v_min3_u32": ("u", "uuu", lambda a, b, c: np.minimum(np.minimum(a, b), c)),
    "v_max3_u32": ("u", "uuu", lambda a, b, c: np.maximum(np.maximum(a, b), c)),
    "v_min3_i32": ("i", "iii", lambda a, b, c: np.minimum(np.minimum(a, b), c)),
    "v_max3_i32": ("i", "iii", lambda a, b, c: np.maximum(np.maximum(a, b), c)),
    "v_med3_i32": ("i", "iii", lambda a, b, c: np.sort(np.stack(np.broadcast_arrays(a, b, c)), axis=0)[1]),
    "v_med3_u32": ("u", "uuu", lambda a, b, c: np.sort(np.stack(np.broadcast_arrays(a, b, c)), axis=0)[1]),
    "v_maxmin_f32": ("f", "fff", lambda a, b, c: np.fmin(np.fmax(a, b), c)),
    "v_minmax_f32": ("f", "fff", lambda a, b, c: np.fmax(np.fmin(a, b), c)),
    "v_maxmin_i32": ("i", "iii", lambda a, b, c: np.minimum(np.maximum(a, b), c)),
    "v_minmax_i32": ("i", "iii", lambda a, b, c: np.maximum(np.minimum(a, b), c)),
    "v_maxmin_u32": ("u", "uuu", lambda a, b, c: np.minimum(np.maximum(a, b), c)),
    "v_minmax_u32": ("u", "uuu", lambda a, b, c: np.maximum(np.minimum(a, b), c)),
    "v_dot4_i32_iu8": ("u", "uuu", dot_bytes(True, True)),
    "v_dot4_i32_i8": ("u", "uuu", dot_bytes(True, True)),
    "v_dot4_u32_u8": ("u", "uuu", dot_bytes(False, False)),
    **{
        f"v_cvt_f32_ubyte{k}": (
            "f",
            "u",
            lambda a, k=k: (np.asarray(a) >> U32(8 * k) & U32(255)).astype(np.float32),
        )
        for k in range(4)
    },
    "v_add_f16": ("h", "hh", lambda a, b: a + b),
    "v_sub_f16": ("h", "hh", lambda a, b: a - b),
    "v_mul_f16": ("h", "hh", lambda a, b: a * b),
    "v_fma_f16": ("h", "hhh", lambda a, b, c: a * b + c),
    "v_max_f16": ("h", "hh", np.fmax),
    "v_min_f16": ("h", "hh", np.fmin),
    "v_subrev_f16": ("h", "hh", lambda a, b: b - a),
    "v_maxmin_f16": ("h", "hhh", lambda a, b, c: np.fmin(np.fmax(a, b), c)),
    "v_minmax_f16": ("h", "hhh", lambda a, b, c: np.fmax(np.fmin(a, b), c)),
    "v_max3_f16": ("h", "hhh", lambda a, b, c: np.fmax(np.fmax(a, b), c)),
    "v_min3_f16": ("h", "hhh", lambda a, b, c: np.fmin(np.fmin(a, b), c)),
    "v_med3_f16": (
        "h",
        "hhh",
        lambda a, b, c: np.median(np.stack(np.broadcast_arrays(a, b, c)), axis=0).astype(np.float16),
    ),
    "v_rcp_f16": ("h", "h", lambda a: np.float16(1) / a),
    "v_rsq_f16": ("h", "h", lambda a: np.float16(1) / np.sqrt(a)),
    "v_sqrt_f16": ("h", "h", np.sqrt),
    "v_exp_f16": ("h", "h", np.exp2),
    "v_log_f16": ("h", "h", np.log2),
    "v_floor_f16": ("h", "h", np.floor),
    "v_rndne_f16": ("h", "h", np.rint),
    "v_fmaak_f16": ("h", "hhh", lambda a, b, c: a * b + c),
    "v_fmamk_f16": ("h", "hhh", lambda a, k, b: a * k + b),
    "v_cvt_f16_u16": ("h", "u", lambda a: (np.asarray(a) & 0xFFFF).astype(np.float16)),
    "v_cvt_f16_i16": (
        "h",
        "u",
        lambda a: (np.asarray(a) & 0xFFFF).astype(np.uint16).view(np.int16).astype(np.float16),
    ),
    "v_cvt_u32_u16": ("u", "u", lambda a: np.asarray(a) & U32(0xFFFF)),
    "v_cvt_i32_i16": (
        "i",
        "u",
        lambda a: (np.asarray(a) & 0xFFFF).astype(np.uint16).view(np.int16).astype(np.int32),
    ),
    "v_cvt_u16_f16": (
        "w",
        "h",
        lambda a: np.nan_to_num(np.asarray(a, np.float32)).clip(0, 65535).astype(np.uint32),
    ),
    "v_cvt_i16_f16": (
        "w",
        "h",
        lambda a: (
            np.nan_to_num(np.asarray(a, np.float32)).clip(-32768, 32767).astype(np.int32).view(np.uint32)
        ),
    ),
    "v_mov_b16": ("w", "u", lambda a: a),
    "v_add_u16": ("w", "uu", lambda a, b: np.add(a, b)),
    "v_sub_u16": ("w", "uu", lambda a, b: np.subtract(a, b)),
    "v_mul_lo_u16": ("w", "uu", lambda a, b: np.multiply(a, b)),
    "v_and_b16": ("w", "uu", lambda a, b: a & b),
    "v_or_b16": ("w", "uu", lambda a, b: a | b),
    "v_xor_b16": ("w", "uu", lambda a, b: a ^ b),
    "v_lshlrev_b16": ("w", "uu", lambda a, b: np.left_shift(b, a & U32(15))),
    "v_lshrrev_b16": ("w", "uu", lambda a, b: np.right_shift(b & U32(0xFFFF), a & U32(15))),
    "v_perm_b32": ("u", "uuu", lambda a, b, c: _pick_bytes(a, b, c)),
    "v_frexp_exp_i32_f32": ("i", "f", lambda a: np.frexp(a)[1].astype(np.int32)),
    "v_frexp_mant_f32": ("f", "f", lambda a: np.frexp(a)[0].astype(np.float32)),
}


COMPARE: dict[str, Callable[..., Any]] = {
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lg": lambda a, b: (a < b) | (a > b),
    "neq": lambda a, b: ~(a == b),
    "nlt": lambda a, b: ~(a < b),
    "nle": lambda a, b: ~(a <= b),
    "ngt": lambda a, b: ~(a > b),
    "nge": lambda a, b: ~(a >= b),
    "nlg": lambda a, b: ~((a < b) | (a > b)),
    "o": lambda a, b: ~(np.isnan(a) | np.isnan(b)),
    "u": lambda a, b: np.isnan(a) | np.isnan(b),
}
