"""Frozen programs in Chromium: the dynamic-shape table against torch, in mixed orders of live shapes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.browser.frozen import COUNT, REPLAY, freeze_recording, outputs_of, write_page
from tests.browser.small_models import MODELS, record_model
from tests.conftest import Once, Recorded
from tests.dynamic_shape.recording import Recording
from tests.dynamic_shape.table import CASES, Case
from tests.support.browser import PATIENCE, serving
from tests.support.compare import disagreements

pytestmark = pytest.mark.browser

# These kernels for GPUs take the software adapter of the browser seconds to compile.
SLOW_ON_THE_CPU = {"linear_q4", "gated_mlp_q4", "batch_and_length", "plain_attention", "position_by_size"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("frozen")
    write_page(folder)
    return folder


@pytest.fixture(scope="module")
def page(browser: Any, folder: Path) -> Iterator[Any]:
    """One page for all programs: each brings its own device."""
    with serving(folder) as url:
        context = browser.new_context()
        context.set_default_timeout(PATIENCE)
        context.add_init_script(COUNT)
        page = context.new_page()
        page.goto(url)
        yield page
        context.close()


@pytest.mark.parametrize("case", CASES, ids=str)
def test_results_equal_torch_at_every_live_shape(
    case: Case, page: Any, folder: Path, recorded: Recorded
) -> None:
    """Most run with the kernels of a GPU, some with those of a software adapter."""
    recording = recorded(case.name)
    variant = "software" if case.name in SLOW_ON_THE_CPU or CASES.index(case) % 5 == 0 else "gpu"
    freeze_recording(recording, folder / case.name, variants=[variant])
    check(page, case.name, recording, variant)


@pytest.mark.parametrize("name", MODELS)
def test_a_model_equals_torch_at_every_live_shape(name: str, page: Any, folder: Path, once: Once) -> None:
    recording = Recording(once(f"pages/{name}", lambda folder: record_model(name, folder)))
    freeze_recording(recording, folder / name, variants=["software"])
    check(page, name, recording, "software")


def check(page: Any, name: str, recording: Recording, variant: str) -> None:
    """Make the recorded calls in the page, and compare their outputs."""
    result = page.evaluate(REPLAY, f"{name}/")
    assert result["variant"] == variant
    assert result["same"], "a call created buffers, bind groups or pipelines"
    assert len(result["outputs"]) == len(recording.calls) > 1
    for number, (got, call) in enumerate(zip(result["outputs"], recording.calls, strict=True)):
        problems = disagreements(outputs_of(got, call.outputs), call.outputs, recording.tolerance)
        assert not problems, f"call {number}: {problems}"
