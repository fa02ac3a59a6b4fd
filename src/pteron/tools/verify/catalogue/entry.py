"""Entries of the catalogue: an operator with arguments, and mostly a numpy function that computes the same.

Every entry is a program with one node: tests compile its shader texts and follow its live sizes, and
docs/operators.md lists its kernels. `pteron doctor --thorough` runs the entries with a reference.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pteron.compiler.ir.dtypes import DType
from pteron.compiler.ir.op import OpSpec
from pteron.compiler.ir.values import Graph, Value
from pteron.compiler.ops import find, known
from pteron.compiler.sketch import Sketch, found, replaced
from pteron.tools.verify.catalogue.arguments import LEAVES, Array, Drawing, Position, T
from pteron.tools.verify.catalogue.types import F32, FLOATS

SIZES = (9, 3, 1, 6)  # the largest first, then others in changing order
NEVER_WRITTEN = np.full(1, np.nan)  # an output that no kernel writes stays poisoned

Make = Callable[..., Sequence[Any]]  # (live size) -> the arguments
Contents = Callable[[T], Array]


@dataclass(frozen=True, eq=False)
class OperatorEntry:
    """An operator with arguments, for some element types."""

    op: str
    make: Make
    dtypes: tuple[DType, ...]  # that are planned and compiled
    reference: Callable[..., Any] | None = None  # the outputs, and then the tensors that are changed in place
    tried: tuple[DType, ...] = ()  # that are run and compared with the reference
    sizes: tuple[int, ...] = SIZES

    @property
    def spec(self) -> OpSpec:
        return known(self.op)

    def arguments(self, size: int, dtype: DType) -> list[Any]:
        """Descriptions of all arguments. The outputs are the last one."""
        args = list(self.make(size))
        return args if self.reference is None else [*args, self._outputs(size, dtype)]

    @functools.cache  # noqa: B019  entries live as long as the process
    def _outputs(self, size: int, dtype: DType) -> Any:
        args = self.make(size)
        results = self.expected(Drawing(dtype).all(args))
        named = zip(self.spec.parameters, args, strict=False)
        changed = sum(name in self.spec.mutates and isinstance(arg, T) for name, arg in named)
        outs = [T(x.shape, _stored(x, dtype)) for x in results[: len(results) - changed]]
        return outs if self.spec.parameters[-1] == "outs" else outs[0] if outs else None

    def expected(self, drawn: Sequence[Any]) -> list[Array]:
        assert self.reference is not None
        return computed(self.reference, drawn)

    def drawn(self, size: int, dtype: DType) -> tuple[list[Any], list[Any]]:
        """The inputs of a call of `graph`, and all arguments with arrays in them, but no output."""
        args = self.arguments(size, dtype)[:-1]
        drawn = Drawing(dtype).all(args)
        leaves = zip(found(args, LEAVES), found(drawn, (np.ndarray, Position)), strict=True)
        inputs = [
            x.value if isinstance(x, Position) else x
            for leaf, x in leaves
            if isinstance(leaf, Position) or not leaf.fixed
        ]
        return inputs, drawn

    def graph(self, dtype: DType, contents: Contents | None = None) -> Graph:
        """A program with one node, for arguments up to the largest size."""
        return one_node(self.op, self.arguments(max(self.sizes), dtype), dtype, contents)


def computed(reference: Callable[..., Any], args: Sequence[Any], **options: Any) -> list[Array]:
    """Call a reference. Floats are computed in float64, so it is more exact than any kernel."""
    with np.errstate(all="ignore"):
        made = reference(*replaced(args, (np.ndarray, Position), _for_numpy), **options)
    return [np.asarray(array) for array in (made if isinstance(made, (list, tuple)) else [made])]


CATALOGUE: dict[str, list[OperatorEntry]] = {}
# References that hold for all arguments of an operator that torch does not have. `pteron verify` uses them.
GENERAL: dict[str, Callable[..., Any]] = {}


def sample(names: str, make: Make, dtypes: Iterable[DType] = FLOATS, sizes: tuple[int, ...] = SIZES) -> None:
    """Add arguments without a reference. The output is the last one.

    `names` are separated by spaces. The prefix `aten.` and the suffix `.default` may be omitted.
    """
    for name in map(_full_name, names.split()):
        CATALOGUE.setdefault(name, []).append(OperatorEntry(name, make, tuple(dtypes), sizes=sizes))


def case(
    names: str,
    make: Make,
    reference: Callable[..., Any],
    dtypes: Iterable[DType] = FLOATS,
    tried: tuple[DType, ...] = F32,
    sizes: tuple[int, ...] = SIZES,
) -> None:
    """Add arguments with a reference. `make` leaves out the output: the reference gives it."""
    for name in map(_full_name, names.split()):
        entry = OperatorEntry(name, make, tuple(dtypes), reference, tried, sizes)
        CATALOGUE.setdefault(name, []).append(entry)


def _full_name(name: str) -> str:
    for candidate in (f"aten.{name}", f"aten.{name}.default", name, f"{name}.default"):
        if find(candidate):
            return candidate
    raise KeyError(f"there is no operator {name}")


def variants(names: str, overload: str) -> str:
    """The names with an overload, such as `Scalar`."""
    return " ".join(f"{name}.{overload}" for name in names.split())


@dataclass(frozen=True)
class Case:
    """An entry with a reference, at one element type."""

    entry: OperatorEntry
    dtype: DType

    @property
    def op(self) -> str:
        return self.entry.op

    @property
    def sizes(self) -> tuple[int, ...]:
        return self.entry.sizes

    @property
    def graph(self) -> Graph:
        return self.entry.graph(self.dtype, Drawing(self.dtype))

    def call(self, size: int) -> tuple[list[Any], list[Array]]:
        """The inputs of a call, and the expected results."""
        inputs, drawn = self.entry.drawn(size, self.dtype)
        results = self.entry.expected(drawn)
        return inputs, [x.astype(_stored(x, self.dtype).label) for x in results]


def cases() -> Iterator[Case]:
    return (
        Case(entry, dtype) for entries in CATALOGUE.values() for entry in entries for dtype in entry.tried
    )


# -- a program with one node ---------------------------------------------------------------------------


def one_node(op: str, args: Sequence[Any], dtype: DType, contents: Contents | None = None) -> Graph:
    """A graph with one call of an operator. It returns the outputs, and the inputs that are changed in place.

    args: descriptions, the output last. contents: gives the constants; default: zeros.
    """
    sketch = Sketch(op)

    def given(leaf: Any) -> Value:
        if isinstance(leaf, Position):
            return sketch.integer()
        stored = leaf.dtype or dtype
        if not leaf.fixed:
            return sketch.input(*leaf.shape, dtype=stored)
        data = None if contents is None else contents(leaf).tobytes()
        return sketch.constant(*leaf.shape, dtype=stored, data=data, layout=leaf.layout)

    *before, out = args
    built = [replaced(arg, LEAVES, given) for arg in before]
    outs = replaced(out, (T,), lambda leaf: sketch.value(*leaf.shape, dtype=leaf.dtype or dtype))
    node = sketch.node(op, [*built, outs])
    sketch.graph.states = [tensor for tensor in node.mutates if tensor.constant is not None]
    return sketch.finish(*node.writes, *(tensor for tensor in node.mutates if tensor.constant is None))


def _for_numpy(leaf: Any) -> Any:
    if isinstance(leaf, Position):
        return leaf.value
    wide = {"f": np.float64, "c": np.complex128}.get(leaf.dtype.kind)
    return leaf.astype(wide) if wide else leaf.copy()


def _stored(array: Array, dtype: DType) -> DType:
    """The element type of a result, in an entry of this type."""
    kind, wide = array.dtype.kind, array.dtype.itemsize == 8
    if kind == "f" and wide:
        return dtype if dtype.is_float else DType.float32
    if kind == "c":
        return DType.complex64
    if kind == "i" and wide:
        return DType.int64 if dtype is DType.int64 else DType.int32
    return DType[array.dtype.name]
