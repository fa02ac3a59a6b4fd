"""How close a result must be, by what computes it. Anything but a float must be equal."""

from __future__ import annotations

from typing import Any

import numpy as np

EXACT = 0.0
ELEMENTWISE = 1e-4
RMS = 1e-3
MATMUL = 1e-3
SDPA = 2e-3
QUANTISED = 5e-3


def assert_close(got: Any, want: Any, tolerance: float, what: str) -> None:
    """Shape, dtype and every element. `tolerance` is absolute, and for large numbers relative."""
    if isinstance(want, int):
        assert type(got) is int and got == want, f"{what}: expected the integer {want}, got {got!r}"
        return
    assert got.shape == want.shape, f"{what}: expected shape {want.shape}, got {got.shape}"
    assert got.dtype == want.dtype, f"{what}: expected dtype {want.dtype}, got {got.dtype}"
    np.testing.assert_allclose(got, want, atol=tolerance, rtol=tolerance, err_msg=what, equal_nan=False)
