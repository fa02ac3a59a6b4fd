"""Replace a function of another package, for this thread and for the time of a block.

ExecuTorch has no options for what the exporter needs. Other threads get the original function. One thread
replaces at a time, so each restores what it has found.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

_replacing = threading.RLock()


@contextmanager
def replaced(owner: Any, name: str, make: Callable[[Any], Callable[..., Any]]) -> Iterator[None]:
    """Replace `owner.name`; `make` gets the original function and returns the other one."""
    here = threading.get_ident()
    with _replacing:
        before = getattr(owner, name)
        mine = make(before)

        @functools.wraps(before)
        def called(*args: Any, **kwargs: Any) -> Any:
            return (mine if threading.get_ident() == here else before)(*args, **kwargs)

        setattr(owner, name, called)
        try:
            yield
        finally:
            setattr(owner, name, before)
