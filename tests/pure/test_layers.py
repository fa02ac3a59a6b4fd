"""Packages import only packages before them, in the order that ARCHITECTURE.md states in one line."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import pteron

ROOT = Path(pteron.__file__).parent
PAGE = (Path(__file__).parents[2] / "ARCHITECTURE.md").read_text("utf-8")
FILES = sorted(ROOT.rglob("*.py"))

# Where packages of others may be imported. Names that are not here may be imported anywhere.
FOREIGN = {
    "wgpu": ("engine/devices/wgpu", "tools/tune"),
    "torch": ("tools/exporter", "tools/verify"),
    "executorch": ("tools/exporter", "tools/verify"),
    "torchao": ("tools/exporter",),
    "ray": ("ray",),
    "PIL": ("data",),
    "pyarrow": ("data", "ray", "api/mapping"),
}
# These run in a browser, where numpy need not be installed.
WITHOUT_NUMPY = ("pte", "compiler")


def ranks(start: str) -> dict[str, int]:
    """The line that begins with a package, such as `a < {b, c} < d`: the position of each package."""
    (line,) = re.findall(rf"^{start} <.*$", PAGE, re.MULTILINE)
    places = [re.findall(r"\w+", place) for place in line.split("<")]
    return {name: rank for rank, names in enumerate(places) for name in names}


DOORS = ranks("_util")
ROOMS = ranks("ir")  # of the compiler


def imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return found


def place(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def test_the_lines_name_every_package() -> None:
    top = {path.stem for path in ROOT.iterdir() if path.is_dir() or path.suffix == ".py"} - {"__pycache__"}
    assert top - {"__init__", "__main__", "errors"} == DOORS.keys()
    rooms = {path.stem for path in (ROOT / "compiler").iterdir()} - {"__init__", "__pycache__"}
    assert rooms | {"software"} == ROOMS.keys(), "only `software` may be deleted"


@pytest.mark.parametrize("path", FILES, ids=place)
def test_a_package_imports_only_packages_before_it(path: Path) -> None:
    parts = path.relative_to(ROOT).with_suffix("").parts
    for name in imports(path):
        top, *rest = name.split(".")
        if top != "pteron":
            assert place(path).startswith(FOREIGN.get(top, "")), f"{place(path)} may not import {top}"
        elif rest[0] in DOORS and parts[0] in DOORS and rest[0] != parts[0]:
            assert DOORS[rest[0]] < DOORS[parts[0]], f"{parts[0]} may not import {name}"
        elif rest[0] == parts[0] == "compiler" and rest[1] != parts[1]:
            assert ROOMS[rest[1]] < ROOMS[parts[1]], f"compiler.{parts[1]} may not import {name}"


# The steps from a file to a graph. Only the pipeline puts them in order, so all show the graph that runs.
STEPS = {
    "compiler.lower.instructions.try_lower",
    "compiler.lower.cache_dtype.with_cache_dtype",
    "compiler.lower.cache_length.with_cache_length",
    "compiler.lower.shared_buffers.divided_buffers",
    "compiler.segments.rewrite.with_segments",
    "compiler.passes.fuse",
    "compiler.passes.fuse_for",
}


def test_only_the_pipeline_composes_the_steps_of_the_compiler() -> None:
    users = {step: {place(p) for p in FILES if f"pteron.{step}" in imports(p)} for step in STEPS}
    assert users == {step: {"compiler/pipeline.py"} for step in STEPS}
    whole = {"pteron.compiler." + name for name in ("passes", "lower", "lower.instructions", "segments")}
    assert not [place(p) for p in FILES if imports(p) & whole], "a module would give away all its steps"


def test_operators_are_looked_up_where_all_are_registered() -> None:
    lookups = {f"pteron.compiler.ir.op.{name}" for name in ("find", "known", "registered")}
    assert [place(p) for p in FILES if imports(p) & lookups] == ["compiler/ops/__init__.py"]


def test_only_an_operator_makes_nodes() -> None:
    makers = [place(p) for p in FILES if re.search(r"(?<!class )\bNode\(", p.read_text("utf-8"))]
    assert makers == ["compiler/ir/op.py"], "what a node reads and writes follows from its operator"


@pytest.mark.parametrize("path", [p for p in FILES if place(p).startswith(WITHOUT_NUMPY)], ids=place)
def test_programs_are_read_and_planned_without_numpy(path: Path) -> None:
    assert "numpy" not in {name.partition(".")[0] for name in imports(path)}


@pytest.mark.parametrize("path", sorted((ROOT / "engine").glob("*.py")), ids=lambda p: p.name)
def test_the_call_path_imports_neither_numpy_nor_wgpu(path: Path) -> None:
    barred = ("wgpu", "numpy", "pteron.engine.devices.wgpu")
    assert not {name for name in imports(path) if name.startswith(barred)}


def test_the_operator_that_the_document_shows_is_real() -> None:
    shown = re.search(r"```python\n(@op.*?)```", PAGE, re.DOTALL)
    assert shown and shown[1] in (ROOT / "compiler" / "ops" / "rolls.py").read_text("utf-8")


@pytest.mark.parametrize("name", sorted(p.stem for p in (ROOT / "compiler").iterdir() if p.stem[0] != "_"))
def test_a_package_of_the_compiler_may_be_imported_first(name: str) -> None:
    subprocess.run([sys.executable, "-c", f"import pteron.compiler.{name}"], check=True)
