"""Optional packages. If one is missing, the error names the packages and the extra to install."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata

from pteron.errors import PteronError

# Such as: uvicorn>=0.30; extra == 'server'
_REQUIREMENT = re.compile(r"(?P<stated>(?P<name>[\w.-]+)[^;]*?)\s*;.*\bextra\s*==\s*['\"](?P<extra>[\w.-]+)")


class MissingExtra(PteronError, ImportError):
    """A package of an optional extra is not installed."""


@contextmanager
def needs(extra: str, purpose: str) -> Iterator[None]:
    """Use it for the imports of an extra: `with needs("llm", "to read a tokenizer"): import tokenizers`."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise missing(extra, purpose, error.name or extra) from error


def missing(extra: str, purpose: str, module: str) -> MissingExtra:
    """The error for a module that cannot be imported."""
    # Pteron is not on an index, so the packages themselves are named.
    packages = shlex.join(missing_packages(extra) or [module.partition(".")[0]])
    return MissingExtra(
        f"{purpose}, the package '{module}' is needed: pip install {packages}, "
        f"or, in a checkout of Pteron, pip install '.[{extra}]'",
        name=module,
    )


def missing_packages(extra: str) -> list[str]:
    """Return the requirements of an extra that are not installed, such as `uvicorn>=0.30`."""
    try:
        stated = metadata.requires("pteron") or []
    except metadata.PackageNotFoundError:  # Pteron itself is only on the path
        return []
    found = [match for text in stated if (match := _REQUIREMENT.match(text)) and match["extra"] == extra]
    return [match["stated"] for match in found if not _is_installed(match["name"])]


def _is_installed(package: str) -> bool:
    try:
        metadata.version(package)
    except metadata.PackageNotFoundError:
        return False
    return True
