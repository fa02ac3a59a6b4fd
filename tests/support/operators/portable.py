"""The kernels of ExecuTorch's portable library, as its wheel lists them.

`python -m tests.support.operators.portable` writes the list beside this file, so that the table of
operators can be made without ExecuTorch.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

LIST = Path(__file__).with_name("portable.txt")
FILES = ("functions.yaml", "custom_ops.yaml", "et_copy_ops.yaml")


def recorded() -> list[str]:
    return LIST.read_text("utf-8").split()


def in_the_wheel() -> list[str]:
    """Every kernel's name, with its namespace: `aten::add.out`."""
    import yaml

    package = find_spec("executorch")
    assert package is not None and package.submodule_search_locations
    folder = Path(next(iter(package.submodule_search_locations))) / "kernels" / "portable"
    names = set()
    for file in FILES:
        for entry in yaml.safe_load((folder / file).read_text("utf-8")):
            name = entry.get("op") or entry["func"].partition("(")[0]
            names.add(name if "::" in name else f"aten::{name}")
    return sorted(names)


if __name__ == "__main__":
    LIST.write_text("\n".join(in_the_wheel()) + "\n", "utf-8")
