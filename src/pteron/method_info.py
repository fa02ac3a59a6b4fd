"""What a method tells about itself: its inputs, its outputs, its memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pteron.ir.dtypes import array_type
from pteron.ir.values import Port, Shape, SymInt, Tensor


@dataclass(frozen=True, slots=True)
class IOInfo:
    """The description of one input or output of a method.

    Attributes:
        name: Its name, such as `input0`.
        dtype: The element type of a tensor, or `int` for an integer.
        max_shape: The largest shape.
        dynamic_dims: The dimensions that a call may make smaller.
        is_tensor: Whether it is a tensor.
        fixed: The value, if it is neither a tensor nor an integer.
    """

    name: str
    dtype: str
    max_shape: Shape
    dynamic_dims: tuple[int, ...]
    is_tensor: bool = True
    fixed: Any = None

    def __str__(self) -> str:
        """For example `input0: float32[1, <=128, 64]`: the second dimension may be smaller in a call."""
        if not self.is_tensor:
            return f"{self.name}: {self.dtype}"
        sizes = (f"<={n}" if d in self.dynamic_dims else str(n) for d, n in enumerate(self.max_shape))
        return f"{self.name}: {self.dtype}[{', '.join(sizes)}]"

    @property
    def is_integer(self) -> bool:
        """Whether it is an integer and not a tensor."""
        return self.dtype == "int"

    @property
    def array_dtype(self) -> str:
        """The numpy dtype of output arrays, also accepted for inputs: float32 for bfloat16."""
        return array_type(self.dtype)

    def shape_at(self, live: int) -> Shape:
        """The shape with every dynamic dimension at this size, or at its maximum if that is smaller."""
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


def describe(port: Port, dims: tuple[int, ...]) -> IOInfo:
    """The description of an input or output whose dimensions `dims` are dynamic."""
    is_tensor = isinstance(port.value, Tensor)
    fixed = None if isinstance(port.value, (Tensor, SymInt)) else port.value
    return IOInfo(port.name, port.host_type, port.max_shape, dims, is_tensor, fixed)
