"""Sample arguments for every operator.

`X` has whichever element type is being looked at; all else says its own. From these follow the tables
of docs/operators.md, and the shader texts that Tint is asked about.
"""

from __future__ import annotations

import math

from pteron.fusion.chains import ChainStep
from pteron.ir.dtypes import DType
from pteron.ir.op import find
from pteron.ops.elementwise import ElementwiseRule
from tests.support.operators.sample import FLOATS, LARGEST, Position, T, sample

ANY = tuple(dtype for dtype in DType if dtype is not DType.complex64)
INTEGERS = (DType.int32, DType.int8, DType.uint8)
NUMBERS = (*FLOATS, *INTEGERS)
WHOLE = (*INTEGERS, DType.bool)
BYTES = (DType.int8, DType.uint8)


def X(*shape: int) -> T:
    return T(shape)


def F(*shape: int) -> T:
    return T(shape, DType.float32)


def I(*shape: int) -> T:  # noqa: E743
    return T(shape, DType.int32)


def B(*shape: int) -> T:
    return T(shape, DType.bool)


def Q(*shape: int) -> T:
    return T(shape, DType.int8)


def W(*shape: int, dtype: DType = DType.float32) -> T:
    """A weight."""
    return T(shape, dtype, fixed=True)


# -- element by element --------------------------------------------------------------------------------

_EXACT = "abs ceil floor neg relu relu6 round sign square trunc"
_FLOAT = """
    acos acosh asin asinh atan atanh cos cosh erf erfc exp exp2 expm1 frac hardsigmoid hardswish log
    log10 log1p log2 log_sigmoid mish reciprocal rsqrt selu sigmoid silu sin sinh sqrt tan tanh
"""
sample(_EXACT, lambda n: [X(n, 3), X(n, 3)], NUMBERS)
sample(_FLOAT, lambda n: [X(n, 3), X(n, 3)])
sample("isinf isnan", lambda n: [X(n, 3), B(n, 3)])
sample("logical_not", lambda n: [X(n, 3), B(n, 3)], ANY)
sample("bitwise_not", lambda n: [X(n, 3), X(n, 3)], WHOLE)
for target in ANY:
    sample("pteron.cast", lambda n, t=target: [X(n, 3), T((n, 3), t)], ANY)
    sample("_to_copy dim_order_ops._to_dim_order_copy",
           lambda n, t=target: [X(n, 3), *[None] * 6, T((n, 3), t)], ANY)  # fmt: skip

_COMPARISONS = "eq ne lt le gt ge"
_BITS = "bitwise_and bitwise_or bitwise_xor"


def _variants(names: str, overload: str) -> str:
    return " ".join(f"{name}.{overload}" for name in names.split())


sample("maximum minimum mul.Tensor fmod.Tensor remainder.Tensor pow.Tensor_Tensor",
       lambda n: [X(n, 1, 3), X(2, 3), X(n, 2, 3)], NUMBERS)  # fmt: skip
sample("atan2 div.Tensor", lambda n: [X(n, 1, 3), X(2, 3), X(n, 2, 3)])
sample("logical_and logical_or logical_xor", lambda n: [X(n, 3), X(n, 3), B(n, 3)], ANY)
sample(_variants(_COMPARISONS, "Tensor"), lambda n: [X(n, 3), X(n, 3), B(n, 3)], ANY)
sample(_variants(_COMPARISONS, "Scalar"), lambda n: [X(n, 3), 2, B(n, 3)], ANY)
sample(_variants(_BITS, "Tensor"), lambda n: [X(n, 3), X(3), X(n, 3)], WHOLE)
sample(_variants(_BITS, "Scalar"), lambda n: [X(n, 3), 2, X(n, 3)], WHOLE)
sample("add.Tensor sub.Tensor rsub.Tensor", lambda n: [X(n, 3), X(n, 3), 2, X(n, 3)], NUMBERS)
sample("add.Scalar sub.Scalar rsub.Scalar", lambda n: [X(n, 3), 2, 1, X(n, 3)], NUMBERS)
sample("mul.Scalar fmod.Scalar pow.Tensor_Scalar remainder.Scalar", lambda n: [X(n, 3), 2, X(n, 3)], NUMBERS)
sample("div.Scalar", lambda n: [X(n, 3), 2.5, X(n, 3)])
sample("pow.Scalar", lambda n: [2, X(n, 3), X(n, 3)], NUMBERS)
for rounding in ("floor", "trunc"):
    sample("div.Tensor_mode", lambda n, r=rounding: [X(n, 3), X(n, 3), r, X(n, 3)], NUMBERS)
    sample("div.Scalar_mode", lambda n, r=rounding: [X(n, 3), 3, r, X(n, 3)], NUMBERS)
sample("floor_divide", lambda n: [X(n, 3), X(3), X(n, 3)], NUMBERS)
_SHIFTS = "bitwise_left_shift bitwise_right_shift"
sample(_variants(_SHIFTS, "Tensor"), lambda n: [X(n, 3), X(3), X(n, 3)], INTEGERS)
sample(_variants(_SHIFTS, "Tensor_Scalar"), lambda n: [X(n, 3), 2, X(n, 3)], INTEGERS)
sample("lerp.Scalar", lambda n: [X(n, 3), X(n, 3), 0.5, X(n, 3)])
sample("lerp.Tensor", lambda n: [X(n, 3), X(n, 3), X(n, 3), X(n, 3)])
sample("where.self", lambda n: [B(n, 1), X(n, 3), X(3), X(n, 3)], ANY)
sample("addcmul addcdiv", lambda n: [X(n, 3), X(n, 3), X(3), 2.0, X(n, 3)])
sample("celu", lambda n: [X(n, 3), 1.0, X(n, 3)])
sample("elu", lambda n: [X(n, 3), 1.0, 1.0, 1.0, X(n, 3)])
for approximate in ("none", "tanh"):
    sample("gelu", lambda n, a=approximate: [X(n, 3), a, X(n, 3)])
sample("softplus", lambda n: [X(n, 3), 1.0, 20.0, X(n, 3)])
sample("logit", lambda n: [X(n, 3), 1e-6, X(n, 3)])
sample("hardshrink softshrink leaky_relu", lambda n: [X(n, 3), 0.5, X(n, 3)])
sample("clamp.default", lambda n: [X(n, 3), 0, 6, X(n, 3)], NUMBERS)
sample("clamp.Tensor", lambda n: [X(n, 3), X(3), X(3), X(n, 3)], NUMBERS)
sample("hardtanh", lambda n: [X(n, 3), -1.0, 1.0, X(n, 3)])
sample("masked_fill.Scalar", lambda n: [X(n, 3), B(n, 1), 2, X(n, 3)], NUMBERS)
sample("masked_fill.Tensor", lambda n: [X(n, 3), B(n, 1), X(), X(n, 3)], NUMBERS)
sample("threshold", lambda n: [X(n, 3), 0.5, 2.0, X(n, 3)])

# -- views and copies ----------------------------------------------------------------------------------

sample("tril triu", lambda n: [X(n, 5), 0, X(n, 5)], ANY)
sample("transpose_copy.int", lambda n: [X(2, n, 3), 1, 2, X(2, 3, n)], ANY)
sample("select_copy.int", lambda n: [X(n, 3), 1, 2, X(n)], ANY)
sample("unsqueeze_copy", lambda n: [X(n, 3), 1, X(n, 1, 3)], ANY)
sample("unbind_copy.int", lambda n: [X(2, n), 0, [X(n), X(n)]], ANY)
sample("unfold_copy", lambda n: [X(n, 7), 1, 3, 2, X(n, 3, 3)], ANY)
sample("slice_copy.Tensor", lambda n: [X(n, 7), 1, 1, 6, 2, X(n, 3)], ANY)
sample("flip", lambda n: [X(n, 3), [0], X(n, 3)], ANY)
sample("permute permute_copy", lambda n: [X(2, n, 3), [2, 0, 1], X(3, 2, n)], ANY)
sample("squeeze_copy.dim", lambda n: [X(n, 1, 3), 1, X(n, 3)], ANY)
sample("squeeze_copy.dims", lambda n: [X(n, 1, 3), [1], X(n, 3)], ANY)
sample("clone", lambda n: [X(n, 3), None, X(n, 3)], ANY)
sample("dim_order_ops._clone_dim_order", lambda n: [X(n, 3), False, None, X(n, 3)], ANY)
sample("t_copy", lambda n: [X(n, 3), X(3, n)], ANY)
sample("alias_copy detach_copy lift_fresh_copy squeeze_copy pteron.copy", lambda n: [X(n, 3), X(n, 3)], ANY)
sample("repeat", lambda n: [X(n, 3), [2, 1, 2], X(2, n, 6)], ANY)
sample("expand_copy", lambda n: [X(n, 1), [4, -1, 3], False, X(4, n, 3)], ANY)
sample("_unsafe_view view_copy", lambda n: [X(n, 6), [-1, 3], X(2 * n, 3)], ANY)
sample("split_with_sizes_copy", lambda n: [X(n, 5), [2, 3], 1, [X(n, 2), X(n, 3)]], ANY)
sample("split_copy.Tensor", lambda n: [X(n, 5), 3, 1, [X(n, 3), X(n, 2)]], ANY)
sample("copy", lambda n: [X(n, 3), X(3), False, X(n, 3)], ANY)
sample("et_copy._h2d_copy et_copy._d2h_copy", lambda n: [X(n, 3), X(n, 3)], ANY)
sample("_conj_physical", lambda n: [X(n, 3), X(n, 3)], tuple(DType))
sample("view_as_real_copy", lambda n: [X(n, 3), F(n, 3, 2)], [DType.complex64])
sample("as_strided_copy", lambda n: [X(n, 6), [1, 2, 2], [6, 3, 1], 1, X(1, 2, 2)], ANY)
sample("diagonal_copy", lambda n: [X(n, 3, 4), 1, 1, 2, X(n, 3)], ANY)
sample("narrow_copy", lambda n: [X(n, 7), 1, 2, 3, X(n, 3)], ANY)
sample("fill.Tensor", lambda n: [X(n, 3), X(), X(n, 3)], ANY)
sample("roll", lambda n: [X(n, 7), [1, -2], [0, 1], X(n, 7)], ANY)
sample("glu", lambda n: [X(n, 6), 1, X(n, 3)])
sample("cat", lambda n: [[X(n, 3), X(n, 4)], 1, X(n, 7)], ANY)
sample("cat", lambda n: [[X(2, n, 4), X(2, 3, 4)], 1, X(2, n + 3, 4)], ANY)
sample("stack", lambda n: [[X(n, 3), X(n, 3)], 1, X(n, 2, 3)], ANY)
sample("update_cache", lambda n: [X(1, n, 2, 4), X(1, 16, 2, 4), Position(), X(1)], FLOATS)
sample("select_scatter", lambda n: [X(n, 3), X(n), 1, 2, X(n, 3)], ANY)
sample("slice_scatter", lambda n: [X(n, 7), X(n, 3), 1, 1, 6, 2, X(n, 7)], ANY)
sample("pteron.write_back", lambda n: [X(n, 3), X(n, 3), None], ANY)
sample("pteron.choose", lambda n: [1, X(n, 3), X(2, 3), X(n, 3)], ANY)
sample("pteron.first_row", lambda n: [X(n, 3), 4, X(4, n, 3)], ANY)
sample("pteron.write_row", lambda n: [X(n, 3), X(4, n, 3), 2, None], ANY)

# -- new tensors ---------------------------------------------------------------------------------------

sample("arange.default", lambda n: [8, *[None] * 4, X(8)], NUMBERS)
sample("arange.start_step", lambda n: [2, 8, 2, *[None] * 4, X(3)], NUMBERS)
sample("empty.memory_format", lambda n: [[4, 3], *[None] * 5, X(4, 3)], ANY)
sample("dim_order_ops._empty_dim_order", lambda n: [[4, 3], *[None] * 5, X(4, 3)], ANY)
sample("rand randn", lambda n: [[4, 3], I(2), X(4, 3)])
sample("native_dropout", lambda n: [X(n, 3), 0.5, False, [X(n, 3), B(n, 3)]])
sample("ones zeros", lambda n: [[4, 3], *[None] * 4, X(4, 3)], ANY)
sample("full", lambda n: [[4, 3], 2, *[None] * 4, X(4, 3)], ANY)
sample("scalar_tensor", lambda n: [2, *[None] * 4, X()], ANY)
sample("ones_like zeros_like", lambda n: [X(n, 3), *[None] * 5, X(n, 3)], ANY)
sample("full_like", lambda n: [X(n, 3), 2, *[None] * 5, X(n, 3)], ANY)
sample("fill.Scalar", lambda n: [X(n, 3), 2, X(n, 3)], ANY)

# -- along a dimension ---------------------------------------------------------------------------------

sample("cumsum cumprod", lambda n: [X(n, 7), 1, None, X(n, 7)], (*FLOATS, DType.int32))
sample("prod.dim_int", lambda n: [X(n, 7), 1, False, None, X(n)], (*FLOATS, DType.int32))
sample("argmax argmin", lambda n: [X(n, 7), 1, False, I(n)], NUMBERS)
sample("max.dim min.dim", lambda n: [X(n, 7), 1, False, [X(n), I(n)]], NUMBERS)
sample("std.correction var.correction", lambda n: [X(n, 7), [1], 1.0, False, X(n)])
sample("var_mean.correction", lambda n: [X(n, 7), [1], 1.0, False, [X(n), X(n)]])
sample("var.dim", lambda n: [X(n, 7), [1], True, False, X(n)])
sample("mean.dim", lambda n: [X(n, 7, 3), [1], False, None, X(n, 3)])
sample("sum.dim_IntList", lambda n: [X(n, 7), [1], False, None, X(n)], (*FLOATS, DType.int32))
sample("sum.dim_IntList mean.dim", lambda n: [X(n, 4096), [0, 1], False, None, X()])
sample("amax amin", lambda n: [X(n, 7), [1], True, X(n, 1)], NUMBERS)
sample("all.dims any.dims", lambda n: [X(n, 7), [1], False, B(n)], ANY)
sample("all.dim any.dim", lambda n: [X(n, 7), 1, False, B(n)], ANY)
sample("logsumexp", lambda n: [X(n, 7), [1], False, X(n)])
sample("mean.default", lambda n: [X(n, 7), None, X()])
sample("prod.default sum.default", lambda n: [X(n, 7), None, X()], (*FLOATS, DType.int32))
sample("all.default any.default", lambda n: [X(n, 7), B()], ANY)
sample("max.default min.default", lambda n: [X(n, 7), X()], NUMBERS)
sample("_softmax _log_softmax", lambda n: [X(n, 7), 1, False, X(n, 7)])
sample("_softmax _log_softmax", lambda n: [X(n, 8, 3), 1, False, X(n, 8, 3)])
sample("sort.default", lambda n: [X(n, 7), 1, False, [X(n, 7), I(n, 7)]], NUMBERS)
sample("sort.stable", lambda n: [X(n, 7), True, 1, True, [X(n, 7), I(n, 7)]], NUMBERS)
sample("topk", lambda n: [X(n, 7), 3, 1, True, True, [X(n, 3), I(n, 3)]], NUMBERS)

# -- by index ------------------------------------------------------------------------------------------

sample("embedding", lambda n: [X(9, 6), I(n), -1, False, False, X(n, 6)])
sample("embedding", lambda n: [W(9, 6, dtype=DType.float16), I(n), -1, False, False, F(n, 6)])
sample("et_vk.embedding_q4gsw",
       lambda n: [W(9, 4, dtype=DType.uint8), W(9, 2), 4, I(n), False, X(n, 8)])  # fmt: skip
sample("index_select", lambda n: [X(9, 3), 0, I(n), X(n, 3)], ANY)
sample("scatter.src", lambda n: [X(9, 3), 0, I(n, 3), X(n, 3), X(9, 3)], NUMBERS)
sample("scatter_add", lambda n: [X(9, 3), 0, I(n, 3), X(n, 3), X(9, 3)], (*FLOATS, DType.int32))
for reduce in ("sum", "prod", "amax", "amin"):
    sample("scatter_reduce.two",
           lambda n, r=reduce: [X(9, 3), 0, I(n, 3), X(n, 3), r, True, X(9, 3)],
           (*FLOATS, DType.int32))  # fmt: skip
sample("gather", lambda n: [X(9, 3), 0, I(n, 3), False, X(n, 3)], ANY)
sample("scatter.value", lambda n: [X(9, 3), 0, I(n, 3), 2, X(9, 3)], NUMBERS)
sample("index.Tensor", lambda n: [X(9, 4), [I(n), I(n)], X(n)], ANY)
sample("index.Tensor", lambda n: [X(9, 4), [None, I(n)], X(9, n)], ANY)
for accumulate in (False, True):
    sample(
        "index_put", lambda n, a=accumulate: [X(9, 4), [I(n)], X(n, 4), a, X(9, 4)], (*FLOATS, DType.int32)
    )

sample("masked_scatter", lambda n: [X(n, 3), B(3), X(n, 3), X(n, 3)], ANY)
sample("nonzero", lambda n: [X(n, 3), [I(3 * n, 2), I(1)]], ANY)
sample("masked_select", lambda n: [X(n, 3), B(3), [X(3 * n), I(1)]], ANY)
sample("pteron.select_rows", lambda n: [X(n, 3), B(n), [X(n, 3), I(1)]], ANY)
sample("repeat_interleave.Tensor", lambda n: [I(n), 9, I(9)], (DType.int32,))
for norm in (0.0, 1.0, 2.0, 3.0, float("inf")):
    sample("_cdist_forward", lambda n, p=norm: [X(2, n, 5), X(n, 5), p, None, X(2, n, n)])
    sample("_pdist_forward", lambda n, p=norm: [X(n, 5), p, X(n * (n - 1) // 2)])
sample(
    "allclose allclose.Tensor",
    lambda n: [X(2, n, 5), X(n, 5), 1e-5, 1e-8, False, False, B()],
    (*NUMBERS, DType.bool),
)

# -- matrices ------------------------------------------------------------------------------------------

for k, m in ((8, 12), (7, 9)):
    sample("mm", lambda n, k=k, m=m: [X(n, k), X(k, m), X(n, m)])
    sample("bmm", lambda n, k=k, m=m: [X(2, n, k), X(2, k, m), X(2, n, m)])
    sample("addmm", lambda n, k=k, m=m: [X(m), X(n, k), X(k, m), 1.0, 1.0, X(n, m)])
    sample("baddbmm", lambda n, k=k, m=m: [X(2, n, m), X(2, n, k), X(2, k, m), 2.0, 0.5, X(2, n, m)])
    sample("linear", lambda n, k=k, m=m: [X(n, k), T((m, k), fixed=True), T((m,), fixed=True), X(n, m)])
    sample("linear", lambda n, k=k, m=m: [X(n, k), T((m, k), fixed=True), None, X(n, m)])
    sample("linear", lambda n, k=k, m=m: [X(n, k), W(m, k, dtype=DType.float16), None, X(n, m)])
    for widths in ((4, 8), (4, 4, 4)):
        sample("pteron.linears", lambda n, k=k, w=widths: [
            X(n, k), T((12, k), fixed=True), None, [X(n, m) for m in w]])  # fmt: skip
    sample("et_vk.linear_dW", lambda n, k=k, m=m: [X(n, m), X(n, k), X(m, k)])
for group, dtype in ((32, DType.uint8), (8, DType.uint8), (8, DType.int8), (6, DType.uint8)):
    sample("et_vk.linear_q4gsw", lambda n, g=group, d=dtype: [
        X(n, 4 * g), W(12, 2 * g, dtype=d), W(4, 12), g, W(12), X(n, 12)])  # fmt: skip
    for widths in ((4, 8), (4, 4, 4)):
        sample("pteron.linears_q4gsw", lambda n, g=group, d=dtype, w=widths: [
            X(n, 4 * g), W(12, 2 * g, dtype=d), W(4, 12), g, None, [X(n, m) for m in w]])  # fmt: skip
    sample("et_vk.linear_dq8ca_q4gsw", lambda n, g=group, d=dtype: [
        X(n, 4 * g), F(n, 1), Q(n, 1), W(12, 2 * g, dtype=d), W(4, 12, dtype=DType.int32), W(4, 12), g, None,
        X(n, 12)])  # fmt: skip
    sample("et_vk.linear_q4gsw_backward", lambda n, g=group, d=dtype: [
        X(n, 12), W(12, 2 * g, dtype=d), W(4, 12), g, X(n, 4 * g)])  # fmt: skip
# Bits, words of a row of 64, group, whether there are minima.
FORMS = [(4, 8, 32, True), (8, 16, 32, False), (7, 16, 16, True), (3, 8, 16, False), (6, 12, 20, False)]
for bits, words, group, minima in FORMS:
    forms = [W(12, -(-64 // group), *[2] * minima, dtype=dtype) for dtype in (DType.float32, DType.float16)]
    if group == 16:  # one super-block
        forms.append(W(12, 1, 4 if minima else 2, dtype=DType.int32))
    for scales in forms:
        table = W(16, dtype=DType.float32) if bits == 4 else None
        weight = [W(12, words, dtype=DType.int32), scales, bits, group, 4, table]
        sample("pteron.linear_affine",
               lambda n, w=weight: [X(n, 64), *w, W(12), X(n, 12)])  # fmt: skip
        sample("pteron.embedding_affine", lambda n, w=weight: [*w, I(n), X(n, 64)])
        sample("pteron.experts_affine", lambda n, w=weight: [X(n, 64), I(n, 2), *w, X(n, 2, 6)])
        for widths in ((4, 8), (4, 4, 4)):
            sample("pteron.linears_affine", lambda n, w=weight, widths=widths: [
                X(n, 64), *w, None, [X(n, m) for m in widths]])  # fmt: skip
sample("et_vk.linear_q4gsw", lambda n: [
    X(n, 64), W(3, 4, 4, 8, dtype=DType.uint8), W(2, 12), 32, None, X(n, 12)])  # fmt: skip
for bits in (4, 8):  # interleaved
    weight = [W(3, 4, 4, bits // 2, dtype=DType.int32), W(12, 2), bits, 32, 4, None]
    sample("pteron.linear_affine", lambda n, w=weight: [X(n, 64), *w, None, X(n, 12)])
    sample("pteron.linears_affine", lambda n, w=weight: [X(n, 64), *w, None, [X(n, 4), X(n, 8)]])
    sample("pteron.embedding_affine", lambda n, w=weight: [*w, I(n), X(n, 64)])
for depth in (8, 7):
    sample("pteron.experts", lambda n, k=depth: [X(n, 2, k), I(n, 2), W(3, 6, k), X(n, 2, 6)])
for group, scales, zeros in (
    (32, DType.float32, None),
    (16, DType.float16, DType.int8),
    (20, DType.float32, DType.int32),
):
    groups = -(-64 // group)
    weight = [
        W(12, 64, dtype=DType.int8),
        W(12, groups, dtype=scales),
        zeros and W(12, groups, dtype=zeros),
        group,
    ]
    sample("pteron.linear_int8", lambda n, w=weight: [X(n, 64), *w, W(12), X(n, 12)])
    sample("pteron.embedding_int8", lambda n, w=weight: [*w, I(n), X(n, 64)])
    sample("pteron.linears_int8", lambda n, w=weight: [X(n, 64), *w, W(12), [X(n, 4) for _ in range(3)]])
sample("et_vk.q4gsw_requant",
       lambda n: [X(n, 16), F(4, LARGEST), 4, T((n, 8), DType.uint8)])  # fmt: skip
for k in (8, 7):
    sample("et_vk.linear_qcs4w", lambda n, k=k: [X(n, k), W(12, 4, dtype=DType.uint8), W(12), X(n, 12)])
    sample("_weight_int8pack_mm", lambda n, k=k: [X(n, k), W(12, k, dtype=DType.int8), W(12), X(n, 12)])

# -- attention and positions ---------------------------------------------------------------------------

for width in (256, 224, 32, 8, 6):  # the widest that fit into workgroup memory, in two ways
    sample("sdpa_with_kv_cache", lambda n, d=width: [
        X(1, n, 4, d), X(1, n, 2, d), X(1, n, 2, d), X(1, 16, 2, d), X(1, 16, 2, d), Position(), n, None, 0.0,
        True, None, X(1, n, 4, d)])  # fmt: skip
    sample("pteron.sdpa_with_kv_cache", lambda n, d=width: [
        X(1, n, 4, d), X(1, n, 2, d), X(1, n, 2, d), X(1, 16, 2, d), X(1, 16, 2, d), Position(), n, None, 0.0,
        True, None, 5, 30.0, X(1, n, 4, d)])  # fmt: skip
    sample("custom_sdpa", lambda n, d=width: [
        X(1, n, 4, d), X(1, 16, 2, d), X(1, 16, 2, d), Position(), None, 0.0, True, None,
        X(1, n, 4, d)])  # fmt: skip
    sample("et_vk.sdpa", lambda n, d=width: [
        X(1, 4, n, d), X(1, 4, n, d), X(1, 4, n, d), None, None, X(1, 4, n, d)])  # fmt: skip
sample("sdpa_with_kv_cache", lambda n: [  # caches of another type
    X(1, n, 4, 32), X(1, n, 2, 32), X(1, n, 2, 32), *[T((1, 16, 2, 32), DType.float16)] * 2, Position(), n,
    None, 0.0, True, None, X(1, n, 4, 32)])  # fmt: skip
for mask in (DType.float32, DType.bool):
    sample("et_vk.sdpa", lambda n, m=mask: [
        X(1, 4, n, 8), X(1, 4, n, 8), X(1, 4, n, 8), T((n, n), m), 0.5, X(1, 4, n, 8)])  # fmt: skip
sample("et_vk.apply_rotary_emb", lambda n: [
    X(1, n, 4, 8), X(1, n, 2, 8), F(n, 4), F(n, 4), [X(1, n, 4, 8), X(1, n, 2, 8)]])  # fmt: skip
sample("et_vk.apply_rotary_emb_hf", lambda n: [
    X(1, n, 4, 8), X(1, n, 2, 8), F(16, 8), F(16, 8), Position(),
    [X(1, n, 4, 8), X(1, n, 2, 8)]])  # fmt: skip
sample("et_vk.apply_rotary_emb_hf", lambda n: [
    X(2, 4, n, 8), X(2, 2, n, 8), F(2, n, 6), F(2, n, 6), 0, [X(2, 4, n, 8), X(2, 2, n, 8)]])  # fmt: skip
for table, row in ((F(16, 8), Position()), (F(LARGEST, 4), None)):
    sample("pteron.rotary_sdpa_with_kv_cache", lambda n, t=table, r=row: [
        X(1, n, 4, 8), X(1, n, 2, 8), X(1, n, 2, 8), t, t, r, X(1, 16, 2, 8), X(1, 16, 2, 8), Position(),
        None, 0.0, True, None, None, None, [X(1, n, 4, 8), X(1, n, 4, 8)]])  # fmt: skip

# The same for several sequences: three slots, and the tables of n rows.


def Rows(n: int) -> list[T]:
    return [I(n), I(n), I(n), I(2, 2)]


for width in (256, 32, 8, 6):
    sample("pteron.segmented_sdpa_with_kv_cache", lambda n, d=width: [
        X(1, n, 4, d), X(1, n, 2, d), X(1, n, 2, d), X(3, 16, 2, d), X(3, 16, 2, d), Rows(n), n, None, 0.0,
        True, None, X(1, n, 4, d)])  # fmt: skip
    sample("pteron.segmented_windowed_sdpa", lambda n, d=width: [
        X(1, n, 4, d), X(1, n, 2, d), X(1, n, 2, d), X(3, 16, 2, d), X(3, 16, 2, d), Rows(n), n, None, 0.0,
        True, None, 5, 30.0, X(1, n, 4, d)])  # fmt: skip
    sample("pteron.segmented_custom_sdpa", lambda n, d=width: [
        X(1, n, 4, d), X(3, 16, 2, d), X(3, 16, 2, d), Rows(n), None, 0.0, True, None,
        X(1, n, 4, d)])  # fmt: skip
sample("pteron.segmented_update_cache", lambda n: [X(1, n, 2, 4), X(3, 16, 2, 4), Rows(n), X(1)], FLOATS)
sample("pteron.segmented_rotary_emb_hf", lambda n: [
    X(1, n, 4, 8), X(1, n, 2, 8), F(16, 8), F(16, 8), Rows(n),
    [X(1, n, 4, 8), X(1, n, 2, 8)]])  # fmt: skip
for by_position in (True, False):
    sample("pteron.segmented_rotary_sdpa", lambda n, b=by_position: [
        X(1, n, 4, 8), X(1, n, 2, 8), X(1, n, 2, 8), *[F(16, 8) if b else F(n, 4)] * 2,
        Rows(n) if b else None, X(3, 16, 2, 8), X(3, 16, 2, 8), Rows(n),
        None, 0.0, True, None, None, None, [X(1, n, 4, 8), X(1, n, 4, 8)]])  # fmt: skip
sample("et_vk.apply_rotary_emb_interleaved", lambda n: [X(1, n, 8), F(n, 8), X(1, n, 8)])

# -- normalisation -------------------------------------------------------------------------------------

for width in (36, 7):
    sample("et_vk.rms_norm", lambda n, w=width: [X(n, w), T((w,), fixed=True), 1e-5, X(n, w)])
    sample("native_layer_norm", lambda n, w=width: [
        X(n, w), [w], T((w,)), T((w,)), 1e-5, [X(n, w), X(n, 1), X(n, 1)]])  # fmt: skip
sample("native_layer_norm", lambda n: [
    X(n, 36), [36], T((36,), fixed=True), None, 1e-5, [X(n, 36), X(n, 1), X(n, 1)]])  # fmt: skip
sample("native_group_norm", lambda n: [
    X(n, 4, 5), T((4,)), T((4,)), n, 4, 5, 2, 1e-5, [X(n, 4, 5), X(n, 2), X(n, 2)]])  # fmt: skip
sample("pteron.layer_norm", lambda n: [X(n, 36), [36], T((36,), fixed=True), None, 1e-5, X(n, 36)])
sample("pteron.group_norm", lambda n: [X(n, 4, 5), T((4,)), T((4,)), n, 4, 5, 2, 1e-5, X(n, 4, 5)])
sample("_native_batch_norm_legit_no_training", lambda n: [
    X(n, 4, 5), T((4,)), T((4,)), T((4,)), T((4,)), 0.1, 1e-5, [X(n, 4, 5), X(0), X(0)]])  # fmt: skip

sample("_native_batch_norm_legit.no_stats", lambda n: [
    X(n, 4, 5), T((4,)), T((4,)), True, 0.1, 1e-5, [X(n, 4, 5), X(4), X(4)]])  # fmt: skip
for training in (True, False):
    sample("_native_batch_norm_legit.default", lambda n, t=training: [
        X(n, 4, 5), T((4,)), T((4,)), T((4,)), T((4,)), t, 0.1, 1e-5,
        [X(n, 4, 5), X(4 * t), X(4 * t)]])  # fmt: skip

# -- images --------------------------------------------------------------------------------------------

for groups, outs in ((1, 8), (4, 4), (2, 6), (1, 16)):
    sample("convolution", lambda n, g=groups, o=outs: [
        X(n, 4, 6, 6), T((o, 4 // g, 3, 3), fixed=True), T((o,), fixed=True), [1, 1], [1, 1], [1, 1], False,
        [0, 0], g, X(n, o, 6, 6)])  # fmt: skip
sample("convolution", lambda n: [
    X(1, 4, n), T((8, 4, 3), fixed=True), None, [1], [1], [1], False, [0], 1, X(1, 8, n)])  # fmt: skip
sample("convolution", lambda n: [
    X(n, 4, 6, 6), T((4, 8, 2, 2), fixed=True), None, [2, 2], [0, 0], [1, 1], True, [0, 0], 1,
    X(n, 8, 12, 12)])  # fmt: skip
for outs in (8, 16):
    sample("et_vk.conv_with_clamp", lambda n, o=outs: [
        X(n, 4, 6, 6), T((o, 4, 1, 1), fixed=True), None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1, 0.0, 6.0,
        X(n, o, 6, 6)])  # fmt: skip
for groups, ins, outs, window, size in (
    (1, 4, 8, 3, 6), (1, 4, 18, 1, 6), (4, 4, 4, 3, 6), (2, 4, 14, 3, 6), (1, 4, 40, 3, 6), (1, 4, 40, 3, 2),
):  # fmt: skip
    sample("pteron.packed_convolution", lambda n, g=groups, i=ins, o=outs, w=window, s=size: [
        X(n, i, s, s), T((i // g, w, w, o), fixed=True), T((o,), fixed=True), [1, 1], [w // 2] * 2, [1, 1], g,
        0.0, None, X(n, o, s, s)])  # fmt: skip
sample("pteron.convolution_with_ending", lambda n: [
    X(n, 4, 6, 6), T((4, 3, 3, 8), fixed=True), None, [1, 1], [1, 1], [1, 1], 1, None, None, "exp(x)",
    X(n, 8, 6, 6)], (DType.float32,))  # fmt: skip
sample("pteron.linear_with_ending", lambda n: [
    X(n, 8), T((12, 8), fixed=True), None, "exp(x)", X(n, 12)], (DType.float32,))  # fmt: skip
for d in (1, 2, 3):
    sizes = (6,) * d
    half, window, none = (3,) * d, [2] * d, [0] * d
    pool = f"max_pool{d}d"
    sample(pool, lambda n, s=sizes, h=half, w=window, z=none: [
        X(n, 3, *s), w, w, z, [1] * len(w), False, X(n, 3, *h)])  # fmt: skip
    sample(f"{pool}_with_indices", lambda n, s=sizes, h=half, w=window, z=none: [
        X(n, 3, *s), w, w, z, [1] * len(w), False, [X(n, 3, *h), I(n, 3, *h)]])  # fmt: skip
    more = [] if d == 1 else [None]
    sample(f"avg_pool{d}d", lambda n, s=sizes, h=half, w=window, z=none, m=tuple(more): [
        X(n, 3, *s), w, w, z, False, True, *m, X(n, 3, *h)])  # fmt: skip
    sample(f"adaptive_max_pool{d}d", lambda n, s=sizes, w=window: [
        X(n, 3, *s), w, [X(n, 3, *w), I(n, 3, *w)]])  # fmt: skip
    for kind in ("reflection", "replication"):
        sample(f"{kind}_pad{d}d", lambda n, s=sizes: [
            X(n, 3, *s), [1] * (2 * len(s)), X(n, 3, *(size + 2 for size in s))], ANY)  # fmt: skip
sample("adaptive_avg_pool1d", lambda n: [X(n, 3, 6), [2], X(n, 3, 2)])
sample("adaptive_avg_pool2d _adaptive_avg_pool2d", lambda n: [X(n, 3, 6, 6), [2, 2], X(n, 3, 2, 2)])
sample("_adaptive_avg_pool3d", lambda n: [X(n, 3, 6, 6, 6), [2, 2, 2], X(n, 3, 2, 2, 2)])
sample("pixel_shuffle", lambda n: [X(n, 8, 3, 3), 2, X(n, 2, 6, 6)], ANY)
sample("pixel_unshuffle", lambda n: [X(n, 2, 6, 6), 2, X(n, 8, 3, 3)], ANY)
sample("grid_sampler_2d", lambda n: [X(n, 3, 6, 6), X(n, 4, 5, 2), 0, 0, False, X(n, 3, 4, 5)])
sample("im2col", lambda n: [X(n, 3, 6, 6), [2, 2], [1, 1], [0, 0], [2, 2], X(n, 12, 9)], ANY)
sample("upsample_bilinear2d.vec", lambda n: [X(n, 3, 4, 4), [8, 8], False, None, X(n, 3, 8, 8)])
_RESIZINGS = "upsample_bicubic2d _upsample_bilinear2d_aa _upsample_bicubic2d_aa"
sample(_variants(_RESIZINGS, "vec"), lambda n: [X(n, 3, 4, 4), [8, 8], False, None, X(n, 3, 8, 8)])
sample(_RESIZINGS, lambda n: [X(n, 3, 4, 4), [8, 8], True, None, 2.0, X(n, 3, 8, 8)])
sample("upsample_nearest2d.vec", lambda n: [X(n, 3, 4, 4), None, [2.0, 2.0], X(n, 3, 8, 8)], NUMBERS)
sample("constant_pad_nd", lambda n: [X(n, 3), [1, 2], 0, X(n, 6)], NUMBERS)
sample("et_vk.grid_priors", lambda n: [X(1, 3, n, 4), 8, 0.5, F(4 * n, 2)])

# -- quantised -----------------------------------------------------------------------------------------

_RANGE = [-128, 127]
for stored in BYTES:
    q = lambda *shape, d=stored: T(shape, d)  # noqa: E731
    decomposed = "quantized_decomposed"
    sample(f"{decomposed}.quantize_per_tensor.default",
           lambda n, q=q: [X(n, 4), 0.1, 3, *_RANGE, None, q(n, 4)])  # fmt: skip
    sample(f"{decomposed}.dequantize_per_tensor.default",
           lambda n, q=q: [q(n, 4), 0.1, 3, *_RANGE, None, None, X(n, 4)])  # fmt: skip
    sample(f"{decomposed}.quantize_per_tensor.tensor",
           lambda n, q=q: [X(n, 4), F(1), I(1), *_RANGE, None, q(n, 4)])  # fmt: skip
    sample(f"{decomposed}.dequantize_per_tensor.tensor",
           lambda n, q=q: [q(n, 4), F(1), I(1), *_RANGE, None, None, X(n, 4)])  # fmt: skip
    sample(f"{decomposed}.quantize_per_channel",
           lambda n, q=q: [X(n, 4), F(4), I(4), 1, *_RANGE, None, q(n, 4)])  # fmt: skip
    sample(f"{decomposed}.dequantize_per_channel",
           lambda n, q=q: [q(n, 4), F(4), I(4), 1, *_RANGE, None, None, X(n, 4)])  # fmt: skip
    sample(f"{decomposed}.quantize_per_token",
           lambda n, q=q: [X(n, 4), F(n, 1), I(n, 1), *_RANGE, None, q(n, 4)])  # fmt: skip
    sample(f"{decomposed}.dequantize_per_token",
           lambda n, q=q: [q(n, 4), F(n, 1), I(n, 1), *_RANGE, None, None, X(n, 4)])  # fmt: skip
    sample("torchao.quantize_affine",
           lambda n, q=q: [X(n, 4), [1, 2], F(n, 2), I(n, 2), None, *_RANGE, q(n, 4)])  # fmt: skip
    sample("torchao.dequantize_affine",
           lambda n, q=q: [q(n, 4), [1, 2], F(n, 2), None, None, *_RANGE, None, X(n, 4)])  # fmt: skip
for mapping in ("ASYMMETRIC", "SYMMETRIC", "SYMMETRIC_NO_CLIPPING_ERR"):
    sample("torchao.choose_qparams_affine", lambda n, m=mapping: [
        X(n, 4), m, [1, 4], None, *_RANGE, 1e-6, None, None, True, [F(n, 1), I(n, 1)]])  # fmt: skip
sample("quantized_decomposed.choose_qparams.tensor",
       lambda n: [X(n, 4), *_RANGE, 1e-6, None, [F(1), I(1)]])  # fmt: skip
sample("quantized_decomposed.choose_qparams_per_token_asymmetric",
       lambda n: [X(n, 4), None, [F(n, 1), I(n, 1)]])  # fmt: skip
for bits, packed in (("4bit", 4), ("byte", 8)):
    for zeros in (W(9), None):
        sample(f"quantized_decomposed.embedding_{bits}.dtype", lambda n, p=packed, z=zeros: [
            W(9, p, dtype=DType.uint8), W(9), z, *_RANGE, I(n), None, X(n, 8)])  # fmt: skip
        sample(f"quantized_decomposed.embedding_{bits}.default", lambda n, p=packed, z=zeros: [
            W(9, p, dtype=DType.uint8), W(9), z, *_RANGE, I(n), X(n, 8)])  # fmt: skip
_SCALED = [0.1, 3]
_INT8 = (DType.int8,)


def _bytes(m: int, k: int) -> list[T]:
    """Weights, their sums and their scales."""
    return [W(m, k, dtype=DType.int8), W(m, dtype=DType.int32), W(m)]


for depth, columns in ((8, 12), (7, 9)):
    for activation in ("none", "relu"):
        sample("et_vk.q8ta_linear et_vk.q8ta_linear_gemv", lambda n, m=columns, k=depth, a=activation: [
            X(n, k), *_SCALED, *_bytes(m, k), *_SCALED, W(m), a, X(n, m)], _INT8)  # fmt: skip
    sample("et_vk.linear_q8ta_q8csw", lambda n, m=columns, k=depth: [
        X(n, k), *_SCALED, *_bytes(m, k), None, F(n, m)], _INT8)  # fmt: skip
for outs in (8, 16):
    sample("et_vk.q8ta_conv2d et_vk.q8ta_conv2d_pw", lambda n, o=outs: [
        X(n, 4, 6, 6), *_SCALED, *_bytes(o, 36), *_SCALED, W(o), [3, 3], [1, 1], [1, 1], [1, 1], 1, "relu",
        X(n, o, 6, 6)], _INT8)  # fmt: skip
sample("et_vk.q8ta_conv2d_dw", lambda n: [
    X(n, 4, 6, 6), *_SCALED, W(3, 3, 4, dtype=DType.int8), W(4, dtype=DType.int32), W(4), *_SCALED, None,
    [3, 3], [1, 1], [1, 1], [1, 1], 4, "none", X(n, 4, 6, 6)], _INT8)  # fmt: skip
sample("et_vk.q8ta_conv2d_transposed", lambda n: [
    X(n, 4, 6, 6), *_SCALED, *_bytes(8, 16), *_SCALED, None, [2, 2], [2, 2], [0, 0], [0, 0], [1, 1], 1,
    "none", X(n, 8, 12, 12)], _INT8)  # fmt: skip
sample("et_vk.q8ta_add",
       lambda n: [X(n, 3), X(n, 3), *_SCALED, *_SCALED, *_SCALED, 1.0, X(n, 3)], _INT8)  # fmt: skip
sample("et_vk.q8ta_relu", lambda n: [X(n, 3), *_SCALED, *_SCALED, X(n, 3)], _INT8)
sample("et_vk.q8ta_pixel_shuffle", lambda n: [X(n, 8, 3, 3), *_SCALED, *_SCALED, 2, X(n, 2, 6, 6)], _INT8)

# -- training ------------------------------------------------------------------------------------------

sample("et_vk.fused_ce", lambda n: [X(n, 9), I(n), 3.0, [F(), X(n, 9)]])
for transposed in (False, True):
    sample("convolution_backward", lambda n, t=transposed: [
        X(n, 4, 4, 4), X(n, 4, 4, 4), X(4, 4, 3, 3), [4], [1, 1], [1, 1], [1, 1], t, [0, 0], 1,
        [True, True, True], [X(n, 4, 4, 4), X(4, 4, 3, 3), X(4)]])  # fmt: skip
sample("max_pool2d_with_indices_backward", lambda n: [
    X(n, 3, 3), X(n, 6, 6), [2, 2], [2, 2], [0, 0], [1, 1], False, I(n, 3, 3), X(n, 6, 6)])  # fmt: skip
sample("et_vk.adamw_step", lambda n: [
    X(n, 3), X(n, 3), X(n, 3), X(n, 3), 1e-3, 0.9, 0.999, 1e-8, 0.01, 0.1, 0.001,
    [X(n, 3), X(n, 3), X(n, 3)]])  # fmt: skip

# -- fused ---------------------------------------------------------------------------------------------

for by_sequence, queries in ((False, lambda n: X(2, 4, n, 8)), (True, lambda n: X(2, n, 4, 8))):
    sample("pteron.attention", lambda n, swap=by_sequence, q=queries: [
        q(n), X(2, 4, n, 8), X(2, 4, n, 8), T((2, 1, n, n), DType.float32), 0.5, swap, False, True,
        q(n)])  # fmt: skip
sample("pteron.add_rms_norm", lambda n: [
    F(n, 36), F(n, 36), W(36), 1e-5, [F(n, 36), F(n, 36)]], [DType.float32])  # fmt: skip


def _step(name: str, *operands: str) -> ChainStep:
    """A float operator without attributes, as a step of a chain."""
    spec = find(f"aten.{name}")
    assert spec is not None and isinstance(spec.rule, ElementwiseRule)
    found = spec.rule.describe(*[F()] * len(operands), F())
    assert found is not None
    return ChainStep(found.expression, found.scalars, found.integer, operands, "float32")


_STEPS = [
    ChainStep("a + s0 * b", (2,), False, ("a", "b"), "float32"),
    _step("mul.Tensor", "t0", "c"),
    *(_step(f"{name}.default", f"t{i}") for i, name in enumerate(_FLOAT.split(), start=1)),
]
_CASTS = [
    ChainStep("x + s0", (7,), True, ("b",), "int8"),
    ChainStep("x", (), True, ("t0",), "uint8"),
    ChainStep("x", (), True, ("t1",), "bool"),
    ChainStep("select(c, s0 + b, a != zero)", (-math.inf,), False, ("t2", "a", "c"), "float16"),
    ChainStep("x", (), False, ("t3",), "bfloat16"),
    ChainStep("x", (), False, ("t4",), "int32"),
]
sample("pteron.chain", lambda n: [[F(n, 3), F(3), F(n, 1)], _STEPS, F(n, 3)], [DType.float32])
sample("pteron.chain", lambda n: [[X(n, 3), I(3), X(n, 1)], _CASTS, I(n, 3)], FLOATS)
