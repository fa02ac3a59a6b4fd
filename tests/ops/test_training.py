"""The operators of a training step against torch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import Any

import executorch.backends.vulkan.custom_ops_lib  # noqa: F401  registers the operators
import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim

from pteron.engine.devices.opening import Device
from pteron.errors import InputError
from tests.support.calls import Call, check_calls
from tests.support.programs import check_export
from tests.support.rules import OneNode, check_rule

et_vk = torch.ops.et_vk


def random_bytes(*shape: int) -> Tensor:
    return torch.randint(0, 256, shape, generator=torch.Generator().manual_seed(1)).to(torch.uint8)


# -- the loss ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [1, 5, 32, 131])
def test_cross_entropy(device: Device, width: int) -> None:
    def make(n: int) -> list[Any]:
        labels = torch.randint(0, width, (n,))
        labels[::3] = -1
        return [torch.randn(n, width) * 5 + 40, labels, 3.0]

    check_rule(device, "et_vk.fused_ce.default", make, et_vk.fused_ce.default, rtol=1e-4, atol=1e-5)


def test_labels_must_fit_the_logits(device: Device) -> None:
    args = [torch.randn(4, 5), torch.zeros(4, dtype=torch.int64), 1.0]
    node = OneNode(device, "et_vk.fused_ce.default", args, et_vk.fused_ce(*args), True)
    with pytest.raises(InputError, match="labels have shape"):
        node([args[0][:3], args[1], 1.0])
    node.close()


# -- gradients --------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows, columns", [(8, 12), (68, 4), (10, 18), (3, 5), (70, 67)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_gradient_of_a_weight(routed: Device, rows: int, columns: int, dtype: torch.dtype) -> None:
    make = lambda n: [torch.randn(2, n, w).to(dtype) for w in (rows, columns)]  # noqa: E731
    check_rule(routed, "et_vk.linear_dW.default", make, et_vk.linear_dW.default, rtol=1e-4, atol=1e-4)


def test_gradient_of_a_weight_with_a_dynamic_shape(routed: Device) -> None:
    """The live shapes alternate between the kernels for whole quads and for other rows."""
    make = lambda n: [torch.randn(6, 4 * n), torch.randn(6, n)]  # noqa: E731
    lives = (8, 7, 4, 1, 8)
    check_rule(routed, "et_vk.linear_dW.default", make, et_vk.linear_dW.default, lives, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "depth, columns, group", [(10, 64, 32), (8, 16, 8), (7, 24, 12), (5, 6, 3), (67, 72, 24)]
)
def test_gradient_through_a_4_bit_linear(routed: Device, depth: int, columns: int, group: int) -> None:
    weights, scales = random_bytes(depth, columns // 2), torch.rand(columns // group, depth)
    make = lambda n: [torch.randn(n, depth), weights, scales, group]  # noqa: E731
    name, reference = "et_vk.linear_q4gsw_backward.default", et_vk.linear_q4gsw_backward.default
    check_rule(routed, name, make, reference, lives=(66, 1, 4, 17, 66), rtol=1e-4, atol=1e-3)


# -- weights ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("columns, group", [(16, 8), (13, 4), (9, 32), (1, 1)])
def test_requantisation_to_4_bits(device: Device, columns: int, group: int) -> None:
    def make(n: int) -> list[Any]:
        scales = torch.rand(-(-columns // group), n) * 0.3 + 0.05
        scales[0, 0] = 0.0
        latent = torch.where(torch.rand(n, columns) < 0.3, 0.5 * scales[:1].T, torch.randn(n, columns))
        return [latent, scales, group]

    check_rule(device, "et_vk.q4gsw_requant.default", make, et_vk.q4gsw_requant.default)


def adamw(step: int, decay: float) -> list[float]:
    return [1e-2, 0.9, 0.999, 1e-8, decay, 1 - 0.9**step, 1 - 0.999**step]


@pytest.mark.parametrize("decay", [0.1, 0.0])
def test_adamw(device: Device, decay: float) -> None:
    """Several steps at each live shape. The results are equal to the tensors that are updated in place."""

    def steps() -> Iterator[Call]:
        for rows in (9, 3, 1, 7):
            state = [torch.randn(rows, 5), torch.randn(rows, 5) * 0.1, torch.rand(rows, 5) * 0.01]
            for _ in range(3):
                call = adamw_call(state, torch.randn(rows, 5), adamw(1, decay))
                yield call
                state = list(call.outputs[:3])

    check_adamw(device, (9, 5), adamw(1, decay), steps())


@pytest.mark.parametrize("step", [1, 10, 1000])
def test_adamw_bias_correction(device: Device, step: int) -> None:
    state = [torch.randn(7), torch.randn(7) * 0.1, torch.rand(7) * 0.01]
    call = adamw_call(state, torch.randn(7), adamw(step, 0.01))
    check_adamw(device, (7,), adamw(step, 0.01), [call])


def adamw_call(state: list[Tensor], grad: Tensor, rates: list[float]) -> Call:
    """One step: the outputs are the results, and then the tensors that are updated in place."""
    updated = [x.clone() for x in state]
    et_vk.adamw_step(*updated, grad, *rates)
    return Call([*state, grad], updated * 2)


def check_adamw(device: Device, shape: tuple[int, ...], rates: list[float], calls: Iterable[Call]) -> None:
    largest = [torch.zeros(shape)] * 3
    args = [*largest, largest[0], *rates]
    with closing(OneNode(device, "et_vk.adamw_step.default", args, largest, True)) as node:
        check_calls(node.method, calls, rtol=1e-5, atol=1e-6)


# -- exported programs ------------------------------------------------------------------------------


class Step(nn.Module):
    """Forward through a frozen 4-bit linear, the loss, and the gradient of a weight."""

    def __init__(self) -> None:
        super().__init__()
        from torchao.quantization.granularity import PerGroup
        from torchao.quantization.quant_api import IntxWeightOnlyConfig, quantize_

        self.frozen = nn.Linear(32, 24, bias=False)
        quantize_(self.frozen, IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=PerGroup(16)))

    def forward(self, x: Tensor, labels: Tensor) -> tuple[Tensor, ...]:
        loss, d_logits = et_vk.fused_ce(self.frozen(x), labels, 2.0)
        return loss, d_logits, et_vk.linear_dW(d_logits, x)


def test_an_exported_training_step(device: Device) -> None:
    n = Dim("n", min=1, max=9)

    def make(n: int) -> tuple[Tensor, ...]:
        labels = torch.randint(0, 24, (n,))
        labels[1::3] = -1
        return torch.randn(n, 32), labels

    lives = [(9,), (2,), (5,), (1,), (9,)]
    check_export(device, Step(), make, lives, ({0: n}, {0: n}), rtol=1e-3, atol=1e-4)
