"""Silence the exporters' warnings that help only their authors. Warnings about a module are shown."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

# Pteron stores the contents of such buffers, so what this warning says does not happen.
ABOUT_BUFFERS = "Mutation on a buffer in the model is detected"
# Then all operators are outside of delegates, as the report of the export says. Pteron runs them as well.
ABOUT_DELEGATES = "No Vulkan subgraphs can be partitioned"


@contextmanager
def quiet_imports() -> Iterator[None]:
    """Ignore warnings, such as those about optional parts of torchao. Errors are still logged and raised."""
    with _logging_disabled(logging.WARNING), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@contextmanager
def quiet() -> Iterator[None]:
    """Ignore progress in logs, and warnings about old interfaces that the exporters use."""
    with _logging_disabled(logging.INFO), _without(ABOUT_DELEGATES), warnings.catch_warnings():
        for category in (DeprecationWarning, PendingDeprecationWarning, FutureWarning):
            warnings.simplefilter("ignore", category)
        warnings.filterwarnings("ignore", ABOUT_BUFFERS)
        yield


@contextmanager
def _without(beginning: str) -> Iterator[None]:
    """Ignore messages of the root logger, which the partitioner uses, that begin like this."""

    def is_other(record: logging.LogRecord) -> bool:
        return not record.getMessage().startswith(beginning)

    logging.root.addFilter(is_other)
    try:
        yield
    finally:
        logging.root.removeFilter(is_other)


@contextmanager
def _logging_disabled(level: int) -> Iterator[None]:
    """The exporters also change the level of the root logger, and give it a handler."""
    root = logging.root
    before, root_level, handlers = root.manager.disable, root.level, list(root.handlers)
    logging.disable(max(before, level))
    try:
        yield
    finally:
        logging.disable(before)
        root.setLevel(root_level)
        root.handlers[:] = handlers
