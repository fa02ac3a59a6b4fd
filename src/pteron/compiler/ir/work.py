"""The work of a node in a call: floating-point operations, and bytes read and written.

These are estimates, to judge the time of a kernel. Every tensor that a node reads or writes counts once, at
its live shape, as with perfect caches. An operator that multiplies, or that uses only a part of a tensor,
declares this at registration:

    @op("aten.linear.default", work=multiplies("x"))
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from pteron.compiler.ir.live import Live, LiveTensor
from pteron.compiler.ir.values import Arg, Node, SymInt, Tensor, ValueId


@dataclass(frozen=True, slots=True)
class Work:
    """The work that an operator declares for one call."""

    flops: int | None = None  # a multiply-add counts as two; None: the operator does not multiply
    parts: Mapping[str, int] = field(default_factory=dict)  # bytes used of arguments that are used in part


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of one call of a node."""

    flops: int | None
    nbytes: int


class LiveArguments:
    """The arguments of a node by parameter name: tensors with live shapes, and scalars."""

    def __init__(self, node: Node, live: Sequence[Live]) -> None:
        self._args = node.named
        self._live = live

    def __getitem__(self, name: str) -> Any:
        return self._view(self._args[name])

    def tensors(self, name: str) -> list[LiveTensor]:
        """The tensors of an argument that is a tensor or a list of tensors."""
        found = self[name]
        return [x for x in (found if isinstance(found, tuple) else (found,)) if isinstance(x, LiveTensor)]

    @property
    def outputs(self) -> list[LiveTensor]:
        return self.tensors(next(reversed(self._args)))

    @property
    def inputs(self) -> dict[str, list[LiveTensor]]:
        return {name: self.tensors(name) for name in list(self._args)[:-1]}

    def _view(self, arg: Arg) -> Any:
        if isinstance(arg, tuple):
            return tuple(map(self._view, arg))
        if isinstance(arg, Tensor):
            shape = self._live[arg.id]
            assert isinstance(shape, tuple)
            return LiveTensor(arg, shape, [])
        return self._live[arg.id] if isinstance(arg, SymInt) else arg


WorkRule: TypeAlias = Callable[[LiveArguments], Work]


def cost(node: Node, live: Sequence[Live]) -> Cost:
    """The cost of a node at its live shapes."""
    arguments = LiveArguments(node, live)
    declared: Work = node.op.work(arguments) if node.op.work else Work()
    nbytes: dict[ValueId, int] = {x.tensor.id: x.nbytes for x in arguments.outputs}
    for name, tensors in arguments.inputs.items():
        nbytes |= {x.tensor.id: declared.parts.get(name, x.nbytes) for x in tensors}
    return Cost(declared.flops, sum(nbytes.values()))


# -- declarations of operators ---------------------------------------------------------------------


def multiplies(factor: str) -> WorkRule:
    """Every element of the outputs is a sum of products over the last dimension of `factor`."""

    def work(call: LiveArguments) -> Work:
        return Work(2 * sum(y.numel for y in call.outputs) * call[factor].shape[-1])

    return work


def looks_up(*tables: str, by: str) -> WorkRule:
    """One row of each table is read for every element of the indices `by`."""

    def work(call: LiveArguments) -> Work:
        given = {name: call[name] for name in tables if call[name] is not None}
        return Work(parts={name: first_rows(table, call[by].numel) for name, table in given.items()})

    return work


def reads_part_of(name: str) -> WorkRule:
    """As many elements of this argument are read as elements are written."""

    def work(call: LiveArguments) -> Work:
        written = sum(y.numel for y in call.outputs)
        x = call[name]
        return Work(parts={name: min(x.numel, written) * x.dtype.itemsize})

    return work


def reads_only_shape_of(name: str) -> WorkRule:
    """No element of this argument is read."""
    return lambda call: Work(parts={name: 0})


def first_rows(x: LiveTensor, count: int, dim: int = 0) -> int:
    """The bytes of the first `count` positions of a dimension, at most of all."""
    return x.nbytes * min(count, x.shape[dim]) // max(x.shape[dim], 1)
