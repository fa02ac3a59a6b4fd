"""bfloat16: stored as bfloat16, computed as float32, rounded as in torch."""

# ruff: noqa: E731  a table of lambdas reads best here

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional

import pteron
from pteron.engine.devices.opening import Device
from pteron.errors import InputError
from tests.ops.test_float16 import Everything, tokens
from tests.support.export import export
from tests.support.programs import check_program
from tests.support.rules import Fixed, check_rule


def test_a_bfloat16_program(device: Device) -> None:
    make = lambda n: (torch.randn(2, n, 6).bfloat16(), tokens(n))
    check_program(device, Everything().bfloat16(), make, [{1: "n"}, {1: "n"}], rtol=3e-2, atol=3e-2)


class Casts(torch.nn.Module):
    """A float32 model with casts inside, as in some models for masks and positions."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        slopes = torch.arange(1, 7, dtype=torch.bfloat16) / 3
        return x * slopes.float() + x.bfloat16().float().cumsum(0)


def test_a_program_that_casts_inside(device: Device) -> None:
    check_program(device, Casts(), lambda n: (torch.randn(n, 6),), [{0: "n"}], rtol=1e-5, atol=1e-5)


def test_rounding_equals_torch(device: Device) -> None:
    """Every bit is equal: ties to even, overflow, the smallest numbers, and NaN."""
    ties = [0x3F808000, 0x3F818000, 0x3F808001]
    edges = [0x7F7FFFFF, 0xFF7FFFFF, 0x7F800000, 0x7FC00001, 0x00008001, 0x80000000]
    bits = torch.tensor([*ties, *edges])
    x = torch.cat([bits.to(torch.int32).view(torch.float32), torch.randn(55) * 1e3])
    check_rule(
        device,
        "pteron.cast",
        lambda n: [x[:n]],
        lambda x: x.bfloat16(),
        (64, 9, 33),
        rtol=0,
        atol=0,
        nan=True,
    )
    program = pteron.load(export(ToBfloat16(), (x,), partitioner=False), device=device)
    got, want = program.method()(x.numpy()), x.bfloat16().float().numpy()
    np.testing.assert_array_equal(got, want)


class ToBfloat16(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.bfloat16()


BINARY = ["add", "mul", "div"]


@pytest.mark.parametrize("name", BINARY)
def test_a_result_is_rounded_once(device: Device, name: str) -> None:
    """One operator is computed in float32, so every bit of its result is equal to torch's."""

    class Module(torch.nn.Module):
        def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            return getattr(torch, name)(a, b)

    a, b = torch.randn(1000).bfloat16(), torch.randn(1000).bfloat16()
    with pteron.load(export(Module(), (a, b), partitioner=False), device=device) as program:
        assert torch.equal(program.method()(a, b), Module()(a, b))


@pytest.mark.parametrize("width", [8, 7])
def test_products(device: Device, width: int) -> None:
    x = lambda *shape: torch.randn(shape).bfloat16()
    check_rule(device, "aten.mm.default", lambda n: [x(n, width), x(width, 12)], torch.mm, atol=0.1)
    weight, bias = Fixed(x(12, width)), Fixed(x(12))
    make = lambda n: [x(n, width), weight, bias]
    check_rule(device, "aten.linear.default", make, functional.linear, atol=0.1)
    window = [(1, 1), (1, 1), (1, 1), False, (0, 0), 1]
    kernel = Fixed(x(8, 4, 3, 3))
    make = lambda n: [x(n, 4, 6, width), kernel, None, *window]
    check_rule(device, "aten.convolution.default", make, torch.convolution, atol=0.2)


def test_arrays_in_and_out(device: Device) -> None:
    """Outputs are bfloat16 of torch for inputs of torch, else float32 arrays. float32 inputs are rounded."""

    class Doubled(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + x

    x = torch.randn(5, 3)
    with pteron.load(export(Doubled(), (x.bfloat16(),), partitioner=False), device=device) as program:
        method = program.method()
        assert method.inputs[0].dtype == "bfloat16"
        want = (2 * x.bfloat16()).float().numpy()
        assert torch.equal(method(x.bfloat16()), 2 * x.bfloat16())
        for given in (x.numpy(), x.bfloat16().float().numpy()):
            got = method(given)
            assert got.dtype == np.float32
            np.testing.assert_array_equal(got, want)
        kept = method(x.numpy(), keep_on_gpu=True)
        np.testing.assert_array_equal(method(kept), 2 * want)
        with pytest.raises(InputError, match="expected dtype bfloat16 or float32, got float64"):
            method(x.double().numpy())
        np.testing.assert_array_equal(method(x.numpy()), want)
