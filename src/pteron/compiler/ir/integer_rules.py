"""What operators do with integers: `@op(..., integers=moves("x"))`.

An operator that declares nothing takes integers of one word, and its integer results fit in one word. If such
an operator gets a 64-bit integer that may not fit, the program is refused. Elementwise operators and aliases
need no declaration.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil
from typing import Any, TypeAlias

from pteron.compiler.ir.integers import INT64, Interval, hull, within
from pteron.compiler.ir.values import Tensor, numel


@dataclass(frozen=True, slots=True)
class IntegerCall:
    """A call of an operator: its arguments, and the intervals of its integers, by the names of parameters."""

    args: dict[str, Any]
    intervals: dict[str, Interval]
    out: Tensor

    def elements(self) -> int:
        """The largest number of elements of `x` that an element of the output is made of."""
        x = self.args["x"]
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


def or_scalar(name: str) -> IntervalRule:
    """Elements of x, or a scalar."""
    return lambda call: hull(call.intervals["x"], call.intervals.get(name, INT64))


def or_zero(call: IntegerCall) -> Interval:
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


def matrix_product(a: str, b: str, added: str | None = None) -> IntegerRule:
    """Sums of products along the last dimension of `a`."""

    def interval(call: IntegerCall) -> Interval:
        matrix = call.args[a]
        ends = [x * y for x in call.intervals[a] for y in call.intervals[b]]
        terms = matrix.max_shape[-1] if matrix.max_shape else 1
        product = _sum_of(terms * _factor(call, "alpha"), (min(ends), max(ends)))
        low, high = _sum_of(_factor(call, "beta"), call.intervals.get(added or "", (0, 0)))
        return within(product[0] + low, product[1] + high)

    return IntegerRule(interval=interval, one_word=True)


def _running_product(call: IntegerCall) -> Interval:
    return hull(call.intervals["x"], _product_of(_width(call), call.intervals["x"]))


def scattered(call: IntegerCall) -> Interval:
    """The old elements, or sums with new ones."""
    x, source = call.intervals["x"], call.intervals["source"]
    given = call.args["source"]
    if call.args.get("reduce", "sum") in ("amax", "amin"):
        return hull(x, source)
    if call.args.get("reduce", "sum") != "sum":
        return INT64
    low, high = _sum_of(numel(given.max_shape), source)
    return within(x[0] + low, x[1] + high)


def put(call: IntegerCall) -> Interval:
    if call.args["accumulate"] is not False:
        return INT64
    return hull(call.intervals["x"], call.intervals["values"])


def _ramp(call: IntegerCall) -> Interval:
    start = call.intervals.get("start", (0, 0) if "start" not in call.args else INT64)
    step = call.intervals.get("step", (1, 1) if "step" not in call.args else INT64)
    length = max(0, numel(call.out.max_shape) - 1)
    ends = [s + t * n for s in start for t in step for n in (0, length)]
    return within(min(ends), max(ends))


# -- what operators declare --------------------------------------------------------------------------


def moves(*names: str, **more: Any) -> IntegerRule:
    """Elements of these arguments are elements of the outputs. `more`: other attributes of the rule."""
    return IntegerRule(names, **more)


def indexes(*names: str) -> IntegerRule:
    """These arguments are indices."""
    return IntegerRule(indices=names)


def fills(number: str | int, **more: Any) -> IntegerRule:
    """All elements are one number, or the argument with this name."""
    if isinstance(number, int):
        return IntegerRule(interval=lambda call: (number, number), **more)
    return IntegerRule(interval=lambda call: call.intervals.get(number, INT64), **more)


OF_SHAPE = IntegerRule(shapes=("x",))
AS_FLOATS = IntegerRule(floats=("x",))
DECIDES = IntegerRule(decides=("x",))
EXTREME = IntegerRule(("x",), compares=True)
SORTED = IntegerRule(("x",), compares=True, places=True)
SUMMED = IntegerRule(accumulates=("x",), interval=_sum)
MULTIPLIED = IntegerRule(accumulates=("x",), interval=_product)
RUNNING_SUM = IntegerRule(accumulates=("x",), interval=_running_sum)
RUNNING_PRODUCT = IntegerRule(accumulates=("x",), interval=_running_product)
RAMP = IntegerRule(interval=_ramp)
