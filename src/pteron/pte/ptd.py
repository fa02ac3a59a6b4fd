"""`.ptd` files: weights that are stored outside the program, by name."""

import hashlib
import os
from collections.abc import Iterator, Mapping
from struct import Struct
from typing import Annotated

from pteron.errors import FormatError
from pteron.pte.bytesource import ByteSource, Openable, Region
from pteron.pte.container import (
    HEAD_NBYTES,
    HEADER_AT,
    Blob,
    Parts,
    Segments,
    file_chunks,
    parts_of,
    place,
    write_file,
)
from pteron.pte.flat import decode, encode, i32, table, u8, u32
from pteron.pte.schema import DataSegment, ScalarType
from pteron.pte.sniff import looks_like
from pteron.pte.validate import check_index

IDENTIFIER = b"FT01"

# magic, length of the header, FlatBuffer offset and size, offset of the segments, bytes of all segments
_HEADER = Struct("<4sIQQQQ")
_MAGIC = b"FH01"
_RESERVE = 48  # the header, padded to a multiple of 16
_NEWEST_VERSION = 0


@table
class TensorLayout:
    scalar_type: Annotated[ScalarType, "b"] = ScalarType.BYTE
    sizes: tuple[i32, ...] = ()
    dim_order: tuple[u8, ...] = ()


@table
class NamedData:
    key: str
    segment_index: u32 = 0
    tensor_layout: TensorLayout | None = None


@table
class FlatTensor:
    version: u32 = 0
    segments: tuple[DataSegment, ...] = ()
    named_data: tuple[NamedData, ...] = ()


class DataFile(Mapping[str, Region]):
    """An open `.ptd` file: a region per key. `layouts` describes the regions that are tensors."""

    def __init__(self, source: Openable) -> None:
        self._bytes = ByteSource(source)
        self.name = self._bytes.name
        try:
            flat_tensor, segments = _read(self._bytes)
        except BaseException:
            self._bytes.close()
            raise
        self.layouts = {item.key: item.tensor_layout for item in flat_tensor.named_data if item.tensor_layout}
        self._segments = segments
        self._index = {item.key: item.segment_index for item in flat_tensor.named_data}

    def __getitem__(self, key: str) -> Region:
        return self._segments[self._index[key]]

    def __iter__(self) -> Iterator[str]:
        return iter(self._index)

    def __len__(self) -> int:
        return len(self._index)

    def digest(self) -> bytes:
        """SHA-256 of the file."""
        return hashlib.sha256(self._bytes.view).digest()

    def close(self) -> None:
        """Close the file. Views that somebody still holds keep their bytes alive."""
        self._bytes.close()


def _read(source: ByteSource) -> tuple[FlatTensor, Segments]:
    head, name = source.region()[:HEAD_NBYTES].view, source.name
    if head[4:8] != IDENTIFIER or len(head) < HEADER_AT + _HEADER.size:
        raise FormatError(f"{name}: not a .ptd file; it looks like {looks_like(head)}")
    magic, length, start, size, base, segment_bytes = _HEADER.unpack_from(head, HEADER_AT)
    if magic != _MAGIC or length < _HEADER.size:
        raise FormatError(f"{name}: expected a {_MAGIC!r} header, found {magic!r} of {length} bytes")
    parts = Parts(start + size, base, segment_bytes)
    parts.check(source.size, name)
    flatbuffer = source.read(0, parts.flatbuffer_end)
    flat_tensor = decode(FlatTensor, flatbuffer, identifier=IDENTIFIER, what=name)
    if flat_tensor.version > _NEWEST_VERSION:
        raise FormatError(f"{name}: version {flat_tensor.version} is newer than version {_NEWEST_VERSION}")
    for item in flat_tensor.named_data:
        check_index(item.segment_index, len(flat_tensor.segments), "segment", f"{name}: key {item.key!r}")
    return flat_tensor, Segments(source, parts, flat_tensor.segments, name)


def write_ptd(
    path: str | os.PathLike[str],
    data: Mapping[str, Blob],
    layouts: Mapping[str, TensorLayout] | None = None,
    *,
    alignment: int = 16,
) -> None:
    """Write a `.ptd` file with `data`, a mapping from key to bytes."""
    layouts = layouts or {}
    segments = list(data.values())
    placed = place(segments, alignment)
    named = tuple(NamedData(key, index, layouts.get(key)) for index, key in enumerate(data))
    head = bytearray(encode(FlatTensor(0, placed, named), identifier=IDENTIFIER, reserve=_RESERVE))
    parts = parts_of(len(head), placed, alignment)
    flatbuffer_size = len(head) - _RESERVE
    places = (_RESERVE, flatbuffer_size, parts.segment_base, parts.segment_bytes)
    _HEADER.pack_into(head, HEADER_AT, _MAGIC, _HEADER.size, *places)
    write_file(path, file_chunks(head, parts, placed, segments))
