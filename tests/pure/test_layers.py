"""Each part of Pteron imports only what the table in ARCHITECTURE.md allows."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from pathlib import Path

import pytest

import pteron

ROOT = Path(pteron.__file__).parent

TABLE = Path(__file__).parents[2] / "ARCHITECTURE.md"


@dataclass(frozen=True)
class Row:
    """A package or top-level module, and what it may import."""

    part: str
    parts: frozenset[str]
    packages: frozenset[str]


def read_table(text: str) -> dict[str, Row]:
    """The rows that begin with a name in backticks, below the heading of the table."""
    rows = {}
    for line in text[text.index("| part | owns |") :].splitlines()[2:]:
        if not line.startswith("|"):
            break
        part, _, parts, packages = (cell.strip() for cell in line.strip("|").split("|"))
        assert part.strip("`") not in rows, f"{part} has two rows"
        rows[part.strip("`")] = Row(part.strip("`"), names(parts), names(packages))
    return rows


def names(cell: str) -> frozenset[str]:
    assert re.fullmatch(r"(`\w+`( |$))*", cell), f"names in backticks with blanks between them, not {cell}"
    return frozenset(re.findall(r"`(\w+)`", cell))


ROWS = read_table(TABLE.read_text("utf-8"))
FOREIGN = frozenset().union(*(row.packages for row in ROWS.values()))


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


def test_the_table_lists_every_package_and_module() -> None:
    assert {part_of(path) for path in ROOT.rglob("*.py")} == ROWS.keys()
    assert all(row.parts <= ROWS.keys() for row in ROWS.values())


def test_few_parts_may_import_torch() -> None:
    """Torch is a reference for `verifying`. Nothing imports it to run a program."""
    assert {row.part for row in ROWS.values() if "torch" in row.packages} == {"exporting", "verifying"}
    for package in ("executorch", "torchao"):
        assert [row.part for row in ROWS.values() if package in row.packages] == ["exporting"]


@pytest.mark.parametrize("path", sorted(ROOT.rglob("*.py")), ids=lambda p: str(p.relative_to(ROOT)))
def test_a_part_imports_only_what_the_table_allows(path: Path) -> None:
    row = ROWS[part_of(path)]
    for name in imports(path):
        top, _, rest = name.partition(".")
        part = rest.partition(".")[0]
        if top == "pteron" and part in ROWS:
            assert part in {row.part, "errors", *row.parts}, f"{row.part} may not import {name}"
        elif top in FOREIGN:
            assert top in row.packages, f"{row.part} may not import {name}"


@pytest.mark.parametrize("path", sorted((ROOT / "gpu").glob("*.py")), ids=lambda p: p.name)
def test_the_call_path_imports_neither_numpy_nor_wgpu(path: Path) -> None:
    assert not {name for name in imports(path) if name.startswith(("wgpu", "numpy", "pteron.gpu.wgpu"))}


def test_the_operator_that_the_document_shows_is_real() -> None:
    shown = re.search(r"```python\n(@op.*?)```", TABLE.read_text("utf-8"), re.DOTALL)
    assert shown and shown[1] in (ROOT / "ops" / "rolls.py").read_text("utf-8")
