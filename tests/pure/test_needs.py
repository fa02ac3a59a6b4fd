"""Folders that need no torch can be collected without torch. (The fixture `no_torch` checks their tests.)"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.support.needs import TORCH

TESTS = Path(__file__).parents[1]


def test_folders_without_torch_are_collected_without_it() -> None:
    script = f"""
import sys
sys.modules.update(dict.fromkeys({TORCH!r}))  # importing any of them fails
import pytest
sys.exit(pytest.main(["--collect-only", "-q", "-p", "no:cacheprovider", *sys.argv[1:]]))
"""
    folders = [TESTS / "pure", TESTS / "devices", TESTS / "gpu_only"]
    command = [sys.executable, "-c", script, *folders]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=TESTS.parent)
    assert done.returncode == 0, done.stdout[-3000:]
