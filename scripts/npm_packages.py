"""Downloads the npm packages of lock files, without npm, into `node_modules` beside each file.

    python scripts/npm_packages.py tests/tint tests/browser tests/types

A lock file states versions and checksums. What does not match its checksum is refused. No script of a
package runs. Idempotent. As for npm, NPM_CONFIG_REGISTRY names another registry.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import shutil
import sys
import tarfile
import urllib.request
from pathlib import Path, PurePosixPath

REGISTRY = "https://registry.npmjs.org"
STAMP = "made-from.json"  # in `node_modules`: a copy of the lock file


class DownloadError(Exception):
    """A package cannot be had, or is not the one that the lock file names."""


def main() -> None:
    try:
        for folder in sys.argv[1:]:
            install(Path(folder))
    except DownloadError as error:
        sys.exit(f"npm packages: {error}")


def install(folder: Path) -> None:
    lock = (folder / "package-lock.json").read_text("utf-8")
    modules = folder / "node_modules"
    if (modules / STAMP).is_file() and (modules / STAMP).read_text("utf-8") == lock:
        return
    shutil.rmtree(modules, ignore_errors=True)
    for path, package in json.loads(lock)["packages"].items():
        if path:  # the first entry is the folder itself
            name = path.rpartition("node_modules/")[2]
            unpack(download(name, package["version"], package["integrity"]), folder / path)
    (modules / STAMP).write_text(lock, "utf-8")


def download(name: str, version: str, integrity: str) -> bytes:
    registry = os.environ.get("NPM_CONFIG_REGISTRY", REGISTRY).rstrip("/")
    url = f"{registry}/{name}/-/{name.rpartition('/')[2]}-{version}.tgz"
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            content: bytes = answer.read()
    except OSError as error:
        raise DownloadError(f"{name} {version} cannot be downloaded: {error}") from error
    algorithm, _, expected = integrity.partition("-")
    if base64.b64encode(hashlib.new(algorithm, content).digest()).decode() != expected:
        raise DownloadError(f"{name} {version} is not the package of the lock file: its {algorithm} differs")
    return content


def unpack(content: bytes, folder: Path) -> None:
    """Write the files of an archive. All of them are in one folder there, whose name does not matter."""
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        for member in archive:
            parts = PurePosixPath(member.name).parts[1:]
            data = archive.extractfile(member) if member.isfile() else None
            if data and parts and ".." not in parts:
                target = folder.joinpath(*parts)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(data.read())


if __name__ == "__main__":
    main()
