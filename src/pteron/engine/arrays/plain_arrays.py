"""Convert the caller's arrays to the bytes on the GPU, and back, without numpy.

It accepts and refuses the same values as `numpy_arrays`, with the same errors. Arrays are `HostArray`s.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from itertools import cycle, product
from math import isnan, sqrt
from typing import Any

from pteron.compiler.ir.dispatch import describe
from pteron.compiler.ir.dtypes import DType, array_type, host_itemsize
from pteron.compiler.ir.live import ContentRule
from pteron.compiler.ir.values import Constant, Element, Folded, Joined, Shape, Tensor, WinogradFilters, numel
from pteron.compiler.ir.winograd import FILTERS
from pteron.engine.arrays.host_array import HostArray, elements, packed, typed_view
from pteron.engine.arrays.javascript import is_javascript_buffer
from pteron.engine.weight_store import check_size
from pteron.errors import InputError, UnsupportedError

_RANKS = ("bool", "uint", "int", "float", "complex")  # a kind can become a later kind
_BITS = {1: "B", 2: "H", 4: "I", 8: "Q"}  # formats for elements that are moved, by their size
_NAN = 0x7FC0  # of bfloat16


def read(value: Any, name: str) -> HostArray:
    if isinstance(value, HostArray):
        return value
    try:
        return HostArray(value)
    except (InputError, TypeError) as error:
        kind = type(value).__name__
        reason = f": {error}" if isinstance(value, (list, tuple)) or is_javascript_buffer(value) else ""
        raise InputError(f"{name}: expected an array, got {kind}{reason}") from None


def to_gpu(array: HostArray, host_type: str, dtype: DType, name: str, given: Any = None) -> HostArray:
    if dtype is DType.bfloat16:
        return _to_bfloat16(array, name)
    if array.dtype != host_type and not _is_harmless(array, host_type):
        raise InputError(f"{name}: expected dtype {host_type}, got {array.dtype}: {_hint(host_type)}")
    if array.dtype == dtype.label:
        return array
    numbers = array.flat
    try:
        return HostArray(packed(numbers, dtype.label), dtype.label, array.shape)
    except (struct.error, OverflowError):
        where = next(i for i, number in enumerate(numbers) if not _fits(number, dtype.label))
        raise InputError(
            f"{name}: element {_place(where, array.shape)} is {numbers[where]}, "
            f"which does not fit the GPU's {dtype}"
        ) from None


def _fits(number: Any, dtype: str) -> bool:
    try:
        packed([number], dtype)
    except (struct.error, OverflowError):
        return False
    return True


def _place(flat: int, shape: Shape) -> list[int]:
    """The position of the element with a flat index."""
    place = []
    for size in reversed(shape):
        flat, index = divmod(flat, size)
        place.append(index)
    return place[::-1]


def _hint(host_type: str) -> str:
    return f'pass pteron.HostArray(values, "{host_type}", shape)'


def _to_bfloat16(array: HostArray, name: str) -> HostArray:
    """The bits of bfloat16: the upper half of a float32, rounded to nearest even."""
    if array.dtype == "bfloat16":
        return array
    if array.dtype != "float32" and array.ndim:
        raise InputError(f"{name}: expected dtype bfloat16 or float32, got {array.dtype}: {_hint('float32')}")
    numbers = array.flat
    bits = struct.unpack(f"={len(numbers)}I", struct.pack(f"={len(numbers)}f", *numbers))
    words = [
        _NAN if isnan(number) else (word + 0x7FFF + ((word >> 16) & 1)) >> 16
        for number, word in zip(numbers, bits, strict=True)
    ]
    return HostArray(struct.pack(f"={len(words)}H", *words), "bfloat16", array.shape)


def _kind(name: str) -> str:
    return name.rstrip("0123456789")


def _is_harmless(array: HostArray, host_type: str) -> bool:
    """Whether a conversion keeps all values: integers of another width, wider floats, or a Python scalar."""
    given, wanted = _kind(array.dtype).replace("bfloat", "float"), _kind(host_type)
    if given in ("int", "uint") and wanted in ("int", "uint"):
        room = host_itemsize(host_type) - host_itemsize(array.dtype)
        fits = room >= 0 if given == wanted else given == "uint" and room > 0
        return host_type == "int64" or fits
    if given == wanted == "float" and host_itemsize(array.dtype) < host_itemsize(host_type):
        return True
    return not array.ndim and _RANKS.index(given) <= _RANKS.index(wanted)


def raw_bytes(array: HostArray) -> memoryview:
    return array.data


def from_gpu(data: memoryview, dtype: DType, host_type: str, shape: Shape) -> HostArray:
    count = numel(shape)
    data = memoryview(bytes(data[: count * dtype.itemsize]))
    wide = array_type(host_type)
    if wide == dtype.label:
        return HostArray(data, wide, shape)
    numbers = elements(data, dtype.label)
    if not dtype.is_float:
        numbers = [_wrapped(number, wide) for number in numbers]
    return HostArray(packed(numbers, wide), wide, shape)


borrowed = from_gpu  # HostArrays have their own memory


def _wrapped(number: int, host_type: str) -> int:
    """An integer in a type that may be narrower or unsigned: only the lower bits are kept."""
    size = 1 << (8 * host_itemsize(host_type))
    least = 0 if _kind(host_type) == "uint" else -size // 2
    return (number - least) % size + least


def empty(shape: Shape, host_type: str) -> HostArray:
    return HostArray(b"", array_type(host_type), shape)


def first(array: HostArray, count: int) -> HostArray:
    shape = (count, *array.shape[1:])
    return HostArray(array.data[: numel(shape) * host_itemsize(array.dtype)], array.dtype, shape)


def dtype(host_type: str) -> str:
    return array_type(host_type)


def kind_of(inputs: Iterable[Any]) -> Callable[[Any, str], Any]:
    """Outputs are always of one kind."""
    return _as_it_is


def _as_it_is(array: Any, host_type: str) -> Any:
    return array


def convert_constant(tensor: Tensor) -> memoryview:
    return memoryview(_row_major(tensor))


def _row_major(tensor: Tensor) -> bytes:
    constant = tensor.constant
    if isinstance(constant, Joined):
        return _joined([(part, _row_major(part)) for part in constant.parts], constant.axis)
    if isinstance(constant, Folded):
        return _folded(constant, tensor.max_shape)
    if isinstance(constant, WinogradFilters):
        return _winograd(constant.source)
    assert isinstance(constant, Constant)
    check_size(tensor, constant)
    itemsize = host_itemsize(constant.host_type)
    data = constant.data.view[: numel(tensor.max_shape) * itemsize]
    if constant.dim_order and constant.dim_order != tuple(range(len(constant.dim_order))):
        data = _in_order(data, itemsize, tensor.max_shape, constant.dim_order)
    return _narrowed(data, constant.host_type, tensor)


def _folded(constant: Folded, shape: Shape) -> bytes:
    channels = shape[constant.axis]

    def numbers(tensor: Tensor | None, missing: float) -> Sequence[float]:
        return [missing] * channels if tensor is None else elements(memoryview(_row_major(tensor)), "float32")

    norm = constant.norm
    variances, weights = numbers(norm.variance, 1.0), numbers(norm.weight, 1.0)
    factors = [w / sqrt(v + norm.eps) for w, v in zip(weights, variances, strict=True)]
    if constant.is_added:
        columns = (numbers(constant.source, 0.0), numbers(norm.mean, 0.0), factors, numbers(norm.bias, 0.0))
        return bytes(packed([(x - m) * f + b for x, m, f, b in zip(*columns, strict=True)], "float32"))
    inner = numel(shape[constant.axis + 1 :])
    spread = [
        factor for factor in factors for _ in range(inner)
    ]  # those of one index of the dimensions before
    source = numbers(constant.source, 1.0)
    return bytes(packed([x * f for x, f in zip(source, cycle(spread), strict=False)], "float32"))


def _winograd(source: Tensor) -> bytes:
    inputs, _, _, channels = source.max_shape
    taps = elements(memoryview(_row_major(source)), "float32")  # [inputs, 3, 3, channels]
    pairs = [[a * b for a in down for b in across] for down in FILTERS for across in FILTERS]
    made = [
        sum(factor * taps[(i * 9 + tap) * channels + o] for tap, factor in enumerate(factors))
        for i in range(inputs)
        for factors in pairs
        for o in range(channels)
    ]
    return bytes(packed(made, "float32"))


def _joined(parts: list[tuple[Tensor, bytes]], axis: int) -> bytes:
    """The parts one after another in a dimension: for each index before it, a block of each part."""
    blocks = [numel(part.max_shape[axis:]) * part.dtype.itemsize for part, _ in parts]
    return b"".join(
        data[block * row : block * (row + 1)]
        for row in range(numel(parts[0][0].max_shape[:axis]))
        for (_, data), block in zip(parts, blocks, strict=True)
    )


def _in_order(data: memoryview, itemsize: int, shape: Shape, dim_order: tuple[int, ...]) -> memoryview:
    """Row-major elements from those in another order of dimensions, a row of the last dimension at a time."""
    if 0 in shape:
        return data
    stored = typed_view(data, _BITS[itemsize])
    ordered = typed_view(memoryview(bytearray(len(data))), _BITS[itemsize])
    steps = {d: numel(tuple(shape[e] for e in dim_order[n + 1 :])) for n, d in enumerate(dim_order)}
    length, last = shape[-1], steps[len(shape) - 1]
    for row, place in enumerate(product(*map(range, shape[:-1]))):
        start = sum(index * steps[d] for d, index in enumerate(place))
        ordered[row * length : (row + 1) * length] = stored[start : start + (length - 1) * last + 1 : last]
    return ordered.cast("B")


def _narrowed(data: memoryview, host_type: str, tensor: Tensor) -> bytes:
    label = tensor.dtype.label
    if host_type == label:
        return bytes(data)
    numbers = elements(data, host_type)
    try:
        return packed(numbers, label)
    except OverflowError:  # of a float, which becomes infinite
        return packed([n if _fits(n, label) else n * float("inf") for n in numbers], label)
    except struct.error:
        raise UnsupportedError(
            f"constant {tensor.name} has integers beyond 32 bits, which WebGPU lacks"
        ) from None


def read_element(element: Element, array: Any) -> int:
    values = array if isinstance(array, HostArray) else array.read()
    name = f"element {element.index} of dimension {element.dim}"
    shape = values.shape
    if element.dim == -1:
        place, is_inside = element.index, -numel(shape) <= element.index < numel(shape)
    else:
        size = shape[element.dim] if element.dim < len(shape) else 0
        is_inside = -size <= element.index < size and bool(numel(shape))
        place = element.index % size * numel(shape[element.dim + 1 :]) if is_inside else 0
    if not is_inside:
        raise InputError(f"{name} is read as an integer, but the input has shape {describe(shape)}")
    return values.flat[place]  # type: ignore[no-any-return]


def check_contents(array: HostArray, rule: ContentRule, name: str) -> None:
    numbers = array.flat
    if numbers and (min(numbers) < rule.low or max(numbers) > rule.high):
        where = next(i for i, number in enumerate(numbers) if not rule.low <= number <= rule.high)
        raise InputError(
            f"{name}: element {_place(where, array.shape)} is {numbers[where]}, "
            f"but {rule.what} must lie in {rule.low}..{rule.high}"
        )
