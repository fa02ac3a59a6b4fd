"""The gated delta rule, beside ExecuTorch's own kernel."""

from __future__ import annotations

from typing import Any

import executorch.extension.llm.custom_ops.custom_ops  # noqa: F401  registers the kernel
import pytest
import torch

from pteron.engine.devices.opening import Device
from tests.support.rules import check_rule


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("groups", [1, 2])
def test_the_results_and_the_state_are_those_of_executorch(
    device: Device, groups: int, per_channel: bool
) -> None:
    name = "channelwise_gated_delta_rule" if per_channel else "gated_delta_rule"

    def make(n: int) -> list[Any]:
        decay = torch.rand(2, 3, n, 6) if per_channel else torch.rand(2, 3, n)
        keys = torch.nn.functional.normalize(torch.randn(2, 3, n, 6), dim=-1)
        queries, values = torch.randn(2, 3 * groups, n, 6), torch.randn(2, 3, n, 5)
        return [queries, keys, values, decay, torch.rand(2, 3, n), torch.randn(2, 3, 6, 5)]

    reference = getattr(torch.ops.llama, name).default
    check_rule(device, f"{name}.default", make, reference, (7, 1, 4, 7, 2), rtol=1e-4, atol=1e-5)
