"""How an operator's rule refuses its arguments."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar


class OpError(Exception):
    """Raised by an operator's rule. The sweep adds the name of the node and raises a public error."""


_checking = ContextVar("checking", default=True)


def check(condition: bool, message: str) -> None:
    """Refuse the arguments if the condition is false."""
    if not condition and _checking.get():
        raise OpError(message)


@contextmanager
def unchecked() -> Iterator[None]:
    """Run rules without checks, on invented integers: at load, for nodes whose SymInts are unknown."""
    token = _checking.set(False)
    try:
        yield
    finally:
        _checking.reset(token)
