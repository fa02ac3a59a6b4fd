"""Fusion passes: fewer dispatches and the same results, at every live shape."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import pteron
from pteron.compiler.ir.dtypes import DType
from pteron.compiler.ir.values import Tensor
from pteron.compiler.ops import registered
from pteron.compiler.ops.chain import MAX_SCALARS, compose
from pteron.compiler.ops.elementwise import ElementwiseRule
from pteron.compiler.passes import PASSES, fuse, large_weights
from pteron.engine.arrays.numpy_arrays import convert_constant
from pteron.engine.devices.opening import Device
from pteron.engine.weight_store import WeightStore
from pteron.tools.verify.catalogue import CATALOGUE
from tests.conftest import Once
from tests.support.calls import Call, check_calls, check_file, eager
from tests.support.compare import EXACT
from tests.support.export import export
from tests.support.operators.graphs import LiveEntry
from tests.support.sketch import Sketch, live, shape_of

WIDTH = 24


class Block(nn.Module):
    """A residual sum whose norm and value are both used, a gated unit, and a chain with broadcasting."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(0.5, 1.5, WIDTH))
        self.scale = nn.Parameter(torch.linspace(-1, 1, WIDTH))

    def forward(
        self, x: torch.Tensor, y: torch.Tensor, row: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        total = x + y
        normed = total * torch.rsqrt((total * total).mean(-1, keepdim=True) + 1e-5) * self.weight
        gated = torch.sigmoid(normed) * normed * y
        return total + gated, torch.tanh(gated * self.scale + row).abs() / 2.0


def inputs(length: int) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(length)
    x, y = (torch.randn(2, length, WIDTH, generator=generator) for _ in range(2))
    return x, y, torch.randn(1, WIDTH, generator=generator)


@pytest.fixture
def program(exported: Callable[..., bytes]) -> bytes:
    def arguments() -> tuple[Any, ...]:
        length = torch.export.Dim("length", min=1, max=16)
        return Block(), inputs(16), ({1: length}, {1: length}, None)

    return exported("fusion", arguments)


@pytest.mark.parametrize("passes", [None, (), *((name,) for name in PASSES)], ids=str)
def test_every_choice_of_passes_gives_the_results_of_torch(
    program: bytes, device: Device, passes: Any
) -> None:
    calls = eager(Block(), map(inputs, (16, 3, 1, 16, 7)))
    check_file(device, program, calls, 1e-4, 1e-5, fuse=passes)


def test_passes_reduce_the_number_of_nodes(program: bytes, device: Device) -> None:
    def names(passes: Any) -> Counter[str]:
        with pteron.load(program, device=device, fuse=passes) as loaded:
            return Counter(node.name for node in loaded.method().graph.nodes)

    apart, together = names(()), names(None)
    assert together["pteron.chain"] == 2
    assert together["pteron.add_rms_norm"] == 1
    assert "et_vk.rms_norm.default" not in together
    assert together.total() < apart.total() - 4


def test_the_number_of_inputs_limits_a_chain() -> None:
    s = Sketch()
    xs = [s.input(4, 8) for _ in range(6)]
    y = xs[0]
    for x in xs[1:]:
        y = s.add("aten.mul.Tensor", y, x, shape=(4, 8))
    graph = fuse(s.finish(y))
    assert [len(set(node.reads)) for node in graph.nodes] == [3, 4]
    assert [node.index for node in graph.nodes] == [0, 1]


def test_a_value_that_other_nodes_read_is_not_fused() -> None:
    s = Sketch()
    x = s.input(4)
    a = s.add("aten.tanh.default", x, shape=(4,))
    b = s.add("aten.exp.default", a, shape=(4,))
    graph = fuse(s.finish(a, b))
    assert [node.name for node in graph.nodes] == ["aten.tanh.default", "aten.exp.default"]


def test_mutable_state_is_not_part_of_chains() -> None:
    s = Sketch()
    cache = s.constant(4)
    c = s.add("aten.tanh.default", cache, shape=(4,))
    s.node("pteron.write_back", [c, cache, None], "sketch")
    d = s.add("aten.exp.default", cache, shape=(4,))
    e = s.add("aten.neg.default", d, shape=(4,))
    s.graph.states = [cache]
    names = [node.name for node in s.finish(e).nodes]
    assert [node.name for node in fuse(s.graph).nodes] == names


def test_a_chain_broadcasts_its_inputs() -> None:
    s = Sketch()
    a, b = s.input(1, 8), s.input(9, 8)
    c = s.add("aten.tanh.default", a, shape=(1, 8))
    d = s.add("aten.add.Tensor", c, b, 1, shape=(9, 8))
    swept = live(fuse(s.finish(d)))
    swept.sweep({b.id: (5, 8)})
    assert shape_of(swept, d) == (5, 8)


def test_a_residual_that_broadcasts_uses_two_kernels() -> None:
    s = Sketch()
    a, b, weight = s.input(4, 8), s.input(4, 8), s.constant(8)
    total = s.add("aten.add.Tensor", a, b, 1, shape=(4, 8))
    y = s.add("et_vk.rms_norm.default", total, weight, 1e-5, shape=(4, 8))
    swept = live(fuse(s.finish(total, y)))
    assert swept.plans[0] is not None and swept.plans[0].route == "one kernel"
    swept.sweep({a.id: (1, 8)})
    assert swept.plans[0].route == "two kernels"
    assert shape_of(swept, y) == (4, 8)


ELEMENTWISE = [name for name, spec in registered().items() if isinstance(spec.rule, ElementwiseRule)]


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_every_elementwise_operator_can_be_a_step(name: str) -> None:
    """The text of the chain contains the operator's expression. 64-bit integers are not fused."""
    for entry in CATALOGUE[name]:
        for dtype in entry.dtypes:
            one = LiveEntry(entry, dtype)
            (node,), out = one.graph.nodes, one.graph.nodes[0].writes[0]
            function = node.op.rule.describe(*node.args)  # type: ignore[attr-defined]
            assert isinstance(out, Tensor)
            tensors = [value for value in (*node.reads, out) if isinstance(value, Tensor)]
            # A conversion to the dtype that it has already, or a computation in two words, is no step.
            if function is None or function.takes_two_words(tensor.dtype for tensor in tensors):
                continue
            s = Sketch()
            s.graph.values, s.graph.nodes, s.graph.inputs = one.graph.values, [node], one.graph.inputs
            last = s.add("aten.neg.default", out, shape=out.max_shape, dtype=out.dtype)
            (fused,) = fuse(s.finish(last)).nodes
            assert fused.name == "pteron.chain" and function.expression in compose(fused.args[1])  # type: ignore[arg-type]


def test_operators_of_several_files_are_steps() -> None:
    assert len({registered()[name].rule.__module__ for name in ELEMENTWISE}) > 2


def test_a_text_does_not_depend_on_the_scalars_in_it() -> None:
    """Two chains with the same structure share a pipeline."""

    def fused(alpha: float, low: float) -> tuple[str, Any]:
        s = Sketch()
        a = s.add("aten.add.Tensor", s.input(4), s.input(4), alpha, shape=(4,))
        k = s.add(
            "aten.add.Scalar", s.input(4, dtype=DType.int32), -(2**31), 1, shape=(4,), dtype=DType.int32
        )
        b = s.add("aten.mul.Tensor", s.add("aten.clamp.default", a, low, None, shape=(4,)), k, shape=(4,))
        plan = live(fuse(s.finish(b))).plans[0]
        assert plan is not None
        (dispatch,) = plan.dispatches
        return dispatch.code, dispatch.params["scalars"]

    code, scalars = fused(0.5, -1.0)
    assert code == fused(1e30, float("-inf"))[0]
    assert scalars == (0x3F000000, 0x80000000, 0xBF800000, 0x7F800000)


def test_the_number_of_scalars_limits_a_chain() -> None:
    s = Sketch()
    x = s.input(4)
    for i in range(MAX_SCALARS + 3):
        x = s.add("aten.mul.Scalar", x, i, shape=(4,))
    graph = fuse(s.finish(x))
    assert [len(node.args[1]) for node in graph.nodes] == [3, MAX_SCALARS]  # type: ignore[arg-type]


class Mixed(nn.Module):
    """Chains through every dtype: comparisons, selections, conversions, bounds, and infinities."""

    def forward(self, x: torch.Tensor, k: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, ...]:
        chosen = torch.where(x > 0.25, x.clamp(min=-0.5), k.to(torch.float32) * 2.0)
        masked = torch.where(mask, float("-inf"), chosen)
        wrapped = (k.to(torch.int8) * 3 + 100).to(torch.int32) - k
        cut = (torch.bitwise_and(k, 1023) * 5).to(torch.uint8).to(torch.int32)
        rounded = (x.to(torch.float16) * 3.25).to(torch.float32) + x
        truth = ((k > 3) | (x < 0.0)).to(torch.float32) + 1.0
        return masked, wrapped, cut, rounded, truth


def test_chains_of_several_dtypes_give_torchs_numbers(device: Device) -> None:
    def given(length: int) -> tuple[torch.Tensor, ...]:
        generator = torch.Generator().manual_seed(length)
        x = torch.randn(length, 6, generator=generator)
        k = torch.randint(-(2**26), 2**26, (length, 6), generator=generator, dtype=torch.int32)
        return x, k, torch.rand(6, generator=generator) > 0.5

    length = torch.export.Dim("length", min=2, max=9)
    program = export(Mixed(), given(9), ({0: length}, {0: length}, None), partitioner=False)
    graph = check_file(device, program, eager(Mixed(), map(given, (9, 2, 5, 9))), 1e-6)
    names = [node.name for node in graph.nodes if node.op.alias is None]
    assert names.count("pteron.chain") == 5, names


class Requantised(nn.Module):
    """Integer inputs and outputs, and floats between them."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = torch.ops.quantized_decomposed.dequantize_per_tensor.default(x, 0.05, 3, -128, 127, torch.int8)
        return torch.ops.quantized_decomposed.quantize_per_tensor.default(
            torch.relu(wide) * 1.7, 0.02, -7, -128, 127, torch.int8
        )


def test_a_chain_through_quantised_tensors(device: Device) -> None:
    x = torch.arange(-128, 128).to(torch.int8).reshape(16, 16)
    program = export(Requantised(), (x,), ({0: torch.export.Dim("rows", min=2, max=16)},))
    graph = check_file(device, program, eager(Requantised(), ([x[:rows]] for rows in (16, 3, 16))), EXACT)
    assert [node.name for node in graph.nodes] == ["pteron.chain"]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.int8, torch.uint8], ids=str)
def test_a_chain_rounds_after_every_step(device: Device, dtype: torch.dtype) -> None:
    class Steps(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return ((x * x + x) * x - x).abs()

    x = torch.linspace(-11, 90, 60).to(dtype).reshape(10, 6)
    program = export(Steps(), (x,), ({0: torch.export.Dim("rows", min=2, max=10)},), partitioner=False)
    with (
        pteron.load(program, device=device) as together,
        pteron.load(program, device=device, fuse=()) as apart,
    ):
        assert [node.name for node in together.method().graph.nodes] == ["pteron.chain"]
        calls = [Call([x[:rows]], [apart(x[:rows])]) for rows in (10, 2, 7)]
        check_calls(together.method(), calls, EXACT)


class Product(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.matrix = nn.Parameter(torch.randn(24, 36, generator=torch.Generator().manual_seed(1)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.matrix


def test_a_constant_matrix_becomes_a_weight(device: Device, exported: Callable[..., bytes]) -> None:
    def arguments() -> tuple[Any, ...]:
        return Product(), (torch.zeros(9, 24),), ({0: torch.export.Dim("rows", min=1, max=9)},)

    calls = eager(Product(), ([torch.randn(rows, 24)] for rows in (9, 1, 4)))
    graph = check_file(device, exported("product", arguments), calls, 1e-5)
    assert [node.name for node in graph.nodes] == ["aten.linear.default"]


class Siblings(nn.Module):
    """Linear layers with the same input, and a sum over all of them."""

    def __init__(self, widths: tuple[int, ...], bias: bool) -> None:
        super().__init__()
        torch.manual_seed(len(widths))
        self.layers = nn.ModuleList(nn.Linear(64, width, bias=bias) for width in widths)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        x = torch.tanh(x)
        outs = [layer(x) for layer in self.layers]
        return (*outs, torch.exp(outs[0]))


WITHOUT_SIBLINGS = [name for name in PASSES if name != "merged_linears"]


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("widths", "left"), [((64, 132), 1), ((32, 8, 64), 1), ((64, 32, 32, 96, 8), 2)])
def test_4bit_siblings_are_one_product(
    device: Device, once: Once, widths: tuple[int, ...], left: int, bias: bool
) -> None:
    def make(folder: Path) -> None:
        rows = {"x": {1: torch.export.Dim("rows", min=1, max=19)}}
        example = (torch.zeros(2, 19, 64),)
        done = pteron.export(Siblings(widths, bias), example, dynamic_shapes=rows, quantize="4bit")
        done.save(folder / "program.pte")

    path = once(f"siblings/{widths}-{bias}", make) / "program.pte"
    with (
        pteron.load(path, device=device) as together,
        pteron.load(path, device=device, fuse=WITHOUT_SIBLINGS) as apart,
    ):
        names = Counter(node.name for node in together.method().graph.nodes)
        assert names["pteron.linears_q4gsw"] == left
        assert not names["et_vk.linear_q4gsw.default"]
        inputs = ([torch.randn(2, rows, 64)] for rows in (19, 1, 3, 8, 19))
        check_calls(together.method(), [Call(x, apart(*x)) for x in inputs], EXACT)
        assert together._weights.nbytes == apart._weights.nbytes


@pytest.mark.parametrize(("widths", "bias"), [((64, 132, 8), False), ((32, 8), True)])
def test_siblings_are_one_product(
    device: Device, exported: Callable[..., bytes], widths: tuple[int, ...], bias: bool
) -> None:
    model = Siblings(widths, bias)

    def arguments() -> tuple[Any, ...]:
        return model, (torch.zeros(2, 19, 64),), ({1: torch.export.Dim("rows", min=1, max=19)},)

    program = exported(f"siblings_{len(widths)}", arguments)
    calls = eager(model, ([torch.randn(2, rows, 64)] for rows in (19, 1, 3, 8, 19)))
    graph = check_file(device, program, calls, 1e-4, 1e-5)
    names = Counter(node.name for node in graph.nodes)
    assert names["pteron.linears"] == 1
    assert not names["aten.linear.default"]


def linears_q4(s: Sketch, *groups: int, depth: int = 64, columns: int = 8) -> tuple[Tensor, list[Tensor]]:
    """4-bit linear layers with the same input, one for each group size."""
    x = s.input(4, depth)
    outs = []
    for group in groups:
        weights = s.constant(columns, depth // 2, dtype=DType.uint8)
        scales = s.constant(depth // group, columns)
        outs.append(s.add(Q4, x, weights, scales, group, None, shape=(4, columns)))
    return x, outs


Q4 = "et_vk.linear_q4gsw.default"


def test_siblings_are_joined_in_the_place_of_the_first() -> None:
    s = Sketch()
    _, (a, b) = linears_q4(s, 32, 32)
    c = s.add("aten.tanh.default", b, shape=(4, 8))
    graph = fuse(s.finish(a, c))
    assert [node.name for node in graph.nodes] == ["pteron.linears_q4gsw", "aten.tanh.default"]
    assert graph.nodes[0].writes == (a, b)
    assert graph.nodes[0].origin.count(Q4) == 2


@pytest.mark.parametrize(
    ("groups", "names"),
    [
        ((32, 64), [Q4, Q4]),
        ((32, 64, 32), ["pteron.linears_q4gsw", Q4]),
        ((32,) * 4, ["pteron.linears_q4gsw", Q4]),
        ((32,) * 5, ["pteron.linears_q4gsw", "pteron.linears_q4gsw"]),
    ],
)
def test_only_equal_kinds_of_linears_are_joined(groups: tuple[int, ...], names: list[str]) -> None:
    s = Sketch()
    _, outs = linears_q4(s, *groups)
    assert [node.name for node in fuse(s.finish(*outs)).nodes] == names


def test_linears_of_other_inputs_or_columns_are_not_joined() -> None:
    s = Sketch()
    outs = [out for _ in range(2) for out in linears_q4(s, 32)[1]] + linears_q4(s, 32, 32, columns=6)[1]
    assert [node.name for node in fuse(s.finish(*outs)).nodes] == [Q4] * 4


def test_an_input_that_changes_between_linears_prevents_joining() -> None:
    s = Sketch()
    x, _ = linears_q4(s, 32)
    s.node("pteron.write_back", [s.input(4, 64), x, None], "sketch")
    weights, scales = s.constant(8, 32, dtype=DType.uint8), s.constant(2, 8)
    last = s.add(Q4, x, weights, scales, 32, None, shape=(4, 8))
    assert [node.name for node in fuse(s.finish(last)).nodes] == [Q4, "pteron.write_back", Q4]


def test_a_weight_that_other_nodes_read_is_not_joined() -> None:
    """An embedding table may also be the weight of the output head. Joined, it would be stored twice."""
    s = Sketch()
    _, outs = linears_q4(s, 32, 32)
    weights, scales = s.graph.nodes[0].args[1], s.constant(8, 2)
    assert isinstance(weights, Tensor)
    table = s.graph.tensor(weights.dtype, weights.max_shape, "table", weights.constant)
    tokens = s.input(3, dtype=DType.int32)
    row = s.add("et_vk.embedding_q4gsw.default", table, scales, 32, tokens, True, shape=(3, 64))
    assert [node.name for node in fuse(s.finish(*outs, row)).nodes][:2] == [Q4, Q4]


def test_joined_weights_are_not_larger_than_a_device_can_bind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_weights, "LARGEST_NBYTES", 2 * 8 * 32)
    s = Sketch()
    _, outs = linears_q4(s, 32, 32, 32, 32)
    assert [len(node.writes) for node in fuse(s.finish(*outs)).nodes] == [2, 2]


def test_methods_share_joined_weights(device: Device) -> None:
    s = Sketch()
    _, outs = linears_q4(s, 32, 32)
    graph = s.finish(*outs)
    weights = WeightStore(device, convert_constant)
    (one,), (other,) = fuse(graph).nodes, fuse(graph).nodes
    for position in (1, 2):
        a, b = one.args[position], other.args[position]
        assert isinstance(a, Tensor) and isinstance(b, Tensor) and a is not b
        assert weights.buffer(a) is weights.buffer(b)
    assert weights.nbytes == 2 * (8 * 32 + 2 * 8 * 4)
    weights.close()


# -- linear_weights ---------------------------------------------------------------------------------

LINEAR, MM, ADDMM = "aten.linear.default", "aten.mm.default", "aten.addmm.default"


class Layers(nn.Module):
    """Layers that are exported as `addmm` and `mm` without a delegate. One of them is in a branch."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(12, 20), nn.Linear(20, 8, bias=False)
        self.matrix = nn.Parameter(torch.randn(8, 5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.second(torch.relu(self.first(x)))

        def product(h: torch.Tensor) -> torch.Tensor:
            return torch.mm(h, self.matrix)

        return torch.cond(x.shape[0] > 4, product, lambda h: h[:, :5] * 2.0, (hidden,))


def test_products_with_constants_are_linears_unless_switched_off(device: Device) -> None:
    torch.manual_seed(0)
    model = Layers()
    rows = torch.export.Dim("rows", min=2, max=9)
    program = export(model, (torch.zeros(9, 12),), ({0: rows},), partitioner=False)

    def names(passes: Any) -> list[str]:
        calls = eager(model, ([torch.randn(rows, 12)] for rows in (9, 2, 5, 9)))
        graph = check_file(device, program, calls, 1e-4, 1e-5, fuse=passes)
        return [node.name for node in graph.nodes if node.name in (LINEAR, MM, ADDMM)]

    assert names(()) == [ADDMM, MM, MM]
    assert names(["linear_weights"]) == [LINEAR] * 3


def test_a_linear_keeps_the_condition_of_its_product() -> None:
    s = Sketch()
    x, condition, weight = s.input(4, 8), s.integer(), s.constant(8, 3)
    y = s.value(4, 3)
    s.node(MM, [x, weight, y], when=condition)
    (node,) = fuse(s.finish(y)).nodes
    assert node.name == LINEAR and node.when is condition


def test_products_that_share_a_matrix_share_the_weight() -> None:
    s = Sketch()
    weight, bias = s.constant(8, 3), s.constant(3)
    a = s.add(MM, s.input(4, 8), weight, shape=(4, 3))
    b = s.add(ADDMM, bias, s.input(4, 8), weight, 1.0, 1.0, shape=(4, 3))
    one, other = fuse(s.finish(a, b)).nodes
    assert (one.name, other.name) == (LINEAR, LINEAR)
    assert one.args[1] is other.args[1] and other.args[2] is bias
    assert isinstance(one.args[1], Tensor) and one.args[1].max_shape == (3, 8)


@pytest.mark.parametrize(
    ("row", "beta", "alpha"), [((3,), 1.0, 2.0), ((3,), 0.5, 1.0), ((4, 3), 1.0, 1.0), ((1,), 1.0, 1.0)]
)
def test_other_forms_of_addmm_do_not_become_linears(row: tuple[int, ...], beta: float, alpha: float) -> None:
    s = Sketch()
    y = s.add(ADDMM, s.constant(*row), s.input(4, 8), s.constant(8, 3), beta, alpha, shape=(4, 3))
    assert [node.name for node in fuse(s.finish(y)).nodes] == [ADDMM]


def test_a_matrix_that_a_program_changes_is_not_a_weight() -> None:
    s = Sketch()
    matrix = s.constant(8, 3)
    s.graph.states = [matrix]
    y = s.add(MM, s.input(4, 8), matrix, shape=(4, 3))
    z = s.add(MM, s.input(4, 8), s.input(8, 3), shape=(4, 3))
    assert [node.name for node in fuse(s.finish(y, z)).nodes] == [MM, MM]


def test_an_unknown_pass_is_named() -> None:
    with pytest.raises(
        ValueError,
        match="there is no fusion pass 'chain'; the passes are attention_pattern, linear_weights",
    ):
        fuse(Sketch().finish(), ["chain"])
