"""How far a result may be from a reference, given what the kernel read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from tests.differential.kernels import ANY_CONTENTS, Kernel

# The share of its own value by which an element may be off, and the smallest number that counts.
RELATIVE = {"float32": 3e-5, "float64": 3e-5, "complex64": 3e-5, "float16": 2.5e-3, "bfloat16": 2e-2}
TINY = {"float32": 2e-38, "float64": 2e-38, "complex64": 2e-38, "float16": 1e-7, "bfloat16": 2e-38}
ROUNDING = {"float32": 3e-6, "float64": 3e-6, "complex64": 3e-6, "float16": 2e-3, "bfloat16": 1.6e-2}

# Sums of products: an element is as inexact as the sum of the magnitudes of its terms.
_LINEAR = """
    sum mean cumsum mm bmm addmm linear convolution convolution_backward avg_pool2d _adaptive_avg_pool2d
    upsample_bilinear2d _upsample_bilinear2d_aa scatter_add index_put index_put_ add sub rsub
    max_pool2d_with_indices_backward
"""
# Others that add many elements: an element is as inexact as the largest one that was read or written.
_MIXING = """
    var var_mean native_layer_norm native_group_norm _native_batch_norm_legit _softmax _log_softmax prod
    _native_batch_norm_legit_no_training _cdist_forward _pdist_forward grid_sampler_2d
    _fft_r2c _fft_c2r custom_sdpa custom_quantized_sdpa sdpa_with_kv_cache gated_delta_rule
    channelwise_gated_delta_rule fast_hadamard_transform
"""


LINEAR, MIXING = frozenset(_LINEAR.split()), frozenset(_MIXING.split())
# These convert a float to an integer. Outside of the range of the integer, each processor has its own answer.
CASTS = frozenset(("_to_copy", "_to_dim_order_copy", "copy", "copy_", "fill"))
# An infinity or a NaN in these arguments may give NaN in more elements: see docs/known-differences.md.
NAN_FROM = {
    "convolution": ("weight",),
    "convolution_backward": ("grad_output", "input", "weight"),
    "_fft_r2c": ("self",),
    "_fft_c2r": ("self",),
    "_cdist_forward": ("x1", "x2"),
    "_pdist_forward": ("self",),
    "upsample_bilinear2d": ("input",),
    "grid_sampler_2d": ("input", "grid"),
}


def difference(
    called: Kernel, args: dict[str, Any], dtype: str | None, got: Sequence[Any], want: Sequence[Any]
) -> str | None:
    """The first difference between results and a reference, in words."""
    if len(got) != len(want):
        return f"{len(got)} results, expected {len(want)}"
    scales = _scales(called, args, dtype, want)
    for number, (mine, theirs) in enumerate(zip(got, want, strict=True)):
        found = _one(called, args, mine, theirs, scales[number], number, got)
        if found:
            return found
    return None


def _one(
    called: Kernel, args: dict[str, Any], got: Any, want: Any, scale: Any, number: int, results: Sequence[Any]
) -> str | None:
    if called.operator == "convolution_backward" and not args["output_mask"][number]:
        return None  # not asked for
    if not isinstance(want, torch.Tensor):
        return None if got == want else f"expected {want}, got {got}"
    if (got.dtype, got.shape) != (want.dtype, want.shape):
        return f"expected {_kind(want)}, got {_kind(got)}"
    if called.name in ANY_CONTENTS or not got.numel():
        return None
    if number == 1 and called.operator == "topk" and _points_at(args, got, results[0]):
        return None  # equal elements may come in any order
    if called.operator.startswith("embedding_"):  # torch rounds to the type of the scales
        got, want = (x.to(args["weight_scales"].dtype) for x in (got, want))
    if called.operator == "gelu":  # an absolute error: see docs/known-differences.md
        scale = torch.ones_like(want, dtype=torch.float64)
    good = _close(got, want, scale) | _without_meaning(called, args, want)
    good = good | _may_be_nan(called, args, got, want)
    if good.all():
        return None
    place = int((~good).flatten().nonzero()[0])
    wrong = int((~good).sum())
    return (
        f"output {number}: {wrong} of {good.numel()} elements of {_kind(want)}, the first at {place}: "
        f"expected {want.flatten()[place].item()!r}, got {got.flatten()[place].item()!r}"
    )


def _kind(tensor: torch.Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"


def _close(got: torch.Tensor, want: torch.Tensor, scale: Any) -> torch.Tensor:
    if not want.is_floating_point() and not want.is_complex():
        return got == want
    dtype = str(want.dtype).removeprefix("torch.")
    if want.is_complex():
        parts = torch.view_as_real(got), torch.view_as_real(want)
        return _close(*parts, None if scale is None else scale[..., None]).all(-1)
    if dtype == "float64":  # float32 on the GPU
        got, want = got.float(), want.float()
    largest = torch.finfo(want.dtype).max
    got, want = got.double(), want.double()
    allowed = RELATIVE[dtype] * want.abs() + TINY[dtype]
    overflows = torch.zeros_like(want, dtype=torch.bool)
    if scale is not None:
        allowed = allowed + ROUNDING[dtype] * scale.nan_to_num(0.0, 0.0, 0.0)
        overflows = ~(scale < largest / 4)  # then the order of the sums decides
    same = (got == want) | (got.isnan() & want.isnan())
    # One side may round up to infinity where the other one stays just below.
    edge = (got.isinf() & (want.abs() > largest * 0.99)) | (want.isinf() & (got.abs() > largest * 0.99))
    return same | overflows | (edge & (got.sign() == want.sign())) | ((got - want).abs() <= allowed)


def _without_meaning(called: Kernel, args: dict[str, Any], want: torch.Tensor) -> torch.Tensor:
    """Elements that are floats outside of the range of an integer type. Quantization clamps all but NaN."""
    nothing = torch.zeros((), dtype=torch.bool)
    if called.operator.startswith("quantize_per_"):
        return args["input"].isnan()  # type: ignore[no-any-return]
    given = args.get("src", args.get("value", args.get("self")))
    if called.operator not in CASTS or want.is_floating_point() or want.dtype is torch.bool:
        return nothing
    if not isinstance(given, torch.Tensor) or not given.is_floating_point():
        return nothing
    limits = torch.iinfo(want.dtype)
    inside = (given.double() > float(limits.min) - 1) & (given.double() < float(limits.max) + 1)
    return (~inside).expand(want.shape)


def _may_be_nan(called: Kernel, args: dict[str, Any], got: torch.Tensor, want: torch.Tensor) -> torch.Tensor:
    """NaN that comes from 0 times infinity. Convolutions leave some of it out, as torch's do."""
    tensors = [args[name] for name in NAN_FROM.get(called.operator, ())]
    if all(tensor.isfinite().all() for tensor in tensors):
        return torch.zeros((), dtype=torch.bool)
    return got.isnan() | (want.isnan() if "convolution" in called.operator else False)


def _points_at(args: dict[str, Any], indices: torch.Tensor, values: torch.Tensor) -> bool:
    """Whether indices belong to these values."""
    x, dim = args["self"], args.get("dim", -1)
    if indices.numel() and not ((indices >= 0) & (indices < x.shape[dim])).all():
        return False
    found = x.gather(dim, indices)
    return bool(((found == values) | ((found != found) & (values != values))).all())


def _scales(called: Kernel, args: dict[str, Any], dtype: str | None, want: Sequence[Any]) -> list[Any]:
    """For each result the magnitudes that were added up, or None."""
    if called.operator in LINEAR:
        try:
            positive = _magnitudes(args)
            if called.operator in ("sub", "rsub"):  # then nothing cancels
                positive["alpha"] = -abs(positive.get("alpha", 1))
            made = called(positive, None if dtype is None else "float64")
            return [part.double().abs() for part in made]
        except (RuntimeError, ValueError, TypeError):
            pass
    elif called.operator not in MIXING:
        return [None] * len(want)
    scales = [_largest(args, result) for result in want]
    if "norm" in called.operator and want[2].numel():  # x / deviation - mean / deviation
        scales[0] = scales[0] * max(1.0, float(want[2].double().nan_to_num(0.0).abs().max()))
    return scales


def _magnitudes(arg: Any) -> Any:
    if isinstance(arg, dict):
        return {name: _magnitudes(item) for name, item in arg.items() if name != "dtype"}
    if isinstance(arg, list):
        return [_magnitudes(item) for item in arg]
    if isinstance(arg, torch.Tensor) and arg.is_floating_point():
        return arg.double().abs().nan_to_num(0.0, float("inf"))
    return abs(arg) if isinstance(arg, float) else arg


def _largest(args: dict[str, Any], result: torch.Tensor) -> torch.Tensor:
    """The largest magnitude in the arguments and in the result. Squares of large ones are rounded, too."""
    tensors = [arg for arg in (*args.values(), result) if isinstance(arg, torch.Tensor) and arg.numel()]
    inexact = [tensor.abs() for tensor in tensors if tensor.is_floating_point() or tensor.is_complex()]
    most = max((float(tensor.double().nan_to_num(0.0).max()) for tensor in inexact), default=0.0)
    return torch.full(result.shape, max(most, most * most if most > 1e3 else 0.0), dtype=torch.float64)
