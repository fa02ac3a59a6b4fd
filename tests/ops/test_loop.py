"""The comparison loop of the tests detects errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest
import torch

from pteron.compiler.ir import op as registry
from pteron.compiler.ir.live import LiveTensor
from pteron.compiler.ir.op import op
from pteron.engine.devices.opening import Device
from tests.support.calls import Call, check_calls, eager
from tests.support.rules import OneNode, check_rule


@pytest.fixture
def lazy(monkeypatch: pytest.MonkeyPatch) -> str:
    """An operator that writes nothing. New memory is zero, so without poison it looks like `zeros_like`."""
    monkeypatch.setattr(registry, "_REGISTRY", registry.registered())

    @op("test.lazy")
    def rule(x: LiveTensor, out: LiveTensor) -> None:
        out.resize(x.shape)

    return "test.lazy"


def test_an_unwritten_output_is_detected(device: Device, lazy: str) -> None:
    with pytest.raises(AssertionError, match=r"expected 0\.0, got nan"):
        check_rule(device, lazy, lambda n: [torch.randn(n)], torch.zeros_like)


def doubling(device: Device) -> OneNode:
    return OneNode(device, "aten.add.Tensor", [torch.zeros(4), torch.zeros(4), 1], [torch.zeros(4)], False)


def test_a_wrong_result_of_a_later_call_is_detected(device: Device) -> None:
    x = torch.ones(3)
    calls = [Call([x, x], [2 * x]), Call([x, x], [2.1 * x], "of ones")]
    with (
        closing(doubling(device)) as node,
        pytest.raises(AssertionError, match="call 1 of ones, output 0: 3 of"),
    ):
        check_calls(node.method, calls, 1e-3)


def test_an_allocation_in_a_call_is_detected(device: Device) -> None:
    def calls() -> Iterator[Call]:
        yield Call([torch.ones(2), torch.ones(2)], [2 * torch.ones(2)])
        device.free(device.storage(16, "too late"))

    with closing(doubling(device)) as node, pytest.raises(AssertionError, match="a call allocated"):
        check_calls(node.method, calls(), 1e-3)


def test_inputs_that_eager_changes_in_place_are_copied_first() -> None:
    def module(x: torch.Tensor) -> torch.Tensor:
        return x.add_(1)

    (call,) = eager(module, [(torch.zeros(2),)])
    assert torch.equal(call.inputs[0], torch.zeros(2)) and torch.equal(call.outputs[0], torch.ones(2))
