"""The kernels of ExecuTorch's wheel: what its runtime registers, and what its portable library declares.

`python -m tests.support.operators.executorch_kernels` writes the list beside this file, so that the table of
operators can be made without ExecuTorch.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

LIST = Path(__file__).with_name("executorch_kernels.txt")
FILES = ("functions.yaml", "custom_ops.yaml", "et_copy_ops.yaml")


def recorded() -> list[str]:
    return LIST.read_text("utf-8").split()


def in_the_wheel() -> list[str]:
    """Every kernel's name, with its namespace: `aten::add.out`."""
    return sorted(_registered() | _declared())


def _registered() -> set[str]:
    """The kernels of the runtime, with the libraries for quantized programs and for language models."""
    import executorch.extension.llm.custom_ops.custom_ops
    import executorch.kernels.quantized  # noqa: F401  both register kernels
    from executorch.extension.pybindings.portable_lib import _get_operator_names

    return set(_get_operator_names())


def _declared() -> set[str]:
    """The kernels of the portable library. The runtime of the wheel has others in place of some of them."""
    import yaml

    package = find_spec("executorch")
    assert package is not None and package.submodule_search_locations
    folder = Path(next(iter(package.submodule_search_locations))) / "kernels" / "portable"
    names = set()
    for file in FILES:
        for entry in yaml.safe_load((folder / file).read_text("utf-8")):
            name = entry.get("op") or entry["func"].partition("(")[0]
            names.add(name if "::" in name else f"aten::{name}")
    return names


if __name__ == "__main__":
    LIST.write_text("\n".join(in_the_wheel()) + "\n", "utf-8")
