"""What operators do with integers, for those that are not elementwise.

An operator that is not in this table takes integers of one word, and its integer results fit in one word. If
such an operator gets a 64-bit integer that may not fit, the program is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil
from typing import TypeAlias

from pteron.compiler.ir.integers import INT64, Interval, hull, within
from pteron.compiler.ir.values import Arg, Tensor, numel


@dataclass(frozen=True, slots=True)
class IntegerCall:
    """A call of an operator: its arguments, and the intervals of its integers, by the names of parameters."""

    args: dict[str, Arg]
    intervals: dict[str, Interval]
    out: Tensor

    def elements(self) -> int:
        """The largest number of elements of `x` that an element of the output is made of."""
        x = self.args["x"]
        assert isinstance(x, Tensor)
        return -(-numel(x.max_shape) // max(1, numel(self.out.max_shape)))


IntervalRule: TypeAlias = Callable[[IntegerCall], Interval]


@dataclass(frozen=True, slots=True)
class IntegerRule:
    """What an operator does with its arguments. The names are those of its parameters.

    Attributes:
        moves: Elements of these are elements of the outputs. All have the same number of words.
        accumulates: The output is a sum or a product of elements of these, modulo 2**64.
        indices: Indices: the operator refuses or wraps others than those of a dimension.
        decides: Their values decide, of any number of words. The result is an index or a truth value.
        floats: Elements are converted to floats.
        shapes: Only the shape is read.
        places: The second output has indices.
        compares: The result depends on the order of the elements of `moves`.
        interval: The interval of the first output. None: that of `moves`.
        one_word: The kernels compute in one word: a result that may not fit is refused.
    """

    moves: tuple[str, ...] = ()
    accumulates: tuple[str, ...] = ()
    indices: tuple[str, ...] = ()
    decides: tuple[str, ...] = ()
    floats: tuple[str, ...] = ()
    shapes: tuple[str, ...] = ()
    places: bool = False
    compares: bool = False
    interval: IntervalRule | None = None
    one_word: bool = False


# -- intervals ---------------------------------------------------------------------------------------


def _moved_or(name: str) -> IntervalRule:
    """Elements of x, or a scalar."""
    return lambda call: hull(call.intervals["x"], call.intervals.get(name, INT64))


def _moved_or_zero(call: IntegerCall) -> Interval:
    return hull(call.intervals["x"], (0, 0))


def _sum_of(count: int, interval: Interval) -> Interval:
    low, high = interval
    return within(min(0, low * count), max(0, high * count))


def _sum(call: IntegerCall) -> Interval:
    return _sum_of(call.elements(), call.intervals["x"])


def _running_sum(call: IntegerCall) -> Interval:
    return _sum_of(_width(call), call.intervals["x"])


def _width(call: IntegerCall) -> int:
    x, dim = call.args["x"], call.args["dim"]
    assert isinstance(x, Tensor)
    shape = x.max_shape or (1,)
    return shape[dim] if isinstance(dim, int) and -len(shape) <= dim < len(shape) else max(shape)


def _product_of(count: int, interval: Interval) -> Interval:
    size = max(map(abs, interval))
    power = 1 if size <= 1 else size ** min(count, 64)
    return within(0 if interval[0] >= 0 else -power, power)


def _product(call: IntegerCall) -> Interval:
    return hull((1, 1), _product_of(call.elements(), call.intervals["x"]))


def _factor(call: IntegerCall, name: str) -> int:
    """A bound of the magnitude of a factor. One below 0 turns the interval around: refuse what is unclear."""
    factor = call.args.get(name, 1)
    return ceil(factor) if isinstance(factor, (int, float)) and factor >= 0 else 2**64


def _matrix_product(a: str, b: str, added: str | None = None) -> IntegerRule:
    """Sums of products along the last dimension of `a`."""

    def interval(call: IntegerCall) -> Interval:
        matrix = call.args[a]
        assert isinstance(matrix, Tensor)
        ends = [x * y for x in call.intervals[a] for y in call.intervals[b]]
        terms = matrix.max_shape[-1] if matrix.max_shape else 1
        product = _sum_of(terms * _factor(call, "alpha"), (min(ends), max(ends)))
        low, high = _sum_of(_factor(call, "beta"), call.intervals.get(added or "", (0, 0)))
        return within(product[0] + low, product[1] + high)

    return IntegerRule(interval=interval, one_word=True)


def _running_product(call: IntegerCall) -> Interval:
    return hull(call.intervals["x"], _product_of(_width(call), call.intervals["x"]))


def _scattered(call: IntegerCall) -> Interval:
    """The old elements, or sums with new ones."""
    x, source = call.intervals["x"], call.intervals["source"]
    given = call.args["source"]
    assert isinstance(given, Tensor)
    if call.args.get("reduce", "sum") in ("amax", "amin"):
        return hull(x, source)
    if call.args.get("reduce", "sum") != "sum":
        return INT64
    low, high = _sum_of(numel(given.max_shape), source)
    return within(x[0] + low, x[1] + high)


def _put(call: IntegerCall) -> Interval:
    if call.args["accumulate"] is not False:
        return INT64
    return hull(call.intervals["x"], call.intervals["values"])


def _filled(name: str) -> IntervalRule:
    return lambda call: call.intervals.get(name, INT64)


def _just(number: int) -> IntervalRule:
    return lambda call: (number, number)


def _ramp(call: IntegerCall) -> Interval:
    start = call.intervals.get("start", (0, 0) if "start" not in call.args else INT64)
    step = call.intervals.get("step", (1, 1) if "step" not in call.args else INT64)
    length = max(0, numel(call.out.max_shape) - 1)
    ends = [s + t * n for s in start for t in step for n in (0, length)]
    return within(min(ends), max(ends))


# -- the table ---------------------------------------------------------------------------------------

_MOVES = IntegerRule(("x",))
_EXTREME = IntegerRule(("x",), compares=True)
_SORTED = IntegerRule(("x",), compares=True, places=True)
_DECIDES = IntegerRule(decides=("x",))
_LOOKED_UP = IntegerRule(("weight",), indices=("indices",))
_INDEXED = IntegerRule(indices=("indices",))

RULES: dict[str, IntegerRule] = {
    **dict.fromkeys(
        (
            "aten.view_copy.default",
            "aten._unsafe_view.default",
            "pteron.copy",
            "aten.alias_copy.default",
            "aten.detach_copy.default",
            "aten.lift_fresh_copy.default",
            "et_copy._h2d_copy.default",
            "et_copy._d2h_copy.default",
            "aten.clone.default",
            "dim_order_ops._clone_dim_order.default",
            "aten.squeeze_copy.dims",
            "aten.squeeze_copy.dim",
            "aten.squeeze_copy.default",
            "aten.unsqueeze_copy.default",
            "aten.permute_copy.default",
            "aten.permute.default",
            "aten.t_copy.default",
            "aten.transpose_copy.int",
            "aten.slice_copy.Tensor",
            "aten.split_with_sizes_copy.default",
            "aten.split_copy.Tensor",
            "aten.unbind_copy.int",
            "aten.unfold_copy.default",
            "aten.select_copy.int",
            "aten.expand_copy.default",
            "aten.repeat.default",
            "aten.flip.default",
            "aten.roll.default",
            "aten.as_strided_copy.default",
            "aten.diagonal_copy.default",
            "aten.narrow_copy.default",
            "aten.pixel_shuffle.default",
            "aten.pixel_unshuffle.default",
            "aten.replication_pad1d.default",
            "aten.reflection_pad1d.default",
            "aten.replication_pad2d.default",
            "aten.reflection_pad2d.default",
            "aten.replication_pad3d.default",
            "aten.reflection_pad3d.default",
            "pteron.first_row",
        ),
        _MOVES,
    ),
    "aten.constant_pad_nd.default": IntegerRule(("x",), interval=_moved_or("value")),
    "aten.tril.default": IntegerRule(("x",), interval=_moved_or_zero),
    "aten.triu.default": IntegerRule(("x",), interval=_moved_or_zero),
    "aten.copy.default": IntegerRule(("source",), shapes=("x",)),
    "aten.fill.Tensor": IntegerRule(("value",), shapes=("x",)),
    "aten.cat.default": IntegerRule(("tensors",)),
    "aten.stack.default": IntegerRule(("tensors",)),
    "aten.slice_scatter.default": IntegerRule(("x", "source")),
    "aten.select_scatter.default": IntegerRule(("x", "source")),
    "aten.masked_scatter.default": IntegerRule(("x", "source")),
    "aten.masked_select.default": IntegerRule(("x",), places=True),
    "pteron.select_rows": IntegerRule(("x",), places=True),
    "pteron.choose": IntegerRule(("a", "b")),
    "pteron.write_back": IntegerRule(("x", "target")),
    "pteron.write_row": IntegerRule(("x", "target")),
    "aten.index_select.default": IntegerRule(("x",), indices=("index",)),
    "aten.gather.default": IntegerRule(("x",), indices=("index",)),
    "aten.index.Tensor": IntegerRule(("x",), indices=("indices",)),
    "aten.scatter.src": IntegerRule(("x", "source"), indices=("index",)),
    "et_vk.scatter_src_unique.default": IntegerRule(("x", "source"), indices=("index",)),
    "aten.scatter.value": IntegerRule(("x",), indices=("index",), interval=_moved_or("value")),
    "aten.scatter_add.default": IntegerRule(("x", "source"), indices=("index",), interval=_scattered),
    "aten.scatter_reduce.two": IntegerRule(
        ("x", "source"), indices=("index",), interval=_scattered, compares=True
    ),
    "aten.index_put.default": IntegerRule(("x", "values"), indices=("indices",), interval=_put),
    "aten.embedding.default": _LOOKED_UP,
    **dict.fromkeys(
        (
            "et_vk.embedding_q4gsw.default",
            "pteron.embedding_affine.default",
            "pteron.embedding_int8",
            "quantized_decomposed.embedding_2bit.default",
            "quantized_decomposed.embedding_2bit.dtype",
            "quantized_decomposed.embedding_4bit.default",
            "quantized_decomposed.embedding_4bit.dtype",
            "quantized_decomposed.embedding_byte.default",
            "quantized_decomposed.embedding_byte.dtype",
            "aten.max_pool2d_with_indices_backward.default",
        ),
        _INDEXED,
    ),
    "update_cache_with_indices.default": IntegerRule(("value", "cache"), indices=("indices",)),
    "pteron.experts.default": IntegerRule(indices=("chosen",)),
    "pteron.experts_affine.default": IntegerRule(indices=("chosen",)),
    "et_vk.fused_ce.default": IntegerRule(indices=("labels",)),
    "aten.sum.default": IntegerRule(accumulates=("x",), interval=_sum),
    "aten.sum.dim_IntList": IntegerRule(accumulates=("x",), interval=_sum),
    "aten.prod.default": IntegerRule(accumulates=("x",), interval=_product),
    "aten.prod.dim_int": IntegerRule(accumulates=("x",), interval=_product),
    "aten.cumsum.default": IntegerRule(accumulates=("x",), interval=_running_sum),
    "aten.cumprod.default": IntegerRule(accumulates=("x",), interval=_running_product),
    "aten.mm.default": _matrix_product("a", "b"),
    "aten.bmm.default": _matrix_product("a", "b"),
    "aten.addmm.default": _matrix_product("a", "b", "c"),
    "aten.baddbmm.default": _matrix_product("a", "b", "c"),
    "aten.linear.default": _matrix_product("x", "weight", "bias"),
    "aten.mean.default": IntegerRule(floats=("x",)),
    "aten.mean.dim": IntegerRule(floats=("x",)),
    "aten.amax.default": _EXTREME,
    "aten.amin.default": _EXTREME,
    "aten.max.default": _EXTREME,
    "aten.min.default": _EXTREME,
    "aten.max.dim": _SORTED,
    "aten.min.dim": _SORTED,
    "aten.sort.default": _SORTED,
    "aten.sort.stable": _SORTED,
    "aten.topk.default": _SORTED,
    "aten.argmax.default": _DECIDES,
    "aten.argmin.default": _DECIDES,
    "aten.any.default": _DECIDES,
    "aten.any.dim": _DECIDES,
    "aten.any.dims": _DECIDES,
    "aten.all.default": _DECIDES,
    "aten.all.dim": _DECIDES,
    "aten.all.dims": _DECIDES,
    "aten.nonzero.default": _DECIDES,
    "aten.full.default": IntegerRule(interval=_filled("value")),
    "aten.full_like.default": IntegerRule(shapes=("x",), interval=_filled("value")),
    "aten.fill.Scalar": IntegerRule(shapes=("x",), interval=_filled("value")),
    "aten.scalar_tensor.default": IntegerRule(interval=_filled("value")),
    "aten.zeros.default": IntegerRule(interval=_just(0)),
    "aten.zeros_like.default": IntegerRule(shapes=("x",), interval=_just(0)),
    "aten.ones.default": IntegerRule(interval=_just(1)),
    "aten.ones_like.default": IntegerRule(shapes=("x",), interval=_just(1)),
    "aten.arange.default": IntegerRule(interval=_ramp),
    "aten.arange.start_step": IntegerRule(interval=_ramp),
    "sym_size.int": IntegerRule(shapes=("x",)),
    "aten::sym_size.int": IntegerRule(shapes=("x",)),
    "sym_numel.default": IntegerRule(shapes=("x",)),
    "aten::sym_numel": IntegerRule(shapes=("x",)),
}
