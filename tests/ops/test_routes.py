"""The kernels for all kinds of device, run on this device: all routes give the same results."""

from __future__ import annotations

from contextlib import closing
from itertools import starmap
from typing import Any

import pytest
import torch

from pteron.compiler.ir.dispatch import HALF, SUBGROUP, Route
from pteron.compiler.ops.affine import INTERLEAVED
from pteron.compiler.plan.routes import runnable_routes
from pteron.engine.devices.opening import Device
from tests.support.calls import Call, check_calls
from tests.support.rules import Fixed, OneNode, Sym, check_rule, inputs_of


def quantised(columns: int, depth: int, group: int) -> tuple[torch.Tensor, ...]:
    """Packed 4-bit weights, their scales, and the dequantized weight."""
    generator = torch.Generator().manual_seed(columns)
    nibbles = torch.randint(0, 16, (columns, depth), generator=generator, dtype=torch.uint8)
    scales = torch.rand(depth // group, columns, generator=generator) + 0.5
    weight = (nibbles.float() - 8) * scales.T.repeat_interleave(group, dim=1)
    return nibbles[:, ::2] | (nibbles[:, 1::2] << 4), scales, weight


@pytest.mark.parametrize(
    ("depth", "columns", "group", "lives"),
    [
        (64, 130, 32, (67, 1, 8, 3, 19, 67)),
        (72, 5, 24, (19, 1, 8, 3, 19)),
        (16, 64, 8, (19, 1, 8, 3, 19)),
        (576, 70, 64, (67, 1, 8, 3, 19, 67)),
        (24, 518, 8, (1030, 9, 1014)),  # enough for large tiles
    ],
)
@pytest.mark.parametrize("biased", [False, True])
def test_linear_q4(
    routed: Device, depth: int, columns: int, group: int, lives: tuple[int, ...], biased: bool
) -> None:
    packed, scales, weight = quantised(columns, depth, group)
    bias = torch.linspace(-1, 1, columns) if biased else None

    def product(x: torch.Tensor, *rest: Any) -> torch.Tensor:
        return torch.nn.functional.linear(x, weight, bias)

    check_rule(
        routed,
        "et_vk.linear_q4gsw.default",
        lambda n: [torch.randn(n, depth), packed, scales, group, bias],
        product,
        lives,
        rtol=1e-4,
        atol=1e-3,
    )


def test_interleaved_linear_q4(routed: Device) -> None:
    packed, scales, weight = quantised(68, 96, 32)
    interleaved = packed.reshape(17, 4, 6, 8).transpose(1, 2).contiguous()
    check_rule(
        routed,
        "et_vk.linear_q4gsw.default",
        lambda n: [torch.randn(n, 96), Fixed(interleaved, INTERLEAVED), scales, 32, None],
        lambda x, *rest: torch.nn.functional.linear(x, weight),
        (19, 1, 2, 3, 8, 19),
        rtol=1e-4,
        atol=1e-3,
    )


@pytest.mark.parametrize(("widths", "biased"), [((64, 132), False), ((4, 64, 8), True)])
@pytest.mark.parametrize("depth", [72, 13])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_sibling_linears(
    routed: Device, widths: tuple[int, ...], depth: int, biased: bool, dtype: torch.dtype
) -> None:
    weight = torch.randn(sum(widths), depth, dtype=dtype)
    bias = torch.linspace(-1, 1, sum(widths), dtype=dtype) if biased else None

    def products(x: torch.Tensor, *rest: Any) -> list[torch.Tensor]:
        return list(torch.nn.functional.linear(x, weight, bias).split(widths, dim=-1))

    check_rule(
        routed,
        "pteron.linears",
        lambda n: [torch.randn(n, depth).to(dtype), Fixed(weight), Fixed(bias) if biased else None],
        products,
        (67, 1, 8, 19, 67),
        rtol=1e-2 if dtype == torch.float16 else 1e-4,
        atol=2e-2 if dtype == torch.float16 else 1e-4,
    )


@pytest.mark.parametrize(("widths", "biased"), [((64, 132), False), ((4, 64, 8), True)])
@pytest.mark.parametrize(("depth", "group"), [(64, 32), (72, 24), (60, 20)])
def test_sibling_linears_q4(
    routed: Device, widths: tuple[int, ...], depth: int, group: int, biased: bool
) -> None:
    packed, scales, weight = quantised(sum(widths), depth, group)
    bias = torch.linspace(-1, 1, sum(widths)) if biased else None

    def products(x: torch.Tensor, *rest: Any) -> list[torch.Tensor]:
        return list(torch.nn.functional.linear(x, weight, bias).split(widths, dim=-1))

    check_rule(
        routed,
        "pteron.linears_q4gsw",
        lambda n: [torch.randn(n, depth), packed, scales, group, bias],
        products,
        (67, 1, 8, 3, 67),
        rtol=1e-4,
        atol=1e-3,
    )


def attend_in_steps(q: Any, k: Any, v: Any, mask: Any) -> torch.Tensor:
    """Attention over [B, H, S, D], with shared heads of k and v. The mask is boolean, or is added."""
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], dim=1).float() for x in (k, v))
    scores = q.float() @ k.mT / q.shape[-1] ** 0.5
    scores = scores.masked_fill(~mask, -torch.inf) if mask.dtype is torch.bool else scores + mask
    return (torch.softmax(scores, -1) @ v).to(q.dtype)


# Heads that fill a workgroup, that leave lanes over, the widest that fit into workgroup memory, and so many
# that a context is cut into a few long chunks.
CACHED = [(6, 32), (6, 64), (6, 20), (4, 96), (2, 256), (48, 8)]


# The kernels take long to compile on a CPU. Those for the other sizes differ only in how they load.
LOADED_AS_HALVES = [(6, 64), (2, 256)]


@pytest.mark.parametrize(
    ("heads", "width", "dtype", "cache_dtype"),
    [
        *((*sizes, torch.float32, torch.float32) for sizes in CACHED),
        *((*sizes, torch.float16, torch.float16) for sizes in CACHED if sizes in LOADED_AS_HALVES),
        *(
            pytest.param(*sizes, torch.float16, torch.float16, marks=pytest.mark.slow)
            for sizes in CACHED
            if sizes not in LOADED_AS_HALVES
        ),
        (6, 64, torch.float32, torch.float16),
        pytest.param(6, 20, torch.float32, torch.float16, marks=pytest.mark.slow),
    ],
)
def test_attention_with_a_cache(
    routed: Device, heads: int, width: int, dtype: torch.dtype, cache_dtype: torch.dtype
) -> None:
    """Many and few tokens, at positions where chunks and tiles are full, incomplete and empty."""
    shared, capacity = 2, 200
    caches = [torch.randn(2, capacity, shared, width).to(cache_dtype) for _ in range(2)]
    positions = iter(starts := [0, 0, 199, 33, 64, 100, 150, 130, 195])

    def make(n: int) -> list[Any]:
        q = torch.randn(2, n, heads, width).to(dtype)
        return [q, *caches, Sym(next(positions)), None, 0.0, True, None]

    def attend(q: Any, k: Any, v: Any, start: int, *rest: Any) -> torch.Tensor:
        seen = start + q.shape[1]
        mask = torch.arange(seen) <= torch.arange(start, seen)[:, None]
        return attend_in_steps(*(x[:, :seen].transpose(1, 2) for x in (q, k, v)), mask).transpose(1, 2)

    lives = (70, 1, 7, 33, 1, 8, 70, 3)
    assert len(starts) == len(lives) + 1
    check_rule(routed, "custom_sdpa.default", make, attend, lives, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("heads", "width", "window", "softcap"), [(6, 32, 40, 2.0), (6, 20, 3, None), (4, 8, None, 2.0)]
)
def test_attention_with_a_window_and_a_soft_cap(
    routed: Device, heads: int, width: int, window: int | None, softcap: float | None
) -> None:
    """Windows that begin before, in and after the first tile or chunk of keys."""
    shared, capacity = 2, 200

    def make(n: int, at: int) -> list[Any]:
        q = torch.randn(1, n, heads, width) * 3
        k, v = (torch.randn(1, n, shared, width) for _ in range(2))
        caches = [torch.randn(1, capacity, shared, width) for _ in range(2)]
        return [q, k, v, *caches, Sym(at), Sym(n), None, 0.0, True, 0.3, window, softcap]

    def attend(q: Any, k: Any, v: Any, keys: Any, values: Any, start: int) -> list[torch.Tensor]:
        end = start + q.shape[1]
        keys, values = keys.clone(), values.clone()
        keys[:, start:end], values[:, start:end] = k, v
        queries, seen_keys, seen_values = (
            x.transpose(1, 2).double() for x in (q, keys[:, :end], values[:, :end])
        )
        share = heads // shared
        scores = 0.3 * queries @ seen_keys.repeat_interleave(share, 1).transpose(-2, -1)
        if softcap is not None:
            scores = softcap * torch.tanh(scores / softcap)
        behind = torch.arange(start, end)[:, None] - torch.arange(end)
        hidden = (behind < 0) | (behind >= (window or capacity))
        weights = torch.softmax(scores.masked_fill(hidden, -torch.inf), -1)
        mixed = weights @ seen_values.repeat_interleave(share, 1)
        return [mixed.transpose(1, 2).float(), keys, values]

    def call(n: int, at: int) -> Call:
        args = make(n, at)
        return Call(inputs_of(args), attend(*args[:5], at), f"of {n} at {at}")

    places = ((70, 0), (1, 199), (7, 33), (33, 64), (1, 100), (70, 130), (1, 38), (1, 39), (1, 40), (3, 195))
    largest = make(70, 0)
    with closing(OneNode(routed, "pteron.sdpa_with_kv_cache.default", largest, [largest[0]], False)) as node:
        check_calls(node.method, starmap(call, places), 1e-4, 1e-5)


@pytest.mark.parametrize("kind", ["bool", "added"])
@pytest.mark.parametrize("length", [3, 40], ids=lambda n: f"{n} queries")
def test_attention_with_a_mask(routed: Device, length: int, kind: str) -> None:
    """Rows that see all keys of a chunk, none of a chunk, and very few keys."""

    def make(n: int) -> list[Any]:
        keys = 30 * n + 1
        shown = torch.rand(2, 1, length, keys) < 0.5
        shown[:, :, 0, : keys // 2] = False
        shown[..., -1] = True
        mask = torch.randn(2, 4, length, keys).masked_fill(~shown, -torch.inf) if kind == "added" else shown
        if kind == "added":
            mask[:, :, 1] = torch.finfo(torch.float32).min
        q = torch.randn(2, 4, length, 24)
        return [q, torch.randn(2, 2, keys, 24), torch.randn(2, 2, keys, 24), mask, None]

    def attend(q: Any, k: Any, v: Any, mask: Any, scale: None) -> torch.Tensor:
        return attend_in_steps(q, k, v, mask)

    check_rule(routed, "et_vk.sdpa.default", make, attend, (4, 1, 2, 4), rtol=1e-4, atol=1e-5)


def test_a_route_may_need_several_features() -> None:
    routes = [Route("both", [], needs=(SUBGROUP, HALF)), Route("plain", [])]
    for one in (SUBGROUP, HALF):
        assert [route.name for route in runnable_routes(routes, (one,))] == ["plain"]
    assert [route.name for route in runnable_routes(routes, (SUBGROUP, HALF))] == ["both", "plain"]
