"""The differences from torch that docs/known-differences.md lists, and how tests recognise them.

The titles are those of the page, in its order. A rule says for each element of a result whether the
difference explains it. A title without a rule is not about elementwise operators.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tests.support.edges import Case, Cast

PAGE = Path(__file__).parents[2] / "docs" / "known-differences.md"

# Results agree if they differ by less than this, relative to the result.
PRECISION = {torch.float32: 2e-6, torch.float16: 1e-3, torch.bfloat16: 8e-3}
SMALLEST = {torch.float32: 1.1754944e-38, torch.float16: 6.1035156e-5, torch.bfloat16: 1.1754944e-38}
HALVES = (torch.float16, torch.bfloat16)

Mask = Any  # a numpy array of booleans
Rule = Callable[[Case, Tensor, Tensor], Mask]  # of the case, the result and the expected result


def numbers(x: Tensor) -> Any:
    return (x.float() if x.dtype.is_floating_point else x).numpy().astype(np.float64)


def close(got: Tensor, want: Tensor, rtol: float | None = None, atol: float = 0.0) -> Mask:
    rtol = PRECISION.get(want.dtype, 0.0) if rtol is None else rtol
    a, b = numbers(got), numbers(want)
    with np.errstate(invalid="ignore"):
        near = np.abs(a - b) <= np.maximum(rtol * np.abs(b), atol)
    return (a == b) | (np.isnan(a) & np.isnan(b)) | (np.isfinite(b) & near)


def same_sign(got: Tensor, want: Tensor) -> Mask:
    """Whether zeros have the same sign."""
    a, b = numbers(got), numbers(want)
    return (a != 0) | (b != 0) | (np.signbit(a) == np.signbit(b))


def denormal(case: Case, got: Tensor, want: Tensor) -> Mask:
    """Both results are 0 or denormal, or the result is that of operands without denormal numbers."""
    smallest = SMALLEST.get(want.dtype, 0.0) * (1 + 1e-6)
    small = (np.abs(numbers(got)) <= smallest) & (np.abs(numbers(want)) <= smallest)
    flushed = Case(case.name, [_flushed(arg) for arg in case.args])
    inner = np.abs(numbers(got) - numbers(want)) < 1e-36 if case.name == "aten.mish.default" else False
    return small | inner | (close(got, flushed()) if not isinstance(case, Cast) else False)


def _flushed(arg: Any) -> Any:
    if not isinstance(arg, Tensor) or not arg.dtype.is_floating_point:
        return arg
    return torch.where(arg.abs() < SMALLEST[arg.dtype], torch.copysign(torch.zeros_like(arg), arg), arg)


def sign_of_nan(case: Case, got: Tensor, want: Tensor) -> Mask:
    told = case.name in ("aten.copysign.Tensor", "aten.signbit.default")
    return _any(case, np.isnan, got) & told


def sign_of_zero(case: Case, got: Tensor, want: Tensor) -> Mask:
    base = case.name.split(".")[1]
    return (
        (numbers(got) == 0)
        & (numbers(want) == 0)
        & (base in ("maximum", "minimum", "addcmul", "lerp", "log_sigmoid"))
    )


def unfused(case: Case, got: Tensor, want: Tensor) -> Mask:
    base = case.name.split(".")[1]
    large = _any(case, lambda x: np.isfinite(x) & (np.abs(x) > 1e38), got)
    return large & ~np.isfinite(numbers(got)) & (base in ("add", "sub", "rsub", "addcmul", "addcdiv"))


def less_precise(case: Case, got: Tensor, want: Tensor) -> Mask:
    base = case.name.split(".")[1]
    if base == "gelu":
        return close(got, want, rtol=PRECISION[want.dtype], atol=1e-6)
    return close(got, want, rtol=2e-5) & (
        base in ("sigmoid", "silu", "mish", "softplus", "log_sigmoid", "pow")
    )


def overflow_of_torch(case: Case, got: Tensor, want: Tensor) -> Mask:
    base, operand = case.name.split(".")[1], numbers(case.operands[0])
    lost = ~np.isfinite(numbers(want))
    if base in ("sinh", "cosh"):
        return lost & (np.abs(operand) > 88) & (np.abs(operand) < 89.5)
    if base == "gelu":
        return lost & (operand > 1e38)
    return np.isnan(numbers(want)) & np.isfinite(numbers(got)) & (base in ("fmod", "remainder"))


def rounded_steps(case: Case, got: Tensor, want: Tensor) -> Mask:
    base = case.name.split(".")[1]
    return (
        np.isfinite(numbers(got)) & (want.dtype in HALVES) & (base in ("logit", "erf", "div", "floor_divide"))
    )


def conversion(case: Case, got: Tensor, want: Tensor) -> Mask:
    converts = isinstance(case, Cast) or case.name.split(".")[1] in ("copy", "fill")
    if not converts or want.dtype.is_floating_point or want.dtype is torch.bool:
        return np.zeros(got.shape, bool)
    x, limits = numbers(case.operands[-1]), torch.iinfo(want.dtype)
    return ~((x > limits.min - 1) & (x < limits.max + 1))


def _any(case: Case, test: Callable[[Any], Any], got: Tensor) -> Mask:
    """Where some operand passes a test."""
    masks = [np.broadcast_to(test(numbers(x)), got.shape) for x in case.operands]
    return np.logical_or.reduce(masks)


DIFFERENCES: dict[str, Rule | None] = {
    "Denormal numbers": denormal,
    "NaN": sign_of_nan,
    "The sign of zero": sign_of_zero,
    "A product and a sum": unfused,
    "Precision": less_precise,
    "Overflow in torch": overflow_of_torch,
    "16-bit floats": rounded_steps,
    "Padding of convolutions": None,
    "Large 3 × 3 convolutions on GPUs": None,
    "Interpolation": None,
    "NaN in a Fourier transform": None,
    "NaN in a maximum norm": None,
    "Floats as integers": conversion,
    "Integers divided by zero": None,
    "Large constants in Vulkan delegates": None,
    "Buffers that a Vulkan delegate only reads": None,
    "64-bit floats": None,
    "The order of sums": None,
    "Indices": None,
    "Assertions on values": None,
    "Random numbers": None,
}


def explained(case: Case, got: Tensor, want: Tensor) -> Mask:
    """For each element, whether it is right or a known difference."""
    good = close(got, want) & same_sign(got, want)
    for rule in filter(None, DIFFERENCES.values()):
        good = good if good.all() else good | rule(case, got, want)
    return good


def titles_of_page() -> list[str]:
    return re.findall(r"^- \*\*(.+?)\.\*\*", PAGE.read_text("utf-8"), re.MULTILINE)
