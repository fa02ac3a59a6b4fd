"""Copies third-party scripts of the pages, with their licences, from npm packages into the Python package.

    python scripts/assets.py

`javascript/package.json` states the packages and their exact versions, ASSETS the files.
Idempotent. Needs no npm.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from npm_packages import DownloadError, install  # in this folder

ROOT = Path(__file__).parents[1]
PACKAGES = ROOT / "javascript"
VENDOR = ROOT / "src" / "pteron" / "_util" / "assets" / "vendor"

# The name in `vendor`, the npm package, the file in that package.
ASSETS = [
    ("dagre.js", "@dagrejs/dagre", "dist/dagre.esm.js"),
    ("jinja.js", "@huggingface/jinja", "dist/index.js"),
    ("tokenizers.js", "@huggingface/tokenizers", "dist/tokenizers.min.mjs"),
]


def main() -> None:
    try:
        copy_assets()
    except DownloadError as error:
        sys.exit(f"assets: {error}")


def copy_assets() -> None:
    if is_current():
        return
    install(PACKAGES)
    shutil.rmtree(VENDOR, ignore_errors=True)
    VENDOR.mkdir(parents=True)
    for name, package, file in ASSETS:
        folder = PACKAGES / "node_modules" / package
        shutil.copyfile(folder / file, VENDOR / name)
        shutil.copyfile(folder / "LICENSE", VENDOR / f"{Path(name).stem}.LICENSE")
    stamp().write_text(wanted(), encoding="utf-8")


def is_current() -> bool:
    return stamp().is_file() and stamp().read_text(encoding="utf-8") == wanted()


def stamp() -> Path:
    """This file says what `vendor` was made from."""
    return VENDOR / "made-from.txt"


def wanted() -> str:
    lock = (PACKAGES / "package-lock.json").read_text(encoding="utf-8")
    return "\n".join([*(" ".join(asset) for asset in ASSETS), lock])


if __name__ == "__main__":
    main()
