"""Delegates of other backends: the error says what they are, names the part, and says what to do instead."""

from __future__ import annotations

from dataclasses import replace

import pytest

import pteron
from pteron.pte import program_chunks
from pteron.pte.file import ProgramFile
from tests.hostile.seeds import FOLDER


def with_backend(backend: str) -> bytes:
    """A program whose delegates say that they are for another backend."""
    with ProgramFile.open(FOLDER / "rows.xnnpack.pte") as file:
        plan = file.plan("forward")
        renamed = replace(plan, delegates=tuple(replace(each, id=backend) for each in plan.delegates))
        segments = [bytes(file.segment(n).view) for n in range(len(file.program.segments))]
        program = replace(file.program, execution_plan=(renamed,), segments=())
        return b"".join(program_chunks(program, segments))


@pytest.mark.parametrize(
    ("backend", "what"),
    [
        ("CoreMLBackend", "a compiled model for Apple's Core ML, and only 'CoreMLBackend' can run it"),
        ("QnnBackend", "a compiled model for Qualcomm's processors, and only 'QnnBackend' can run it"),
        (
            "CudaBackend",
            "AOTInductor compiled for NVIDIA's GPUs, and only 'CudaBackend' can run it",
        ),
        ("MLXBackend", "a graph for Apple's MLX, which Pteron does not read"),
        ("MyBackend", "its contents are known only to this backend, and only 'MyBackend' can run it"),
    ],
)
def test_the_error_says_what_the_delegate_is(backend: str, what: str) -> None:
    report = pteron.check(with_backend(backend))
    assert not report.ok
    (finding,) = report.findings
    assert finding.what == f"delegate for {backend}"
    assert what in finding.why and "export the model again with XnnpackPartitioner" in finding.why
    assert finding.places[0].startswith("delegate 0 at instruction ")
    assert "with the tensors [" in finding.places[0]
