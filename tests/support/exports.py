"""Export a module at its largest shape, and compare the one program with torch at smaller live ones.

Unlike `programs`, several dimensions may be live, each by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

import pteron
from pteron.devices import Device
from tests.support.export import export
from tests.support.rules import as_list, compare, poison


def check_export(
    device: Device,
    module: torch.nn.Module,
    make: Callable[..., Sequence[torch.Tensor]],
    lives: Sequence[tuple[int, ...]],
    dynamic_shapes: Any = None,
    *,
    rtol: float = 1e-4,
    atol: float = 1e-5,
    **options: Any,
) -> None:
    """Export at make(*lives[0]), the largest; then compare at each of `lives`, in the order given."""
    torch.manual_seed(0)
    program = export(module, tuple(make(*lives[0])), dynamic_shapes, **options)
    method = pteron.load(program, device=device).method()
    try:
        for live in lives:
            args = make(*live)
            with torch.no_grad():
                wanted = as_list(module(*args))
            poison(method)
            for number, (got, want) in enumerate(zip(method.execute(args), wanted, strict=True)):
                what = f"output {number} at {live}"
                assert got.shape == tuple(want.shape), f"{what}: {got.shape}, not {tuple(want.shape)}"
                compare(got, want, what, rtol, atol)
    finally:
        method.close()
