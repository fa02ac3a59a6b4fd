"""An array in host memory, without numpy."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from pteron.compiler.ir.dtypes import host_itemsize
from pteron.compiler.ir.values import Shape, numel
from pteron.engine.arrays.javascript import is_javascript_buffer, to_typed_array
from pteron.errors import InputError

# The format of each type in the module `struct`. bfloat16 and complex64 have none.
FORMATS = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "int64": "q",
    "uint8": "B",
    "uint16": "H",
    "uint32": "I",
    "uint64": "Q",
    "float16": "e",
    "float32": "f",
    "float64": "d",
}
_KINDS = dict.fromkeys("bhilqn", "int") | dict.fromkeys("BHILQN", "uint") | dict.fromkeys("efd", "float")


class HostArray:
    """An array in host memory, for programs without numpy: a type, a shape, and the bytes of all elements.

    Args:
        values: A buffer such as `bytes`, `array.array` or `memoryview`, a typed array of JavaScript, or
            numbers in nested lists.
        dtype: The type of the elements, such as `"float32"`. Default: that of the buffer. Bytes can be of any
            type.
        shape: The shape. Default: that of the buffer or the lists.

    Attributes:
        data: The bytes of all elements in row-major order, a `memoryview`.

    Raises:
        InputError: The values do not have this type or shape.

    Example:
        ```python
        HostArray(raw, "float32", (2, 3))
        HostArray(js.Float32Array.new(6), shape=(2, 3))
        HostArray([[1, 2], [3, 4]], "float32")
        ```
    """

    __slots__ = ("data", "dtype", "shape")

    def __init__(self, values: Any, dtype: str | None = None, shape: Sequence[int] | None = None) -> None:
        if dtype is not None and dtype not in _KNOWN:
            raise InputError(f"dtype is {dtype!r}: expected one of {', '.join(_KNOWN)}")
        if isinstance(values, (bool, int, float, list, tuple)):
            values, dtype, own = _from_numbers(values, dtype)
        else:
            values, dtype, own = _from_buffer(values, dtype)
        self.data: memoryview = values
        self.dtype: str = dtype
        self.shape: Shape = own if shape is None else tuple(shape)
        if numel(self.shape) * host_itemsize(dtype) != len(self.data):
            raise InputError(
                f"an array of shape {list(self.shape)} and dtype {dtype} has "
                f"{numel(self.shape) * host_itemsize(dtype)} bytes, got {len(self.data)}"
            )

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def flat(self) -> Sequence[Any]:
        """All elements in row-major order, as numbers."""
        return elements(self.data, self.dtype)

    def tolist(self) -> Any:
        """The elements as nested lists, or one number if there are no dimensions."""
        return _nested(list(self.flat), self.shape)

    def to_js(self) -> Any:
        """A typed array of JavaScript with all elements, in Pyodide."""
        return to_typed_array(typed_view(self.data, FORMATS[self.dtype]))

    def __len__(self) -> int:
        return self.shape[0]

    def __buffer__(self, flags: int) -> memoryview:
        format = FORMATS.get(self.dtype)
        if format is None or not self.data:
            return self.data
        return typed_view(self.data, format, self.shape)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        import numpy as np

        array = np.frombuffer(self.data, self.dtype).reshape(self.shape)
        return array if dtype is None else array.astype(dtype)

    def __repr__(self) -> str:
        return f"HostArray(shape={self.shape}, dtype={self.dtype})"


_KNOWN = (*FORMATS, "bfloat16", "complex64")


def typed_view(data: memoryview, format: Any, shape: Shape | None = None) -> memoryview:
    """Bytes as elements of a format of `struct`."""
    return data.cast(format) if shape is None else data.cast(format, shape)


def elements(data: memoryview, dtype: str) -> Sequence[Any]:
    """The numbers in a buffer of bytes."""
    count = len(data) // host_itemsize(dtype)
    if dtype == "complex64":
        parts = struct.unpack(f"={2 * count}f", data)
        return [complex(real, imaginary) for real, imaginary in zip(parts[::2], parts[1::2], strict=True)]
    if dtype == "bfloat16":
        words = struct.unpack(f"={count}H", data)
        return struct.unpack(f"={count}f", struct.pack(f"={count}I", *(word << 16 for word in words)))
    return struct.unpack(f"={count}{FORMATS[dtype]}", data)


def packed(numbers: Sequence[Any], dtype: str) -> bytes:
    """The bytes of numbers. Raises `struct.error` or `OverflowError` if one does not fit the type."""
    if dtype == "complex64":
        parts = [part for number in map(complex, numbers) for part in (number.real, number.imag)]
        return struct.pack(f"={len(parts)}f", *parts)
    return struct.pack(f"={len(numbers)}{FORMATS[dtype]}", *numbers)


def _from_numbers(values: Any, dtype: str | None) -> tuple[memoryview, str, Shape]:
    shape: list[int] = []
    row = values
    while isinstance(row, (list, tuple)):
        shape.append(len(row))
        row = row[0] if row else None
    numbers = values if shape else [values]
    for _ in shape[1:]:
        numbers = [number for row in numbers for number in (row if isinstance(row, (list, tuple)) else [row])]
    if len(numbers) != numel(tuple(shape)) or not all(isinstance(n, (bool, int, float)) for n in numbers):
        raise InputError("expected rows of equal length with numbers")
    if dtype is None:
        dtype = _type_of_numbers(numbers)
    if dtype == "bfloat16":
        raise InputError("numbers cannot become bfloat16: pass float32, which a program rounds")
    try:
        data = packed(numbers, dtype)
    except (struct.error, OverflowError) as error:
        raise InputError(f"the numbers do not fit {dtype}: {error}") from None
    return memoryview(data), dtype, tuple(shape)


def _type_of_numbers(numbers: Sequence[Any]) -> str:
    """The type that numpy gives a list of Python numbers."""
    if any(isinstance(number, float) for number in numbers) or not numbers:
        return "float64"
    return "bool" if all(isinstance(number, bool) for number in numbers) else "int64"


def _from_buffer(values: Any, dtype: str | None) -> tuple[memoryview, str, Shape]:
    view = memoryview(values.to_py() if is_javascript_buffer(values) else values)
    own = type_of_format(view.format, view.itemsize)
    if own is None or (dtype is not None and dtype != own and own != "uint8"):
        wanted = dtype or "a type of numbers"
        raise InputError(f"expected a buffer of {wanted} or of bytes, got format {view.format!r}")
    shape: Shape = view.shape or ()
    data = view.cast("B") if view.c_contiguous and 0 not in shape else memoryview(view.tobytes())
    if dtype is None or dtype == own:
        return data.toreadonly(), own, shape
    return data.toreadonly(), dtype, (len(data) // host_itemsize(dtype),)


def type_of_format(format: str, itemsize: int) -> str | None:
    """The type of a buffer's elements. A letter such as `l` has a different size on other platforms."""
    letter = format.lstrip("@=<")
    if letter == "?":
        return "bool"
    kind = _KINDS.get(letter)
    return f"{kind}{8 * itemsize}" if kind else None


def _nested(flat: list[Any], shape: Shape) -> Any:
    if not shape:
        return flat[0]
    for d in range(len(shape) - 1, 0, -1):
        size = shape[d]
        flat = [flat[size * row : size * (row + 1)] for row in range(numel(shape[:d]))]
    return flat
