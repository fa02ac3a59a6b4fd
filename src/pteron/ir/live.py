"""What an operator's rule sees of a call: tensors at their live shapes, and integers.

A rule reads the live shapes of its inputs, resizes its outputs, and may state what must hold for its plan:
a range for an integer that kernels read (`Guard`), or for the elements of a tensor (`ContentRule`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from pteron.ir.checks import OpError
from pteron.ir.dispatch import describe
from pteron.ir.dtypes import DType
from pteron.ir.values import Shape, SymInt, Tensor, ValueId, numel

Live: TypeAlias = "Shape | int | float | None"  # None: a SymInt whose value no call has given yet


@dataclass(frozen=True, slots=True)
class Guard:
    """A range that a SymInt must stay in for a plan to be valid."""

    value: ValueId
    low: int
    high: int
    message: str


@dataclass(frozen=True, slots=True)
class ContentRule:
    """A range that the elements of a tensor must lie in, such as indices into a table."""

    tensor: Tensor
    low: int
    high: int
    what: str


class LiveTensor:
    """A tensor as an operator's rule sees it: its live shape, and for outputs the right to set it."""

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
        """Whether the shape never changes, so that a rule may choose its kernel by it once and for all."""
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
        """State that every element must lie in [low, high]; checked on the host where that is possible."""
        self.rules.append(ContentRule(self.tensor, low, high, what))


class LiveInt:
    """An integer that kernels read from a uniform slot, so that it can move without a new plan."""

    __slots__ = ("constant", "guards", "symint", "value")

    def __init__(self, arg: SymInt | int, value: int | None, guards: list[Guard]) -> None:
        self.symint = arg if isinstance(arg, SymInt) else None
        self.constant = None if isinstance(arg, SymInt) else int(arg)
        self.value = value
        self.guards = guards

    def require(self, low: int, high: int, message: str) -> None:
        """State the range in which the plan holds. `{value}` in the message stands for the integer."""
        if self.symint is not None:
            self.guards.append(Guard(self.symint.id, low, high, message))
        elif not low <= (self.constant or 0) <= high:
            raise OpError(message.format(value=self.constant))


class LiveResult:
    """A SymInt output as a rule sees it. Arithmetic on sizes may pass through a fraction."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: int | float | None = None

    def set(self, value: int | float) -> None:
        """Refuses what no 64-bit integer holds: arithmetic on a file's numbers stays small."""
        if not -(2**63) <= value < 2**63:
            raise OpError("its result does not fit 64 bits")
        self.value = value if isinstance(value, float) else int(value)
