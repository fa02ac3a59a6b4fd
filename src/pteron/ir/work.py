"""How much work a node does in a call: floating-point operations, and bytes through memory.

These are estimates, to put a kernel's time in proportion. Every tensor that a node reads or writes counts
once, at its live shape, as if the GPU's caches were perfect. An operator that multiplies, or that uses only a
part of a tensor, declares it where it is registered:

    @op("aten.linear.default", work=multiplies("x"))
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from pteron.ir.live import Live, LiveTensor
from pteron.ir.values import Arg, Node, SymInt, Tensor, ValueId


@dataclass(frozen=True, slots=True)
class Work:
    """What an operator declares of one call."""

    flops: int | None = None  # a multiply-add is two; None: the operator is not a product
    parts: Mapping[str, int] = field(default_factory=dict)  # bytes of the arguments that it uses in part


@dataclass(frozen=True, slots=True)
class Cost:
    """What a call of a node takes."""

    flops: int | None
    nbytes: int


class LiveArguments:
    """A node's arguments by the names of its rule's parameters: tensors at their live shapes, and scalars."""

    def __init__(self, node: Node, live: Sequence[Live]) -> None:
        self._args = dict(zip(node.op.parameters, node.args, strict=True))
        self._live = live

    def __getitem__(self, name: str) -> Any:
        return self._view(self._args[name])

    def tensors(self, name: str) -> list[LiveTensor]:
        """The tensors of an argument that is one, or a list."""
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
    """What a node takes at its live shapes."""
    arguments = LiveArguments(node, live)
    declared: Work = node.op.work(arguments) if node.op.work else Work()
    nbytes: dict[ValueId, int] = {x.tensor.id: x.nbytes for x in arguments.outputs}
    for name, tensors in arguments.inputs.items():
        nbytes |= {x.tensor.id: declared.parts.get(name, x.nbytes) for x in tensors}
    return Cost(declared.flops, sum(nbytes.values()))


# -- what operators declare ------------------------------------------------------------------------


def multiplies(factor: str) -> WorkRule:
    """Every element of the outputs is a sum of products over the last dimension of `factor`."""

    def work(call: LiveArguments) -> Work:
        return Work(2 * sum(y.numel for y in call.outputs) * call[factor].shape[-1])

    return work


def looks_up(*tables: str, by: str) -> WorkRule:
    """Rows of the tables are read, one for each element of the indices `by`."""

    def work(call: LiveArguments) -> Work:
        given = {name: call[name] for name in tables if call[name] is not None}
        return Work(parts={name: first_rows(table, call[by].numel) for name, table in given.items()})

    return work


def reads_part_of(name: str) -> WorkRule:
    """Of one argument no more elements are read than are written."""

    def work(call: LiveArguments) -> Work:
        written = sum(y.numel for y in call.outputs)
        x = call[name]
        return Work(parts={name: min(x.numel, written) * x.dtype.itemsize})

    return work


def reads_only_shape_of(name: str) -> WorkRule:
    """Of one argument no element is read."""
    return lambda call: Work(parts={name: 0})


def first_rows(x: LiveTensor, count: int, dim: int = 0) -> int:
    """The bytes of `count` places of a dimension, or of all that there are."""
    return x.nbytes * min(count, x.shape[dim]) // max(x.shape[dim], 1)
