"""The extended header of a `.pte` file ("eh00"): the length of the program, the position of its segments."""

from struct import Struct
from typing import Any

from pteron.errors import FormatError
from pteron.pte.container import HEADER_AT, Parts

# magic, length of the header, length of the program from the start of the file, offset of the segments
_SHORT = Struct("<4sIQQ")
# the same, then the bytes of all segments; newer writers store it
_LONG = Struct("<4sIQQQ")
_MAGIC = b"eh00"

RESERVE = _LONG.size


def read_header(data: memoryview, size: int, what: str) -> Parts:
    """The position of the parts of a file of some size, whose first bytes are `data`.

    The oldest files have no header: the program is the whole file.
    """
    if data[HEADER_AT : HEADER_AT + 4] != _MAGIC:
        return Parts(size)
    _, length, program_size, base = _unpack(_SHORT, data, what)
    if length < _SHORT.size:
        raise FormatError(f"{what}: extended header of {length} bytes, expected {_SHORT.size} or more")
    segment_bytes = _unpack(_LONG, data, what)[-1] if length >= _LONG.size else 0
    parts = Parts(program_size, base, segment_bytes)
    parts.check(size, what)
    return parts


def write_header(head: bytearray, parts: Parts) -> None:
    """Fill in the bytes that were reserved in `head`."""
    _LONG.pack_into(
        head, HEADER_AT, _MAGIC, _LONG.size, parts.flatbuffer_end, parts.segment_base, parts.segment_bytes
    )


def _unpack(layout: Struct, data: memoryview, what: str) -> tuple[Any, ...]:
    end = HEADER_AT + layout.size
    if len(data) < end:
        raise FormatError(f"{what}: truncated: the header needs {end} bytes, the file has {len(data)}")
    return layout.unpack_from(data, HEADER_AT)
