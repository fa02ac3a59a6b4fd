"""Blocking in a browser. It needs JSPI, with which Pyodide can stop Python until a promise is fulfilled."""

from __future__ import annotations

from collections.abc import Awaitable
from importlib import import_module
from typing import Any, TypeVar

from pteron.errors import DeviceError

T = TypeVar("T")


def run_until_done(awaitable: Awaitable[T]) -> T:
    """The result of an awaitable. The event loop of the page goes on."""
    ffi: Any = import_module("pyodide.ffi")
    if not ffi.can_run_sync():
        close = getattr(awaitable, "close", lambda: None)
        close()  # a coroutine that never runs gives a warning
        raise DeviceError(
            "Python cannot wait for the GPU here: use `await pteron.load_async(...)` and `await program(x)`. "
            "Calls without `await` need a browser with JSPI, and code that was started by runPythonAsync"
        )
    result: T = ffi.run_sync(awaitable)
    return result
