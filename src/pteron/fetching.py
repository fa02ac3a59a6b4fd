"""Files behind URLs, and in buffers of JavaScript."""

from __future__ import annotations

import asyncio
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import urlopen

from pteron.arrays.javascript import is_javascript_buffer
from pteron.browser import IN_BROWSER


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


async def fetched(source: Any) -> Any:
    """The file behind a URL, or in a buffer of JavaScript. Other sources are returned as they are."""
    if is_javascript_buffer(source):
        return JavaScriptFile(source, "<buffer>")
    if not isinstance(source, str) or not _is_url(source):
        return source
    if IN_BROWSER:
        return JavaScriptFile(await _fetch(source), source)
    data = NamedBytes(await asyncio.to_thread(_read, source))
    data.name = source
    return data


def _is_url(place: str) -> bool:
    scheme = urlsplit(place).scheme
    return scheme in ("http", "https", "blob", "data") or (IN_BROWSER and not Path(place).exists())


async def _fetch(url: str) -> Any:
    """An ArrayBuffer."""
    try:
        response = await import_module("js").fetch(url)
    except import_module("pyodide.ffi").JsException as error:
        raise OSError(f"{url}: {error}") from None
    if not response.ok:
        raise _refused(url, response.status, response.statusText)
    return await response.arrayBuffer()


def _read(url: str) -> bytes:
    try:
        with urlopen(url) as response:
            data: bytes = response.read()
            return data
    except HTTPError as error:
        raise _refused(url, error.code, error.reason) from None


def _refused(url: str, status: int, reason: str) -> OSError:
    return OSError(f"{url}: the server answered {status} {reason}".rstrip())
