"""How far a node's result may be from the reference, and how far it is."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from pteron.compiler.ir.dtypes import DType
from pteron.tools.verify.walk import Array


@dataclass(frozen=True, slots=True)
class Tolerance:
    """The allowed error of an element: a share of its value, of the largest value, and of the inputs.

    A sum whose terms cancel is as inexact as its largest term, so the inputs count. `absolute` is allowed
    in any case.
    """

    of_value: float
    of_output: float
    of_inputs: float = 0.0
    absolute: float = 0.0

    def allowed(self, want: Array, inputs: float = 0.0) -> Array:
        finite = np.abs(want[np.isfinite(want)])
        largest = float(finite.max()) if finite.size else 0.0
        limit = self.of_value * np.abs(want) + self.of_output * largest + self.of_inputs * inputs
        return np.maximum(np.where(np.isfinite(limit), limit, 0.0), self.absolute)


FLOATS = {
    DType.float32: Tolerance(1e-4, 2e-5, 2e-6),
    DType.float16: Tolerance(2e-3, 1e-3, 1e-5),  # one run of rounding is 2**-11
    DType.bfloat16: Tolerance(1.6e-2, 8e-3, 1e-5),  # one run of rounding is 2**-8
}
ONE_STEP = ("quantize", "q8ta", "requant", "choose_qparams")  # a value between two codes may become either


@dataclass(frozen=True, slots=True)
class Difference:
    """The worst element of a result: its error as a share of the allowed error. Above 1 it is wrong."""

    share: float
    element: tuple[int, ...]
    expected: float
    found: float

    @property
    def is_bad(self) -> bool:
        return not self.share <= 1


SAME = Difference(0.0, (), 0.0, 0.0)


def worst(differences: Iterable[Difference]) -> Difference:
    return max(differences, key=lambda difference: difference.share, default=SAME)


def compare(op: str, dtype: DType, got: Array, want: Any, inputs: float) -> Difference:
    """`inputs` is the largest magnitude of the floats that the node reads."""
    want = np.asarray(want)
    if got.shape != want.shape:
        return Difference(np.inf, (), float(want.size), float(got.size))
    if np.iscomplexobj(want):
        dtype, got, want = DType.float32, _parts(got), _parts(want)
    steps = 1.0 if any(name in op for name in ONE_STEP) else 0.0
    tolerance = FLOATS.get(dtype, Tolerance(0.0, 0.0, absolute=steps))
    return difference(got, want, tolerance, inputs)


def difference(got: Array, want: Array, tolerance: Tolerance, inputs: float = 0.0) -> Difference:
    """The worst element. A NaN must be where one is expected, and nowhere else."""
    got, want = got.astype(np.float64), want.astype(np.float64)
    if not got.size:
        return SAME
    allowed = tolerance.allowed(want, inputs)
    with np.errstate(invalid="ignore", divide="ignore"):
        error = np.abs(got - want)
        same = (got == want) | (np.isnan(got) & np.isnan(want))
        share = np.where(same, 0.0, error / allowed)
    share = np.where(np.isnan(share), np.inf, share)  # a NaN or an infinity on one side only
    place = np.unravel_index(int(share.argmax()), share.shape)
    return Difference(
        float(share[place]), tuple(int(i) for i in place), float(want[place]), float(got[place])
    )


def _parts(numbers: Array) -> Array:
    """The real and the imaginary part, as one more dimension."""
    return np.stack([numbers.real, numbers.imag], axis=-1)
