"""Which library makes the caller's arrays: numpy if it is installed, else plain buffers of Python."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib.util import find_spec
from typing import Any, Protocol, TypeAlias

from pteron.compiler.ir.dtypes import DType
from pteron.compiler.ir.live import ContentRule
from pteron.compiler.ir.values import Element, Shape, Tensor

# Turns an output array of a program's dtype into the caller's kind of array.
AsGiven: TypeAlias = Callable[[Any, str], Any]


class ArrayLibrary(Protocol):
    """Conversion between the caller's arrays and the bytes on the GPU. An array has a `shape`."""

    def read(self, value: Any, name: str) -> Any:
        """The array of a caller's value. `name` is the argument, for errors."""

    def to_gpu(self, array: Any, host_type: str, dtype: DType, name: str, given: Any = None) -> Any:
        """The array in the GPU's format. A dtype whose conversion would lose information is refused.

        `given` is the caller's value, for the error.
        """

    def raw_bytes(self, array: Any) -> Any:
        """The bytes of an array from `to_gpu`, as a buffer."""

    def from_gpu(self, data: memoryview, dtype: DType, host_type: str, shape: Shape) -> Any:
        """A new array from mapped bytes, widened if the program's dtype is wider."""

    def borrowed(self, data: memoryview, dtype: DType, host_type: str, shape: Shape) -> Any:
        """The same, but it may be a view: it must not be used after the bytes are unmapped."""

    def empty(self, shape: Shape, host_type: str) -> Any:
        """An array without elements."""

    def first(self, array: Any, count: int) -> Any:
        """The first rows of an array."""

    def dtype(self, host_type: str) -> Any:
        """The `dtype` of output arrays."""

    def kind_of(self, inputs: Iterable[Any]) -> AsGiven:
        """The conversion of outputs to the kind of the inputs."""

    def convert_constant(self, tensor: Tensor) -> memoryview:
        """The bytes of a constant in the GPU's format: row-major, in the GPU's dtype, parts joined."""

    def read_element(self, element: Element, array: Any) -> int:
        """The value of an element of an input, which the program uses as an integer."""

    def check_contents(self, array: Any, rule: ContentRule, name: str) -> None:
        """Refuse an input with an element that is out of range."""


def _library() -> ArrayLibrary:
    if find_spec("numpy") is None:
        from pteron.engine.arrays import plain_arrays

        return plain_arrays
    from pteron.engine.arrays import numpy_arrays

    return numpy_arrays


host = _library()
