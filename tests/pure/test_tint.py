"""Every kernel compiles with Tint, Chrome's WGSL compiler. Tint refuses many texts that naga accepts."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from tests.support.operators import samples  # noqa: F401  gives every operator its samples
from tests.support.operators.sample import built_texts

HERE = Path(__file__).parents[1] / "tint"


def test_the_samples_use_every_kernel() -> None:
    files = (resources.files("pteron.ops") / "wgsl").iterdir()
    kernels = {file.name.removesuffix(".wgsl") for file in files if file.name.endswith(".wgsl")}
    assert {built.kernel for built in built_texts()} == kernels


def test_every_text_compiles(tmp_path: Path) -> None:
    texts = built_texts()
    errors = compile_all([built.text for built in texts], tmp_path)
    problems = [
        f"{built.kernel} for {built.user}:\n{error}"
        for built, error in zip(texts, errors, strict=True)
        if error
    ]
    assert not problems, "\n".join([f"{len(problems)} of {len(texts)} shaders", *problems[:5]])


def test_a_text_that_tint_refuses_is_reported(tmp_path: Path) -> None:
    """A barrier in non-uniform control flow: naga accepts it, Tint does not."""
    text = """
        @compute @workgroup_size(64)
        fn main(@builtin(local_invocation_index) i: u32) { if (i < 3u) { workgroupBarrier(); } }
    """
    (error,) = compile_all([text], tmp_path)
    assert "uniform control flow" in error


def compile_all(texts: list[str], folder: Path) -> list[Any]:
    node = shutil.which("node")
    if node is None or not (HERE / "node_modules" / "webgpu").exists():
        reason = "Tint is not installed: scripts/test_packages.sh does that"
        if os.environ.get("CI") == "true":
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    (folder / "texts.json").write_text(json.dumps(texts))
    command = [node, HERE / "compile.mjs", folder / "texts.json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    errors: list[Any] = json.loads(done.stdout)
    return errors
