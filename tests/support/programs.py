"""Families of operators as the exporter writes them: many outputs of one module, at changing live shapes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

import pteron
from pteron.devices import Device
from tests.support.export import export
from tests.support.rules import as_list, compare, poison

Args = tuple[torch.Tensor, ...]


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
    *,
    rtol: float = 1e-4,
    atol: float = 1e-5,
    **options: Any,
) -> None:
    """Export at make(max(lives)) with the listed dimensions dynamic; compare with eager at each live size."""
    torch.manual_seed(0)
    if not isinstance(module, torch.nn.Module):
        module = Outputs(module)
    live = torch.export.Dim("n", min=min(lives), max=max(lives))
    shapes = tuple(dict.fromkeys(each, live) for each in dims)
    largest = make(max(lives))
    dynamic = {"inputs": shapes} if isinstance(module, Outputs) else shapes
    program = pteron.load(export(module, largest, dynamic, **options), device=device)
    method = program.method()
    for n in lives:
        args = make(n)
        poison(method)
        with torch.no_grad():
            wanted = as_list(module(*args))
        for number, (got, want) in enumerate(zip(method.execute(args), wanted, strict=True)):
            assert got.shape == tuple(want.shape), (
                f"output {number} at {n}: {got.shape}, not {tuple(want.shape)}"
            )
            compare(got, want, f"output {number} at {n}", rtol, atol)
    program.close()
