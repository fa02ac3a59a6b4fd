"""Rotary embeddings compared with torch: whole heads and parts of heads, at changing positions."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import executorch.backends.vulkan.custom_ops_lib  # noqa: F401  torch's own meaning of the operators
import pytest
import torch

from pteron.engine.devices.opening import Device
from pteron.errors import InputError
from tests.support.rules import OneNode, Sym, check_rule

POSITIONS = 24


@pytest.mark.parametrize(("width", "turned"), [(8, 8), (8, 6), (10, 4), (12, 2)])
def test_rotation_of_halves(device: Device, width: int, turned: int) -> None:
    angles = torch.randn(POSITIONS, turned)

    def make(n: int) -> list[object]:
        q, k = torch.randn(2, n, 3, width), torch.randn(2, n, 1, width)
        return [q, k, angles.cos(), angles.sin(), Sym(POSITIONS - 3 * n)]

    def rotate(
        q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, start: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        def turn(x: torch.Tensor) -> torch.Tensor:
            rows = slice(start, start + x.shape[1])
            part, rest = x[..., :turned], x[..., turned:]
            swapped = torch.cat([-part[..., turned // 2 :], part[..., : turned // 2]], -1)
            return torch.cat([part * cos[rows, None] + swapped * sin[rows, None], rest], -1)

        return turn(q), turn(k)

    check_rule(device, "et_vk.apply_rotary_emb_hf.default", make, rotate, (7, 1, 4, 7), atol=1e-5)

    def make_one(n: int) -> list[object]:
        q, _, *rest = make(n)
        return [q, *rest]

    def rotate_one(q: torch.Tensor, *rest: Any) -> torch.Tensor:
        return rotate(q, q, *rest)[0]

    name = "et_vk.apply_rotary_emb_hf_single.default"
    check_rule(device, name, make_one, rotate_one, (7, 1, 4, 7), atol=1e-5)


def test_rotation_of_neighbours(device: Device) -> None:
    def make(n: int) -> list[torch.Tensor]:
        angles = torch.randn(n, 5)
        return [torch.randn(1, n, 4, 10), torch.randn(1, n, 2, 10), angles.cos(), angles.sin()]

    def rotate(
        q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        def turn(x: torch.Tensor) -> torch.Tensor:
            a, b = x[..., ::2], x[..., 1::2]
            c, s = cos[:, None], sin[:, None]
            return torch.stack([a * c - b * s, a * s + b * c], -1).flatten(-2)

        return turn(q), turn(k)

    check_rule(device, "et_vk.apply_rotary_emb.default", make, rotate, (9, 2, 0, 5, 9), atol=1e-5)


def rotated(n: int, keys: int | None = None, table: int | None = None) -> list[torch.Tensor]:
    tables = [torch.ones(n if table is None else table, 5) for _ in range(2)]
    return [torch.randn(1, n, 4, 10), torch.randn(1, n if keys is None else keys, 2, 10), *tables]


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (rotated(5, keys=4), r"q \(1, 5, 4, 10\) and k \(1, 4, 2, 10\) must agree in length"),
        (rotated(5, table=4), "the frequency table has 4 rows for 5 live positions"),
    ],
)
def test_lengths_that_do_not_agree_are_refused(device: Device, given: list[torch.Tensor], why: str) -> None:
    largest = rotated(9)
    with closing(OneNode(device, "et_vk.apply_rotary_emb.default", largest, largest[:2], True)) as node:
        node(rotated(7))
        with pytest.raises(InputError, match=why):
            node(given)
        assert [y.shape[1] for y in node(rotated(3))] == [3, 3]


@pytest.mark.parametrize("tables", [1, 2])
@pytest.mark.parametrize(("width", "turned"), [(8, 8), (12, 6), (7, 4)])
def test_heads_before_positions(device: Device, tables: int, width: int, turned: int) -> None:
    """The layout of Hugging Face models: [B, H, S, D], and one table, or one per element of the batch."""

    def make(n: int) -> list[object]:
        angles = torch.randn(tables, n, turned)
        return [torch.randn(2, 4, n, width), torch.randn(2, 1, n, width), angles.cos(), angles.sin(), 0]

    rotate = torch.ops.et_vk.apply_rotary_emb_hf.default
    check_rule(device, "et_vk.apply_rotary_emb_hf.default", make, rotate, (7, 1, 4, 7), atol=1e-5)


@pytest.mark.parametrize("shape", [(-1, 6), (1, -1, 3, 2), (1, 1, -1)])
def test_rotation_with_a_table_of_any_rank(device: Device, shape: tuple[int, ...]) -> None:
    make = lambda n: [torch.randn(2, n, 6), torch.randn(n * 6).reshape(shape)]  # noqa: E731
    rotate = torch.ops.et_vk.apply_rotary_emb_interleaved.default
    check_rule(device, "et_vk.apply_rotary_emb_interleaved.default", make, rotate, (7, 1, 4, 7), atol=1e-5)
