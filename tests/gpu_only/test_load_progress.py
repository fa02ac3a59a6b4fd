"""`load(progress=...)` tells how much of a method is compiled, and the log what is loaded where."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import pteron

DATA = Path(__file__).parents[1] / "data"


def test_a_load_tells_the_share_of_kernels_that_are_compiled(device):
    told: list[tuple[float, str]] = []
    with pteron.load(
        DATA / "emb_dyn.pte", device=device, progress=lambda what, share, total: told.append((share, what))
    ) as program:
        shares = [share for share, _ in told]
        assert {what for _, what in told} == {"compiling kernels"}
        assert shares == sorted(shares) and 0 < shares[0] < shares[-1] == 1.0
        first = program(np.array([1, 2]))
        program(np.array([1, 2, 3]))
        assert len(told) == len(shares)  # calls compile nothing
    with pteron.load(DATA / "emb_dyn.pte", device=device) as plain:
        assert np.array_equal(plain(np.array([1, 2])), first)


@pytest.mark.parametrize("given", ["path", "bytes"])
def test_a_load_logs_one_line(device, caplog, given):
    path = DATA / "sdpa_dyn.pte"
    source = path if given == "path" else path.read_bytes()
    with caplog.at_level("INFO", "pteron"), pteron.load(source, device=device):
        (record,) = caplog.records
    told = record.getMessage()
    assert record.levelname == "INFO" and device.name in told
    assert ("software adapter" in told) == device.is_software
    assert re.search(r"forward \(\d+ nodes, [1-9]\d* kernels\)", told)
    assert ("sdpa_dyn.pte" in told) == (given == "path")
