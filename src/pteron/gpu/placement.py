"""Constants on the GPU: each part of the file is uploaded once, however many values use it.

A constant becomes pieces: regions of the file that go into a buffer as they are, and constants that must be
converted first (another order of dimensions, 64-bit types). Converting needs numpy, so the caller brings it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

from pteron.errors import FormatError
from pteron.gpu.buffers import Buffers
from pteron.gpu.device import Buffer, Device
from pteron.ir.dtypes import host_itemsize
from pteron.ir.values import Constant, Joined, Tensor, numel
from pteron.plan.memory import aligned
from pteron.pte.bytesource import Region

# The bytes of a constant as the GPU stores them.
Convert: TypeAlias = Callable[[Tensor], memoryview]

_CHUNK = 1 << 20


class Placement:
    """The constants of a program, shared by its methods. Immutable once uploaded."""

    def __init__(self, device: Device, convert: Convert) -> None:
        self.device = device
        self._convert = convert
        self._owned = Buffers(device)
        self._buffers: dict[tuple[Any, ...], Buffer] = {}

    @property
    def nbytes(self) -> int:
        return self._owned.nbytes

    def buffer(self, tensor: Tensor) -> Buffer:
        """The buffer that holds a constant, uploaded when it is first asked for."""
        key = _identity(tensor)
        if key not in self._buffers:
            label = f"constant {tensor.name}"
            buffer = self._buffers[key] = self._owned.storage(aligned(tensor.max_nbytes), label)
            for offset, piece in pieces(tensor):
                data = piece.view if isinstance(piece, Region) else self._convert(piece)
                if len(data):
                    self.device.write(buffer, offset, data)
        return self._buffers[key]

    @contextmanager
    def all_or_nothing(self) -> Iterator[None]:
        """If the block fails, the constants that it uploaded are freed again."""
        before = len(self._buffers)
        try:
            yield
        except BaseException:
            for key in list(self._buffers)[before:]:
                self._owned.free_one(self._buffers.pop(key))
            raise

    def close(self) -> None:
        self._owned.free()
        self._buffers.clear()


def _identity(tensor: Tensor) -> tuple[Any, ...]:
    """Equal for two constants that are the same bytes, read in the same way."""
    constant = tensor.constant
    if isinstance(constant, Joined):
        return (constant.axis, *map(_identity, constant.parts))
    assert constant is not None
    shape = tensor.max_shape if constant.dim_order else numel(tensor.max_shape)
    return (constant.data, constant.host_type, constant.dim_order, tensor.dtype, shape)


def pieces(tensor: Tensor) -> Iterator[tuple[int, Region | Tensor]]:
    """What a constant's buffer is filled with: (offset, a region of the file, or a constant to convert)."""
    joined = tensor.constant
    if isinstance(joined, Constant):
        yield 0, _as_stored(tensor) or tensor
    elif joined is not None and joined.axis == 0 and all(p.max_nbytes % 4 == 0 for p in joined.parts):
        begin = 0
        for part in joined.parts:
            for offset, piece in pieces(part):
                yield begin + offset, piece
            begin += part.max_nbytes
    else:
        yield 0, tensor


def _as_stored(tensor: Tensor) -> Region | None:
    """The constant's region if the file holds it just as the GPU does."""
    constant = tensor.constant
    assert isinstance(constant, Constant)
    check_size(tensor, constant)
    if constant.host_type != tensor.dtype.label or not is_row_major(constant.dim_order):
        return None
    return constant.data[: tensor.max_nbytes]


def is_row_major(dim_order: tuple[int, ...]) -> bool:
    return dim_order == tuple(range(len(dim_order)))


def check_size(tensor: Tensor, constant: Constant) -> None:
    wanted = numel(tensor.max_shape) * host_itemsize(constant.host_type)
    if len(constant.data) < wanted:
        raise FormatError(
            f"constant {tensor} has {len(constant.data)} bytes in the file, but its shape takes {wanted}"
        )


def is_zero(tensor: Tensor) -> bool:
    """Whether a constant holds nothing but zeros, as caches do before the first call."""
    constant = tensor.constant
    if not isinstance(constant, Constant):
        return False
    view = constant.data.view
    zeros = bytes(_CHUNK)
    return all(
        bytes(view[start : start + _CHUNK]) == zeros[: len(view) - start]
        for start in range(0, len(view), _CHUNK)
    )
