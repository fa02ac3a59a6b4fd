"""Third-party scripts of the pages, such as a tokenizer in JavaScript.

They are not in the repository. `scripts/assets.py` copies them from npm packages into the folder `vendor`.
It runs when a wheel is built and in `make setup`.
"""

from __future__ import annotations

from pathlib import Path

from pteron.errors import PteronError

VENDOR = Path(__file__).parent / "vendor"


class MissingAsset(PteronError, FileNotFoundError):
    """A script that the pages need is not there: this is a checkout, and its scripts were not fetched."""


def find(name: str) -> Path:
    """The path of a script, `tokenizers.js` for example. Its licence lies beside it: see `licence`."""
    path = VENDOR / name
    if not path.is_file():
        raise MissingAsset(
            f"the script '{name}' is missing: run `python scripts/assets.py` in the checkout that Pteron was "
            f"installed from, which downloads it, and install again. A wheel contains it."
        )
    return path


def licence(name: str) -> Path:
    """The path of the licence text of a script."""
    return find(f"{Path(name).stem}.LICENSE")
