"""How an operator's rule refuses its arguments."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar


class OpError(Exception):
    """Raised by an operator's rule; the sweep adds which node it was and picks the public error."""


_checking = ContextVar("checking", default=True)


def check(condition: bool, message: str) -> None:
    """Refuse a call unless a condition on its arguments holds."""
    if not condition and _checking.get():
        raise OpError(message)


@contextmanager
def unchecked() -> Iterator[None]:
    """Let rules run on made-up integers: at load, to see the kernels of a node whose SymInts are unknown."""
    token = _checking.set(False)
    try:
        yield
    finally:
        _checking.reset(token)
