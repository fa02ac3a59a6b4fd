"""Constants on the GPU: each part of the file is uploaded once, even if several values use it.

A constant is uploaded in pieces. A piece is a region of the file, or a constant that must be converted first
(permuted dimensions, 64-bit types). The conversion needs numpy, so the caller provides it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeAlias

from pteron.compiler.ir.dtypes import host_itemsize
from pteron.compiler.ir.values import Constant, Folded, Joined, Tensor, WinogradFilters, numel
from pteron.compiler.plan.memory import aligned
from pteron.engine.buffers import Buffers
from pteron.engine.devices.device import Buffer, Device
from pteron.errors import FormatError
from pteron.pte.bytesource import ByteSource, Region, when_fetched

# Returns the bytes of a constant in the GPU's format.
Convert: TypeAlias = Callable[[Tensor], memoryview]

_CHUNK = 1 << 20


class WeightStore:
    """The constants of a program, shared by its methods. They are never changed."""

    def __init__(self, device: Device, convert: Convert) -> None:
        self.device = device
        self._convert = convert
        self._owned = Buffers(device)
        self._buffers: dict[tuple[Any, ...], Buffer] = {}

    @property
    def nbytes(self) -> int:
        return self._owned.nbytes

    def buffer(self, tensor: Tensor) -> Buffer:
        """The buffer of a constant. It is uploaded at first use."""
        key = _identity(tensor)
        if key not in self._buffers:
            contents = (
                (offset, piece.view if isinstance(piece, Region) else self._convert(piece))
                for offset, piece in pieces(tensor)
            )
            self._buffers[key] = self._owned.constant(*_size_and_label(tensor), contents)
        return self._buffers[key]

    async def fetch(self, tensors: Iterable[Tensor]) -> None:
        """Upload the constants that are in remote files, in the order of the files.

        They go to the GPU in parts, as they arrive. Those that must be converted first are fetched whole.
        """
        remote = [tensor for tensor in tensors if any(source.remote for source in sources(tensor))]
        with self.all_or_nothing():
            await self._stream(remote)
            for tensor in remote:
                await when_fetched(partial(self.buffer, tensor))

    async def _stream(self, tensors: Iterable[Tensor]) -> None:
        parts: list[tuple[Region, Buffer, int]] = []
        for tensor in tensors:
            key, stored = _identity(tensor), _stored(tensor)
            if stored and key not in self._buffers:
                buffer = self._buffers[key] = self._new_buffer(tensor)
                parts += [(region, buffer, offset) for offset, region in stored]
        parts.sort(key=lambda part: (part[0].source.name, part[0].start))
        for region, buffer, offset in parts:
            if region.source.remote is None:
                self.device.write(buffer, offset, region.view)
                continue
            async for data in region.source.remote.stream(region.start, region.nbytes):
                self.device.write(buffer, offset, data)
                offset += len(data)

    def _new_buffer(self, tensor: Tensor) -> Buffer:
        return self._owned.storage(*_size_and_label(tensor))

    @contextmanager
    def all_or_nothing(self) -> Iterator[None]:
        """If the block fails, free the constants that it has uploaded."""
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


def _size_and_label(tensor: Tensor) -> tuple[int, str]:
    return aligned(tensor.max_nbytes), f"constant {tensor.name}"


def _identity(tensor: Tensor) -> tuple[Any, ...]:
    """A key that is equal for two constants with the same bytes and the same format."""
    constant = tensor.constant
    if isinstance(constant, Joined):
        return (constant.axis, *map(_identity, constant.parts))
    if isinstance(constant, WinogradFilters):
        return (WinogradFilters, *_identity(constant.source))
    if isinstance(constant, Folded):
        return (constant,)
    assert constant is not None
    shape = tensor.max_shape if constant.dim_order else numel(tensor.max_shape)
    return (constant.data, constant.host_type, constant.dim_order, tensor.dtype, shape)


def pieces(tensor: Tensor) -> Iterator[tuple[int, Region | Tensor]]:
    """The contents of a constant's buffer: (offset, a region of the file or a constant to convert)."""
    constant = tensor.constant
    if isinstance(constant, Constant):
        yield 0, _as_stored(tensor) or tensor
    elif isinstance(constant, Joined) and constant.axis == 0 and _are_words(constant.parts):
        begin = 0
        for part in constant.parts:
            for offset, piece in pieces(part):
                yield begin + offset, piece
            begin += part.max_nbytes
    else:
        yield 0, tensor


def _are_words(parts: Iterable[Tensor]) -> bool:
    return all(part.max_nbytes % 4 == 0 for part in parts)


def _stored(tensor: Tensor) -> list[tuple[int, Region]]:
    """The pieces of a constant of which none must be converted; else an empty list."""
    found = list(pieces(tensor))
    stored = [(offset, piece) for offset, piece in found if isinstance(piece, Region)]
    return stored if len(stored) == len(found) else []


def sources(tensor: Tensor) -> Iterator[ByteSource]:
    """The files that have the bytes of a constant."""
    if isinstance(tensor.constant, Constant):
        yield tensor.constant.data.source
    elif tensor.constant is not None:
        for part in tensor.constant.parts:
            yield from sources(part)


def _as_stored(tensor: Tensor) -> Region | None:
    """The region of a constant, if the file has it in the GPU's format."""
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
    """Whether a constant has only zeros, such as an empty cache."""
    constant = tensor.constant
    if isinstance(constant, Joined):
        return all(map(is_zero, dict.fromkeys(constant.parts)))
    if not isinstance(constant, Constant):
        return False
    view = constant.data.view
    zeros = bytes(_CHUNK)
    return all(
        bytes(view[start : start + _CHUNK]) == zeros[: len(view) - start]
        for start in range(0, len(view), _CHUNK)
    )
