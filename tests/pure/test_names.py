"""One name has one meaning: no two classes and no two modules of Pteron share a name."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pteron

ROOT = Path(pteron.__file__).parent

# The names in these files are ExecuTorch's.
EXECUTORCH_NAMES = {"compat/executorch.py", "pte/schema.py", "pte/vulkan.py", "pte/ptd.py"}


def sources() -> Iterator[tuple[str, Path]]:
    for path in sorted(ROOT.rglob("*.py")):
        yield path.relative_to(ROOT).as_posix(), path


def is_command(name: str, path: Path) -> bool:
    """Whether a file of the command line defines the command that it is named after."""
    return name.startswith("cli/") and f"def {path.stem}(" in path.read_text("utf-8")


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


def test_no_two_modules_share_a_name() -> None:
    """Except for commands: `cli/check.py` has the name of the module `report/check.py`."""
    places = defaultdict(list)
    for name, path in sources():
        if path.stem != "__init__" and not is_command(name, path):
            places[path.stem].append(name)
    assert len(places) > 100
    assert not shared(places)
