"""Which test files a change touches: those that import what changed, or name an operator whose rule changed.

The nearest come first: tests that changed themselves, tests that need a changed file, tests that need a file
that needs a changed file, and so on.
"""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import TypeAlias

Sources: TypeAlias = Mapping[str, str]  # texts, by paths relative to the root

ROOT = Path(__file__).parents[2]
ENTRANCE = "src/pteron/__init__.py"
RULES = ("src/pteron/compiler/ops/", "src/pteron/compiler/passes/")

_OPERATOR = re.compile(r'"\w+\.(\w+\.\w+)"')  # without its namespace, as many tests name it
_DOTTED = re.compile(r"(?=\b(\w+\.\w+))")  # also those that overlap
_INCLUDE = re.compile(r"#include (\w+)")
_QUOTED = re.compile(r'"(\w+)"')
_OF_PTERON = re.compile(r"\bpteron\.(\w+)")


def read_sources() -> dict[str, str]:
    """Read all Python files and kernels."""
    files = [path for folder in ("src", "tests", "benchmarks") for path in (ROOT / folder).rglob("*")]
    return {
        path.relative_to(ROOT).as_posix(): path.read_text("utf-8")
        for path in files
        if path.suffix in (".py", ".wgsl") and "node_modules" not in path.parts
    }


def changed_files() -> set[str]:
    """The files that differ from the commit at which this branch left main, and new ones."""
    bases = [*_git("merge-base", "HEAD", "main"), *_git("merge-base", "HEAD", "origin/main"), "HEAD"]
    return {*_git("diff", "--name-only", bases[0]), *_git("ls-files", "--others", "--exclude-standard")}


def _git(*arguments: str) -> list[str]:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.splitlines() if done.returncode == 0 else []


def touched_tests(changed: Collection[str], sources: Sources) -> list[str]:
    """The test files that a change touches: the nearest first, then those that need the fewest files."""
    found = needs(sources)
    users: dict[str, set[str]] = {}
    for path, needed in found.items():
        for file in needed:
            users.setdefault(file, set()).add(path)
    near = {path for path in changed if path in sources}
    reached: dict[str, None] = {}
    while near:
        reached |= dict.fromkeys(sorted(near, key=lambda path: (len(found.get(path, ())), path)))
        near = {user for path in near for user in users.get(path, ())} - reached.keys()
    return [path for path in reached if _is_test(path)]


def needs(sources: Sources) -> dict[str, set[str]]:
    """The files that each file needs directly."""
    modules = {_module(path): path for path in sources if path.endswith(".py")}
    kernels = {PurePosixPath(path).stem: path for path in sources if path.endswith(".wgsl")}
    homes = {name: module for module, name in _imports(sources.get(ENTRANCE, ""))}
    rules: dict[str, set[str]] = {}
    for path, text in sources.items():
        for operator in _OPERATOR.findall(text) if path.startswith(RULES) else ():
            rules.setdefault(operator, set()).add(path)

    def needed(path: str, text: str) -> Iterator[str]:
        if path.endswith(".wgsl"):
            yield from (kernels[name] for name in _INCLUDE.findall(text) if name in kernels)
            return
        for module, name in _imports(text):
            yield from (modules[m] for m in (module, f"{module}.{name}") if m in modules)
        yield from (modules[homes[n]] for n in _OF_PTERON.findall(text) if homes.get(n) in modules)
        if path.startswith(RULES):
            yield from (kernels[name] for name in _QUOTED.findall(text) if name in kernels)
        if _is_test(path):
            yield from (file for name in _DOTTED.findall(text) for file in rules.get(name, ()))
            yield from (
                f for folder in PurePosixPath(path).parents if (f := f"{folder}/conftest.py") in sources
            )

    # The entrance imports everything, but only when it is asked for a name.
    return {path: {*needed(path, text)} - {ENTRANCE} for path, text in sources.items() if path != ENTRANCE}


def _imports(text: str) -> Iterator[tuple[str, str]]:
    """The modules that a text imports, and the names from them."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.module or "", alias.name) for alias in node.names)


def _module(path: str) -> str:
    return path.removeprefix("src/").removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _is_test(path: str) -> bool:
    return path.startswith("tests/") and PurePosixPath(path).name.startswith("test_")
