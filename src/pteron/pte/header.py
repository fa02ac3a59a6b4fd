"""A `.pte` file's extended header ("eh00"): how long the program is, and where its segments are."""

from struct import Struct
from typing import Any

from pteron.errors import FormatError
from pteron.pte.container import HEADER_AT, Extent

# magic, header bytes, bytes of the program from the file's start, segment base offset
_SHORT = Struct("<4sIQQ")
# ..., bytes of all segments; newer writers state it
_LONG = Struct("<4sIQQQ")
_MAGIC = b"eh00"

RESERVE = _LONG.size


def read_header(data: memoryview, what: str) -> Extent:
    """Where the file's parts lie. The oldest files have no header: they are all program."""
    if data[HEADER_AT : HEADER_AT + 4] != _MAGIC:
        return Extent(len(data))
    _, length, program_size, base = _unpack(_SHORT, data, what)
    if length < _SHORT.size:
        raise FormatError(f"{what}: extended header of {length} bytes, expected {_SHORT.size} or more")
    segment_bytes = _unpack(_LONG, data, what)[-1] if length >= _LONG.size else 0
    extent = Extent(program_size, base, segment_bytes)
    extent.check(data, what)
    return extent


def write_header(head: bytearray, extent: Extent) -> None:
    """Fill in the room that was reserved in `head`."""
    _LONG.pack_into(
        head, HEADER_AT, _MAGIC, _LONG.size, extent.flatbuffer_end, extent.segment_base, extent.segment_bytes
    )


def _unpack(layout: Struct, data: memoryview, what: str) -> tuple[Any, ...]:
    end = HEADER_AT + layout.size
    if len(data) < end:
        raise FormatError(f"{what}: truncated: the header needs {end} bytes, the file has {len(data)}")
    return layout.unpack_from(data, HEADER_AT)
