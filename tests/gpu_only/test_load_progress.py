"""`load(progress=...)`: how much of a method is compiled."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import pteron

DATA = Path(__file__).parents[1] / "data"


def test_a_load_tells_the_share_of_kernels_that_are_compiled(device):
    told: list[tuple[float, str]] = []
    with pteron.load(
        DATA / "emb_dyn.pte", device=device, progress=lambda share, what: told.append((share, what))
    ) as program:
        assert not told  # a method is compiled at its first use
        first = program(np.array([1, 2]))
        shares = [share for share, _ in told]
        assert {what for _, what in told} == {"compiling kernels"}
        assert shares == sorted(shares) and 0 < shares[0] < shares[-1] == 1.0
        count = len(told)
        program(np.array([1, 2, 3]))
        assert len(told) == count  # calls compile nothing
    with pteron.load(DATA / "emb_dyn.pte", device=device) as plain:
        assert np.array_equal(plain(np.array([1, 2])), first)
