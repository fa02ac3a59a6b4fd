"""Starts wgpu-py faster: its C header is parsed once, not in every process.

wgpu-py gives its header to cffi as text. So cffi parses it in every process, and parses the name of each type
at its first use: 0.8 s of the 1.6 s that a process needs until the end of its first call. For a header that
was parsed before, cffi has a faster class. Its arguments are stored in the user's cache as Python literals.
They are read as data and never executed.

If anything is different from what this module expects, wgpu-py parses its header as always.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import hashlib
import io
import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from pteron._util import user_cache
from pteron.pte.container import write_file

BACKEND = "wgpu.backends.wgpu_native"
MODULE = f"{BACKEND}._ffi"  # it parses the header


def import_backend() -> None:
    """Import wgpu-py's backend, with a header from the cache if there is one."""
    if BACKEND in sys.modules:
        return
    if find_spec("cffi") is None or find_spec("cffi.recompiler") is None:  # `_write` needs it
        return
    finder = _Finder()
    sys.meta_path.insert(0, finder)
    try:
        with contextlib.suppress(ImportError, OSError, RuntimeError):
            __import__(BACKEND)
    finally:
        sys.meta_path.remove(finder)


class _Finder(MetaPathFinder):
    """Finds the module that parses the header. All other imports of the process are as always."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path) if name == MODULE else None
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Loader(name, spec.loader.path)
        return spec


class _Loader(SourceFileLoader):
    """Runs the module with an import of its own: `from cffi import FFI` there gives the class below."""

    def exec_module(self, module: ModuleType) -> None:
        module.__dict__["__builtins__"] = {**vars(builtins), "__import__": _import}
        super().exec_module(module)


def _import(name: str, *arguments: Any) -> Any:
    found = __import__(name, *arguments)
    return SimpleNamespace(**{**vars(found), "FFI": _CachingFFI}) if name == "cffi" else found


class _CachingFFI:
    """Behaves like `cffi.FFI`. `cdef` looks into the cache first."""

    def __init__(self) -> None:
        self._ffi: Any = None
        self._is_parsed = False

    def _parser(self) -> Any:
        """The class of cffi. Its parser is only imported for this."""
        if self._ffi is None:
            from cffi.api import FFI

            self._ffi = FFI()
        return self._ffi

    def cdef(self, source: str) -> None:
        path = _path(source)
        found = _read(path)
        if found is not None:
            self._ffi, self._is_parsed = found, True
            return
        self._parser().cdef(source)
        with contextlib.suppress(OSError):  # a cache that cannot be written is no fault
            _write(path, self._ffi)

    def set_source(self, name: str, source: None) -> None:
        if not self._is_parsed:
            self._parser().set_source(name, source)

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._parser(), name)
        if self._is_parsed:
            self.__dict__[name] = value  # the next access is a plain one
        return value


def _path(source: str) -> Path:
    import _cffi_backend

    key = hashlib.sha256(f"{_cffi_backend.__version__} {sys.platform} {source}".encode()).hexdigest()
    return user_cache.folder() / f"wgpu-header-{key[:16]}.txt"


def _read(path: Path) -> Any:
    """The parsed header, or None. The first line of the file is the hash of the rest."""
    import _cffi_backend

    try:
        digest, _, text = path.read_text(encoding="utf-8").partition("\n")
        if digest != _digest(text):
            return None
        return _cffi_backend.FFI("wgpu_header", **ast.literal_eval(text))
    except (OSError, ValueError, SyntaxError, TypeError):
        return None


def _write(path: Path, ffi: Any) -> None:
    from cffi import recompiler

    target = io.StringIO()
    recompiler.make_py_source(ffi, "wgpu_header", target)
    (call,) = (node for node in ast.walk(ast.parse(target.getvalue())) if isinstance(node, ast.Call))
    text = repr({keyword.arg: ast.literal_eval(keyword.value) for keyword in call.keywords})
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, [f"{_digest(text)}\n{text}".encode()])


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
