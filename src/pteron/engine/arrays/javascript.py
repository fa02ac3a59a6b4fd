"""Typed arrays of JavaScript. Pyodide is never imported for this: a caller who has one runs in it."""

from __future__ import annotations

import sys
from typing import Any


def is_javascript_buffer(value: Any) -> bool:
    """Whether a value is a typed array or an ArrayBuffer of JavaScript."""
    ffi = sys.modules.get("pyodide.ffi")
    return ffi is not None and isinstance(value, ffi.JsBuffer)


def to_typed_array(view: memoryview) -> Any:
    """A typed array of JavaScript with a copy of a buffer of numbers."""
    return sys.modules["pyodide.ffi"].to_js(view)
