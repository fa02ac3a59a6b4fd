"""Exported programs: one file, compared with torch at several live shapes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from pteron.engine.devices.opening import Device
from tests.support.calls import check_file, eager
from tests.support.export import export

Args = Sequence[torch.Tensor]


class Outputs(torch.nn.Module):
    """A module whose outputs are what a function returns."""

    def __init__(self, function: Callable[..., Sequence[torch.Tensor]]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(self.function(*inputs))


def check_program(
    device: Device,
    module: torch.nn.Module | Callable[..., Sequence[torch.Tensor]],
    make: Callable[[int], Args],
    dims: Sequence[dict[int, str]],
    lives: Sequence[int] = (9, 4, 3, 9, 5),
    **options: Any,
) -> None:
    """`check_export` with one dynamic size: `dims` lists the dimensions of each input that have it."""
    live = torch.export.Dim("n", min=min(lives), max=max(lives))
    shapes: Any = tuple(dict.fromkeys(each, live) for each in dims)
    if not isinstance(module, torch.nn.Module):
        module, shapes = Outputs(module), {"inputs": shapes}
    assert lives[0] == max(lives), "the first live size is the one that is exported"
    check_export(device, module, make, lives, shapes, **options)


def check_export(
    device: Device,
    module: torch.nn.Module,
    make: Callable[..., Args],
    lives: Sequence[Any],
    dynamic_shapes: Any = None,
    *,
    rtol: float = 1e-4,
    atol: float = 1e-5,
    nan: bool = False,
    **options: Any,
) -> None:
    """Export at the first of `lives`, which is the largest. Then compare with eager at each, in order.

    `make` returns the inputs at a live size, or at several live sizes if it is a tuple.
    """
    torch.manual_seed(0)

    def inputs(live: Any) -> tuple[torch.Tensor, ...]:
        return tuple(make(*live) if isinstance(live, tuple) else make(live))

    program = export(module, inputs(lives[0]), dynamic_shapes, **options)
    check_file(device, program, eager(module, map(inputs, lives)), rtol, atol, nan=nan)
