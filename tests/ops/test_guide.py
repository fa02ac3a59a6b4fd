"""The examples of the guide to adding an operator work."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from pteron.compiler.ir import op
from pteron.compiler.ops import kernel
from pteron.engine.devices.opening import Device
from tests.support.operators.docs import PATH
from tests.support.rules import check_rule

GUIDE = PATH.parent / "adding-an-operator.md"


@pytest.fixture
def guide(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Registers the operators and kernels of the guide, and removes them after the test."""
    text = GUIDE.read_text("utf-8")
    (wgsl,) = re.findall(r"```wgsl\n(.*?)```", text, re.DOTALL)
    read = kernel._read
    monkeypatch.setattr(kernel, "_read", lambda name: wgsl if name == "channel_shuffle" else read(name))
    monkeypatch.setattr(op, "_REGISTRY", op.registered())
    for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        exec(compile(block, str(GUIDE), "exec", dont_inherit=True), {})
    yield
    kernel._load.cache_clear()
    kernel._lines.cache_clear()


def test_the_elementwise_example(guide: None, device: Device) -> None:
    make = lambda n: [torch.randn(n, 1, 3), torch.randn(5, 3)]  # noqa: E731
    check_rule(device, "aten.logaddexp.default", make, torch.logaddexp)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int32, torch.int8, torch.bool])
def test_the_rule_and_kernel_example(guide: None, device: Device, dtype: torch.dtype) -> None:
    def make(n: int) -> list[Any]:
        return [torch.arange(60 * n).reshape(2, 6, 5 * n).to(dtype), 3]

    check_rule(device, "aten.channel_shuffle.default", make, torch.channel_shuffle)
