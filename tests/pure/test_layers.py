"""Each part of Pteron imports only parts to its left (see ARCHITECTURE.md, which prints the same table)."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import pteron

ROOT = Path(pteron.__file__).parent

# Every package and top-level module, left to right: what it may import besides itself and `errors`.
MAY_IMPORT: dict[str, str] = {
    "errors": "",
    "extras": "",
    "pte": "",
    "ir": "pte",
    "plan": "ir",
    "ops": "ir",
    "fusion": "ir ops",
    "lower": "pte ir ops",
    "gpu": "pte ir plan ops",
    "devices": "gpu",
    "arrays": "ir gpu",
    "method": "ir plan gpu arrays",
    "program": "pte ir plan ops fusion lower gpu arrays method",
    "measure": "ir plan ops gpu method",
    "loading": "pte plan lower gpu devices measure program",
    "report": "pte ir plan ops fusion lower",
    "compat": "pte ir lower devices loading program method",
    "runtime": "compat",
    "llm": "extras pte gpu devices loading method program",
    "server": "extras llm",
    "exporting": "extras pte report",
    "cli": "extras devices loading method program measure report llm server exporting",
    "__init__": "arrays devices exporting gpu llm loading measure method program report",
    "__main__": "cli",
}
# Packages that only some parts may import. Nothing but `exporting` may need torch.
FOREIGN = {
    "numpy": "arrays method measure compat llm cli",
    "wgpu": "gpu",
    "torch": "exporting",
    "executorch": "exporting",
    "torchao": "exporting",
}


def part_of(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            if node.module == "pteron":
                found.update(f"pteron.{alias.name}" for alias in node.names)
            else:
                found.add(node.module or "")
    return found


def test_the_table_names_every_part() -> None:
    assert {part_of(path) for path in ROOT.rglob("*.py")} == MAY_IMPORT.keys()


@pytest.mark.parametrize("path", sorted(ROOT.rglob("*.py")), ids=lambda p: str(p.relative_to(ROOT)))
def test_a_part_imports_only_parts_to_its_left(path: Path) -> None:
    part = part_of(path)
    allowed = {part, "errors", *MAY_IMPORT[part].split()}
    for name in imports(path):
        top, _, rest = name.partition(".")
        if top == "pteron" and rest and rest.split(".")[0] in MAY_IMPORT:
            assert rest.split(".")[0] in allowed, f"{part} may not import {name}"
        elif top in FOREIGN:
            assert part in FOREIGN[top].split(), f"{part} may not import {name}"
