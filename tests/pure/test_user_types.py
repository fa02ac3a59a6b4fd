"""What type checkers know of the public names."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

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


def test_a_type_checker_knows_programs_and_language_models(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    file = tmp_path / "user.py"
    file.write_text(RIGHT + WRONG)
    root = Path(__file__).parents[2]
    command = [sys.executable, "-m", "mypy", "--no-error-summary", "--hide-error-context", str(file)]
    ran = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=300)
    places = {int(line.split(":")[1]) for line in ran.stdout.splitlines() if ": error:" in line}
    first = len(RIGHT.splitlines()) + 1
    assert places == set(range(first + 1, first + len(WRONG.splitlines()))), ran.stdout + ran.stderr
