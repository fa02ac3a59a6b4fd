"""Tables in object stores: `s3://`, `gs://`, `hf://` and all other addresses that fsspec knows.

An input is copied into the user's cache before the work. An output is made there, and copied to its place
when it is complete. So a run that was interrupted continues, and a store never has half an output.
"""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any

from pteron._util import user_cache
from pteron._util.extras import needs
from pteron.data.output_rules import refuse_finished
from pteron.errors import InputError


def address_of(path: Path) -> str | None:
    """The address that was given as a path, which has lost a slash of it. None: it is a path."""
    match = re.fullmatch(r"([a-z][a-z0-9+.-]+):[/\\]+(.*)", str(path))
    if match is None:
        return None
    scheme, rest = match[1], match[2].replace("\\", "/")
    return f"{scheme}:///{rest}" if scheme in ("file", "local") else f"{scheme}://{rest}"


@contextmanager
def at_hand(source: Path, output: Path, overwrite: bool) -> Iterator[tuple[Path, Path]]:
    """Local paths for an input and an output. What is local already stays where it is.

    When the block ends without an error, the output is copied to its address.
    """
    origin, target = address_of(source), address_of(output)
    if origin and target and f"{target}/".startswith(f"{origin.rstrip('/')}/"):
        raise InputError(f"{target} is in {origin}, which is read: choose another output")
    if target and not overwrite and _is_there(target):
        refuse_finished(target)
    here = _fetched(origin) if origin else source
    made = _folder(f"{target} from {origin or source.absolute()}") / _name(target) if target else output
    if target:
        made.parent.mkdir(parents=True, exist_ok=True)
    yield here, made
    if target:
        _send(made, target)
        shutil.rmtree(made.parent)
    if origin:
        shutil.rmtree(here.parent)


def _fetched(address: str) -> Path:
    """A copy of a file or folder. It is used again while the files in the store are the same."""
    files, place = _opened(address)
    with _told(address):
        if not files.exists(place):
            raise InputError(f"there is no file {address}")
        found = sorted(files.find(place)) if files.isdir(place) else [place]
        state = " ".join(f"{name} {files.ukey(name)}" for name in found)
        copy = _folder(f"{address} {state}") / _name(address)
        if copy.exists():
            return copy
        shutil.rmtree(copy.parent, ignore_errors=True)  # of a copy that was interrupted
        unfinished = copy.with_name(f".{copy.name}.tmp")
        for name in found:
            local = unfinished / PurePosixPath(name).relative_to(place) if name != place else unfinished
            local.parent.mkdir(parents=True, exist_ok=True)
            files.get_file(name, str(local))
        unfinished.rename(copy)
    return copy


def _send(made: Path, address: str) -> None:
    """Copy a file or a folder of parts to its address."""
    files, place = _opened(address)
    with _told(address):
        if not made.is_dir():
            files.makedirs(str(PurePosixPath(place).parent), exist_ok=True)
            files.put_file(str(made), place)
            return
        if files.exists(place):
            files.rm(place, recursive=True)  # parts of another run would be read with these
        files.makedirs(place, exist_ok=True)
        for part in sorted(made.iterdir()):
            files.put_file(str(part), f"{place}/{part.name}")


def _is_there(address: str) -> bool:
    files, place = _opened(address)
    with _told(address):
        return bool(files.exists(place))


def _name(address: str) -> str:
    return PurePosixPath(address.rstrip("/")).name


def _opened(address: str) -> tuple[Any, str]:
    """The file system of an address, and the path in it."""
    with needs("stores", f"to read and write {address.partition(':')[0]}://"):
        import fsspec
    with _told(address):
        files, place = fsspec.core.url_to_fs(address)
        return files, str(place)


@contextmanager
def _told(address: str) -> Iterator[None]:
    """Name the address in errors of the libraries. An ImportError of fsspec says what to install."""
    try:
        yield
    except (OSError, ValueError, ImportError) as error:
        raise InputError(f"{address}: {error}") from error


def _folder(name: str) -> Path:
    return user_cache.folder() / "stores" / hashlib.sha256(name.encode()).hexdigest()[:16]
