"""What a graph is made of: tensors, SymInts and the nodes between them.

Everything here is immutable. What changes from call to call (live shapes, SymInt values, plans)
is kept by `pteron.plan.sweep`, indexed by a value's id.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NewType, TypeAlias

from pteron.ir.dtypes import DType
from pteron.pte.bytesource import Region

if TYPE_CHECKING:
    from pteron.ir.op import OpSpec

ValueId = NewType("ValueId", int)
Shape: TypeAlias = tuple[int, ...]


def numel(shape: Shape) -> int:
    count = 1
    for size in shape:
        count *= size
    return count


@dataclass(frozen=True, slots=True, eq=False)
class Constant:
    """Bytes in the file, the host element type they are written in, and the order of their dimensions."""

    data: Region
    host_type: str
    dim_order: tuple[int, ...] = ()  # outermost to innermost; nothing means row-major


@dataclass(frozen=True, slots=True, eq=False)
class Joined:
    """Constants side by side along an axis. They are put together when they are uploaded."""

    parts: tuple[Tensor, ...]
    axis: int


@dataclass(frozen=True, slots=True, eq=False)
class Tensor:
    """A dense, row-major tensor, allocated for `max_shape`; each call uses a live shape within it."""

    id: ValueId
    dtype: DType
    max_shape: Shape
    name: str
    constant: Constant | Joined | None = None

    @property
    def max_nbytes(self) -> int:
        return numel(self.max_shape) * self.dtype.itemsize

    def __repr__(self) -> str:
        return f"{self.name}:{self.dtype}{list(self.max_shape)}"


@dataclass(frozen=True, slots=True, eq=False)
class SymInt:
    """An integer known only when a call is made: a live size, a position, arithmetic on those."""

    id: ValueId
    name: str

    def __repr__(self) -> str:
        return self.name


Value: TypeAlias = Tensor | SymInt
Arg: TypeAlias = "Tensor | SymInt | int | float | bool | str | tuple[Arg, ...] | None"


def values_in(arg: Arg) -> Iterator[Value]:
    """The tensors and SymInts inside an argument, lists opened."""
    if isinstance(arg, (Tensor, SymInt)):
        yield arg
    elif isinstance(arg, tuple):
        for item in arg:
            yield from values_in(item)


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """One operator call. `reads` and `writes` follow from the op's signature."""

    index: int
    name: str
    op: OpSpec
    args: tuple[Arg, ...]
    reads: tuple[Value, ...]
    writes: tuple[Value, ...]
    mutates: tuple[Tensor, ...]
    origin: str
    when: SymInt | None = None  # the node runs only in calls in which this is not 0

    @property
    def label(self) -> str:
        return f"{self.name} (node {self.index})"


@dataclass(frozen=True, slots=True)
class Port:
    """A method's input or output, as the caller sees it."""

    name: str
    value: Value | int | float | bool | str | None
    host_type: str  # numpy's name of the dtype, or "int" for a SymInt
    resizable: bool  # False: the exporter fixed the shape

    @property
    def max_shape(self) -> Shape:
        return self.value.max_shape if isinstance(self.value, Tensor) else ()


@dataclass(frozen=True, slots=True)
class Element:
    """A SymInt that is read from an input: `symint = source[0.., index along dim, ..0]`."""

    symint: SymInt
    source: Tensor
    dim: int
    index: int


@dataclass(slots=True)
class Graph:
    """A whole method: its values, its nodes in program order, and what it shows the caller."""

    name: str
    values: list[Value] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    inputs: list[Port] = field(default_factory=list)
    outputs: list[Port] = field(default_factory=list)
    states: list[Tensor] = field(default_factory=list)
    elements: list[Element] = field(default_factory=list)
    # Outputs as long as their data says, and where on the GPU their length is counted.
    counts: dict[ValueId, Tensor] = field(default_factory=dict)

    def tensor(
        self, dtype: DType, shape: Shape, name: str, constant: Constant | Joined | None = None
    ) -> Tensor:
        """Add a tensor."""
        tensor = Tensor(ValueId(len(self.values)), dtype, shape, name, constant)
        self.values.append(tensor)
        return tensor

    def symint(self, name: str) -> SymInt:
        """Add an integer that only a call knows."""
        symint = SymInt(ValueId(len(self.values)), name)
        self.values.append(symint)
        return symint

    @property
    def results(self) -> list[Tensor]:
        """The tensors that a caller may read back."""
        outputs = [port.value for port in self.outputs if isinstance(port.value, Tensor)]
        return [*outputs, *(self.counts[t.id] for t in outputs if t.id in self.counts)]

    def tensors(self) -> Iterator[Tensor]:
        return (value for value in self.values if isinstance(value, Tensor))

    @property
    def input_ids(self) -> set[ValueId]:
        return {port.value.id for port in self.inputs if isinstance(port.value, (Tensor, SymInt))}
