"""Optional packages. If one is missing, the error names the extra to install."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pteron.errors import PteronError


class MissingExtra(PteronError, ImportError):
    """A package of an optional extra is not installed."""


@contextmanager
def needs(extra: str, purpose: str) -> Iterator[None]:
    """Use it for the imports of an extra: `with needs("llm", "to read a tokenizer"): import tokenizers`."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise MissingExtra(
            f"{purpose}, the package '{error.name}' is needed: pip install 'pteron[{extra}]'", name=error.name
        ) from error
