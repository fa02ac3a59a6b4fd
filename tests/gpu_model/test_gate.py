"""The hot kernels stay in their registers, and do not become slower, on modelled GPUs."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from benchmarks.gpu_model import gate
from benchmarks.gpu_model.recorded import Recorded


@pytest.mark.parametrize("family", gate.FAMILIES)
def test_kernels_are_as_good_as_the_baseline(kernels: Recorded, family: str) -> None:
    found = list(gate.findings(family, kernels, gate.read()))
    assert not found, "\n".join([*found, "If this is meant: `make gpu-baseline`, and commit the file."])


def test_a_slower_or_spilling_kernel_is_reported(kernels: Recorded) -> None:
    """Against a file in which an operator was faster, and more waves than there are had to fit."""
    better: dict[str, Any] = copy.deepcopy(gate.read())
    times = better["navi31"]["microseconds"]
    slow = max(times, key=lambda name: times[name])
    times[slow] /= 2
    better["navi31"]["exceptions"] = {name: {"occupancy": 17} for name in gate.worst_of(kernels, "navi31")}
    found = list(gate.findings("navi31", kernels, better))
    assert any(slow in finding for finding in found), found
    for kernel in better["navi31"]["exceptions"]:
        assert any(kernel in finding for finding in found), found


def test_the_baseline_is_of_these_families() -> None:
    stored = json.loads(gate.BASELINE.read_text("utf-8"))
    assert tuple(stored) == gate.FAMILIES
