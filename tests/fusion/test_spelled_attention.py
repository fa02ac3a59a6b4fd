"""Attention that an exporter writes as products and a softmax becomes one node, with the results of torch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn.functional import dropout, scaled_dot_product_attention

from pteron.compiler.passes import PASSES
from pteron.engine.devices.opening import Device
from tests.support.calls import check_file, eager
from tests.support.programs import Outputs, check_program

HEADS = 2
LIVES = (37, 3, 8, 37, 1)


def split(x: torch.Tensor) -> torch.Tensor:
    """[B, S, H * D] as [B, H, S, D]."""
    return x.view(x.shape[0], x.shape[1], HEADS, -1).transpose(1, 2)


def join(x: torch.Tensor) -> torch.Tensor:
    return x.transpose(1, 2).flatten(2)


def in_steps(q: Any, k: Any, v: Any, bias: torch.Tensor) -> torch.Tensor:
    """As models without `scaled_dot_product_attention` write it."""
    return dropout(torch.softmax(q @ k.transpose(2, 3) * 0.3 + bias, dim=-1), training=False) @ v


def attentions(
    x: torch.Tensor, y: torch.Tensor, seen: torch.Tensor, bias: torch.Tensor
) -> list[torch.Tensor]:
    q, k, v = split(x), split(y), split(x + y)
    return [
        join(scaled_dot_product_attention(q, k, v)),
        join(scaled_dot_product_attention(q, k, v, seen)),
        scaled_dot_product_attention(q, k, v, seen[:1, 0].float().log(), scale=0.7),
        join(in_steps(q, k, v, bias)),
    ]


def arguments(width: int, dtype: torch.dtype = torch.float32) -> Callable[[int], tuple[torch.Tensor, ...]]:
    """By `seen`, the last query sees no key. By `bias`, all queries see the first key."""

    def make(n: int) -> tuple[torch.Tensor, ...]:
        x, y = (torch.randn(2, n, HEADS * width).to(dtype) for _ in range(2))
        seen = torch.rand(2, 1, n, n) < 0.7
        seen[:, :, -1] = False
        bias = torch.where(torch.rand(2, 1, 1, n) < 0.3, -torch.inf, 0.5)
        bias[..., 0] = 0.25
        return x, y, seen, bias.to(dtype)

    return make


DIMS = [{1: "n"}, {1: "n"}, {2: "n", 3: "n"}, {3: "n"}]


@pytest.fixture(scope="module", params=[True, False], ids=["delegated", "outside"])
def program(request: pytest.FixtureRequest) -> Any:
    from tests.support.export import export

    torch.manual_seed(0)
    live = torch.export.Dim("n", min=1, max=max(LIVES))
    shapes = {"inputs": tuple(dict.fromkeys(dims, live) for dims in DIMS)}
    return export(Outputs(attentions), arguments(8)(LIVES[0]), shapes, partitioner=request.param)


def test_all_forms_become_one_node(routed: Device, program: Any) -> None:
    torch.manual_seed(0)
    calls = eager(Outputs(attentions), map(arguments(8), LIVES))
    graph = check_file(routed, program, calls, 1e-4, 1e-5)
    names = Counter(node.name for node in graph.nodes)
    assert names["pteron.attention"] == 4
    assert not names.keys() & {"aten.bmm.default", "aten._softmax.default", "aten.any.dim"}
    by_sequence = [node.args[5:7] for node in graph.nodes if node.name == "pteron.attention"]
    assert by_sequence == [(True, True), (True, True), (False, True), (True, True)]


def test_the_pass_can_be_switched_off(device: Device, program: Any) -> None:
    torch.manual_seed(0)
    calls = eager(Outputs(attentions), map(arguments(8), LIVES[:2]))
    graph = check_file(device, program, calls, 1e-4, 1e-5, fuse=set(PASSES) - {"attention_pattern"})
    assert Counter(node.name for node in graph.nodes)["aten.bmm.default"] == 8


def test_heads_that_are_not_whole_quads(device: Device) -> None:
    check_program(device, attentions, arguments(6), DIMS, (9, 4, 9), rtol=1e-4, atol=1e-5)


def test_half_precision(device: Device) -> None:
    make = arguments(8, torch.float16)
    check_program(device, attentions, make, DIMS, (9, 4, 9), rtol=5e-3, atol=5e-3, partitioner=False)


def test_an_empty_row_without_a_rule_for_it_is_nan(device: Device) -> None:
    def steps(x: torch.Tensor, bias: torch.Tensor) -> list[torch.Tensor]:
        return [in_steps(split(x), split(x), split(x), bias)]

    def make(n: int) -> tuple[torch.Tensor, ...]:
        hidden = torch.zeros(1, 1, n, n)
        hidden[..., -1, :] = -torch.inf
        return torch.randn(2, n, 16), hidden

    check_program(device, steps, make, [{1: "n"}, {2: "n", 3: "n"}], (9, 4, 9), nan=True)


def test_weights_that_are_a_result_are_computed(device: Device) -> None:
    """The scores exist in memory anyway, so nothing is fused."""

    def both(x: torch.Tensor) -> list[torch.Tensor]:
        q = split(x)
        weights = torch.softmax(q @ q.transpose(2, 3), dim=-1)
        return [weights, weights @ q]

    check_program(device, both, lambda n: (torch.randn(2, n, 16),), [{1: "n"}], (9, 4, 9))
