"""Kernels for other devices than this one: whichever routes a device takes, the numbers are the same."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from pteron.errors import DeviceError
from pteron.gpu.device import Device
from pteron.graph.dispatch import GPU, SOFTWARE, SUBGROUP
from tests.ops.rules import Sym, check_rule


@pytest.fixture(scope="module", params=["portable", "software", "GPU", "GPU with all"])
def routed(request: pytest.FixtureRequest) -> Iterator[Device]:
    """This device, taken for one that has nothing beyond the portable floor, and for one of each kind."""
    try:
        device = Device()
    except DeviceError as error:
        pytest.fail(f"the adapter opens once, but not twice: {error}")
    offered = device.route_features - {GPU, SOFTWARE}
    device.__dict__["route_features"] = {
        "portable": frozenset(),
        "software": offered | {SOFTWARE},
        "GPU": frozenset({GPU}),
        "GPU with all": offered | {GPU},
    }[request.param]
    yield device
    device.close()


def quantised(columns: int, depth: int, group: int) -> tuple[torch.Tensor, ...]:
    """Packed 4-bit weights, their scales, and the weight they stand for."""
    generator = torch.Generator().manual_seed(columns)
    nibbles = torch.randint(0, 16, (columns, depth), generator=generator, dtype=torch.uint8)
    scales = torch.rand(depth // group, columns, generator=generator) + 0.5
    weight = (nibbles.float() - 8) * scales.T.repeat_interleave(group, dim=1)
    return nibbles[:, ::2] | (nibbles[:, 1::2] << 4), scales, weight


@pytest.mark.parametrize(("depth", "columns", "group"), [(64, 130, 32), (72, 5, 24), (16, 64, 8)])
@pytest.mark.parametrize("biased", [False, True])
def test_linear_q4(routed: Device, depth: int, columns: int, group: int, biased: bool) -> None:
    packed, scales, weight = quantised(columns, depth, group)
    bias = torch.linspace(-1, 1, columns) if biased else None

    def product(x: torch.Tensor, *rest: Any) -> torch.Tensor:
        return torch.nn.functional.linear(x, weight, bias)

    check_rule(
        routed,
        "et_vk.linear_q4gsw.default",
        lambda n: [torch.randn(n, depth), packed, scales, group, bias],
        product,
        (19, 1, 8, 3, 19),
        rtol=1e-4,
        atol=1e-3,
    )


@pytest.mark.parametrize(("depth", "columns"), [(64, 132), (36, 8), (40, 7), (13, 5)])
def test_linear(routed: Device, depth: int, columns: int) -> None:
    weight, bias = torch.randn(columns, depth), torch.randn(columns)

    def make(n: int) -> list[torch.Tensor]:
        return [torch.randn(n, depth), weight, bias]

    check_rule(
        routed, "aten.linear.default", make, torch.nn.functional.linear, (21, 1, 8, 21), rtol=1e-4, atol=1e-4
    )


@pytest.mark.parametrize("width", [32, 64, 20])
def test_attention_with_a_cache(routed: Device, width: int) -> None:
    heads, shared, capacity = 6, 2, 40
    k_cache, v_cache = (torch.randn(2, capacity, shared, width) for _ in range(2))

    def make(n: int) -> list[Any]:
        q = torch.randn(2, n, heads, width)
        return [q, k_cache, v_cache, Sym(capacity - 2 * n), None, 0.0, True, None]

    def attend(q: Any, k: Any, v: Any, start: int, *rest: Any) -> torch.Tensor:
        length = q.shape[1]
        seen = start + length
        mask = torch.arange(seen) <= torch.arange(start, seen)[:, None]
        keys, values = (c[:, :seen].repeat_interleave(heads // shared, dim=2).transpose(1, 2) for c in (k, v))
        out = torch.nn.functional.scaled_dot_product_attention(
            q.transpose(1, 2), keys, values, attn_mask=mask
        )
        return out.transpose(1, 2)

    check_rule(routed, "custom_sdpa.default", make, attend, (18, 1, 7, 8, 18), rtol=1e-4, atol=1e-5)


def test_this_adapter_has_what_the_other_tests_ran_on(device: Device) -> None:
    """Software adapters of eight lanes and real GPUs offer subgroups; if not, only half was tested."""
    lanes = np.array([device._smallest_subgroup()]) if "subgroup" in device.features else np.array([0])
    assert (SUBGROUP in device.route_features) == bool(lanes[0] >= 8)
