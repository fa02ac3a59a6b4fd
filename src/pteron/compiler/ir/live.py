"""The arguments of an operator's rule in a call: tensors with live shapes, and integers.

A rule reads the live shapes of its inputs and resizes its outputs. It may also state conditions for its plan:
a range for an integer that kernels read (`Guard`), or for the elements of a tensor (`ContentRule`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from pteron.compiler.ir.checks import OpError
from pteron.compiler.ir.dispatch import describe
from pteron.compiler.ir.dtypes import DType
from pteron.compiler.ir.values import Shape, SymInt, Tensor, ValueId, numel

Live: TypeAlias = "Shape | int | float | None"  # None: a SymInt that no call has set yet


@dataclass(frozen=True, slots=True)
class Guard:
    """The range of a SymInt in which a plan is valid."""

    value: ValueId
    low: int
    high: int
    message: str


@dataclass(frozen=True, slots=True)
class ContentRule:
    """The valid range of the elements of a tensor, such as indices into a table."""

    tensor: Tensor
    low: int
    high: int
    what: str


class LiveTensor:
    """A tensor in an operator's rule: its live shape, which the rule may set if it is an output."""

    __slots__ = ("pinned", "rules", "shape", "tensor")

    def __init__(self, tensor: Tensor, shape: Shape, rules: list[ContentRule], pinned: bool = False) -> None:
        self.tensor = tensor
        self.shape = shape
        self.rules = rules
        self.pinned = pinned

    @property
    def dtype(self) -> DType:
        return self.tensor.dtype

    @property
    def max_shape(self) -> Shape:
        return self.tensor.max_shape

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def numel(self) -> int:
        return numel(self.shape)

    @property
    def nbytes(self) -> int:
        return numel(self.shape) * self.tensor.dtype.itemsize

    @property
    def is_fixed(self) -> bool:
        """Whether the shape never changes. A rule may then choose its kernel by the shape."""
        return self.tensor.constant is not None

    def resize(self, shape: Shape) -> None:
        """Set the live shape. It must have the rank of the largest shape, and fit into it."""
        largest = self.tensor.max_shape
        if self.pinned:
            self.shape = largest
            return
        if len(shape) != len(largest) or any(n > m or n < 0 for n, m in zip(shape, largest, strict=True)):
            raise OpError(
                f"its output would be {describe(shape)}, which does not fit its maximum {describe(largest)}"
            )
        self.shape = shape

    def require_contents(self, low: int, high: int, what: str) -> None:
        """Require every element to be in [low, high]. The host checks this if it has the elements."""
        self.rules.append(ContentRule(self.tensor, low, high, what))


class LiveInt:
    """An integer that kernels read from a uniform buffer: it can change without a new plan."""

    __slots__ = ("constant", "guards", "symint", "value")

    def __init__(self, arg: SymInt | int, value: int | None, guards: list[Guard]) -> None:
        self.symint = arg if isinstance(arg, SymInt) else None
        self.constant = None if isinstance(arg, SymInt) else int(arg)
        self.value = value
        self.guards = guards

    def require(self, low: int, high: int, message: str) -> None:
        """State the range in which the plan is valid. `{value}` in the message is replaced by the integer."""
        if self.symint is not None:
            self.guards.append(Guard(self.symint.id, low, high, message))
        elif not low <= (self.constant or 0) <= high:
            raise OpError(message.format(value=self.constant))


class LiveResult:
    """A SymInt output in a rule. Intermediate results may be fractions."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: int | float | None = None

    def set(self, value: int | float) -> None:
        """Set the result. Refuses numbers beyond 64 bits: arithmetic on a file's numbers must stay fast."""
        if not -(2**63) <= value < 2**63:
            raise OpError("its result does not fit in 64 bits")
        self.value = int(value) if isinstance(value, bool) else value
