"""Attention against torch: masks, shared heads, batches, positions, any head size and dtype."""

# ruff: noqa: E731  a table of lambdas reads best here

from __future__ import annotations

import math
from itertools import starmap
from typing import Any

import pytest
import torch

from pteron.engine.devices.opening import Device
from pteron.errors import InputError, UnsupportedError
from pteron.tools.verify.catalogue.attention import at_places, quantized_sdpa
from tests.support.calls import Call, check_calls
from tests.support.compare import EXACT, UNDEFINED
from tests.support.rules import OneNode, Sym, check_rule, inputs_of

TYPES = [torch.float32, torch.float16]


def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: Any, scale: float | None) -> torch.Tensor:
    """Attention over [B, H, S, D] in double precision. k and v may have fewer heads than q."""
    share = q.shape[1] // k.shape[1]
    k, v = (x.repeat_interleave(share, 1).double() for x in (k, v))
    scores = q.double() @ k.transpose(-2, -1) * (scale or 1 / math.sqrt(q.shape[-1]))
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf) if mask.dtype is torch.bool else scores + mask.double()
    return (torch.softmax(scores, -1) @ v).to(q.dtype)


def values(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape).to(dtype)


MASKS = {
    "none": lambda b, h, s, t: None,
    "full": lambda b, h, s, t: torch.randn(b, h, s, t),
    "per batch": lambda b, h, s, t: torch.randn(b, 1, s, t),
    "shared": lambda b, h, s, t: torch.randn(s, t),
    "per key": lambda b, h, s, t: torch.randn(1, t),
    "bool": lambda b, h, s, t: (torch.rand(s, t) < 0.7) | torch.eye(s, t, dtype=torch.bool),
}


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("width", [8, 6, 5])
@pytest.mark.parametrize("mask", MASKS)
def test_sdpa(device: Device, mask: str, width: int, dtype: torch.dtype) -> None:
    def make(n: int) -> list[Any]:
        q = values(2, 4, n, width, dtype=dtype)
        k, v = values(2, 2, n + 2, width, dtype=dtype), values(2, 2, n + 2, width, dtype=dtype)
        return [q, k, v, MASKS[mask](2, 4, n, n + 2), None]

    check_rule(device, "et_vk.sdpa.default", make, attend, (6, 1, 5, 6, 3), rtol=1e-4, atol=1e-5)


def test_sdpa_scale(device: Device) -> None:
    make = lambda n: [values(1, 2, n, 8), values(1, 2, 5, 8), values(1, 2, 5, 8), None, 0.3]
    check_rule(device, "et_vk.sdpa.default", make, attend, (6, 0, 2), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("sizes", [(6, 9, 8), (1, 300, 64), (40, 40, 64)], ids=str)
@pytest.mark.parametrize("operand", range(4))
def test_nan_reaches_every_result_that_reads_it(
    routed: Device, sizes: tuple[int, int, int], operand: int
) -> None:
    queries, keys, width = sizes
    mask = torch.randn(queries, keys) if operand == 3 else None
    args = [values(1, 4, queries, width), values(1, 2, keys, width), values(1, 2, keys, width), mask, None]
    given = args[operand]
    assert isinstance(given, torch.Tensor)
    given[..., given.shape[-2] // 2, given.shape[-1] // 2] = math.nan
    check_rule(routed, "et_vk.sdpa.default", lambda n: args, attend, (1,), rtol=1e-4, atol=1e-5, nan=True)


def test_a_row_without_visible_keys_is_nan(device: Device) -> None:
    def make(n: int) -> list[Any]:
        mask = torch.zeros(n, n)
        mask[1] = -math.inf
        mask[2] = torch.finfo(torch.float32).min
        return [*(values(1, 2, n, 8) for _ in range(3)), mask, None]

    check_rule(device, "et_vk.sdpa.default", make, attend, (5, 3, 4), rtol=1e-4, atol=1e-5, nan=True)


def reference_with_cache(q: Any, k: Any, v: Any, keys: Any, vals: Any, position: int) -> list[torch.Tensor]:
    """For [B, S, H, D]: the caches after k and v are written, and causal attention over the filled part."""
    length = q.shape[1]
    keys, vals = keys.clone(), vals.clone()
    keys[:, position : position + length] = k.to(keys.dtype)
    vals[:, position : position + length] = v.to(vals.dtype)
    seen = position + length
    mask = torch.arange(seen) <= torch.arange(position, seen)[:, None]
    first = lambda x: x.transpose(1, 2)
    y = attend(first(q), first(keys[:, :seen]), first(vals[:, :seen]), mask, None)
    return [first(y), keys, vals]


@pytest.mark.parametrize("cache_dtype", TYPES, ids=str)
@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize(("batch", "width"), [(1, 8), (2, 5), (3, 3)])
def test_sdpa_with_kv_cache(
    device: Device, batch: int, width: int, dtype: torch.dtype, cache_dtype: torch.dtype
) -> None:
    capacity, heads, shared = 11, 4, 2

    def make(length: int, position: int) -> list[Any]:
        q = values(batch, length, heads, width, dtype=dtype)
        k, v = (values(batch, length, shared, width, dtype=dtype) for _ in range(2))
        caches = [values(batch, capacity, shared, width, dtype=cache_dtype) for _ in range(2)]
        return [q, k, v, *caches, Sym(position), Sym(length), None, 0.0, True, None]

    torch.manual_seed(0)
    largest = make(capacity, 0)
    node = OneNode(device, "sdpa_with_kv_cache.default", largest, [largest[0]], False)

    def call(length: int, position: int) -> Call:
        args = make(length, position)
        wanted = reference_with_cache(*args[:5], position)
        return Call(inputs_of(args), wanted, f"of {length} at {position}")

    places = ((11, 0), (1, 0), (1, 10), (0, 4), (4, 3), (3, 8), (2, 5), (11, 0), (0, 0), (1, 7))
    check_calls(node.method, starmap(call, places), 1e-4, 1e-5)
    with pytest.raises(InputError, match="position 9 plus 3 new tokens does not fit"):
        node(make(3, 9))
    node.close()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int8, torch.int32], ids=str)
@pytest.mark.parametrize("shape", [(1, 2, 4), (1, 1, 3), (3, 1, 1), (2, 3, 1)], ids=str)
def test_update_cache(device: Device, shape: tuple[int, int, int], dtype: torch.dtype) -> None:
    """Other positions do not change, although positions share words with their neighbours."""
    batch, heads, width = shape
    capacity = 7
    make = lambda length: (torch.randn(batch, length, heads, width) * 9).to(dtype)
    node = OneNode(
        device, "update_cache.default", [make(capacity), make(capacity), Sym(0)], [torch.zeros(1)], False
    )

    def call(length: int, position: int) -> Call:
        value, cache = make(length), make(capacity)
        want = cache.clone()
        want[:, position : position + length] = value
        return Call([value, cache, position], [UNDEFINED, want], f"of {length} at {position}")

    places = ((7, 0), (1, 0), (1, 3), (2, 5), (3, 1), (5, 2), (1, 6))
    check_calls(node.method, starmap(call, places), EXACT)
    node.close()


@pytest.mark.parametrize("dtype", [torch.float32, torch.int8], ids=str)
@pytest.mark.parametrize("shape", [(1, 2, 4), (2, 3, 1)], ids=str)
def test_update_cache_with_indices(device: Device, shape: tuple[int, int, int], dtype: torch.dtype) -> None:
    """Rows go to any places; of two rows for one place, the last stays."""
    batch, heads, width = shape
    capacity = 7
    make = lambda length: (torch.randn(batch, length, heads, width) * 9).to(dtype)
    places = lambda length: torch.randint(0, capacity, (batch, length))
    args = [make(capacity), make(capacity), 0, places(capacity)]
    node = OneNode(device, "update_cache_with_indices.default", args, [torch.zeros(1)], False)

    def call(length: int) -> Call:
        value, cache, indices = make(length), make(capacity), places(length)
        want = torch.from_numpy(at_places(cache.clone().numpy(), value.numpy(), indices.numpy()))
        return Call([value, cache, indices], [UNDEFINED, want], f"of {length}")

    check_calls(node.method, map(call, (7, 1, 3, 0, 5, 7)), EXACT)
    with pytest.raises(InputError, match="an index into a cache of 7 positions"):
        node([make(1), make(capacity), 0, torch.full((batch, 1), 7)])
    node.close()


def codes(*shape: int) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """int8 codes, and a zero point and a scale for each row."""
    rows = (*shape[:-1], 1)
    zeros = torch.randint(-9, 9, rows, dtype=torch.int8)
    return torch.randint(-128, 128, shape, dtype=torch.int8), [zeros, torch.rand(rows) / 64]


@pytest.mark.parametrize("heads_first", [False, True])
@pytest.mark.parametrize(("masked", "causal"), [(True, False), (False, True), (False, False)])
def test_custom_quantized_sdpa(device: Device, masked: bool, causal: bool, heads_first: bool) -> None:
    capacity, width = 9, 6

    def shape(length: int, heads: int) -> tuple[int, ...]:
        return (2, heads, length, width) if heads_first else (2, length, heads, width)

    def make(n: int) -> list[Any]:
        made = [codes(*shape(n, 4)), codes(*shape(capacity, 2)), codes(*shape(capacity, 2))]
        mask = torch.randn(n, capacity) if masked else None
        position = 1000 + n if masked else (9 - n) // 2
        parts = [part for _, parts in made for part in parts]
        return [*(x for x, _ in made), Sym(position), mask, 0.0, causal, None, *parts, heads_first]

    def reference(*args: Any) -> torch.Tensor:
        made = quantized_sdpa(*(x.numpy() if isinstance(x, torch.Tensor) else x for x in args))
        return torch.from_numpy(made).float()

    name, lives = "custom_quantized_sdpa.default", (9, 1, 4, 0, 2, 9)
    check_rule(device, name, make, reference, lives, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "masked", "causal"),
    [
        ("custom_sdpa", True, False),
        ("custom_sdpa", False, True),
        ("custom_sdpa", False, False),
        ("et_vk.gemma4_sdpa", True, False),
    ],
)
def test_custom_sdpa(device: Device, name: str, masked: bool, causal: bool) -> None:
    """With a mask, all keys count, at any position."""
    capacity, width = 9, 6

    def reference(q: Any, k: Any, v: Any, position: int, mask: Any, *rest: Any) -> torch.Tensor:
        seen = position + q.shape[1] if mask is None else capacity
        first = lambda x: x[:, :seen].transpose(1, 2)
        allowed = torch.zeros(q.shape[1], seen) if mask is None else mask
        if causal:
            hidden = torch.arange(seen) > torch.arange(position, seen)[:, None]
            allowed = allowed.masked_fill(hidden, -math.inf)
        return attend(q.transpose(1, 2), first(k), first(v), allowed, None).transpose(1, 2)

    def make(n: int) -> list[Any]:
        mask = torch.randn(n, capacity) if masked else None
        cached = [values(2, capacity, 2, width) for _ in range(2)]
        position = 1000 + n if masked else (9 - n) // 2
        return [values(2, n, 4, width), *cached, Sym(position), mask, 0.0, causal, None]

    check_rule(device, f"{name}.default", make, reference, (9, 1, 4, 0, 2, 9), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("columns", "causal", "why"),
    [(5, False, "does not cover 8 keys"), (8, True, "is_causal and a mask")],
)
def test_masks_that_are_refused(device: Device, columns: int, causal: bool, why: str) -> None:
    caches = [values(1, 8, 2, 4) for _ in range(2)]
    args = [values(1, 1, 2, 4), *caches, Sym(0), values(1, columns), 0.0, causal, None]
    with pytest.raises(UnsupportedError, match=why):
        OneNode(device, "custom_sdpa.default", args, [values(1, 1, 2, 4)], False)
