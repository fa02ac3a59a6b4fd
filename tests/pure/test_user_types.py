"""What type checkers know of the public names."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from tests.support.missing import missing
from tests.support.node import node

Checker: TypeAlias = Callable[[Path], "subprocess.CompletedProcess[str]"]

RIGHT = """
from typing import Any, assert_type

import pteron

program = pteron.load("model.pte")
assert_type(program, pteron.Program)
program(1, state=program.method().new_state(), keep_on_gpu=True, timeout=1.5, mask=2)
assert_type(program.method().submit(1), "pteron.Pending[list[Any]]")
model = pteron.llm.load("model.gguf")
assert_type(model, pteron.llm.LanguageModel)
assert_type(model.generate("Hello").text, str)
"""

# Each line has one mistake.
WRONG = """
program(1, timeout="soon")
program(1, keep_on_gpu=3)
pteron.laod("model.pte")
model.generate("Hello", max_tokens="many")
pteron.llm.load("model.gguf").generated
"""


ROOT = Path(__file__).parents[2]
PYRIGHT = ROOT / "tests" / "types" / "node_modules" / "pyright" / "index.js"


def mypy(file: Path) -> subprocess.CompletedProcess[str]:
    pytest.importorskip("mypy")
    command = [sys.executable, "-m", "mypy", "--no-error-summary", "--hide-error-context", str(file)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)


def pyright(file: Path) -> subprocess.CompletedProcess[str]:
    if not PYRIGHT.exists():
        missing("the test needs Pyright in tests/types: `make setup` fetches it")
    settings = {"extraPaths": [str(ROOT / "src")], "pythonVersion": "3.11"}
    file.with_name("pyrightconfig.json").write_text(json.dumps(settings))
    command = [node(), str(PYRIGHT), "--pythonpath", sys.executable, file.name]
    return subprocess.run(command, cwd=file.parent, capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize("checker", [mypy, pyright])
def test_a_type_checker_knows_programs_and_language_models(tmp_path: Path, checker: Checker) -> None:
    file = tmp_path / "user.py"
    file.write_text(RIGHT + WRONG)
    ran = checker(file)
    found = re.findall(r"user\.py:(\d+):.*\berror:? ", ran.stdout, re.MULTILINE)
    first = len(RIGHT.splitlines()) + 1
    wanted = set(range(first + 1, first + len(WRONG.splitlines())))
    assert {int(place) for place in found} == wanted, ran.stdout + ran.stderr
