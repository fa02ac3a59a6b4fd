"""The bytes of a file, and regions of them.

A path is memory-mapped, not read: weights stay on disk until they are used. A `FarFile`, such as a buffer of
JavaScript, is read in parts. The parts of a `RemoteFile` must be awaited first.

A `Region` names bytes without reading them. Two regions are equal if they are the same bytes of the same
source.
"""

import mmap
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Protocol, TypeVar, runtime_checkable

from pteron.errors import FormatError

T = TypeVar("T")


class BinaryFile(Protocol):
    def read(self) -> bytes: ...


@runtime_checkable
class FarFile(Protocol):
    """A file that is not in Python's memory. Every read copies a part of it."""

    name: str
    size: int

    def read_at(self, start: int, nbytes: int) -> bytes: ...


@runtime_checkable
class RemoteFile(FarFile, Protocol):
    """A file on a server. `read_at` raises NotFetched for a part that is not here yet."""

    def stream(self, start: int, nbytes: int) -> AsyncIterator[bytes]:
        """Fetch some bytes in parts. All parts but the last have a multiple of four bytes."""


class NotFetched(Exception):
    """A part of a remote file is needed. After `await fetch()`, try again."""

    def __init__(self, fetch: Callable[[], Awaitable[None]]) -> None:
        super().__init__("a part of a remote file was not fetched")
        self.fetch = fetch


async def when_fetched(function: Callable[[], T]) -> T:
    """Call a function that reads remote files. It is called again for each part that must be fetched."""
    while True:
        try:
            return function()
        except NotFetched as missing:
            fetch = missing.fetch
        await fetch()


Openable = str | PathLike[str] | bytes | bytearray | memoryview | BinaryFile | FarFile


class ByteSource:
    """The bytes of a file, and the file's name for error messages."""

    def __init__(self, source: Openable) -> None:
        self._map: mmap.mmap | None = None
        self._far: FarFile | None = None
        self._view: memoryview | None = None
        self.name = "<bytes>"
        if isinstance(source, str | PathLike):
            self.name = str(source)
            self._view = self._map_file(Path(source))
        elif isinstance(source, bytes | bytearray | memoryview):
            self.name = getattr(source, "name", self.name)
            self._view = _flat_view(source)
        elif isinstance(source, FarFile):
            self.name, self._far = source.name, source
        elif hasattr(source, "read"):
            self.name = str(getattr(source, "name", "<file>"))
            self._view = _flat_view(_read_all(source))
        else:
            raise TypeError(f"expected a path, bytes or a binary file, not {type(source).__name__}")

    @property
    def view(self) -> memoryview:
        """All bytes."""
        return self.read(0, self.size)

    @property
    def remote(self) -> RemoteFile | None:
        """The file, if its parts must be awaited."""
        return self._far if isinstance(self._far, RemoteFile) else None

    @property
    def size(self) -> int:
        return len(self._near()) if self._far is None else self._far.size

    def _near(self) -> memoryview:
        if self._view is None:
            raise ValueError(f"{self.name} is closed")
        return self._view

    def region(self, start: int = 0, nbytes: int | None = None) -> "Region":
        return Region(self, start, self.size - start if nbytes is None else nbytes)

    def read(self, start: int, nbytes: int) -> memoryview:
        """A view of some bytes. Reading a mapped file that was cut would kill the process: refuse it."""
        if self._far is not None:
            return memoryview(self._far.read_at(start, nbytes))
        end = start + nbytes
        if self._map is not None and self._map.size() < end:
            raise FormatError(
                f"{self.name}: the file was cut to {self._map.size()} bytes after it was opened, "
                f"but bytes up to {end} are needed: restore it and load it again"
            )
        return self._near()[start:end]

    def close(self) -> None:
        """Close the file. Views that somebody still holds keep their bytes alive."""
        self._view = self._far = None
        if self._map is not None:
            with suppress(BufferError):  # somebody holds a view: the mapping is freed with the last view
                self._map.close()
            self._map = None

    def _map_file(self, path: Path) -> memoryview:
        with path.open("rb") as file:
            if path.stat().st_size == 0:
                raise FormatError(f"{path}: the file is empty")
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        return memoryview(self._map)


@dataclass(frozen=True, slots=True)
class Region:
    """A range of bytes in a source. A slice of a region is a region. `view` reads the bytes."""

    source: ByteSource
    start: int
    nbytes: int

    @property
    def view(self) -> memoryview:
        return self.source.read(self.start, self.nbytes)

    def __bytes__(self) -> bytes:
        return bytes(self.view)

    def __len__(self) -> int:
        return self.nbytes

    def __getitem__(self, part: slice) -> "Region":
        start, stop, _ = part.indices(self.nbytes)
        return Region(self.source, self.start + start, max(0, stop - start))


def _flat_view(data: bytes | bytearray | memoryview) -> memoryview:
    view = memoryview(data)
    if not view.c_contiguous:
        raise TypeError("expected a contiguous memoryview")
    return view.toreadonly().cast("B")


def _read_all(file: BinaryFile) -> bytes:
    data = file.read()
    if not isinstance(data, bytes | bytearray | memoryview):
        raise TypeError(f"expected a binary file, but read() gave {type(data).__name__}: open it with 'rb'")
    return bytes(data)
