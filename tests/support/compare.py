"""Tolerances for each kind of computation, and the comparison of results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pteron.compiler.ir.dtypes import DType
from pteron.tools.verify.comparison import FLOATS, Tolerance

EXACT = 0.0
ELEMENTWISE = 1e-4
RMS = 1e-3
MATMUL = 1e-3
SDPA = 2e-3
QUANTISED = 5e-3


class _Undefined:
    def __repr__(self) -> str:
        return "UNDEFINED"


UNDEFINED: Any = _Undefined()  # stands for an output that the reference leaves unwritten


def disagreement(
    got: Any, want: Any, rtol: float, atol: float | None = None, nan: bool = False
) -> str | None:
    """A description of the difference between a result and the expected value; None if they agree.

    Shape and dtype must be equal. A float may be off by `atol`, or by `rtol` of what was expected; without
    `atol` it is the same as `rtol`. Anything else must be equal. A NaN is wrong, because poisoned memory
    gives one too; `nan` allows it where one was expected.
    """
    if want is UNDEFINED:
        return None
    if isinstance(want, int):
        return None if type(got) is int and got == want else f"expected the integer {want}, got {got!r}"
    dtype = str(getattr(want, "dtype", "")).removeprefix("torch.")
    if dtype == "bfloat16":  # which numpy does not have
        want = want.float()
    if str(getattr(got, "dtype", "")) == "torch.bfloat16":
        got = got.float()
    got, want = np.asarray(got), np.asarray(want)
    if (got.shape, got.dtype) != (want.shape, want.dtype):
        return f"expected {want.dtype}{list(want.shape)}, got {got.dtype}{list(got.shape)}"
    if got.dtype.kind == "c":  # compared by its parts
        got, want = (np.stack([x.real, x.imag], -1) for x in (got, want))
    good = _close(got, want, _tolerance(dtype, rtol, atol), nan) if got.dtype.kind == "f" else got == want
    if good.all():
        return None
    where = np.unravel_index(np.argmin(good), good.shape)
    wrong, place = np.count_nonzero(~good), tuple(map(int, where))
    return f"{wrong} of {good.size} elements, the first at {place}: expected {want[where]}, got {got[where]}"


def _tolerance(dtype: str, rtol: float, atol: float | None) -> Tolerance:
    """A float16 or bfloat16 result is rounded once more than the computation."""
    atol = rtol if atol is None else atol
    if dtype == "bfloat16" or (dtype == "float16" and max(rtol, atol) > EXACT):
        rounded = FLOATS[DType[dtype]]
        rtol, atol = max(rtol, rounded.of_value), max(atol, rounded.of_output)
    return Tolerance(rtol, 0.0, absolute=atol)


def _close(got: Any, want: Any, tolerance: Tolerance, nan: bool) -> Any:
    got, want = got.astype(np.float64), want.astype(np.float64)
    with np.errstate(invalid="ignore"):
        close = (got == want) | np.isfinite(want) & (np.abs(got - want) <= tolerance.allowed(want))
    return close | (np.isnan(got) & np.isnan(want)) if nan else close


def assert_close(got: Any, want: Any, rtol: float, atol: float | None = None, what: str = "result") -> None:
    problem = disagreement(got, want, rtol, atol)
    assert not problem, f"{what}: {problem}"


def disagreements(
    got: Sequence[Any], want: Sequence[Any], rtol: float, atol: float | None = None, nan: bool = False
) -> list[str]:
    """The differences of all outputs of a call."""
    if len(got) != len(want):
        return [f"expected {len(want)} outputs, got {len(got)}"]
    found = (disagreement(*pair, rtol, atol, nan) for pair in zip(got, want, strict=True))
    return [f"output {index}: {problem}" for index, problem in enumerate(found) if problem]


def assert_outputs(
    got: Sequence[Any], want: Sequence[Any], rtol: float, atol: float | None = None, what: str = "call"
) -> None:
    problems = disagreements(got, want, rtol, atol)
    assert not problems, "\n".join(f"{what}, {problem}" for problem in problems)
