"""The layout that `.pte` and `.ptd` files share: a FlatBuffer that contains a header, then data segments.

0                  root offset, identifier
8                  header: magic, header length, offsets and sizes of the parts
...                FlatBuffer
segment_base       segment 0, padding, segment 1, ...
"""

import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pteron.errors import FormatError
from pteron.pte.bytesource import ByteSource, Region
from pteron.pte.schema import DataSegment

HEADER_AT = 8
HEAD_NBYTES = 128  # of a file, to read its header, or to see what else it is

# To read it is to set it, for all threads. So it is read once, before there are threads that write files.
_UMASK = os.umask(0o077)
os.umask(_UMASK)

Blob = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class Parts:
    """The position of each part of a file, in bytes from its start."""

    flatbuffer_end: int
    segment_base: int = 0  # 0: there are no segments
    segment_bytes: int = 0  # 0: not stated

    def check(self, size: int, what: str) -> None:
        """Refuse a file that is shorter than its header says, or whose parts overlap."""
        promised = max(self.flatbuffer_end, self.segment_base + self.segment_bytes)
        if promised > size:
            raise FormatError(f"{what}: truncated: the header says {promised} bytes, the file has {size}")
        if 0 < self.segment_base < self.flatbuffer_end:
            raise FormatError(
                f"{what}: segments begin at byte {self.segment_base}, "
                f"inside the program, which ends at {self.flatbuffer_end}"
            )


class Segments(Sequence[Region]):
    """A file's data segments, each a region of the file."""

    def __init__(self, data: ByteSource, parts: Parts, table: Sequence[DataSegment], what: str) -> None:
        # A program without constants has one empty segment for them, and no header.
        if any(segment.size for segment in table) and not parts.segment_base:
            raise FormatError(f"{what}: there are {len(table)} segments, but the header gives no position")
        base = parts.segment_base
        self._regions = [_region(data, base, item, f"{what}: segment {i}") for i, item in enumerate(table)]
        self._what = what

    def __len__(self) -> int:
        return len(self._regions)

    def __getitem__(self, index: int) -> Region:  # type: ignore[override]  # segments are not sliced
        if not 0 <= index < len(self._regions):
            raise FormatError(f"{self._what}: segment {index} is used, but there are {len(self._regions)}")
        return self._regions[index]


def _region(data: ByteSource, base: int, segment: DataSegment, where: str) -> Region:
    start = base + segment.offset
    end = start + segment.size
    if end > data.size:
        raise FormatError(f"{where} ends at byte {end}, but the file has {data.size}")
    return data.region(start, segment.size)


def place(segments: Iterable[Blob], alignment: int) -> tuple[DataSegment, ...]:
    """The offset and size of each segment, relative to the first."""
    if alignment < 1 or alignment & (alignment - 1):
        raise ValueError(f"alignment {alignment} is not a power of two")
    placed = []
    end = 0
    for segment in segments:
        start = end + -end % alignment
        end = start + memoryview(segment).nbytes
        placed.append(DataSegment(start, end - start))
    return tuple(placed)


def parts_of(flatbuffer_end: int, placed: Sequence[DataSegment], alignment: int) -> Parts:
    """The parts of a file that is about to be written."""
    if not placed:
        return Parts(flatbuffer_end)
    base = flatbuffer_end + -flatbuffer_end % alignment
    return Parts(flatbuffer_end, base, placed[-1].offset + placed[-1].size)


def file_chunks(
    head: Blob, parts: Parts, placed: Sequence[DataSegment], segments: Sequence[Blob]
) -> Iterator[Blob]:
    """The bytes of a whole file as a sequence of pieces. Large pieces are never copied or joined."""
    yield head
    written = len(head)
    for where, segment in zip(placed, segments, strict=True):
        start = parts.segment_base + where.offset
        yield bytes(start - written)
        yield segment
        written = start + where.size


def write_file(path: str | os.PathLike[str], chunks: Iterable[Blob]) -> None:
    """Write to a temporary file, then rename it: no reader ever sees half a file."""
    target = Path(path)
    handle, temporary = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            _share_like_open(handle)
            for chunk in chunks:
                file.write(chunk)
        Path(temporary).replace(target)
    except BaseException as error:
        with suppress(OSError):
            Path(temporary).unlink()
        if isinstance(error, OSError) and error.errno and error.filename is None:  # such as a full disk
            error.filename = str(target)
        raise


def _share_like_open(handle: int) -> None:
    """Give the temporary file, which is private, the mode that open() gives a new file."""
    if hasattr(os, "fchmod"):
        os.fchmod(handle, 0o666 & ~_UMASK)
