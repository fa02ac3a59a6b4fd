"""Instructions outside of delegates: kernel calls, views, buffers, integers, control flow."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._higher_order_ops.scan import scan
from torch.export import Dim

import pteron
from pteron.compiler import ops
from pteron.compiler.ir.dtypes import DType
from pteron.compiler.ir.live import LiveResult
from pteron.compiler.ir.values import Graph
from pteron.compiler.lower import kernel_calls as outside
from pteron.engine.devices.opening import Device
from pteron.errors import UnsupportedError
from pteron.pte.schema import ScalarType
from tests.support.calls import Call, check_file, eager
from tests.support.export import export

BOTH = pytest.mark.parametrize("partitioner", [False, True], ids=["alone", "delegated"])
ROWS = Dim("rows", min=2, max=6)


def run(device: Device, module: nn.Module, program: bytes, calls: list[tuple[Any, ...]]) -> Graph:
    """Compare every call with torch, on one loaded program. Returns its graph."""
    return check_file(device, program, eager(module, calls), 1e-5)


# -- names ----------------------------------------------------------------------------------------


def core_kernels() -> list[tuple[str, str]]:
    """For each core operator of torch: the name of its out-variant in a file, and its own name."""
    schemas = torch._C._jit_get_all_schemas()
    outs = [s for s in schemas if s.name.startswith("aten::") and any(a.is_out for a in s.arguments)]
    found = []
    for packet in dir(torch.ops.aten):
        overloads = getattr(torch.ops.aten, packet)
        for overload in overloads.overloads() if hasattr(overloads, "overloads") else ():
            operator = getattr(overloads, overload)
            if torch.Tag.core not in operator.tags:
                continue
            wanted = [(a.name, str(a.type)) for a in operator._schema.arguments]
            for out in outs:
                given = [(a.name, str(a.type)) for a in out.arguments if not a.is_out]
                options = [a for a in wanted if a not in given]
                same = out.name == operator._schema.name and [a for a in wanted if a not in options] == given
                if same and all(name in outside.ALLOCATION_OPTIONS for name, _ in options):
                    found.append((f"{out.name}.{out.overload_name}", f"aten.{packet}.{overload}"))
    return found


def test_every_core_operator_is_found_by_the_name_of_its_out_variant() -> None:
    kernels = core_kernels()
    assert len(kernels) > 150
    wrong = [(k, outside.operator_name(k), want) for k, want in kernels if outside.operator_name(k) != want]
    assert not wrong


@pytest.mark.parametrize(
    ("kernel", "operator"),
    [
        ("executorch_prim::et_view.default", "aten.view_copy.default"),
        ("executorch_prim::add.Scalar", "executorch_prim::add.Scalar"),
        ("dim_order_ops::_to_dim_order_copy.out", "dim_order_ops._to_dim_order_copy.default"),
        ("dim_order_ops::_clone_dim_order.out", "dim_order_ops._clone_dim_order.default"),
        ("llama::update_cache.out", "update_cache.default"),
        ("aten::index_put_", "aten.index_put.default"),
        ("aten::sym_numel", "aten::sym_numel"),
    ],
)
def test_kernels_of_other_kinds(kernel: str, operator: str) -> None:
    spec = outside.find(kernel)
    assert spec is not None and spec.name == operator


def test_options_that_an_out_variant_lacks_are_none() -> None:
    full = ops.find("aten.full.default")
    to_copy = ops.find("aten._to_copy.default")
    assert full and to_copy
    floats = Graph("graph").tensor(DType.float32, (2, 3), "out")
    longs = Graph("graph").tensor(DType.int64, (2, 3), "out")
    assert outside.with_options(full, [(2, 3), 1.0], floats) == [(2, 3), 1.0, None, None, None, None]
    assert outside.with_options(full, [(2, 3), 1], longs) == [(2, 3), 1, ScalarType.LONG, None, None, None]
    assert outside.with_options(to_copy, ["x", False, None], floats)[1:] == [None] * 4 + [False, None]


# -- views, buffers, constants --------------------------------------------------------------------


class Views(nn.Module):
    """Views of static shape. The exporter omits them: they are visible only by their memory address."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        y = (x * 2).view(2, 6)
        z = (y + 1).view(12)
        return z.view(3, 4), y.reshape(4, 3) - 1, (z * 3).view(6, 2)


def test_views_that_the_exporter_omits(device: Device) -> None:
    program = export(Views(), (torch.randn(3, 4),), partitioner=False)
    run(device, Views(), program, [(torch.randn(3, 4),) for _ in range(2)])


class Running(nn.Module):
    """Buffers to which each call adds. One of them is read through a view."""

    def __init__(self, start: float) -> None:
        super().__init__()
        self.register_buffer("total", torch.full((3,), start))
        self.register_buffer("table", torch.full((2, 3), start))

    def forward(self, x: Tensor) -> Tensor:
        before = self.table.view(6)[1:4]
        self.total.add_(x)
        self.table.add_(x.view(1, 3))
        return self.total.view(3, 1) * 2 + self.table.view(6)[:3] + before


@BOTH
def test_buffers_keep_their_contents_from_call_to_call(device: Device, partitioner: bool) -> None:
    program = export(Running(0.0), (torch.randn(3),), partitioner=partitioner)
    calls = [(torch.randn(3),) for _ in range(4)]
    graph = run(device, Running(0.0), program, calls)
    assert len(graph.states) == 2
    run(device, Running(0.0), program, calls[::-1])  # a program that is loaded anew starts anew


def test_buffers_start_as_the_file_says(device: Device) -> None:
    from executorch.exir import ExecutorchBackendConfig, to_edge
    from executorch.exir.passes.init_mutable_pass import InitializedMutableBufferPass

    config = ExecutorchBackendConfig(passes=[InitializedMutableBufferPass(["total", "table"])])
    program = to_edge(torch.export.export(Running(5.0), (torch.randn(3),))).to_executorch(config).buffer
    run(device, Running(5.0), bytes(program), [(torch.randn(3),) for _ in range(3)])


class Cache(nn.Module):
    """A cache that is written at given indices, in place if the exporter allows it."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("cache", torch.zeros(6, 4))

    def forward(self, at: Tensor, x: Tensor) -> Tensor:
        self.cache[at] = x
        return self.cache * 2


@pytest.mark.parametrize("in_place", [False, True])
def test_a_cache_is_written_in_place(device: Device, in_place: bool) -> None:
    from executorch.exir import ExecutorchBackendConfig, to_edge

    config = ExecutorchBackendConfig(run_reinplace_pass=in_place)
    example = (torch.tensor([1, 4]), torch.randn(2, 4))
    manager = to_edge(torch.export.export(Cache(), example)).to_executorch(config)
    names = {f"{op.name}" for op in manager.executorch_program.execution_plan[0].operators}
    assert ("aten::index_put_" in names) == in_place
    calls = [(torch.tensor(at), torch.randn(2, 4)) for at in ([1, 4], [0, 5], [4, 2])]
    run(device, Cache(), bytes(manager.buffer), calls)


class Copies(nn.Module):
    """A buffer into which a smaller tensor of another dtype is copied."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("kept", torch.zeros(3, 4))

    def forward(self, x: Tensor) -> Tensor:
        before = self.kept + 0
        self.kept.copy_(x)
        return before


@pytest.mark.parametrize("dtype", [torch.float32, torch.int32, torch.bool])
def test_copy_broadcasts_and_converts(device: Device, dtype: torch.dtype) -> None:
    calls = [(torch.randint(0, 2, (4,)).to(dtype),) for _ in range(3)]
    run(device, Copies(), export(Copies(), calls[0], partitioner=False), calls)


class ChannelsLast(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 2, 3))
        self.to(memory_format=torch.channels_last)

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


def test_constants_in_another_order_of_dimensions(device: Device) -> None:
    module = ChannelsLast().eval()
    program = export(
        module, (torch.randn(1, 3, 6, 5).to(memory_format=torch.channels_last),), partitioner=False
    )
    graph = run(device, module, program, [(torch.randn(1, 3, 6, 5),) for _ in range(2)])
    orders = {t.constant.dim_order for t in graph.tensors() if t.constant and len(t.max_shape) == 4}
    assert (0, 2, 3, 1) in orders  # as in the file; a pass adds a copy in the order that its kernel reads


class Products(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.plain, self.biased = nn.Linear(8, 4, bias=False), nn.Linear(4, 12)
        self.third = nn.Parameter(torch.randn(4, 12))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        y = self.plain(x)
        return self.biased(y), y @ self.third, torch.addmm(y, y, y[:4], beta=0.5, alpha=2)


def test_addmm_and_mm_become_linear_layers(device: Device) -> None:
    module = Products().eval()
    program = export(module, (torch.randn(6, 8),), ({0: Dim("n", min=4, max=6)},), partitioner=False)
    graph = run(device, module, program, [(torch.randn(n, 8),) for n in (6, 4, 5)])
    names = [node.name for node in graph.nodes]
    assert names.count("aten.linear.default") == 3, "two of torch's, and a product with a constant matrix"
    assert "aten.permute_copy.default" not in names


# -- integers -------------------------------------------------------------------------------------


class Sizes(nn.Module):
    """Arithmetic on a live size, with integer and fractional results."""

    def forward(self, x: Tensor) -> tuple[Tensor, int, Tensor]:
        n = x.shape[0]
        wide = x.new_full((2 * n - 1, n // 2 + 1), 1.5)
        return wide + (n * 3 - 1) % 7, n * 4 + 1, x + n / 4 - math.ceil(n / 4) + torch.full((2,), -n)


def test_arithmetic_on_live_sizes(device: Device) -> None:
    program = export(Sizes(), (torch.randn(6, 2),), ({0: ROWS},), partitioner=False)
    run(device, Sizes(), program, [(torch.randn(n, 2),) for n in (6, 2, 5, 3, 4)])


@pytest.mark.parametrize(
    ("name", "arguments", "result"),
    [
        ("add", (7, 3), 10),
        ("sub", (7, 3), 4),
        ("mul", (7, 3), 21),
        ("floordiv", (-7, 3), -3),
        ("truediv", (7, 2), 3.5),
        ("mod", (-7, 3), 2),
        ("neg", (7,), -7),
        ("eq", (7, 3), 0),
        ("lt", (3, 7), 1),
        ("le", (3, 3), 1),
        ("gt", (3, 7), 0),
        ("ge", (3, 3), 1),
        ("sym_float", (7,), 7.0),
        ("sym_int", (-7.9,), -7),
        ("ceil", (2.1,), 3),
        ("round", (2.5,), 2),
        ("trunc", (-2.9,), -2),
        ("sym_max", (7, 3), 7),
        ("sym_min", (7, 3), 3),
        ("sym_not", (7,), 0),
        ("sym_ite", (0, 7, 3), 3),
    ],
)
def test_arithmetic(name: str, arguments: tuple[float, ...], result: float) -> None:
    spec = outside.find(f"executorch_prim::{name}.Scalar")
    assert spec
    out = LiveResult()
    spec.rule(*arguments, out)
    assert out.value == result and type(out.value) is type(result)


class Item(nn.Module):
    def forward(self, x: Tensor, at: Tensor) -> Tensor:
        n = at.item()
        torch._check(n >= 0)
        return x[:3] * n


class LastItem(nn.Module):
    def forward(self, x: Tensor, at: Tensor) -> Tensor:
        n = at[-1].item()
        torch._check(n >= 0)
        torch._check(n + 2 <= x.shape[0])
        return torch.narrow(x, 0, n, 2) * n


@BOTH
def test_an_input_as_an_integer(device: Device, partitioner: bool) -> None:
    program = export(Item(), (torch.randn(6, 4), torch.tensor([3])), partitioner=partitioner)
    run(device, Item(), program, [(torch.randn(6, 4), torch.tensor([n])) for n in (3, 0, 4, 1)])


def test_an_element_of_an_input_as_an_integer(device: Device) -> None:
    program = export(LastItem(), (torch.randn(6, 4), torch.tensor([7, 3])), partitioner=False)
    run(device, LastItem(), program, [(torch.randn(6, 4), torch.tensor([9, n])) for n in (3, 0, 4, 1)])


class Computed(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        n = x.argmax().item()
        torch._check(n >= 0)
        torch._check(n < 6)
        return x * n


def test_a_computed_integer_is_refused(device: Device) -> None:
    program = export(Computed(), (torch.randn(6),), partitioner=False)
    with pytest.raises(UnsupportedError, match=r"_local_scalar_dense.*the GPU computes"):
        pteron.load(program, device=device)


# -- control flow ---------------------------------------------------------------------------------


class BranchOnTensor(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, lambda x: x * 2 + 1, lambda x: torch.exp(x) - 3, (x,))


class BranchOnInput(nn.Module):
    def forward(self, x: Tensor, flag: Tensor) -> Tensor:
        return torch.cond(flag, lambda x: x * 2 + 1, lambda x: torch.exp(x) - 3, (x,)) + 1


class BranchOnShape(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.cond(x.shape[0] > 3, lambda x: x * 2 + 1, lambda x: torch.exp(x) - 3, (x,)) + 1


@BOTH
def test_branch_by_a_computed_tensor(device: Device, partitioner: bool) -> None:
    program = export(BranchOnTensor(), (torch.randn(6, 4),), ({0: ROWS},), partitioner=partitioner)
    calls = [(torch.randn(n, 4) + sign,) for n, sign in ((6, 2), (3, -2), (2, 2), (6, -2))]
    graph = run(device, BranchOnTensor(), program, calls)
    assert not any(node.when for node in graph.nodes)  # both branches run, and nothing waits


@BOTH
def test_branch_by_an_input(device: Device, partitioner: bool) -> None:
    example = (torch.randn(6, 4), torch.tensor(True))
    program = export(BranchOnInput(), example, ({0: ROWS}, {}), partitioner=partitioner)
    calls = [
        (torch.randn(n, 4), torch.tensor(flag)) for n, flag in ((6, True), (3, False), (2, True), (2, False))
    ]
    graph = run(device, BranchOnInput(), program, calls)
    assert any(node.when for node in graph.nodes)


def test_branch_by_a_live_size_runs_only_one_side(device: Device) -> None:
    program = export(BranchOnShape(), (torch.randn(6, 4),), ({0: ROWS},), partitioner=False)
    run(device, BranchOnShape(), program, [(torch.randn(n, 4),) for n in (6, 2, 4, 3)])
    with pteron.load(program, device=device) as loaded:
        method = loaded.method()
        ran = {}
        for n in (6, 2):
            with method.prepare(torch.randn(n, 4)) as call:
                ran[n] = {step.node.name for step in call.steps() if step.kernels}
        assert "aten.exp.default" not in ran[6] and "aten.exp.default" in ran[2]


class Mapped(nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        from functorch.experimental.control_flow import map as map_rows

        return map_rows(lambda row, y: row * 2 + y.sum(), x, y) * 3


class Scanned(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return scan(lambda carry, row: (carry * 0.5 + row, carry + row * 2), torch.zeros(3), x, dim=0)


@BOTH
@pytest.mark.parametrize("dynamic", [True, False])
def test_loop_over_rows(device: Device, partitioner: bool, dynamic: bool) -> None:
    shapes = ({0: ROWS}, {}) if dynamic else None
    program = export(Mapped(), (torch.randn(6, 3), torch.randn(5)), shapes, partitioner=partitioner)
    sizes = (6, 2, 4, 3, 6) if dynamic else (6, 6)
    run(device, Mapped(), program, [(torch.randn(n, 3), torch.randn(5)) for n in sizes])


@BOTH
@pytest.mark.parametrize("dynamic", [True, False])
def test_scan_carries_from_row_to_row(device: Device, partitioner: bool, dynamic: bool) -> None:
    shapes = ({0: ROWS},) if dynamic else None
    program = export(Scanned(), (torch.randn(6, 3),), shapes, partitioner=partitioner)
    run(device, Scanned(), program, [(torch.randn(n, 3),) for n in ((6, 2, 4, 3, 6) if dynamic else (6, 6))])


# -- quantized programs without a delegate ---------------------------------------------------------


class Quantized(nn.Module):
    """Operators that ExecuTorch's pass for quantized programs writes."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("rows", torch.randint(-128, 127, (12, 64), dtype=torch.int8))
        self.register_buffer("row_scales", torch.rand(12) * 0.01)
        self.register_buffer("columns", torch.randint(-128, 127, (64, 12), dtype=torch.int8))
        self.register_buffer("depth_scales", torch.rand(64) * 0.01)

    def forward(self, x: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
        quantized = torch.ops.quantized_decomposed
        return (
            quantized.mixed_linear(x, self.rows, self.row_scales, None),
            quantized.mixed_mm(x, self.columns, self.depth_scales, None),
            quantized.add(a, 0.05, 1, 0, 255, b, 0.05, 2, 0, 255, 0.1, 3, 0, 255),
        )


def test_kernels_of_quantized_programs(device: Device) -> None:
    import executorch.exir.passes._quant_patterns_and_replacements
    import executorch.kernels.quantized  # noqa: F401  registers kernels
    from executorch.runtime import Runtime

    fakes: dict[str, Any] = {
        "mixed_linear": lambda x, w, *_: x.new_empty(x.shape[0], w.shape[0]),
        "mixed_mm": lambda x, w, *_: x.new_empty(x.shape[0], w.shape[1]),
        "add": lambda a, *_: torch.empty_like(a),
    }
    for name, shape in fakes.items():
        torch.library.register_fake(f"quantized_decomposed::{name}")(shape)
    args = (torch.randn(5, 64), *(torch.randint(0, 255, (5, 9), dtype=torch.uint8) for _ in range(2)))
    data = export(Quantized(), args, partitioner=False, any_operator=True)
    method = Runtime.get().load_program(data).load_method("forward")
    assert method is not None
    check_file(device, data, [Call(args, [y.clone() for y in method.execute(args)])], 1e-5)
