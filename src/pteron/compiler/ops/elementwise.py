"""How elementwise operators are written: as a record that describes a function. Kernels are made from it.

The expression is WGSL over four values at a time. The operands are the operator's tensors in the order of its
arguments: `x` if there is one, otherwise `a`, `b` and `c`. `zero` is four zeros. Functions whose names end in
4 are those of wgsl/lib/math.wgsl.

    @elementwise("aten.add.Tensor")
    def add(a: LiveTensor, b: LiveTensor, alpha: Scalar, out: LiveTensor) -> Elementwise:
        return Elementwise("a + s0 * b", (alpha,), integer=all_integer(a, b))

The same record is used for the kernel of a single operator, and for a step of a chain of operators
(passes/chains.py). If an operand or the result is a 64-bit integer, the expression is translated to functions
of two words (ops/integer_expressions.py).
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import update_wrapper
from inspect import signature
from typing import Any

from pteron.compiler.ir.integers import INT32, INT64, Interval
from pteron.compiler.ir.rule import (
    ELEMENTWISE,
    Dispatch,
    DType,
    LiveTensor,
    Number,
    OpError,
    Scalar,
    Scratch,
    Shape,
    check,
    numel,
    op,
    quads,
    threads,
)
from pteron.compiler.ir.values import Node
from pteron.compiler.ops.integer_expressions import NoIntegerForm, in_two_words
from pteron.compiler.ops.shapes import broadcast, broadcast_strides, broadcast_walks, merge

F32_MAX = 3.4028234663852886e38
ELEMENTS, SAME, ONE, ALIKE, RUN = range(5)


@dataclass(frozen=True, slots=True)
class Elementwise:
    """The function that an operator applies to every element of its operands."""

    expression: str
    scalars: tuple[Scalar, ...] = ()  # `s0`, `s1` and so on in the expression
    integer: bool = False  # computed in integers; otherwise in floats

    def takes_two_words(self, dtypes: Iterable[DType]) -> bool:
        """Whether it is computed in 64-bit integers: a tensor has them, or a scalar needs them."""
        return DType.int64 in dtypes or (
            self.integer and any(isinstance(s, int) and not INT32[0] <= s <= INT32[1] for s in self.scalars)
        )

    def wgsl(self, name: str, takes: Sequence[str], gives: str, scalars: Sequence[str]) -> str:
        """A WGSL function from the types `takes` to the type `gives`. `scalars` are WGSL expressions."""
        kind = "vec4<i32>" if self.integer else "vec4<f32>"
        operands = dict(zip(operand_names(len(takes)), takes, strict=True))
        lines = [f"let {operand} = {kind}({operand}_in);" for operand in operands]
        lines += [f"let s{i} = {kind}({scalar});" for i, scalar in enumerate(scalars)]
        lines += [f"let zero = {kind}();"] * ("zero" in self.expression)
        parameters = ", ".join(f"{operand}_in: {type}" for operand, type in operands.items())
        return (
            f"fn {name}({parameters}) -> {gives} {{ {' '.join(lines)} return {gives}({self.expression}); }}"
        )


def operand_names(count: int) -> str:
    return "x" if count == 1 else "abc"[:count]


class ElementwiseRule:
    """The rule of an elementwise operator. Fused kernels use its `describe`.

    `describe` takes the operator's arguments. It reads only the dtypes of tensors, because a fused kernel is
    described before there are live shapes. It returns None if the output is equal to the operand.
    """

    def __init__(self, describe: Callable[..., Elementwise | None]) -> None:
        update_wrapper(self, describe)
        self.describe = describe
        *given, _ = signature(describe, eval_str=True).parameters.values()
        self._tensors = [i for i, p in enumerate(given) if p.annotation in (LiveTensor, LiveTensor | None)]

    def operands(self, args: Sequence[Any]) -> list[Any]:
        """The tensors that the expression reads."""
        return [args[i] for i in self._tensors if args[i] is not None]

    def __call__(self, *args: Any) -> Dispatch | None:
        operands, out = self.operands(args), args[-1]
        out.resize(broadcast(*(x.shape for x in operands)))
        found = self.describe(*args)
        return None if found is None else elementwise_dispatch(found, operands, out)


def function_of(node: Node) -> tuple[Elementwise, list[Any]] | None:
    """The function of an elementwise node, and its operands. None: it has none, or its rule refuses it."""
    if not isinstance(node.op.rule, ElementwiseRule):
        return None
    try:
        function = node.op.rule.describe(*node.args)
    except (OpError, ArithmeticError):
        return None  # the rule raises it again when the graph is planned
    return None if function is None else (function, node.op.rule.operands(node.args))


def elementwise(
    *names: str, alias: str | None = None
) -> Callable[[Callable[..., Elementwise | None]], ElementwiseRule]:
    """Register an elementwise operator under the names that files use for it."""

    def register(describe: Callable[..., Elementwise | None]) -> ElementwiseRule:
        rule = ElementwiseRule(describe)
        op(*names, alias=alias, rows=ELEMENTWISE)(rule)
        return rule

    return register


# For each number of operands: the kernel, and the number of its scalar parameters.
_KERNELS = {1: ("unary", 3), 2: ("binary", 1), 3: ("ternary", 1)}


def elementwise_dispatch(found: Elementwise, operands: Sequence[LiveTensor], out: LiveTensor) -> Dispatch:
    """The kernel of one operator. The output already has its live shape."""
    if found.takes_two_words(x.dtype for x in (*operands, out)):
        bound = dict(zip("abc", operands, strict=False))
        sizes, strides = merge(out.shape, *(broadcast_strides(x.shape, out.shape) for x in operands))
        return _int64_dispatch(found, bound, out, out.numel, sizes, strides)
    kernel, places = _KERNELS[len(operands)]
    bound = dict(zip(operand_names(len(operands)), operands, strict=True))
    params = {"quads": quads(out.numel), **_scalar_params(found.scalars, places)}
    if len(operands) > 1:
        params |= broadcast_params(out.shape, bound)
    return Dispatch(
        kernel, {**bound, "y": out}, params, threads(quads(out.numel)), code=_apply(found, tuple(bound))
    )


def _apply(found: Elementwise, operands: Sequence[str]) -> str:
    place = "k" if found.integer else "s"
    scalars = [f"p.{place}{i}" for i in range(len(found.scalars))]
    return found.wgsl("apply", [f"{operand}_t4" for operand in operands], "y_t4", scalars)


def _int64_dispatch(
    found: Elementwise,
    operands: Mapping[str, LiveTensor | Scratch],
    out: LiveTensor | Scratch,
    count: int,
    sizes: Sequence[int],
    strides: Sequence[Sequence[int]],
) -> Dispatch:
    words = [word for scalar in found.scalars for word in words_of(scalar)]
    params: dict[str, Number] = {"quads": quads(count), "rank": len(sizes), "sizes": tuple(sizes)}
    params |= {f"{name}_strides": tuple(walk) for name, walk in zip(operands, strides, strict=True)}
    params["scalars"] = tuple(words)
    code = _apply_int64(found, {name: x.dtype for name, x in operands.items()}, out.dtype)
    bindings, defines = {**operands, "y": out}, {"OPERANDS": len(operands)}
    return Dispatch("elementwise_int64", bindings, params, threads(quads(count)), defines, code)


def _apply_int64(found: Elementwise, operands: Mapping[str, DType], out: DType) -> str:
    """`apply` of one element. Conversions to and from floats are its only work with floats."""
    parameters = ", ".join(f"{name}_in: {name}_t" for name in operands)
    if not found.integer:
        check(found.expression == "x", "it does not compute with 64-bit integers and floats")
        given = operands["a"]
        function = "float_of_int64" if given is DType.int64 else "int64_of_float"
        return f"fn apply({parameters}) -> y_t {{ return {function}(a_in); }}"
    names = operand_names(len(operands))
    lines = [
        f"let {name} = {f'{bound}_in' if dtype is DType.int64 else f'int64_of({bound}_in)'};"
        for name, (bound, dtype) in zip(names, operands.items(), strict=True)
    ]
    places = ("p.scalars[0].xy", "p.scalars[0].zw", "p.scalars[1].xy")
    lines += [f"let s{i} = {places[i]};" for i in range(len(found.scalars))]
    try:
        result, is_truth = in_two_words(found.expression)
    except NoIntegerForm as error:
        check(False, f"it does not compute with 64-bit integers ({error})")
        raise
    if is_truth:
        result = f"i32({result})" if out is not DType.int64 else f"int64_of(i32({result}))"
    elif out is not DType.int64:
        result = f"i32(any({result} != vec2<u32>()))" if out is DType.bool else f"low_word({result})"
    return f"fn apply({parameters}) -> y_t {{ {' '.join(lines)} return {result}; }}"


def _scalar_params(scalars: Sequence[Scalar], places: int) -> dict[str, Number]:
    """Every scalar as a float and as an integer."""
    padded = (*scalars, *[0] * (places - len(scalars)))
    floats = {f"s{i}": as_f32(value) for i, value in enumerate(padded)}
    return {**floats, **{f"k{i}": as_i32(value) for i, value in enumerate(padded)}}


def broadcast_params(shape: Shape, operands: Mapping[str, LiveTensor]) -> dict[str, Number]:
    """Parameters: from an element of the output to the elements of operands that are broadcast to it."""
    found: dict[str, Any] = broadcast_walks(shape, operands)
    ways = {
        f"{name}_read": _way_to_read(found[f"{name}_strides"], found["sizes"], x.numel == numel(shape))
        for name, x in operands.items()
    }
    return found | ways


def _way_to_read(strides: Sequence[int], sizes: Sequence[int], is_whole: bool) -> int:
    """How four neighbouring elements of an operand are read: see wgsl/lib/broadcast_four.wgsl."""
    if is_whole:
        return SAME
    if not any(strides):
        return ONE
    if sizes[-1] % 4 == 0 and strides[-1] == 0:
        return ALIKE
    if sizes[-1] % 4 == 0 and strides[-1] == 1 and all(stride % 4 == 0 for stride in strides[:-1]):
        return RUN
    return ELEMENTS


# -- conversions for other kernels ------------------------------------------------------------------


def wide_target(out: LiveTensor) -> tuple[LiveTensor | Scratch, list[Dispatch]]:
    """A tensor with one word per element, and the dispatches that copy it to `out`.

    A kernel that stores single elements needs it: a word contains several elements of a narrow type, and no
    two invocations may write to the same word.
    """
    if out.dtype.itemsize >= 4:
        return out, []
    wide = Scratch("wide", 4 * numel(out.max_shape), DType.float32 if out.dtype.is_float else DType.int32)
    return wide, [convert_dispatch(wide, out, out.numel)]


def convert_dispatch(x: LiveTensor | Scratch, y: LiveTensor | Scratch, count: int) -> Dispatch:
    """Copy `count` elements of x to y, and convert them to the dtype of y."""
    copy = Elementwise("x", integer=not (x.dtype.is_float or y.dtype.is_float))
    return unary_dispatch(copy, x, y, count)


def unary_dispatch(
    function: Elementwise, x: LiveTensor | Scratch, y: LiveTensor | Scratch, count: int
) -> Dispatch:
    """Apply a function without scalars to `count` elements of x."""
    if function.takes_two_words([x.dtype, y.dtype]):
        return _int64_dispatch(function, {"a": x}, y, count, (count,), [(1,)])
    params = {"quads": quads(count), **_scalar_params((), 3)}
    return Dispatch("unary", {"x": x, "y": y}, params, threads(quads(count)), code=_apply(function, "x"))


def as_f32(value: Scalar) -> float:
    """The value as a float32 parameter. A value outside the range of float32 becomes infinite."""
    if not isinstance(value, int):
        value = float(value)
        if math.isnan(value):
            return value
    return value if abs(value) <= F32_MAX else math.copysign(math.inf, value)


def nearest_f32(value: Scalar) -> float:
    """The nearest float32."""
    return float(struct.unpack("<f", struct.pack("<f", as_f32(value)))[0])


def as_i32(value: Scalar) -> int:
    """The value as an int32 parameter. A value outside the range of int32 becomes its nearest limit."""
    return _limited(value, INT32)


def words_of(value: Scalar) -> tuple[int, int]:
    """The low and the high word of the value as an int64."""
    whole = _limited(value, INT64)
    return whole & 0xFFFFFFFF, whole >> 32 & 0xFFFFFFFF


def signed(word: int) -> int:
    """A word as an int32."""
    return word - (word >> 31 << 32)


def _limited(value: Scalar, limits: Interval) -> int:
    low, high = limits
    if isinstance(value, float) and not math.isfinite(value):
        return 0 if math.isnan(value) else (high if value > 0 else low)
    return max(low, min(high, int(value)))


def as_element(value: Scalar, dtype: DType) -> Scalar:
    """A whole number as an element. In an 8-bit type it wraps around, as in torch: -3 is 253 in uint8."""
    if dtype is DType.uint8:
        return int(value) & 255
    return ((int(value) + 128) & 255) - 128 if dtype is DType.int8 else value


def all_integer(*tensors: LiveTensor) -> bool:
    return not any(t.dtype.is_float for t in tensors)
