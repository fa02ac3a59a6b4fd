"""Constants made from other constants. No bytes are copied before the upload."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pteron.compiler.ir.dtypes import host_itemsize
from pteron.compiler.ir.values import Arg, Constant, Folded, Graph, Joined, Shape, Tensor, numel


def permutation(source: Tensor, dims: Arg) -> tuple[int, ...]:
    """`dims` as non-negative dimensions of the tensor; empty if it is not a permutation."""
    rank = len(source.max_shape)
    if not isinstance(dims, tuple) or len(dims) != rank:
        return ()
    places = tuple([d % rank for d in dims if isinstance(d, int)])
    return places if sorted(places) == list(range(rank)) else ()


def permuted_constant(graph: Graph, source: Tensor, places: Sequence[int]) -> Tensor:
    """A constant with permuted dimensions. Only the order is stored; the bytes stay in place."""
    constant = source.constant
    shape = tuple(source.max_shape[d] for d in places)
    if isinstance(constant, Folded) and constant.source is not None:
        inner = permuted_constant(graph, constant.source, places)
        folded = replace(constant, source=inner, axis=places.index(constant.axis))
        return graph.tensor(source.dtype, shape, f"{source.name}.permuted", folded)
    assert isinstance(constant, Constant)
    rank = len(source.max_shape)
    order = tuple(places.index(d) for d in constant.dim_order or range(rank))
    permuted = Constant(constant.data, constant.host_type, order)
    return graph.tensor(source.dtype, shape, f"{source.name}.permuted", permuted)


def can_take_rows(tensor: Tensor) -> bool:
    """Whether `constant_rows` can be called: the file has the rows of the constant one after another."""
    constant = tensor.constant
    return isinstance(constant, Constant) and constant.dim_order in ((), tuple(range(len(tensor.max_shape))))


def constant_rows(graph: Graph, source: Tensor, rows: range) -> Tensor:
    """Some rows of a constant: a region of its region of the file."""
    shape, part = _rows_of(source, rows)
    return graph.tensor(source.dtype, shape, f"{source.name}[{rows.start}:{rows.stop}]", part)


def first_rows(source: Tensor, count: int) -> Tensor:
    """The same constant with fewer rows. It stays whole if its rows are not one after another."""
    if not can_take_rows(source):
        return source
    shape, part = _rows_of(source, range(count))
    return replace(source, max_shape=shape, constant=part)


def _rows_of(source: Tensor, rows: range) -> tuple[Shape, Constant]:
    constant = source.constant
    assert isinstance(constant, Constant)
    shape = (len(rows), *source.max_shape[1:])
    nbytes = numel(shape[1:]) * host_itemsize(constant.host_type)
    return shape, replace(constant, data=constant.data[rows.start * nbytes : rows.stop * nbytes])


def joined_constant(graph: Graph, parts: Sequence[Tensor], axis: int) -> Tensor:
    """Constants of one dtype, concatenated along an axis. They are joined at upload."""
    shape = list(parts[0].max_shape)
    shape[axis] = sum(part.max_shape[axis] for part in parts)
    name = "+".join(part.name for part in parts)
    return graph.tensor(parts[0].dtype, tuple(shape), name, Joined(tuple(parts), axis))
