"""The emulator computes what a software adapter computes, with waves of 64 and of 32 lanes."""

from __future__ import annotations

import pytest
from benchmarks.gpu_model import self_test
from benchmarks.gpu_model.recorded import Recorded
from benchmarks.gpu_model.tree import HERE

POINTS = ("decode at 512", "Softmax", "Layer norm")


@pytest.mark.parametrize("family", ["navi31", "navi31@32", "navi21"])
def test_results_equal_the_software_adapter(kernels: Recorded, family: str) -> None:
    some = Recorded(kernels.texts, {point: kernels.points[point] for point in POINTS})
    found = list(self_test.comparisons(some, HERE, family, groups=1))
    assert len({comparison.kernel for comparison in found}) >= 5
    wrong = [comparison for comparison in found if not comparison.is_right]
    assert not wrong, wrong
