"""wgpu-py's header is parsed once. The cache may be missing, damaged or not writable."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

DATA = Path(__file__).parents[1] / "data"

# Runs a program, and says whether the header came from the cache. Nobody else who imports cffi sees a change.
SCRIPT = """
import sys
import cffi
import numpy as np
import pteron
ours, seen = cffi.FFI, set()
sys.addaudithook(lambda event, _: seen.add(cffi.FFI is ours) if event == "import" else None)
with pteron.load(sys.argv[1]) as program:
    y = program(np.ones((1, 1, 3, 64), np.float32))
from wgpu.backends.wgpu_native import ffi
assert seen == {True} and ffi.__class__ is not ours
print(ffi._is_parsed, np.isfinite(y).all())
"""


def start(cache: Path) -> str:
    command = [sys.executable, "-c", SCRIPT, str(DATA / "dyn_rms.pte")]
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache)}
    return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout.strip()


def cached(cache: Path) -> Path:
    (path,) = (cache / "pteron").glob("wgpu-header-*.txt")
    return path


def test_the_second_process_does_not_parse(tmp_path: Path) -> None:
    assert start(tmp_path) == "False True"
    assert start(tmp_path) == "True True"


@pytest.mark.parametrize("keep", [0, -1], ids=["empty", "cut"])
def test_a_damaged_cache_is_replaced(tmp_path: Path, keep: int) -> None:
    start(tmp_path)
    whole = cached(tmp_path).read_bytes()
    cached(tmp_path).write_bytes(whole[:keep])
    assert start(tmp_path) == "False True"
    assert cached(tmp_path).read_bytes() == whole


def test_a_cache_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "pteron").write_text("a file where the folder should be")
    assert start(tmp_path) == "False True"
