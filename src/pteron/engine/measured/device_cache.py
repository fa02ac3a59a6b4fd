"""Facts about this machine's GPUs, in files of the user's cache.

A file has an entry for each adapter. An entry is valid for one driver, one version of wgpu and the current
kernel texts: after an update of one of these, it is not used.
"""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from pteron._util import user_cache
from pteron.engine.devices.adapter import Adapter
from pteron.pte.container import write_file


class DeviceCache:
    """One file. It is a cache: if it cannot be read, it counts as empty."""

    def __init__(self, name: str) -> None:
        self._name = name

    @property
    def path(self) -> Path:
        return user_cache.folder() / self._name

    def read(self, device: str) -> Any:
        """The entry of a device, by its identity; None if there is none."""
        return self._read_all().get(device) if self.path.exists() else None

    def write(self, device: str, entry: Any) -> Path:
        """Replace the entry of a device, or remove it if it is None. Entries of other devices stay.

        Raises OSError, with the file's name, if the file cannot be written.
        """
        everything = self._read_all()
        everything.pop(device, None)
        if entry is not None:
            everything[device] = entry
        path = self.path
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, [json.dumps(everything, indent=1, ensure_ascii=False).encode()])
        return path

    def _read_all(self) -> dict[str, Any]:
        with suppress(OSError, ValueError, RecursionError):
            found = json.loads(self.path.read_text("utf-8"))
            if isinstance(found, dict):
                return found
        return {}


def identity(adapter: Adapter) -> str:
    """What an entry is valid for: a device, its driver, the version of wgpu, and the current kernels."""
    device = f"{adapter.name}; {adapter.backend}; {adapter.driver}"
    return f"{device}; wgpu {_wgpu_version()}; kernels {kernel_version()}"


@cache
def _wgpu_version() -> str:
    try:
        return metadata.version("wgpu")
    except metadata.PackageNotFoundError:
        return "unknown"


@cache
def kernel_version() -> str:
    """A hash of all rules and kernels."""
    digest = hashlib.sha256()
    home = Path(__file__).parents[2] / "compiler"
    files = [p for folder in ("ops", "passes", "software") for p in (home / folder).rglob("*")]
    for path in sorted(p for p in files if p.suffix in (".py", ".wgsl")):
        digest.update(path.name.encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]
