"""Every kernel compiles under Tint, Chrome's WGSL compiler, which refuses much that naga accepts."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from pteron.ir.dispatch import GPU, HALF, SOFTWARE, SUBGROUP
from tests.support.operators import samples  # noqa: F401  gives every operator its samples
from tests.support.operators.sample import SAMPLES, OneNodeGraph

HERE = Path(__file__).parents[1] / "tint"
DEVICES = ((), (SOFTWARE, SUBGROUP, HALF), (GPU,), (GPU, SUBGROUP, HALF))  # by what they offer


@pytest.fixture(scope="module")
def texts() -> dict[str, tuple[str, str]]:
    """Every different shader text of the samples: its kernel, and what asks for it."""
    found = {}
    for name, given in SAMPLES.items():
        for sample in given:
            for dtype in sample.dtypes:
                for features in DEVICES:
                    for kernel, text in OneNodeGraph(name, sample, dtype, features).texts():
                        found[text] = kernel, f"{name} of {dtype}"
    return found


def test_the_samples_use_every_kernel(texts: dict[str, tuple[str, str]]) -> None:
    files = (resources.files("pteron.ops") / "wgsl").iterdir()
    kernels = {file.name.removesuffix(".wgsl") for file in files if file.name.endswith(".wgsl")}
    assert {kernel for kernel, _ in texts.values()} == kernels


def test_every_text_compiles(texts: dict[str, tuple[str, str]], tmp_path: Path) -> None:
    problems = [
        f"{kernel} for {user}:\n{error}"
        for (kernel, user), error in zip(texts.values(), compile_all(list(texts), tmp_path), strict=True)
        if error
    ]
    assert not problems, "\n".join([f"{len(problems)} of {len(texts)} shaders", *problems[:5]])


def test_what_tint_refuses_is_noticed(tmp_path: Path) -> None:
    """naga lets an invocation wait at a barrier that others never reach."""
    text = """
        @compute @workgroup_size(64)
        fn main(@builtin(local_invocation_index) i: u32) { if (i < 3u) { workgroupBarrier(); } }
    """
    (error,) = compile_all([text], tmp_path)
    assert "uniform control flow" in error


def compile_all(texts: list[str], folder: Path) -> list[Any]:
    node = shutil.which("node")
    if node is None or not (HERE / "node_modules" / "webgpu").exists():
        reason = "Tint is not installed: scripts/tint.sh does that"
        if os.environ.get("CI") == "true":
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    (folder / "texts.json").write_text(json.dumps(texts))
    command = [node, HERE / "compile.mjs", folder / "texts.json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    errors: list[Any] = json.loads(done.stdout)
    return errors
