"""Convert the caller's arrays to the bytes on the GPU, and back, with numpy.

No copy is made if the caller's memory already has the right format.

numpy has no bfloat16. Outputs of this type are float32 arrays, which represent the values exactly. Inputs may
be bfloat16 tensors of torch, bfloat16 arrays of ml_dtypes, or float32 arrays, which are rounded to nearest
even.

A caller who passes torch tensors gets torch tensors. Torch is never imported for this: a caller who has a
tensor has imported it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from pteron.compiler.ir.dispatch import describe
from pteron.compiler.ir.dtypes import DType, array_type
from pteron.compiler.ir.live import ContentRule
from pteron.compiler.ir.values import Constant, Element, Folded, Joined, Shape, Tensor, WinogradFilters, numel
from pteron.compiler.ir.winograd import FILTERS
from pteron.engine.arrays.javascript import is_javascript_buffer
from pteron.engine.weight_store import check_size
from pteron.errors import InputError, UnsupportedError


def kind_of(inputs: Iterable[Any]) -> Callable[[Any, str], Any]:
    """The conversion of outputs to the kind of the inputs: torch tensors if one is given, else numpy."""
    return _as_torch if any(map(is_torch, inputs)) else as_it_is


def is_torch(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def as_it_is(array: np.ndarray[Any, Any], host_type: str) -> np.ndarray[Any, Any]:
    return array


def _as_torch(array: np.ndarray[Any, Any], host_type: str) -> Any:
    torch = sys.modules["torch"]
    return torch.from_numpy(array).to(getattr(torch, host_type))


def read(value: Any, name: str) -> np.ndarray[Any, Any]:
    """A numpy view of anything with DLPack, the array interface or the buffer protocol."""
    if isinstance(value, np.ma.MaskedArray):
        raise InputError(f"{name}: a masked array would lose its mask: pass x.filled(number)")
    if isinstance(value, np.ndarray):
        return value
    if is_javascript_buffer(value):
        value = value.to_py()
    if isinstance(value, (bool, int, float)) or np.isscalar(value):
        return np.asarray(value)
    if hasattr(value, "__dlpack__"):
        value = _settled(value)
        if str(getattr(value, "dtype", "")) == "torch.bfloat16":
            value = value.float()  # numpy has no bfloat16
        try:
            return np.from_dlpack(value)
        except (BufferError, RuntimeError, TypeError) as error:
            kind = type(value).__name__
            raise InputError(f"{name}: cannot read a {kind} in host memory: {error}") from None
    try:
        array = np.asarray(value)
    except ValueError as error:  # rows of different lengths
        raise InputError(f"{name}: expected an array, got {type(value).__name__}: {error}") from None
    if array.dtype == object:
        raise InputError(f"{name}: expected an array, got {type(value).__name__}")
    return array


def _settled(value: Any) -> Any:
    """A torch tensor whose memory has its values: without gradient, lazy conjugation or negation."""
    if getattr(value, "requires_grad", False):
        value = value.detach()
    for is_lazy, resolve in (("is_conj", "resolve_conj"), ("is_neg", "resolve_neg")):
        if hasattr(value, resolve) and getattr(value, is_lazy)():
            value = getattr(value, resolve)()
    return value


def to_gpu(
    array: np.ndarray[Any, Any], host_type: str, dtype: DType, name: str, given: Any = None
) -> np.ndarray[Any, Any]:
    """The array in the GPU's format. A dtype whose conversion would lose information is refused.

    `given` is the caller's value, for the error.
    """
    given = array if given is None else given
    if dtype is DType.bfloat16:
        return _to_bfloat16(array, name, given)
    if array.dtype != host_type and not _is_harmless(array, host_type):
        raise _other_dtype(array, host_type, name, given)
    if array.dtype == dtype.label:
        return np.asarray(array, order="C")
    with np.errstate(over="ignore"):  # values that do not fit are reported below
        narrow = np.asarray(array, dtype.label, order="C")
    _check_fits(array, narrow, dtype, name)
    return narrow


def _other_dtype(array: np.ndarray[Any, Any], wanted: str, name: str, given: Any) -> InputError:
    got = str(given.dtype).removeprefix("torch.") if is_torch(given) else array.dtype
    return InputError(f"{name}: expected dtype {wanted}, got {got}: {_hint(given, wanted)}")


def _hint(value: Any, host_type: str) -> str:
    """How the caller converts a value."""
    if is_torch(value):
        return f"convert it with .to(torch.{host_type})"
    if isinstance(value, np.ndarray):
        return f'convert it with .astype("{host_type}")'
    return f'pass numpy.asarray(value, "{host_type}")'


def _to_bfloat16(array: np.ndarray[Any, Any], name: str, given: Any) -> np.ndarray[Any, Any]:
    """The bits of bfloat16: the upper half of a float32, rounded to nearest even."""
    if array.dtype.name == "bfloat16":  # from ml_dtypes
        return np.ascontiguousarray(array).view(np.uint16)
    if is_torch(given):
        if str(given.dtype) != "torch.bfloat16":
            raise _other_dtype(array, "bfloat16", name, given)
    elif array.dtype != np.float32 and array.ndim:
        raise InputError(
            f"{name}: expected dtype bfloat16 or float32, got {array.dtype}: {_hint(given, 'float32')}"
        )
    bits = np.asarray(array, np.float32, order="C").view(np.uint32)
    rounded = (bits.astype(np.uint64) + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return np.where(np.isnan(array), 0x7FC0, rounded).astype(np.uint16)


def _is_harmless(array: np.ndarray[Any, Any], host_type: str) -> bool:
    """Whether a conversion keeps all values: integers of another width, wider floats, or a Python scalar."""
    wanted = np.dtype(host_type)
    if array.dtype.kind in "iu" and wanted.kind in "iu":
        return host_type == "int64" or np.can_cast(array.dtype, host_type, "safe")
    if array.dtype.kind == wanted.kind == "f" and array.dtype.itemsize < wanted.itemsize:
        return True
    return array.ndim == 0 and np.can_cast(array.dtype, host_type, "same_kind")


def _check_fits(wide: np.ndarray[Any, Any], narrow: np.ndarray[Any, Any], dtype: DType, name: str) -> None:
    """Refuse values that change when narrowed. A float may be rounded, but must not become infinite."""
    lost = np.isinf(narrow) & ~np.isinf(wide) if narrow.dtype.kind == "f" else narrow != wide
    if lost.any():
        where = tuple(int(i) for i in np.argwhere(lost)[0])
        raise InputError(
            f"{name}: element {list(where)} is {wide[where]}, which does not fit the GPU's {dtype}"
        )


def raw_bytes(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return array.reshape(-1).view(np.uint8)


def from_gpu(data: Any, dtype: DType, host_type: str, shape: Shape) -> np.ndarray[Any, Any]:
    """A new host array from mapped bytes, widened if the program's dtype is wider."""
    count = 1
    for size in shape:
        count *= size
    if dtype is DType.bfloat16:
        bits = np.frombuffer(data, np.uint16, count).reshape(shape)
        # numpy's arithmetic makes a number of an array without dimensions
        return np.asarray(bits.astype(np.uint32) << 16).view(np.float32)
    return np.frombuffer(data, dtype.label, count).reshape(shape).astype(host_type, copy=True)


def borrowed(data: Any, dtype: DType, host_type: str, shape: Shape) -> np.ndarray[Any, Any]:
    """An array in mapped memory, without a copy if the program's dtype allows it."""
    if dtype is DType.bfloat16 or dtype.words != host_type:
        return from_gpu(data, dtype, host_type, shape)
    array = np.frombuffer(data, dtype.words, numel(shape)).reshape(shape)
    array.flags.writeable = False
    return array


def empty(shape: Shape, host_type: str) -> np.ndarray[Any, Any]:
    return np.empty(shape, array_type(host_type))


def first(array: np.ndarray[Any, Any], count: int) -> np.ndarray[Any, Any]:
    return array[:count]


def dtype(host_type: str) -> np.dtype[Any]:
    """The dtype of output arrays: float32 for bfloat16."""
    return np.dtype(array_type(host_type))


def convert_constant(tensor: Tensor) -> memoryview:
    """The bytes of a constant in the GPU's format: row-major, in the GPU's dtype, with its parts joined."""
    return np.ascontiguousarray(_row_major(tensor)).reshape(-1).view(np.uint8).data


def _row_major(tensor: Tensor) -> np.ndarray[Any, Any]:
    constant = tensor.constant
    if isinstance(constant, Joined):
        return np.concatenate([_row_major(part) for part in constant.parts], constant.axis)
    if isinstance(constant, Folded):
        return _folded(constant, tensor.max_shape)
    if isinstance(constant, WinogradFilters):
        return _winograd(_row_major(constant.source).astype(np.float64))
    assert isinstance(constant, Constant)
    check_size(tensor, constant)
    shape, dtype = tensor.max_shape, tensor.dtype
    host = np.dtype(dtype.words if constant.host_type == dtype.label else constant.host_type)
    order = constant.dim_order or tuple(range(len(shape)))
    stored = np.frombuffer(constant.data.view, host, numel(shape)) if numel(shape) else np.empty(0, host)
    array = stored.reshape([shape[d] for d in order]).transpose(np.argsort(order))
    with np.errstate(over="ignore"):  # a float64 beyond float32 becomes infinite
        narrow = array.astype(dtype.words, order="C", copy=False)
    exact = host.name == dtype.words or dtype.is_float
    if not exact and not np.array_equal(narrow, array):
        raise UnsupportedError(f"constant {tensor.name} has integers beyond 32 bits, which WebGPU lacks")
    return narrow


def _folded(constant: Folded, shape: Shape) -> np.ndarray[Any, Any]:
    def numbers(tensor: Tensor | None, missing: float) -> np.ndarray[Any, Any]:
        return np.array(missing) if tensor is None else _row_major(tensor).astype(np.float64)

    norm = constant.norm
    along = [-1 if d == constant.axis else 1 for d in range(len(shape))]
    factor = numbers(norm.weight, 1.0) / np.sqrt(numbers(norm.variance, 1.0) + norm.eps)
    if constant.is_added:
        source = numbers(constant.source, 0.0).reshape(-1)
        made = (source - numbers(norm.mean, 0.0)) * factor + numbers(norm.bias, 0.0)
    else:
        made = numbers(constant.source, 1.0) * factor.reshape(along)
    return np.asarray(made, np.float32)


def _winograd(taps: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    factors = np.asarray(FILTERS)
    ins, _, _, outs = taps.shape
    rows = (factors @ taps.reshape(ins, 3, 3 * outs)).reshape(ins, -1, 3, outs)
    return np.asarray(factors @ rows, np.float32)


def read_element(element: Element, array: Any) -> int:
    """The value of an element of an input, which the program uses as an integer."""
    values = array if isinstance(array, np.ndarray) else array.numpy()
    name = f"element {element.index} of dimension {element.dim}"
    if element.dim == -1:
        flat = values.reshape(-1)
        if not -flat.size <= element.index < flat.size:
            raise InputError(
                f"{name} is read as an integer, but the input has shape {describe(values.shape)}"
            )
        return flat[element.index].item()  # type: ignore[no-any-return]
    size = values.shape[element.dim] if element.dim < values.ndim else 0
    if not -size <= element.index < size or not values.size:
        raise InputError(f"{name} is read as an integer, but the input has shape {describe(values.shape)}")
    place = [0] * values.ndim
    place[element.dim] = element.index
    return values[tuple(place)].item()  # type: ignore[no-any-return]


def check_contents(array: np.ndarray[Any, Any], rule: ContentRule, name: str) -> None:
    """Refuse an input with an element that is out of range."""
    if array.size and (array.min() < rule.low or array.max() > rule.high):
        where = tuple(int(i) for i in np.argwhere((array < rule.low) | (array > rule.high))[0])
        raise InputError(
            f"{name}: element {list(where)} is {array[where]}, "
            f"but {rule.what} must lie in {rule.low}..{rule.high}"
        )
