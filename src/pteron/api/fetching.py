"""Files behind URLs, and in buffers of JavaScript.

A browser fetches a file in parts: first those that the program is planned with, then the weights, which go to
the GPU as they arrive. A server that does not answer requests for a range of bytes sends the whole file.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import urlopen

from pteron._util.browser import IN_BROWSER
from pteron.engine.arrays.javascript import is_javascript_buffer
from pteron.pte.bytesource import NotFetched

BLOCK_NBYTES = 4 << 20  # weights are fetched in blocks of this size
PLAN_NBYTES = 1 << 18  # a smaller part of what a program is planned with is not fetched alone
PARTIAL_CONTENT = 206


class NamedBytes(bytes):
    """The contents of a file, with its name for errors."""

    name: str


class JavaScriptFile:
    """The contents of a file in a buffer of JavaScript, outside of Python's memory (see `pte.FarFile`)."""

    def __init__(self, buffer: Any, name: str) -> None:
        part = (
            (buffer.buffer, buffer.byteOffset, buffer.byteLength) if hasattr(buffer, "buffer") else (buffer,)
        )
        self._bytes = import_module("js").Uint8Array.new(*part)
        self.name = name
        self.size = int(self._bytes.length)

    def read_at(self, start: int, nbytes: int) -> bytes:
        data: bytes = self._bytes.subarray(start, start + nbytes).to_bytes()
        return data


@dataclass(frozen=True, slots=True)
class _Part:
    """Some bytes of a file, in a Uint8Array of JavaScript."""

    start: int
    array: Any

    @property
    def end(self) -> int:
        return self.start + int(self.array.length)

    def read(self, start: int, end: int) -> bytes:
        data: bytes = self.array.subarray(start - self.start, end - self.start).to_bytes()
        return data


class RangedFile:
    """A file on a server that answers requests for a range of bytes (see `pte.RemoteFile`)."""

    def __init__(self, url: str, size: int, first: _Part) -> None:
        self.name = url
        self.size = size
        self._kept = [first]  # what `read_at` has needed
        self._ahead = first  # the last part that was streamed: it often has the beginning of the next one

    def read_at(self, start: int, nbytes: int) -> bytes:
        end = min(start + nbytes, self.size)
        part = self._part_with(start, end)
        if part is None:
            raise NotFetched(partial(self._keep, start, end))
        return part.read(start, end)

    async def _keep(self, start: int, end: int) -> None:
        self._kept.append(await self._fetch(start, max(end, start + PLAN_NBYTES)))

    async def stream(self, start: int, nbytes: int) -> AsyncIterator[bytes]:
        end = start + nbytes
        while start < end:
            part = self._part_with(start, min(start + 4, end))
            if part is None:
                part = self._ahead = await self._fetch(start, start + BLOCK_NBYTES)
            stop = min(part.end, end)
            if stop < end:
                stop -= (stop - start) % 4
            yield part.read(start, stop)
            start = stop

    def _part_with(self, start: int, end: int) -> _Part | None:
        parts = (*self._kept, self._ahead)
        return next((part for part in parts if part.start <= start and end <= part.end), None)

    async def _fetch(self, start: int, end: int) -> _Part:
        end = min(end, self.size)
        response = await _request(self.name, start, end)
        part = _Part(start, import_module("js").Uint8Array.new(await response.arrayBuffer()))
        if _whole_size(response) != self.size or part.end != end:
            raise OSError(
                f"{self.name}: expected bytes {start} to {end} of {self.size}, but the file has changed: "
                "load it again"
            )
        return part


async def fetch_source(source: Any) -> Any:
    """Open the file behind a URL, or in a buffer of JavaScript. Other sources are returned as they are."""
    if is_javascript_buffer(source):
        return JavaScriptFile(source, "<buffer>")
    if not isinstance(source, str) or not _is_url(source):
        return source
    if IN_BROWSER:
        return await _open(source)
    data = NamedBytes(await asyncio.to_thread(_read, source))
    data.name = source
    return data


def _is_url(place: str) -> bool:
    scheme = urlsplit(place).scheme
    return scheme in ("http", "https", "blob", "data") or (IN_BROWSER and not Path(place).exists())


async def _open(url: str) -> RangedFile | JavaScriptFile:
    response = await _request(url, 0, PLAN_NBYTES)
    size = _whole_size(response)
    if response.status == PARTIAL_CONTENT and size is None:  # other origins may hide the size
        response = await _request(url)
    data = import_module("js").Uint8Array.new(await response.arrayBuffer())
    return JavaScriptFile(data, url) if size is None else RangedFile(url, size, _Part(0, data))


def _whole_size(response: Any) -> int | None:
    """The size of the file that a response has a part of."""
    found = re.fullmatch(r"bytes \d+-\d+/(\d+)", response.headers.get("Content-Range") or "")
    return int(found[1]) if found and response.status == PARTIAL_CONTENT else None


async def _request(url: str, start: int = 0, end: int | None = None) -> Any:
    """The response of a server. With `end`, only these bytes are asked for."""
    js: Any = import_module("js")
    options = js.Object.new()
    if end is not None:
        options.headers = js.Headers.new()
        options.headers.set("Range", f"bytes={start}-{end - 1}")
    try:
        response = await js.fetch(url, options)
    except import_module("pyodide.ffi").JsException as error:
        raise OSError(f"{url}: {error}") from None
    if not response.ok:
        raise _refused(url, response.status, response.statusText)
    return response


def _read(url: str) -> bytes:
    try:
        with urlopen(url) as response:
            data: bytes = response.read()
            return data
    except HTTPError as error:
        raise _refused(url, error.code, error.reason) from None


def _refused(url: str, status: int, reason: str) -> OSError:
    return OSError(f"{url}: the server answered {status} {reason}".rstrip())
