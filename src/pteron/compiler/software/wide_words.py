"""Accessors that move 64 bits at a time, for bindings that a kernel reads or writes in quads.

Loads and stores of a CPU cost the same for 32 and for 64 bits. WGSL has no 64-bit types; naga has them as an
extension. Lines of kernels after `//#if WIDE` use them, too.
"""

from __future__ import annotations

import re

from pteron.compiler.ir.dtypes import DType
from pteron.compiler.ops.kernel import WIDE_ACCESSORS, Binding

VALUES = {DType.float32: "f32", DType.int32: "i32"}  # quads of other types have fewer bits


def wide_accessors(binding: Binding, dtype: DType, text: str) -> str | None:
    """The accessors of a binding in this text; None: it needs words of 32 bits."""
    n, value = binding.name, VALUES.get(dtype)
    if value is None or not _moves_quads(n, text):
        return None
    quad = f"bitcast<vec4<{value}>>(vec4<u32>(vec2<u32>(w), vec2<u32>(w >> vec2<u32>(32u))).xzyw)"
    element = f"bitcast<{n}_t>(u32({n}[i >> 2u][(i >> 1u) & 1u] >> (32u * (i & 1u))))"
    lines = [
        f"alias {n}_word = vec2<u64>;",
        f"alias {n}_t = {value};",
        f"alias {n}_t4 = vec4<{value}>;",
        f"fn {n}_quad(i: u32) -> {n}_t4 {{ let w = {n}[i]; return {quad}; }}",
        f"fn {n}_at(i: u32) -> {n}_t {{ return {element}; }}",
    ]
    if binding.kind == "read_write":
        lines.append(f"fn {n}_put(i: u32, v: {n}_t4) {{ {n}[i] = wide_pairs(bitcast<vec4<u32>>(v)); }}")
    return "\n".join(lines)


def _moves_quads(name: str, text: str) -> bool:
    """Whether a kernel moves quads of a binding. A wide word cannot be stored in part or indexed directly."""
    calls = set(re.findall(rf"\b{name}(_quad|_put|_set|\[)", text))
    return bool(calls & {"_quad", "_put"}) and not calls & {"_set", "["}


WIDE_ACCESSORS.append(wide_accessors)
