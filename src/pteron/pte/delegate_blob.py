"""The blob of a delegate: a header, a FlatBuffer with the graph, and constants.

Vulkan and XNNPACK write the same header, each with its own magic.
"""

from struct import Struct

from pteron.errors import FormatError
from pteron.pte.bytesource import Region
from pteron.pte.container import Blob

# magic (after four zero bytes), length of the header, FlatBuffer offset and size, constants offset and size
_HEADER = Struct("<4x4sHIIIQ")
_FLATBUFFER_AT = 32
_ALIGNMENT = 16


def has_header(blob: Region, magic: bytes) -> bool:
    return len(blob) >= _HEADER.size and blob[4:8].view == magic


def split_blob(blob: Region, zero_is_rest: bool) -> tuple[Region, Region]:
    """The FlatBuffer and the constants. `zero_is_rest`: constants of size 0 are the rest of the blob."""
    _, header_size, start, size, inline_start, inline_size = _HEADER.unpack_from(blob[: _HEADER.size].view)
    if header_size < _HEADER.size or start < header_size or size == 0:
        raise FormatError(
            f"delegate: header of {header_size} bytes places {size} bytes of graph at {start}; "
            f"expected a header of {_HEADER.size} or more, and a graph after it"
        )
    if (inline_size or zero_is_rest) and inline_start < start + size:
        raise FormatError(
            f"delegate: constants at {inline_start} overlap the graph at {start}..{start + size}"
        )
    flatbuffer = take(blob, start, size, "delegate: graph")
    if zero_is_rest and not inline_size:
        inline_size = max(len(blob) - inline_start, 0)
    inline = take(blob, inline_start, inline_size, "delegate: constants") if inline_size else blob[:0]
    return flatbuffer, inline


def make_blob(magic: bytes, flatbuffer: bytes, inline: Blob) -> bytes:
    """A blob that `split_blob` can read."""
    end = _FLATBUFFER_AT + len(flatbuffer)
    padding = bytes(-end % _ALIGNMENT)
    inline_size = memoryview(inline).nbytes
    header = _HEADER.pack(
        magic, _HEADER.size, _FLATBUFFER_AT, len(flatbuffer), end + len(padding), inline_size
    )
    return b"".join((header, bytes(_FLATBUFFER_AT - _HEADER.size), flatbuffer, padding, inline))


def take(data: Region, start: int, size: int, what: str) -> Region:
    """A part of a region. Raises FormatError, with `what` needs it, if the region is too short."""
    if start + size > len(data):
        raise FormatError(f"{what} needs bytes {start}..{start + size}, but there are {len(data)}")
    return data[start : start + size]
