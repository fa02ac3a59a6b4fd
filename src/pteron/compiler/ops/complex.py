"""Complex tensors. An element is a pair of a real and an imaginary part."""

from __future__ import annotations

from pteron.compiler.ir.rule import (
    Dispatch,
    DType,
    LiveTensor,
    Number,
    Scalar,
    Unused,
    check,
    copy_dispatch,
    describe,
    op,
    quads,
    threads,
)
from pteron.compiler.ops.elementwise import as_f32
from pteron.compiler.ops.shapes import broadcast, broadcast_walks

# Operators that have another rule for complex tensors.
ARITHMETIC = {
    "aten._to_copy.default": "pteron.complex_cast",
    "aten.abs.default": "pteron.complex_abs",
    "aten.add.Tensor": "pteron.complex_add",
    "aten.div.Tensor": "pteron.complex_div",
    "aten.mul.Tensor": "pteron.complex_mul",
    "aten.sub.Tensor": "pteron.complex_sub",
    "dim_order_ops._to_dim_order_copy.default": "pteron.complex_cast",
}

# Operators whose rules work for complex tensors too: they copy elements, or read only sizes.
OF_COMPLEX = frozenset(
    {
        "aten._conj_physical.default",
        "aten._fft_c2c.default",
        "aten._fft_c2r.default",
        "aten._fft_r2c.default",
        "aten.as_strided_copy.default",
        "aten.cat.default",
        "aten.clone.default",
        "aten.expand_copy.default",
        "aten.flip.default",
        "aten.index_select.default",
        "aten.permute_copy.default",
        "aten.repeat.default",
        "aten.select_copy.int",
        "aten.slice_copy.Tensor",
        "aten.split_with_sizes_copy.default",
        "aten.stack.default",
        "aten.transpose_copy.int",
        "aten.view_as_complex_copy.default",
        "aten.view_as_real_copy.default",
        "sym_numel.default",
        "sym_size.int",
    }
    | set(ARITHMETIC.values())
)


@op("aten.view_as_real_copy.default")
def view_as_real(x: LiveTensor, out: LiveTensor) -> Dispatch:
    """The real and the imaginary part become the last dimension."""
    out.resize((*x.shape, 2))
    return copy_dispatch(x, out)


@op("aten.view_as_complex_copy.default")
def view_as_complex(x: LiveTensor, out: LiveTensor) -> Dispatch:
    """The last dimension, of two elements, becomes the real and the imaginary part."""
    check(
        x.rank > 0 and x.shape[-1] == 2, f"the last dimension of x {describe(x.shape)} must have two elements"
    )
    out.resize(x.shape[:-1])
    return copy_dispatch(x, out)


@op("aten._conj_physical.default")
def conjugate(x: LiveTensor, out: LiveTensor) -> Dispatch:
    """A real number is its own conjugate."""
    out.resize(x.shape)
    if x.dtype is not DType.complex64:
        return copy_dispatch(x, out)
    return Dispatch("conjugate", {"x": x, "y": out}, {"count": x.numel}, threads(x.numel))


# -- arithmetic -------------------------------------------------------------------------------------


@op("pteron.complex_add")
def add(a: LiveTensor, b: LiveTensor, alpha: Scalar, out: LiveTensor) -> Dispatch:
    return _binary("a + p.alpha * b", a, b, out, alpha)


@op("pteron.complex_sub")
def sub(a: LiveTensor, b: LiveTensor, alpha: Scalar, out: LiveTensor) -> Dispatch:
    return _binary("a - p.alpha * b", a, b, out, alpha)


@op("pteron.complex_mul")
def mul(a: LiveTensor, b: LiveTensor, out: LiveTensor) -> Dispatch:
    return _binary("vec2<f32>(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x)", a, b, out)


@op("pteron.complex_div")
def div(a: LiveTensor, b: LiveTensor, out: LiveTensor) -> Dispatch:
    return _binary("complex_quotient(a, b)", a, b, out)


@op("pteron.complex_abs")
def absolute(x: LiveTensor, out: LiveTensor) -> Dispatch:
    out.resize(x.shape)
    parts = (", ".join(f"x[{n}].{part}" for n in range(4)) for part in "xy")
    return _unary("hypot4({})".format(", ".join(f"vec4<f32>({part})" for part in parts)), x, out)


@op("pteron.complex_cast")
def cast(
    x: LiveTensor,
    dtype: Unused,
    layout: Unused,
    device: Unused,
    pin_memory: Unused,
    non_blocking: Unused,
    memory_format_or_dim_order: Unused,
    out: LiveTensor,
) -> Dispatch:
    check(out.dtype is DType.complex64, f"a complex number does not become {out.dtype}: use view_as_real")
    out.resize(x.shape)
    return _unary("y_t4({})".format(", ".join(f"vec2<f32>(f32(x[{n}]), 0.0)" for n in range(4))), x, out)


def _unary(expression: str, x: LiveTensor, out: LiveTensor) -> Dispatch:
    """`expression` is of four elements."""
    params = {"quads": quads(x.numel), **dict.fromkeys(("s0", "s1", "s2", "k0", "k1", "k2"), 0)}
    code = f"fn apply(x: x_t4) -> y_t4 {{ return {expression}; }}"
    return Dispatch("unary", {"x": x, "y": out}, params, threads(quads(x.numel)), code=code)


def _binary(expression: str, a: LiveTensor, b: LiveTensor, out: LiveTensor, alpha: Scalar = 1) -> Dispatch:
    """Of two tensors, of which one may be real."""
    out.resize(broadcast(a.shape, b.shape))
    code = "".join(_complex_element(name, x) for name, x in (("a", a), ("b", b)))
    code += f"fn apply(a: vec2<f32>, b: vec2<f32>) -> vec2<f32> {{ return {expression}; }}\n"
    params: dict[str, Number] = {"quads": quads(out.numel), "alpha": as_f32(alpha)}
    params |= broadcast_walks(out.shape, {"a": a, "b": b})
    return Dispatch("complex", {"a": a, "b": b, "y": out}, params, threads(quads(out.numel)), code=code)


def _complex_element(name: str, x: LiveTensor) -> str:
    value = f"{name}_at(i)" if x.dtype is DType.complex64 else f"vec2<f32>(f32({name}_at(i)), 0.0)"
    return f"fn {name}_complex(i: u32) -> vec2<f32> {{ return {value}; }}\n"
