"""What a method tells about itself: its inputs, its outputs, its memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pteron.compiler.ir.dtypes import array_type, precision
from pteron.compiler.ir.sizes import FreeSize, Size, Sizes, size_texts
from pteron.compiler.ir.values import Port, Shape, SymInt, Tensor


@dataclass(frozen=True, slots=True)
class IOInfo:
    """The description of one input or output of a method.

    Attributes:
        name: Its name, such as `input0`.
        dtype: The element type of a tensor, or `int` for an integer.
        max_shape: The largest shape.
        dynamic_dims: The dimensions that a call may make smaller.
        is_tensor: Whether it is a tensor.
        fixed: The constant that the exporter made of it. A call can only give this value.
        sizes: The size of each dimension of an input: a number, or a `Size` with its range and its relation
            to other sizes.
        guessed: The file does not say which dimensions may be smaller, so `dynamic_dims` is a guess.
        formulas: The size of each dimension of an output as text, such as `2*n + 1`.
    """

    name: str
    dtype: str
    max_shape: Shape
    dynamic_dims: tuple[int, ...]
    is_tensor: bool = True
    fixed: Any = None
    sizes: Sizes = ()
    guessed: bool = False
    formulas: tuple[str, ...] = ()

    def __str__(self) -> str:
        """For example `x: float32[1, n <= 128, 64]`: the second dimension may be smaller in a call."""
        return self.text(set())

    def text(self, said: set[FreeSize]) -> str:
        """As `str`. The ranges of numbers in `said` were given before."""
        if not self.is_tensor:
            return f"{self.name}: {self.dtype}" + ("" if self.fixed is None else f" = {self.fixed!r}")
        note = "" if self.precision == self.dtype else f" (computed in {self.precision})"
        if self.guessed and self.dynamic_dims:
            note += " (which sizes vary is a guess)"
        sizes = size_texts(self.sizes, said) if self.sizes else self.size_texts
        return f"{self.name}: {self.dtype}[{', '.join(sizes)}]{note}"

    @property
    def precision(self) -> str:
        """The element type that the values really have: float32 for float64, which GPUs lack."""
        return precision(self.dtype)

    @property
    def size_texts(self) -> tuple[str, ...]:
        """Each size as text: 64, n <= 128, 2*n + 1, or <=128 if no formula gives it."""
        if self.sizes:
            return size_texts(self.sizes)
        return self.formulas or tuple(
            f"<={n}" if d in self.dynamic_dims else str(n) for d, n in enumerate(self.max_shape)
        )

    @property
    def largest_shape(self) -> Shape:
        """The largest shape that a call may have."""
        if self.sizes:
            return tuple(size.values[-1] if isinstance(size, Size) else size for size in self.sizes)
        return self.max_shape

    @property
    def is_integer(self) -> bool:
        """Whether it is an integer that may vary, and not a tensor."""
        return self.dtype == "int" and self.fixed is None

    @property
    def array_dtype(self) -> str:
        """The numpy dtype of output arrays, also accepted for inputs: float32 for bfloat16."""
        return array_type(self.dtype)

    def shape_at(self, live: int) -> Shape:
        """The shape with every dynamic dimension at this size, or at the largest allowed size below it."""
        if self.sizes:
            return tuple(size.at(live) if isinstance(size, Size) else size for size in self.sizes)
        return tuple(min(live, n) if d in self.dynamic_dims else n for d, n in enumerate(self.max_shape))


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes on the GPU.

    Attributes:
        weights: Constants. The methods of a program share them.
        activations: Intermediate tensors. They share buffers.
        state: The mutable tensors (KV caches) of one `State`.
        staging: Buffers that outputs are read back through.
        parameters: Live sizes and other parameters of kernels.
    """

    weights: int
    activations: int
    state: int
    staging: int
    parameters: int

    @property
    def total(self) -> int:
        """The sum of all parts."""
        return self.weights + self.activations + self.state + self.staging + self.parameters


def describe(
    port: Port,
    dims: tuple[int, ...],
    sizes: Sizes = (),
    guessed: bool = False,
    formulas: tuple[str, ...] = (),
) -> IOInfo:
    """The description of an input or output whose dimensions `dims` are dynamic."""
    is_tensor = isinstance(port.value, Tensor)
    fixed = None if isinstance(port.value, (Tensor, SymInt)) else port.value
    return IOInfo(port.name, port.host_type, port.max_shape, dims, is_tensor, fixed, sizes, guessed, formulas)
