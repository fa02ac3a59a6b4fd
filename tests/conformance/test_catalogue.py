"""Every case of the catalogue. The first cases of some suites are part of every test run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pteron.engine.devices.opening import Device
from tests.conformance.catalogue import SUITES, cases_of, check_cases, registry

Record = Callable[[str, object], None]

# Operators of ExecuTorch's own. `tests/programs/test_front_door.py` exports and compares those of torch.
OWN = (
    "apply_rotary", "conv_with_clamp", "dequantize", "et_vk", "grid_priors", "linear_", "q8ta", "quantize",
    "rms_norm",
)  # fmt: skip
PARTS = [
    pytest.param(suite, part, id=f"{suite}-{name}", marks=[] if is_short else [pytest.mark.conformance])
    for suite in SUITES
    for name, part, is_short in (
        ("first", slice(0, 1), suite.startswith(OWN)),
        ("rest", slice(1, None), False),
    )
]


@pytest.mark.parametrize(("suite", "part"), PARTS)
def test_suite(suite: str, part: slice, device: Device, tmp_path: Path, record_property: Record) -> None:
    cases = cases_of(suite)[part]
    record_property("cases", len(cases))
    problems = check_cases(suite, cases, device, tmp_path)
    assert not problems, "\n".join(problems)


def test_the_catalogue_is_complete() -> None:
    assert list(registry()) == SUITES
    assert sum(len(cases_of(suite)) for suite in SUITES) == 378
