"""ExecuTorch's own tests of its XNNPACK delegate: Pteron's results equal those of ExecuTorch's runtime."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pteron.engine.devices.opening import Device

# The number of different programs that each module of tests exports, and of runs.
MODULES = {
    "ops.test_abs": (2, 4),
    "ops.test_add": (11, 20),
    "ops.test_avgpool2d": (4, 4),
    "ops.test_batch_norm": (10, 11),
    "ops.test_bilinear2d": (2, 2),
    "ops.test_bmm": (2, 2),
    "ops.test_cat": (27, 53),
    "ops.test_ceil": (2, 4),
    "ops.test_clamp": (5, 5),
    "ops.test_conv1d": (9, 90),
}


@pytest.mark.conformance
@pytest.mark.parametrize("name", MODULES)
def test_programs_of(name: str, device: Device, record_property: Callable[[str, object], None]) -> None:
    from tests.conformance.xnnpack_runs import replay

    made = replay(name, device)
    record_property("cases", made.runs)
    assert not made.problems, "\n".join(made.problems)
    assert (len(made.programs), made.runs) == MODULES[name]
