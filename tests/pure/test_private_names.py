"""No package uses a name of another package that begins with an underscore."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import pteron

ROOT = Path(pteron.__file__).parent


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def foreign(files: dict[str, str]) -> list[str]:
    """The private attributes that a package uses, and only another package has: `file:line name`."""
    own: dict[str, set[str]] = defaultdict(set)
    used: list[tuple[str, str, int, str]] = []
    for place, text in files.items():
        package = place.partition("/")[0].removesuffix(".py")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                own[package].add(node.name)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                own[package].add(node.id)
            elif isinstance(node, ast.Attribute) and is_private(node.attr):
                if isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"):
                    own[package].add(node.attr)
                else:
                    used.append((package, place, node.lineno, node.attr))
    return [
        f"{place}:{line} {name}"
        for package, place, line, name in used
        if name not in own[package] and any(name in names for names in own.values())
    ]


def test_no_private_name_of_another_package_is_used() -> None:
    files = {path.relative_to(ROOT).as_posix(): path.read_text("utf-8") for path in ROOT.rglob("*.py")}
    assert len(files) > 100 and foreign(files) == []


def test_the_search_finds_one() -> None:
    files = {
        "api/method.py": "class Method:\n    def run(self):\n        self._executor = 1",
        "tools/walk.py": "def walk(method):\n    own = method.__class__\n    return method._executor, own._x",
        "api/other.py": "def peer(method):\n    return method._executor",
    }
    assert foreign(files) == ["tools/walk.py:3 _executor"]
