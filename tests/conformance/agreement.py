"""The comparison rule of the backend's own driver."""

from __future__ import annotations

from typing import Any

import numpy as np

SMALLEST_MAGNITUDE = 1e-6  # below it, a relative error is taken relative to this


def disagreement(got: Any, want: Any, atol: float, rtol: float) -> str | None:
    """None, or what is wrong: a float may be off by `atol` or by `rtol`, anything else must be equal."""
    got, want = np.asarray(got), np.asarray(want)
    if got.shape != want.shape:
        return f"shape {got.shape}, not {want.shape}"
    if got.dtype.kind != want.dtype.kind:
        return f"{got.dtype}, not {want.dtype}"
    if got.dtype.kind == "f":
        got, want = got.astype(np.float64), want.astype(np.float64)
        with np.errstate(invalid="ignore"):
            error = np.abs(got - want)
            close = (error <= atol) | (error <= rtol * np.maximum(np.abs(want), SMALLEST_MAGNITUDE))
        good = (close | (got == want)) & ~np.isnan(got)
    else:
        good = got == want
    if good.all():
        return None
    where = np.unravel_index(np.argmin(good), good.shape)
    place = tuple(map(int, where))
    wrong = np.count_nonzero(~good)
    return f"{wrong} of {good.size} elements, the first at {place}: {got[where]}, not {want[where]}"
