"""One name has one meaning: no two classes of Pteron share a name."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pteron

ROOT = Path(pteron.__file__).parent

# The names in these files are ExecuTorch's.
EXECUTORCH_NAMES = {
    "runtime/executorch.py",
    "runtime/portable_lib.py",
    "runtime/llm_runner.py",
    "pte/schema.py",
    "pte/vulkan.py",
    "pte/ptd.py",
}


def sources() -> Iterator[tuple[str, Path]]:
    for path in sorted(ROOT.rglob("*.py")):
        yield path.relative_to(ROOT).as_posix(), path


def shared(places: dict[str, list[str]]) -> dict[str, list[str]]:
    return {name: found for name, found in places.items() if len(found) > 1}


def test_no_two_classes_share_a_name() -> None:
    places = defaultdict(list)
    for name, path in sources():
        if name not in EXECUTORCH_NAMES:
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                if isinstance(node, ast.ClassDef):
                    places[node.name].append(name)
    assert len(places) > 100
    assert not shared(places)
