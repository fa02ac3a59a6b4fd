"""Why a dimension is static: the node, the line of the module, and what would help."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim

import pteron
from pteron.engine.devices.opening import Device
from tests.support.export import export


class Fixed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(6))

    def forward(self, x: Tensor) -> Tensor:
        rows = x.reshape(4, 4, x.shape[1], 6).sum(0)
        return (rows * self.scale).cumsum(0)


SHAPES = ({1: Dim("n", max=8)},)
X = torch.randn(16, 8, 6)
LINE = inspect.getsourcelines(Fixed.forward)[1] + 1


@pytest.mark.parametrize("partition", [True, False], ids=["delegated", "outside"])
def test_the_line_of_the_module_is_named(partition: bool, device: Device) -> None:
    made = pteron.export(Fixed(), (X,), dynamic_shapes=SHAPES, partition=partition)
    assert str(Path(__file__).parent).encode() not in made.buffer, "no paths of this machine"
    with pteron.load(made.buffer, device=device) as program:
        method = program.method()
        reason, weights = (method.why_static("x", dim) for dim in (0, 2))
        assert reason is not None and weights is not None and method.why_static("x", 1) is None
        assert f"from programs/{Path(__file__).name}:{LINE} in forward)" in reason
        assert reason.startswith("x[0] was exported as the constant 16. The first node that refuses")
        assert reason.endswith("Export the model again, with dimension 0 of x in dynamic_shapes")
        assert f"{Path(__file__).name}:{LINE} in forward" in weights
        assert "Its arguments have the number 6: write x.shape[2] or -1 in the module" in weights
        with pytest.raises(pteron.InputError, match="x\\[0\\] must be 16"):
            program(torch.randn(8, 8, 6))


def test_a_file_without_lines_names_the_node(device: Device) -> None:
    with pteron.load(export(Fixed(), (X,), SHAPES), device=device) as program:
        reason = program.method().why_static("input0", 0)
        assert reason is not None and "view_copy" in reason and ".py" not in reason
