"""Every kernel compiles with Tint, Chrome's WGSL compiler. Tint refuses many texts that naga accepts."""

from __future__ import annotations

from pathlib import Path

from pteron.compiler.ops.kernel import explain, names
from tests.support.operators.graphs import built_texts
from tests.support.tint import compile_all


def test_the_samples_use_every_kernel() -> None:
    assert {built.kernel.name for built in built_texts()} == set(names())


def test_every_text_compiles(tmp_path: Path) -> None:
    texts = built_texts()
    errors = compile_all([built.text for built in texts], tmp_path)
    problems = [
        f"{built.kernel.name} for {built.user}:\n{explain(built.kernel, built.text, error)}"
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
