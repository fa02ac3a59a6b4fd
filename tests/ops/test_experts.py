"""Products of mixtures of experts, compared with torch: rows choose their matrices."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from pteron.engine.devices.opening import Device
from tests.ops.test_affine import arguments, coded
from tests.support.rules import Fixed, check_rule

EXPERTS, USED = 5, 3
NAMES = ["one row of x for all", "one row of x for each"]


def operands(n: int, depth: int, apart: bool) -> list[Any]:
    """x, and the experts that each row has chosen."""
    chosen = torch.stack([torch.randperm(EXPERTS)[:USED] for _ in range(n)]).to(torch.int32)
    return [torch.randn(n, USED, depth) if apart else torch.randn(n, depth), chosen]


def chosen_products(x: torch.Tensor, chosen: torch.Tensor, matrices: torch.Tensor) -> torch.Tensor:
    rows = x if x.dim() == 3 else x[:, None].expand(-1, USED, -1)
    return torch.einsum("snk,snck->snc", rows.double(), matrices.double()[chosen.long()]).to(x.dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize("depth", [24, 7])
@pytest.mark.parametrize("apart", [False, True], ids=NAMES)
def test_experts(device: Device, apart: bool, depth: int, dtype: torch.dtype) -> None:
    matrices = torch.randn(EXPERTS, 10, depth).to(dtype)

    def make(n: int) -> list[Any]:
        return [*operands(n, depth, apart), Fixed(matrices)]

    check_rule(device, "pteron.experts.default", make, chosen_products, (9, 1, 4, 9), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("apart", [False, True], ids=NAMES)
@pytest.mark.parametrize(
    ("depth", "form"),
    [
        (96, {"bits": 4, "group": 32, "minima": True}),
        (60, {"bits": 6, "group": 20}),  # groups that are no whole words
    ],
)
def test_coded_experts(routed: Device, depth: int, form: dict[str, Any], apart: bool) -> None:
    columns = 70
    weight = coded(EXPERTS * columns, depth, **form)
    matrices = torch.from_numpy(weight.dequantize()).view(EXPERTS, columns, depth)

    def make(n: int) -> list[Any]:
        return [*operands(n, depth, apart), *arguments(weight)]

    def products(x: torch.Tensor, chosen: torch.Tensor, *rest: Any) -> torch.Tensor:
        return chosen_products(x, chosen, matrices)

    size = float(matrices.abs().max())
    name = "pteron.experts_affine.default"
    check_rule(routed, name, make, products, (9, 1, 4, 9), rtol=1e-4, atol=1e-4 * size)
