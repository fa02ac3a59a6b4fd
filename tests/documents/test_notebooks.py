"""The programs in `examples` run. Notebooks run cell by cell, and show their last values."""

from __future__ import annotations

import ast
import json
import runpy
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from tests.support.documents import ROOT

NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook(notebook: Path, folder: Path) -> None:
    names: dict[str, Any] = {}
    for cell in json.loads(notebook.read_text("utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            assert not cell["outputs"], "commit notebooks without outputs"
            run_cell("".join(cell["source"]), f"{notebook.name}, {cell['id']}", names)


def test_the_demo_answers_right(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A wrong answer would look like a wrong kernel."""
    with patch("sys.argv", ["smollm2.py"]):
        runpy.run_path(str(ROOT / "examples" / "smollm2.py"), run_name="__main__")
    shown = " ".join(capsys.readouterr().out.split())
    for text in ("pumps blood throughout the body", "four chambers", "0 allocations, 0 compilations"):
        assert text in shown, shown


@pytest.mark.slow
def test_the_example_of_a_transformer() -> None:
    """It compares prefill and decode with torch, and exits with an error if they differ."""
    runpy.run_path(str(ROOT / "examples" / "transformer_block.py"), run_name="__main__")


def run_cell(text: str, name: str, names: dict[str, Any]) -> None:
    """Run a cell. Its last value is shown, as in Jupyter."""
    tree = ast.parse(text, name)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, name, "exec"), names)
    if isinstance(last, ast.Expr):
        value = eval(compile(ast.Expression(last.value), name, "eval"), names)
        assert value is None or getattr(value, "_repr_html_", value.__repr__)()
