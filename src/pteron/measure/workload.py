"""How much work a node does at its live shapes: floating-point operations, and bytes through memory.

Estimates, to put a kernel's time in proportion. A product counts two operations per multiply-add. Bytes
count every tensor once, as if caches were perfect; of a table that is only looked up in, the rows taken.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from pteron.ir.live import Live
from pteron.ir.values import Node, Shape, SymInt, Tensor, ValueId, numel, values_in


@dataclass(frozen=True, slots=True)
class Workload:
    flops: int | None  # None: not a product, or nobody has said how to count it
    nbytes: int


def workload(node: Node, live: Sequence[Live]) -> Workload:
    seen = _Arguments(node, live)
    count = next((rule for part, rule in _FLOPS if part in node.name), None)
    return Workload(count(seen) if count else None, _nbytes(seen))


def shape_of(tensor: Tensor, live: Sequence[Live]) -> Shape:
    shape = live[tensor.id]
    assert isinstance(shape, tuple)
    return shape


class _Arguments:
    """A node's arguments by their rule's names, at their live shapes."""

    def __init__(self, node: Node, live: Sequence[Live]) -> None:
        self.node = node
        self.live = live
        self._args = dict(zip(node.op.parameters, node.args, strict=True))

    def shape(self, *names: str) -> Shape:
        """Of the first argument that has one of these names."""
        found = next(arg for name in names if isinstance(arg := self._args.get(name), Tensor))
        return shape_of(found, self.live)

    def integer(self, name: str) -> int:
        arg: Any = self._args.get(name, 0)
        value: Any = self.live[arg.id] if isinstance(arg, SymInt) else arg
        return int(value or 0)

    def is_true(self, name: str) -> bool:
        return bool(self._args.get(name))

    @property
    def first(self) -> Shape:
        """The first tensor: what is multiplied."""
        return shape_of(next(v for v in self.node.reads if isinstance(v, Tensor)), self.live)

    @property
    def written(self) -> int:
        return sum(numel(shape_of(v, self.live)) for v in self.node.writes if isinstance(v, Tensor))


_Count: TypeAlias = Callable[[_Arguments], int | None]


def _linear(seen: _Arguments) -> int:
    return 2 * seen.written * seen.first[-1]


def _added_product(seen: _Arguments) -> int:
    return 2 * seen.written * seen.shape("a")[-1]


def _convolution(seen: _Arguments) -> int:
    """Each element of the output meets one filter; transposed, each of the input does."""
    filters = numel(seen.shape("weight", "weights")[1:])
    return 2 * filters * (numel(seen.first) if seen.is_true("transposed") else seen.written)


def _cached_attention(seen: _Arguments) -> int:
    """Query i of S sees start_pos + i + 1 keys, for the scores and again for the values."""
    batch, length, heads, width = seen.shape("q")
    visible = length * seen.integer("start_pos") + length * (length + 1) // 2
    return 4 * batch * heads * width * visible


def _attention(seen: _Arguments) -> int:
    return 4 * seen.written * seen.shape("k")[-2]


def _unknown(seen: _Arguments) -> None:
    """Its weights are laid out in a way that does not tell the filter's size."""


# By a part of the operator's name; the first that fits.
_FLOPS: tuple[tuple[str, _Count], ...] = (
    ("q8ta_conv2d_dw", _unknown),
    ("q8ta_conv2d_transposed", _unknown),
    ("linear_dW", _unknown),
    ("backward", _unknown),
    ("linear", _linear),
    ("addmm", _added_product),
    ("baddbmm", _added_product),
    ("mm", _linear),
    ("conv", _convolution),
    ("sdpa_with_kv_cache", _cached_attention),
    ("custom_sdpa", _cached_attention),
    ("sdpa", _attention),
)

_LOOKUPS = ("embedding", "rotary", "index_select", "gather", "aten.index.")
_CACHES = ("key_cache", "value_cache")


def _nbytes(seen: _Arguments) -> int:
    node, live = seen.node, seen.live

    def size(tensor: Tensor) -> int:
        return numel(shape_of(tensor, live)) * tensor.dtype.itemsize

    written = {v.id: size(v) for v in node.writes if isinstance(v, Tensor)}
    is_lookup = any(part in node.name for part in _LOOKUPS)
    read: dict[ValueId, int] = {}
    for name, arg in zip(node.op.parameters[:-1], node.args[:-1], strict=True):
        for value in values_in(arg):
            if not isinstance(value, Tensor):
                continue
            nbytes = size(value)
            if is_lookup and value.constant is not None:
                nbytes = min(nbytes, sum(written.values()))
            elif name in _CACHES:
                rows = seen.integer("start_pos") + seen.shape("q")[1]
                nbytes = nbytes * min(rows, seen.shape(name)[1]) // max(seen.shape(name)[1], 1)
            read[value.id] = nbytes
    return sum(read.values()) + sum(n for value, n in written.items() if value not in read)
