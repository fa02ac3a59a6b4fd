"""Files behind URLs."""

from __future__ import annotations

import asyncio
import sys
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import urlopen


class NamedBytes(bytes):
    """The contents of a file, with its name for errors."""

    name: str


async def fetched(source: Any) -> Any:
    """The bytes behind a URL, or of a buffer of JavaScript. Other sources are returned as they are."""
    if hasattr(source, "to_bytes") and not isinstance(source, int):  # Pyodide's view of such a buffer
        return source.to_bytes()
    if not isinstance(source, str) or not _is_url(source):
        return source
    data = NamedBytes(await (_in_browser(source) if _has_fetch() else asyncio.to_thread(_read, source)))
    data.name = source
    return data


def _has_fetch() -> bool:
    return sys.platform.startswith("emscripten")


def _is_url(place: str) -> bool:
    scheme = urlsplit(place).scheme
    return scheme in ("http", "https", "blob", "data") or (_has_fetch() and not Path(place).exists())


async def _in_browser(url: str) -> bytes:
    http = import_module("pyodide.http")
    response = await http.pyfetch(url)
    if not response.ok:
        raise _refused(url, response.status, response.status_text)
    data: bytes = await response.bytes()
    return data


def _read(url: str) -> bytes:
    try:
        with urlopen(url) as response:
            data: bytes = response.read()
            return data
    except HTTPError as error:
        raise _refused(url, error.code, error.reason) from None


def _refused(url: str, status: int, reason: str) -> OSError:
    return OSError(f"{url}: the server answered {status} {reason}".rstrip())
