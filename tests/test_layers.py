"""Each layer imports only what stands to its left (see ARCHITECTURE.md)."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import pteron

ROOT = Path(pteron.__file__).parent
MAY_IMPORT = {
    "pte": {"errors", "pte"},
    "graph": {"errors", "pte", "graph"},
    "ops": {"errors", "graph", "ops"},
    "gpu": {"errors", "graph", "ops", "gpu"},
}
FOREIGN = {"pte": set(), "graph": set(), "ops": set(), "gpu": {"numpy", "wgpu"}}


def imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module or "")
            if node.module == "pteron":
                found.update(f"pteron.{alias.name}" for alias in node.names)
    return found


@pytest.mark.parametrize(
    "path", sorted(p for layer in MAY_IMPORT for p in (ROOT / layer).rglob("*.py")), ids=str
)
def test_a_layer_imports_only_what_stands_to_its_left(path: Path) -> None:
    layer = path.relative_to(ROOT).parts[0]
    for name in imports(path):
        parts = name.split(".")
        if parts[0] == "pteron" and len(parts) > 1:
            assert parts[1] in MAY_IMPORT[layer], f"{layer}/ may not import {name}"
        elif parts[0] in {"numpy", "wgpu", "torch", "executorch"}:
            assert parts[0] in FOREIGN[layer], f"{layer}/ may not import {name}"


@pytest.mark.parametrize("path", sorted(ROOT.rglob("*.py")), ids=str)
def test_only_gpu_knows_wgpu_and_nothing_needs_torch_to_run(path: Path) -> None:
    names = {name.split(".")[0] for name in imports(path)}
    parts = path.relative_to(ROOT).parts
    if parts[0] not in {"gpu", "cli"}:
        assert "wgpu" not in names
    if parts[0] != "exporting":
        assert not names & {"torch", "executorch", "torchao"}
