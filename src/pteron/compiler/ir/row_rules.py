"""How operators treat the rows of a sequence: what they declare beside their names.

A program for one sequence takes tokens [1, S] and a position. Most of its tensors have a row for each token.
An operator is *row-wise* if row i of its outputs depends only on row i of its inputs. Then the rows of
several sequences may lie one after another. An operator is *segmented* if it also reads the position or a KV
cache. It names the operator that does the same for several sequences at once: its twin. All other operators
are taken to mix rows.

    @op("aten.linear.default", rows=rows_of("x", mixes=-1))
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from pteron.compiler.ir.values import Node, Shape, Tensor, ValueId, numel, values_in


class MixesRows(Exception):
    """A node uses several rows for one row of its outputs. The text says why."""


class RowArguments:
    """The arguments of a node by parameter name, and the dimension in which each tensor has its rows."""

    def __init__(self, node: Node, dims: Mapping[ValueId, int]) -> None:
        self._args = node.named
        self._dims = dims

    def __getitem__(self, name: str) -> Any:
        return self._args[name]

    def get(self, name: str) -> Any:
        return self._args.get(name)

    def dim(self, name: str) -> int:
        """The dimension of an argument's rows. Refuses an argument without rows."""
        found = self._dims.get(self._args[name].id)
        if found is None:
            raise MixesRows(f"`{name}` has no rows")
        return found

    def inputs(self) -> Iterator[tuple[str, Tensor]]:
        """The input tensors, each with the name of its argument."""
        for name in list(self._args)[:-1]:
            yield from ((name, value) for value in values_in(self._args[name]) if isinstance(value, Tensor))

    def with_rows(self) -> list[tuple[str, Tensor, int]]:
        """The input tensors that have rows, each with the dimension of its rows."""
        return [(name, x, self._dims[x.id]) for name, x in self.inputs() if x.id in self._dims]

    def check_others(self, dim: Callable[[Tensor], int], names: Collection[str] | None = None) -> None:
        """Refuse arguments that have no rows, but an element for each place in the call.

        dim: the dimension in which an argument would have rows. names: the arguments that may have some.
        """
        for name, x in self.inputs():
            d = dim(x)
            own = names is None or name in names
            if own and x.id not in self._dims and 0 <= d < len(x.max_shape) and x.max_shape[d] > 1:
                raise MixesRows(f"`{name}` has an element for each place in the call, not for each token")

    def only(self, *names: str) -> None:
        """Refuse rows in other arguments than these."""
        for name, _, _ in self.with_rows():
            if name not in names:
                raise MixesRows(
                    f"`{name}` has a row for each token, and every row of the result reads all of it"
                )

    @property
    def out_shape(self) -> Shape:
        """The largest shape of the first output."""
        return next(
            v.max_shape for v in values_in(self._args[next(reversed(self._args))]) if isinstance(v, Tensor)
        )


@dataclass(frozen=True, slots=True)
class RowWise:
    """`dim` gives the dimension of the rows in the outputs, or raises `MixesRows`."""

    dim: Callable[[RowArguments], int]
    sizes: str | None = None  # an argument with the sizes of the output, which may contain the number of rows


@dataclass(frozen=True, slots=True)
class Segmented:
    """A node that reads the position. Its twin takes tables of the rows in the place of the position."""

    twin: str
    at: str  # the argument with the position
    rows: tuple[str, ...]  # arguments that are [1, S, ...]; so are the outputs
    caches: tuple[str, ...] = ()  # arguments that are KV caches [1, capacity, ...]
    refuses: Callable[[RowArguments], str | None] = lambda call: None  # why the twin cannot do it


RowRule: TypeAlias = RowWise | Segmented


# -- declarations of operators ---------------------------------------------------------------------


def rows_of(*names: str, mixes: str | int | None = None) -> RowWise:
    """These arguments have rows in the same dimension, and so have the outputs.

    mixes: the dimension that the operator sums over, selects from or joins; or the argument that gives it. If
    the outputs have fewer dimensions, it is this one that is gone.
    """

    def dim(call: RowArguments) -> int:
        call.only(*names)
        dims = {d for _, _, d in call.with_rows()}
        if len(dims) != 1:
            raise MixesRows("its inputs have their rows in different dimensions")
        d = dims.pop()
        call.check_others(lambda x: d, names)
        rank = len(call.with_rows()[0][1].max_shape)
        mixed = _mixed(call, mixes, rank)
        if d in mixed:
            raise MixesRows(f"it combines or selects along dimension {d}, which has a row for each token")
        return d - sum(m < d for m in mixed) if len(call.out_shape) < rank else d

    return RowWise(dim)


def _mixed(call: RowArguments, mixes: str | int | None, rank: int) -> set[int]:
    if mixes is None:
        return set()
    dims = call[mixes] if isinstance(mixes, str) else mixes
    if dims is None or dims == ():  # the sum over all dimensions
        return set(range(rank))
    return {d % max(rank, 1) for d in (dims if isinstance(dims, tuple) else (dims,))}


def looked_up(by: str) -> RowWise:
    """Each row of `by` has indices into tables. The rows stay in their dimension."""

    def dim(call: RowArguments) -> int:
        call.only(by)
        return call.dim(by)

    return RowWise(dim)


def _broadcast(call: RowArguments) -> int:
    places = {len(x.max_shape) - d for _, x, d in call.with_rows()}
    if len(places) != 1:
        raise MixesRows("its operands have their rows in different dimensions")
    place = places.pop()
    call.check_others(lambda x: len(x.max_shape) - place)
    return len(call.out_shape) - place


def _reshaped(call: RowArguments) -> int:
    ((_, x, d),) = call.with_rows()
    before, after = x.max_shape, call.out_shape
    inner, size = numel(before[d + 1 :]), before[d]
    for candidate in reversed(range(len(after))):
        if after[candidate] == size and numel(after[candidate + 1 :]) == inner:
            return candidate
    raise MixesRows("it joins the dimension of the rows with another one")


def _permuted(call: RowArguments) -> int:
    ((_, x, d),) = call.with_rows()
    rank = len(x.max_shape)
    order = list(range(rank))
    if call.get("dims") is not None:
        order = [n % rank for n in call["dims"]]
    elif call.get("dim0") is not None:
        a, b = call["dim0"] % rank, call["dim1"] % rank
        order[a], order[b] = b, a
    else:
        order.reverse()
    return order.index(d)


ELEMENTWISE = RowWise(_broadcast)
EXPANDED = RowWise(_broadcast, sizes="size")
RESHAPED = RowWise(_reshaped)
VIEWED = RowWise(_reshaped, sizes="size")
PERMUTED = RowWise(_permuted)
