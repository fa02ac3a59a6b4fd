"""Smaller bounds at load: calls below them equal torch's, calls above are refused, memory is as announced."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.export import Dim

import pteron
from pteron.api.method import Method
from pteron.compiler.ir import values
from pteron.compiler.pipeline import GraphOptions, lower
from pteron.compiler.plan.sweep import LiveGraph
from pteron.engine.devices.opening import Device
from pteron.pte.file import ProgramFile
from pteron.tools.inspect.memory_by_bound import memory_by_bound
from tests.conftest import Recorded
from tests.dynamic_shape.recording import make_inputs, make_model
from tests.dynamic_shape.table import DYNAMIC, Case
from tests.dynamic_shape.test_replay import bounded, live_sizes
from tests.support import DATA
from tests.support.calls import check_calls, eager
from tests.support.cli import pteron_cli


class Mixed(nn.Module):
    """Pairs of rows, strided windows over twice as many rows, and a second size that varies on its own."""

    def forward(self, x: Tensor, y: Tensor, z: Tensor) -> tuple[Tensor, ...]:
        sums = x.unflatten(0, (-1, 2)).sum(1) + y
        windows = nn.functional.avg_pool1d(torch.cat([x, x]).T[None], 3, stride=3)
        return sums, windows, z.cumsum(0) * 2


def inputs(half: int, rows: int) -> tuple[Tensor, ...]:
    return torch.randn(2 * half, 4), torch.randn(half, 4), torch.randn(rows, 4)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bounds") / "mixed.pte"
    half = Dim("half", min=1, max=8)
    shapes = ({0: 2 * half}, {0: half}, {0: Dim("rows", min=3, max=8)})
    pteron.export(Mixed(), inputs(8, 8), path, dynamic_shapes=shapes)
    return path


def check(method: Method, *sizes: tuple[int, int]) -> None:
    check_calls(method, eager(Mixed(), [inputs(*pair) for pair in sizes]), 1e-5)


@settings(bounded, max_examples=8)
@given(data=st.data())
def test_calls_within_a_bound_are_those_of_torch(data: Any, file: Path, device: Device) -> None:
    half, rows = data.draw(st.integers(1, 8)), data.draw(st.integers(3, 8))
    pinned = data.draw(st.booleans())
    bound = (2 * half, 2 * half) if pinned else 2 * half
    with pteron.load(file, device=device, shapes={"x": {0: bound}, "z": (rows, 4)}) as program:
        method = program.method()
        assert [info.max_shape[0] for info in method.inputs] == [2 * half, half, rows]
        sizes = st.tuples(st.just(half) if pinned else st.integers(1, half), st.integers(3, rows))
        check(method, (half, rows), *data.draw(st.lists(sizes, max_size=4)))
        if half < 8:
            with pytest.raises(
                pteron.InputError, match=f"x: dimension 0 is 16, .* loaded for at most {2 * half}"
            ):
                method(*inputs(8, rows))
            check(method, (half, rows))


def test_a_pinned_size_is_a_constant(file: Path, device: Device) -> None:
    with pteron.load(file, device=device, shapes={"y": {0: (3, 3)}}) as program:
        method = program.method()
        assert [str(info) for info in method.inputs] == [
            "x: float32[6, 4]",
            "y: float32[3, 4]",
            "z: float32[3 <= rows <= 8, 4]",
        ]
        check(method, (3, 8), (3, 3))
        with pytest.raises(pteron.InputError, match=r"x\[0\] must be 6, not 4: it was pinned at load"):
            method(*inputs(2, 8))
        assert method.why_static("x", 0) == "x[0] was pinned to 6 at load, by shapes="


def test_kernels_of_pinned_sizes_have_no_parameters(file: Path, device: Device) -> None:
    """Their sizes are in the shader text."""

    def nodes(method: Method) -> dict[str, bool]:
        return {kernel.op: "var<private> p" in kernel.text for kernel in method.kernels}

    with pteron.load(file, device=device, fuse=(), shapes={"y": {0: (3, 3)}}) as program:
        method = program.method()
        assert nodes(method)["aten.cumsum.default"] is False  # z varies
        assert nodes(method)["aten.avg_pool2d.default"] is True
        check(method, (3, 8), (3, 3), (3, 5))
    with pteron.load(file, device=device, shapes={"y": {0: (3, 3)}, "z": {0: (5, 5)}}) as program:
        assert all(nodes(program.method()).values())
        check(program.method(), (3, 5), (3, 5))
    with pteron.load(file, device=device, shapes={"y": {0: 3}}) as program:
        assert not any(nodes(program.method()).values())


def test_infinite_parameters_are_in_the_text_as_bits(device: Device) -> None:
    """A convolution without an activation has the bounds -inf and inf."""
    module = nn.Conv2d(2, 4, 3)
    examples = [(torch.randn(n, 2, 6, 5),) for n in (4, 2)]
    made = pteron.export(module, examples[0], dynamic_shapes=({0: Dim("n", min=1, max=4)},))
    with pteron.load(made.buffer, device=device, shapes={"input": {0: (2, 2)}}) as program:
        assert any("bitcast<f32>(p_low)" in kernel.text for kernel in program.method().kernels)
        check_calls(program.method(), eager(module, examples[1:]), 1e-5)


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ({"x": {0: 7}}, r"x\[0\] must be a multiple of 2, from 2 to 16, not 7"),
        ({"x": {0: 8}, "y": {0: 3}}, r"y\[0\] must be 4 where x\[0\] is 8, not 3"),
        ({"z": {0: 2}}, r"z\[0\] must be from 3 to 8, not 2"),
        ({"z": {1: 2}}, r"z\[1\] must be 4, not 2: z\[1\] was exported as the constant 4"),
        ({"z": {0: 9}}, r"z\[0\] is at most 8 in the file, not 9"),
        ({"z": {2: 1}}, r"z has at most the shape \(8, 4\)"),
        ({"z": (4,)}, r"z has at most the shape \(8, 4\)"),
        ({"q": {0: 1}}, "no tensor input 'q'; the inputs are x, y, z"),
        ({"z": {0: 0}}, r"the bound of z\[0\] must be a size from 1"),
        ({"z": {0: (3, 4)}}, r"the bound of z\[0\] must be a size from 1"),
        ({"z": 4}, "z needs a shape or a bound by dimension"),
    ],
)
def test_bounds_that_the_file_does_not_allow_are_refused(file: Path, shapes: Any, message: str) -> None:
    with ProgramFile.open(file) as opened, pytest.raises(pteron.InputError, match=message):
        lower(opened, options=GraphOptions(shapes=shapes))


def test_memory_by_bound_is_what_a_load_allocates(file: Path, device: Device) -> None:
    for path in (file, DATA / "dyn_conv1d.pte"):
        with ProgramFile.open(path) as opened:
            rows = memory_by_bound(opened, "forward")
        activations = [row.memory.activations for row in rows]
        assert len(rows) > 2 and min(activations[1:]) < activations[0]
        for row in rows:
            with pteron.load(path, device=device, shapes=row.bounds) as program:
                memory = program.method().memory
                assert (memory.activations, memory.state) == (row.memory.activations, row.memory.state)
                assert memory.staging == row.memory.staging


def test_commands_take_bounds(file: Path) -> None:
    assert "(2*half ≤ 8, 4)" in pteron_cli("inspect", file, "--bound", "x=8,-").stdout
    assert "x[0] ≤ 8, y[0] ≤ 4" in pteron_cli("inspect", file, "--bounds").stdout
    shown = pteron_cli("run", file, "--bound", "x=-,4", "--bound", "z=5..5,-").stdout
    assert "(16, 4)" in shown and "(5, 4)" in shown


def live_graph(path: Path, shapes: Any = None) -> LiveGraph:
    with ProgramFile.open(path) as opened:
        return lower(opened, options=GraphOptions(shapes=shapes)).plan()["forward"]


@pytest.mark.parametrize("case", DYNAMIC, ids=str)
def test_a_bounded_graph_has_the_live_shapes_of_the_whole(case: Case, recorded: Recorded) -> None:
    """Without a GPU: every shape below a bound is accepted, and no tensor is larger than announced."""
    path, model = recorded(case.name).program, make_model(case)
    whole = live_graph(path)
    tensors = [port for port in whole.graph.inputs if isinstance(port.value, values.Tensor)]

    @settings(bounded, max_examples=4)
    @given(live_sizes(case), st.lists(live_sizes(case), min_size=1, max_size=6))
    def compared(largest: Any, sequence: list[Any]) -> None:
        most = [tuple(value.shape) for value in make_inputs(model, largest) if isinstance(value, Tensor)]
        assume(all(0 not in shape for shape in most))
        shapes = {port.name: shape for port, shape in zip(tensors, most, strict=True)}
        limited = live_graph(path, shapes)
        for sizes in sequence:
            given = [tuple(value.shape) for value in make_inputs(model, sizes) if isinstance(value, Tensor)]
            if all(
                n <= m
                for shape, top in zip(given, most, strict=True)
                for n, m in zip(shape, top, strict=True)
            ):
                changes = {port.value.id: shape for port, shape in zip(tensors, given, strict=True)}
                one, other = whole.preview(changes), limited.preview(changes)
                for port in whole.graph.outputs:
                    assert one[port.value.id] == other[port.value.id]

    compared()
