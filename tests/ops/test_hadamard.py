"""The Hadamard transform, beside ExecuTorch's own kernel."""

from __future__ import annotations

import executorch.extension.llm.custom_ops.custom_ops  # noqa: F401  registers the kernel
import pytest
import torch

from pteron.engine.devices.opening import Device
from pteron.errors import UnsupportedError
from tests.support.rules import OneNode, check_rule

NAME = "fast_hadamard_transform.default"


@pytest.mark.parametrize("size", [1, 2, 8, 256, 28, 56, 28 * 256])
def test_sizes_that_models_have(device: Device, size: int) -> None:
    reference = torch.ops.llama.fast_hadamard_transform.default
    make, lives = lambda n: [torch.randn(2, n, size)], (5, 1, 3, 5)
    check_rule(device, NAME, make, reference, lives, rtol=1e-4, atol=1e-4)


def test_another_size_is_refused(device: Device) -> None:
    with pytest.raises(UnsupportedError, match="a power of two, or 28 times one, not 24"):
        OneNode(device, NAME, [torch.randn(2, 24)], [torch.randn(2, 24)], False)
