"""The parts of a graph: tensors, SymInts and nodes.

Tensors, SymInts and nodes are immutable. What changes between calls (live shapes, SymInt values, plans) is in
`pteron.compiler.plan.sweep`, by value id.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NewType, TypeAlias

from pteron.compiler.ir.dtypes import DType
from pteron.compiler.ir.sizes import Sizes
from pteron.pte.bytesource import Region

if TYPE_CHECKING:
    from pteron.compiler.ir.op import OpSpec

ValueId = NewType("ValueId", int)
Shape: TypeAlias = tuple[int, ...]

# The address of a planned tensor in ExecuTorch's memory: (memory, offset, bytes).
Place: TypeAlias = tuple[int, int, int]


def numel(shape: Shape) -> int:
    count = 1
    for size in shape:
        count *= size
    return count


@dataclass(frozen=True, slots=True, eq=False)
class Constant:
    """Bytes in the file, with their host element type and the order of their dimensions."""

    data: Region
    host_type: str
    dim_order: tuple[int, ...] = ()  # outermost to innermost; empty: row-major


@dataclass(frozen=True, slots=True, eq=False)
class Joined:
    """Constants that are concatenated along an axis at upload."""

    parts: tuple[Tensor, ...]
    axis: int


@dataclass(frozen=True, slots=True, eq=False)
class BatchNorm:
    """y = (x - mean) / sqrt(variance + eps) * weight + bias, with constants for every channel."""

    weight: Tensor | None  # None: 1
    bias: Tensor | None  # None: 0
    mean: Tensor
    variance: Tensor
    eps: float


@dataclass(frozen=True, slots=True, eq=False)
class Folded:
    """A constant with a batch norm in it, which is computed at upload.

    A source that is multiplied (a weight, or 1) gets the factor of its channel. One that is added (a bias,
    or 0) goes through the whole norm.
    """

    source: Tensor | None
    axis: int  # the dimension of the channels
    norm: BatchNorm
    is_added: bool

    @property
    def parts(self) -> tuple[Tensor, ...]:
        norm = self.norm
        named = (self.source, norm.weight, norm.bias, norm.mean, norm.variance)
        return tuple(tensor for tensor in named if tensor is not None)


@dataclass(frozen=True, slots=True, eq=False)
class WinogradFilters:
    """Packed filters of 3 x 3 as the 6 x 6 numbers that Winograd's algorithm multiplies, made at upload."""

    source: Tensor  # [inputs, 3, 3, channels]

    @property
    def parts(self) -> tuple[Tensor, ...]:
        return (self.source,)


StoredConstant: TypeAlias = Constant | Joined | Folded | WinogradFilters


@dataclass(frozen=True, slots=True, eq=False)
class Tensor:
    """A dense, row-major tensor, allocated for `max_shape`. Each call uses a live shape within it."""

    id: ValueId
    dtype: DType
    max_shape: Shape
    name: str
    constant: StoredConstant | None = None
    layout: str = ""  # an order of elements that only some kernels can read; empty: the usual one

    @property
    def max_nbytes(self) -> int:
        return numel(self.max_shape) * self.dtype.itemsize

    def __repr__(self) -> str:
        return f"{self.name}:{self.dtype}{list(self.max_shape)}"


@dataclass(frozen=True, slots=True, eq=False)
class SymInt:
    """An integer that is known only in a call: a live size, a position, or arithmetic on these."""

    id: ValueId
    name: str

    def __repr__(self) -> str:
        return self.name


Value: TypeAlias = Tensor | SymInt
Arg: TypeAlias = "Tensor | SymInt | int | float | bool | str | tuple[Arg, ...] | None"


def values_in(arg: Arg) -> Iterator[Value]:
    """The tensors and SymInts in an argument, also those in lists."""
    if isinstance(arg, (Tensor, SymInt)):
        yield arg
    elif isinstance(arg, tuple):
        for item in arg:
            yield from values_in(item)


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """One operator call. `reads` and `writes` are derived from the operator's signature."""

    index: int
    name: str
    op: OpSpec
    args: tuple[Any, ...]  # `Arg`s of the kinds that the operator takes
    reads: tuple[Value, ...]
    writes: tuple[Value, ...]
    mutates: tuple[Tensor, ...]
    origin: str
    when: SymInt | None = None  # the node runs only in calls where this is not 0
    replaces: tuple[Node, ...] = ()  # the nodes that a fusion pass replaced by this one

    @property
    def label(self) -> str:
        return f"{self.name} (node {self.index})"

    @property
    def named(self) -> dict[str, Any]:
        """The arguments by the names of the rule's parameters."""
        return dict(zip(self.op.parameters, self.args, strict=True))


@dataclass(frozen=True, slots=True)
class Port:
    """An input or output of a method."""

    name: str
    value: Value | int | float | bool | str | None
    host_type: str  # the numpy name of the dtype, or "int" for a SymInt
    resizable: bool  # False: the exporter fixed the shape
    sizes: Sizes | None = None  # the sizes of each dimension; None: the file does not say
    limited: frozenset[int] = (
        frozenset()
    )  # dimensions with smaller bounds than the file's, from `load(shapes=)`
    pinned: frozenset[int] = frozenset()  # dimensions with one size, because a size was pinned at load

    @property
    def max_shape(self) -> Shape:
        return self.value.max_shape if isinstance(self.value, Tensor) else ()


@dataclass(frozen=True, slots=True)
class Element:
    """A SymInt that is read from an input tensor: `symint = source[0, ..., index (at dim), ..., 0]`.

    If `dim` is -1, it is the element with this index in row-major order.
    """

    symint: SymInt
    source: Tensor
    dim: int
    index: int


@dataclass(slots=True)
class Graph:
    """A whole method: its values, its nodes in program order, its inputs and outputs."""

    name: str
    values: list[Value] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    inputs: list[Port] = field(default_factory=list)
    outputs: list[Port] = field(default_factory=list)
    states: list[Tensor] = field(default_factory=list)
    # States that other methods of the program may use, too, and the place that they have in common.
    shared: dict[ValueId, Place] = field(default_factory=dict)
    elements: list[Element] = field(default_factory=list)
    # Outputs whose length depends on data, and the tensor that holds the length.
    counts: dict[ValueId, Tensor] = field(default_factory=dict)

    def tensor(
        self,
        dtype: DType,
        shape: Shape,
        name: str,
        constant: StoredConstant | None = None,
        layout: str = "",
    ) -> Tensor:
        """Add a tensor."""
        tensor = Tensor(ValueId(len(self.values)), dtype, shape, name, constant, layout)
        self.values.append(tensor)
        return tensor

    def symint(self, name: str) -> SymInt:
        """Add an integer that is known only in a call."""
        symint = SymInt(ValueId(len(self.values)), name)
        self.values.append(symint)
        return symint

    @property
    def results(self) -> list[Tensor]:
        """The tensors that may be read back."""
        outputs = [port.value for port in self.outputs if isinstance(port.value, Tensor)]
        return [*outputs, *(self.counts[t.id] for t in outputs if t.id in self.counts)]

    def tensors(self) -> Iterator[Tensor]:
        return (value for value in self.values if isinstance(value, Tensor))

    @property
    def input_ids(self) -> set[ValueId]:
        return {port.value.id for port in self.inputs if isinstance(port.value, (Tensor, SymInt))}
