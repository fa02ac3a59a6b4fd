"""Half precision: programs written in it, and float32 programs exported with force_fp16."""

# ruff: noqa: E731  a table of lambdas reads best here

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from pteron.engine.devices.opening import Device
from tests.support.programs import check_program
from tests.support.rules import Sym, check_rule


class Everything(torch.nn.Module):
    """The operators of a transformer and some others. Widths are odd, so that rows share words."""

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(11, 6)
        self.up = torch.nn.Linear(6, 9)
        self.norm = torch.nn.LayerNorm(6)
        self.rms = torch.nn.RMSNorm(6)

    def forward(self, x: torch.Tensor, tokens: torch.Tensor) -> list[torch.Tensor]:
        looked_up = self.table(tokens)
        return [
            self.up(x),
            self.norm(x),
            self.rms(x) + looked_up,
            x.softmax(-1),
            x @ x.transpose(1, 2),
            functional.scaled_dot_product_attention(x[:, None], x[:, None], x[:, None]),
            x.sum(1),
            x.mean(-1, keepdim=True),
            x.amax(-1),
            x.argmax(-1),
            torch.cat([x[:, :, 1:4], looked_up], 2),
            x.permute(2, 0, 1),
            x[:, 1:, ::2],
            torch.where(x > 0, x, looked_up),
            functional.gelu(x) * torch.sigmoid(x),
            x.flip(1).repeat(1, 1, 2),
        ]


def tokens(n: int) -> torch.Tensor:
    return torch.randint(0, 11, (2, n))


def test_a_float16_program(device: Device) -> None:
    make = lambda n: (torch.randn(2, n, 6).half(), tokens(n))
    check_program(device, Everything().half(), make, [{1: "n"}, {1: "n"}], rtol=1e-2, atol=4e-3)


def test_a_program_exported_with_force_fp16(device: Device) -> None:
    make = lambda n: (torch.randn(2, n, 6), tokens(n))
    options = {"force_fp16": True}
    check_program(
        device, Everything(), make, [{1: "n"}, {1: "n"}], rtol=1e-2, atol=8e-3, compile_options=options
    )


UNARY = ["neg", "relu", "exp", "tanh", "sigmoid", "sqrt", "log", "erf", "round", "isnan", "cos"]


@pytest.mark.parametrize("name", UNARY)
def test_elementwise(device: Device, name: str) -> None:
    make = lambda n: [(torch.rand(n, 5) * 3 + 0.1).half()]
    check_rule(device, f"aten.{name}.default", make, getattr(torch, name))


def test_mixed_operands(device: Device) -> None:
    check_rule(device, "aten.mul.Tensor", lambda n: [torch.randn(n, 5).half(), torch.randn(5)], torch.mul)
    check_rule(
        device, "aten.mul.Tensor", lambda n: [torch.randn(n, 5).half(), torch.randn(n, 1).half()], torch.mul
    )
    pick = lambda n: [torch.rand(n, 5) < 0.5, torch.randn(n, 5).half(), torch.randn(5).half()]
    check_rule(device, "aten.where.self", pick, torch.where)


def test_numbers_beyond_the_range_are_infinite(device: Device) -> None:
    x = torch.tensor([65504.0, 65519.0, 65520.0, 1e6, -1e6, 6e-8, 1e-9, torch.inf, torch.nan])
    check_rule(device, "pteron.cast", lambda n: [x[:n]], lambda x: x.half(), (9, 5), nan=True)


@pytest.mark.parametrize("width", [8, 6])
def test_rotary_embeddings(device: Device, width: int) -> None:
    table = torch.randn(16, width).half()

    def rotate(
        xq: torch.Tensor, xk: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, start: int
    ) -> tuple[torch.Tensor, ...]:
        def turned(x: torch.Tensor) -> torch.Tensor:
            rows = slice(start, start + x.shape[1])
            halves = torch.cat([-x[..., width // 2 :], x[..., : width // 2]], -1)
            return x * cos[rows, None] + halves * sin[rows, None]

        return turned(xq), turned(xk)

    make = lambda n: [
        torch.randn(1, n, 3, width).half(),
        torch.randn(1, n, 1, width).half(),
        table,
        table.flip(0),
        Sym(16 - 2 * n),
    ]
    check_rule(device, "et_vk.apply_rotary_emb_hf.default", make, rotate, (7, 1, 4, 7), atol=5e-3)
