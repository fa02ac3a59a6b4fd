"""`pteron.tools.inspect.inspect` on exported programs."""

import pytest
import torch
from executorch.exir import ExecutorchBackendConfig, to_edge_transform_and_lower

from pteron.errors import InputError
from pteron.pte.file import ProgramFile
from pteron.tools.inspect.inspect import inspect_method


def test_nodes_that_share_a_plan_show_their_own_tensors(exported):
    class Twins(torch.nn.Module):
        def forward(self, a, b):
            return a.tanh(), b.tanh()

    length = torch.export.Dim("length", min=1, max=8)
    program = exported(
        "twins", lambda: (Twins(), (torch.zeros(8), torch.zeros(8)), ({0: length}, {0: length}))
    )
    with ProgramFile.open(program) as file:
        nodes = inspect_method(file, "forward", size=5).nodes
    assert [node.operator for node in nodes] == ["aten.tanh.default"] * 2
    for node in nodes:
        (dispatch,), (output,) = node.dispatches, node.outputs
        assert dispatch.bindings["y"] == f"{output}: float32[5]"


def test_one_size_is_refused_if_the_maxima_differ(exported):
    class Outer(torch.nn.Module):
        def forward(self, x, y):
            return x * 2, y * 3

    a, b = torch.export.Dim("a", min=2, max=8), torch.export.Dim("b", min=2, max=6)
    data = exported(
        "inspect_two_sizes", lambda: (Outer(), (torch.ones(4, 3), torch.ones(5)), ({0: a}, {0: b}))
    )
    with ProgramFile.open(data) as file:
        with pytest.raises(InputError, match="maxima 3, 6, 8"):
            inspect_method(file, "forward", size=3)
        info = inspect_method(file, "forward", {"input0": (5, 3), "input1": (2,)})
    assert {(5, 3), (2,)} <= {shape for node in info.nodes for shape in node.outputs.values()}


def test_weights_in_another_file_are_still_described():
    class Scale(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = torch.nn.Parameter(torch.ones(5, 7))

        def forward(self, x):
            return x * self.scale

    edge = to_edge_transform_and_lower(torch.export.export(Scale(), (torch.ones(5, 7),)))
    data = edge.to_executorch(ExecutorchBackendConfig(external_constants=True)).buffer
    with ProgramFile.open(data) as file:
        info = inspect_method(file, "forward")
    assert ".ptd" in info.problems[0]
    assert [(c.shape, c.nbytes) for c in info.constants.largest] == [((5, 7), 140)]
