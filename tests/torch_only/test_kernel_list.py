"""The stored list of ExecuTorch's kernels equals the list of the installed wheel."""

from __future__ import annotations

from tests.support.operators.executorch_kernels import in_the_wheel, recorded


def test_the_list_is_current() -> None:
    assert recorded() == in_the_wheel(), "run `make docs`"
