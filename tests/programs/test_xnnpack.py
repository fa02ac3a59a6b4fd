"""Programs for ExecuTorch's XNNPACK backend, compared with its own CPU runtime at several live shapes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.export import Dim
from torch.nn import functional

import pteron
from pteron.engine.devices.opening import Device
from pteron.pte import program_chunks, schema, xnnpack, xnnpack_graph
from pteron.pte.file import ProgramFile

Args = Sequence[torch.Tensor]
ROWS = Dim("rows", min=1, max=9)


def lower(module: nn.Module, args: Args, shapes: Any = None, *, dynamic: bool = False) -> bytes:
    """A file for XNNPACK. dynamic: with layers that quantize their inputs when they run."""
    from executorch.backends.xnnpack.partition import xnnpack_partitioner as partition
    from executorch.exir import EdgeCompileConfig, to_edge_transform_and_lower

    partitioners = [partition.XnnpackDynamicallyQuantizedPartitioner()] if dynamic else []
    edge = to_edge_transform_and_lower(
        torch.export.export(module, tuple(args), dynamic_shapes=shapes),
        partitioner=[*partitioners, partition.XnnpackPartitioner()],
        compile_config=EdgeCompileConfig(_check_ir_validity=False),
    )
    return bytes(edge.to_executorch().buffer)


def kinds(data: bytes) -> set[str]:
    """The kinds of nodes in the delegates of a file."""
    with ProgramFile.open(data) as file:
        delegates = file.plan("forward").delegates
        assert {delegate.id for delegate in delegates} == {xnnpack.BACKEND_ID}
        graphs = [xnnpack.read_delegate(file.delegate_blob(delegate)).graph for delegate in delegates]
        return {type(item.node).__name__ for graph in graphs for item in graph.nodes}


def compare(
    device: Device, data: bytes, calls: Sequence[Args], rtol: float = 1e-4, atol: float = 1e-5
) -> pteron.Program:
    """Compare all outputs of all calls, in this order."""
    from executorch.runtime import Runtime

    theirs = Runtime.get().load_program(data).load_method("forward")
    program = pteron.load(data, device=device)
    method = program.method()
    for args in calls:
        wanted = [np.array(y.float()) for y in theirs.execute(list(args))]
        made = [y.float().numpy() for y in method.execute(list(args))]
        for number, (got, want) in enumerate(zip(made, wanted, strict=True)):
            np.testing.assert_allclose(got, want, rtol, atol, err_msg=f"output {number} of {args[0].shape}")
    return program


class Elementwise(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.slopes = nn.Parameter(torch.tensor([0.1, -0.2, 0.3, 0.4, 0.5, 0.6]))
        self.elu = nn.ELU(0.7)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        positive = x.abs() + 0.5
        return (
            x + y, x - y, x * y, x / positive, torch.minimum(x, y), torch.maximum(x, y), x * self.slopes,
            x + 1.0, x.sigmoid(), x.tanh(), x.exp(), positive.log(), positive.sqrt(), positive.rsqrt(),
            x.sin(), x.cos(), -x, x.square(), x.floor(), x.ceil(), x.clamp(-0.5, 0.7), x.relu(), x.clone(),
            functional.gelu(x), functional.hardswish(x), functional.leaky_relu(x, 0.3), self.elu(x),
            functional.relu6(x * 5), x.softmax(-1),
        )  # fmt: skip


def test_elementwise_nodes(device: Device) -> None:
    torch.manual_seed(0)
    made = [(torch.randn(n, 6), torch.randn(n, 6)) for n in (9, 4, 1, 7)]
    data = lower(Elementwise().eval(), made[0], ({0: ROWS}, {0: ROWS}))
    assert len(kinds(data)) == 25
    compare(device, data, made)


class Rows(nn.Module):
    """Products and shapes with a dynamic number of rows."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 8), nn.Linear(8, 4, bias=False)
        self.norm = nn.LayerNorm(8)  # stays outside: several delegates
        self.table = nn.Parameter(torch.randn(8, 5))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        hidden = functional.relu(self.first(x))
        products = torch.bmm(y, y.transpose(1, 2).contiguous())
        return (
            self.second(self.norm(hidden)),
            hidden @ self.table,
            products,
            torch.cat([x, x * 2, x + 1], 0),
            torch.cat([x, x * 2, x + 1, x - 1], 1),
            torch.cat([x, x * 2, x + 1, x - 1, x * 3], 0),
            torch.cat([x, hidden], 1),
            functional.pad(x, (1, 2), value=0.5),
            x.unsqueeze(-1) * 2,
            x.reshape(-1, 3, 2).permute(1, 0, 2) * 2,
        )


def test_products_and_shapes_with_a_dynamic_size(device: Device) -> None:
    torch.manual_seed(1)
    made = [(torch.randn(n, 6), torch.randn(2, n, 3)) for n in (9, 4, 1, 7)]
    data = lower(Rows().eval(), made[0], ({0: ROWS}, {1: ROWS}))
    assert kinds(data) >= {"FullyConnected", "BatchMatrixMultiply", "StaticConstantPad", "StaticReshape"}
    assert kinds(data) >= {f"Concatenate{count}" for count in (2, 3, 4, 5)}
    compare(device, data, made)


class Images(nn.Module):
    """Convolutions and pools work on NHWC in the file, and everything between them, too."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())
        self.depthwise = nn.Conv2d(8, 8, 3, stride=2, padding=1, groups=8)
        self.widened = nn.Conv2d(8, 16, 3, padding=1, groups=8)
        self.grouped = nn.Conv2d(16, 8, 3, dilation=2, padding=2, groups=2)
        self.up = nn.ConvTranspose2d(8, 4, 3, stride=2, padding=1, output_padding=1)
        self.up_grouped = nn.ConvTranspose2d(8, 4, 3, stride=2, padding=1, output_padding=1, groups=2)
        self.slopes = nn.PReLU(8)
        self.scale = nn.Parameter(torch.rand(8, 1, 1))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = self.first(x)
        small = functional.hardswish(self.depthwise(y)) * self.scale
        wide = self.widened(small)
        both = torch.cat([small, self.slopes(small)], 1)
        return (
            functional.max_pool2d(both, 2),
            functional.max_pool2d(y, 3, 2, 1, ceil_mode=True),
            functional.avg_pool2d(wide, 2),
            wide.mean((2, 3), keepdim=True),
            self.grouped(wide),
            self.up(small),
            self.up_grouped(small),
            functional.interpolate(small, scale_factor=2, mode="bilinear", align_corners=False),
            functional.interpolate(small, size=(11, 13), mode="bilinear", align_corners=True),
            functional.pad(y, (1, 2, 0, 1)),
            y[:, 2:5, 1:],
            small.flatten(2).softmax(-1),
            small.permute(0, 2, 3, 1) + 1.0,
        )


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_images(device: Device, layout: torch.memory_format) -> None:
    torch.manual_seed(2)
    made = [(torch.randn(1, 3, 12, 16).to(memory_format=layout),) for _ in range(2)]
    data = lower(Images().eval(), made[0])
    assert kinds(data) >= {"Conv2d", "DepthwiseConv2d", "ConvTranspose2d", "PReLU", "StaticResizeBilinear2D"}
    assert kinds(data) >= {"MaxPooling2d", "AvgPooling2d", "GlobalAvgPooling2d", "StaticSlice"}
    program = compare(device, data, made)
    permutes = [node for node in program.method().graph.nodes if "permute" in node.name]
    assert len(permutes) <= 3, permutes  # none between the convolutions


class Stem(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.max_pool2d(functional.relu(self.conv(x)), 2).mean((2, 3), keepdim=True)


def test_images_of_a_dynamic_size(device: Device) -> None:
    torch.manual_seed(3)
    half = Dim("half", min=2, max=8)
    sizes = ({2: 2 * half, 3: 2 * half},)
    made = [(torch.randn(1, 3, n, n),) for n in (16, 6, 4, 10)]
    compare(device, lower(Stem().eval(), made[0], sizes), made)


def test_float16(device: Device) -> None:
    torch.manual_seed(4)
    module = nn.Sequential(nn.Linear(24, 8), nn.ReLU(), nn.Linear(8, 4)).half()
    made = [(torch.randn(n, 24).half(),) for n in (9, 3)]
    compare(device, lower(module.eval(), made[0], ({0: ROWS},)), made, rtol=5e-3, atol=5e-3)


def quantized(module: nn.Module, args: Args, shapes: Any = None, **config: Any) -> nn.Module:
    """The module with quantized weights and activations, calibrated with random inputs."""
    from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
        XNNPACKQuantizer,
        get_symmetric_quantization_config,
    )
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    quantizer = XNNPACKQuantizer().set_global(get_symmetric_quantization_config(**config))
    exported = torch.export.export(module.eval(), tuple(args), dynamic_shapes=shapes)
    prepared = prepare_pt2e(exported.module(), quantizer)
    for _ in range(4):
        prepared(*(torch.randn_like(a) for a in args))
    made: nn.Module = convert_pt2e(prepared)
    return made


class SmallNetwork(nn.Module):
    """Convolutions, depthwise ones (also with two outputs of a channel), sums, pools, linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.BatchNorm2d(8), nn.ReLU())
        self.depthwise = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.ReLU6())
        self.second = nn.Conv2d(8, 8, 1)
        self.widened = nn.Conv2d(8, 16, 3, padding=1, groups=8)
        self.head = nn.Linear(16, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.first(x)
        y = y + self.second(self.depthwise(y))
        y = functional.max_pool2d(self.widened(y), 2)
        return self.head(y.mean((2, 3), keepdim=True).flatten(1))


@pytest.mark.parametrize("per_channel", [True, False])
def test_static_quantization(device: Device, per_channel: bool) -> None:
    torch.manual_seed(6)
    made = [(torch.randn(1, 3, 16, 16),) for _ in range(3)]
    module = quantized(SmallNetwork(), made[0], is_per_channel=per_channel)
    data = lower(module, made[0])
    program = compare(device, data, made, rtol=0, atol=0.1 * step_of(data))
    names = [node.name for node in program.method().graph.nodes]
    assert "et_vk.q8ta_conv2d.default" in names and "et_vk.q8ta_linear.default" in names


def step_of(data: bytes) -> float:
    """The largest scale of a quantized value: one code more or less."""
    with ProgramFile.open(data) as file:
        graphs = [xnnpack.read_delegate(file.delegate_blob(d)).graph for d in file.plan("forward").delegates]
    values = [value.value for graph in graphs for value in graph.values]
    return max(
        value.quant_params.scale
        for value in values
        if isinstance(value, xnnpack_graph.XnnQuantizedTensor)
        and isinstance(value.quant_params, xnnpack_graph.PerTensorQuant)
        and not value.tensor_value.constant_buffer_idx
    )


class Codes(nn.Module):
    """Arithmetic of codes. With these scales and zero points, many results lie between two codes."""

    @staticmethod
    def rounded(x: torch.Tensor, scale: float, zero: int) -> torch.Tensor:
        codes = torch.ops.quantized_decomposed.quantize_per_tensor(x, scale, zero, -128, 127, torch.int8)
        made: torch.Tensor = torch.ops.quantized_decomposed.dequantize_per_tensor(
            codes, scale, zero, -128, 127, torch.int8
        )
        return made

    def forward(self, x: torch.Tensor, y: torch.Tensor, image: torch.Tensor) -> tuple[torch.Tensor, ...]:
        x, y, image = self.rounded(x, 0.05, 1), self.rounded(y, 0.05, -2), self.rounded(image, 0.1, -43)
        mean = image.mean((2, 3), keepdim=True)
        results = (x + y, x - y, x * y, functional.relu(x + y), x.clamp(-1.5, 3.0))
        return (*(self.rounded(z, 0.1, 3) for z in results), self.rounded(mean, 0.1, -43))


def test_every_pair_of_codes(device: Device) -> None:
    torch.manual_seed(11)
    codes = torch.arange(-128.0, 128)
    args = ((codes - 1).view(256, 1) * 0.05, (codes + 2) * 0.05, torch.randn(2, 64, 2, 2) * 5)
    data = lower(Codes(), args)
    assert kinds(data) >= {"Add", "Subtract", "Multiply", "GlobalAvgPooling2d", "Clamp"}
    compare(device, data, [args], rtol=0, atol=1e-6)


@pytest.mark.parametrize("bits", [8, 4])
def test_dynamic_quantization(device: Device, bits: int) -> None:
    torch.manual_seed(7)
    config = {"weight_qmin": -8, "weight_qmax": 7} if bits == 4 else {}
    made = [(torch.randn(n, 64),) for n in (9, 3, 1, 9)]
    module = quantized(nn.Linear(64, 8), made[0], is_per_channel=True, is_dynamic=True, **config)
    data = lower(module, made[0], dynamic=True)
    assert "Convert" in kinds(data)
    compare(device, data, made[::3], rtol=1e-3, atol=1e-3)


def test_dynamic_quantization_outside_of_delegates(device: Device) -> None:
    """The kernels take scales and zero points as tensors."""
    import executorch.kernels.quantized  # noqa: F401  registers them
    from executorch.exir import EdgeCompileConfig, to_edge_transform_and_lower

    torch.manual_seed(10)
    made = [(torch.randn(4, 16),) for _ in range(2)]
    module = quantized(nn.Linear(16, 8), made[0], is_per_channel=True, is_dynamic=True)
    program = torch.export.export(module, made[0])
    config = EdgeCompileConfig(_check_ir_validity=False)
    data = bytes(to_edge_transform_and_lower(program, compile_config=config).to_executorch().buffer)
    assert b"choose_qparams" in data
    compare(device, data, made, rtol=1e-3, atol=1e-2)


def test_a_convolution_that_quantizes_its_input(device: Device) -> None:
    torch.manual_seed(9)
    images = torch.tensor([1.0, 5.0, 0.1]).view(3, 1, 1, 1)  # each has a scale of its own
    made = [(torch.randn(n, 3, 8, 8) * images[:n],) for n in (3, 1, 2)]
    shapes = ({0: Dim("images", min=1, max=3)},)
    conv = nn.Conv2d(3, 8, 3, padding=1)
    module = quantized(conv, made[0], shapes, is_per_channel=True, is_dynamic=True)
    data = lower(module, made[0], shapes, dynamic=True)
    assert kinds(data) >= {"Convert", "Conv2d"}
    compare(device, data, made, rtol=1e-3, atol=2e-2)


def groups_of_four_bits(x: torch.Tensor) -> bytes:
    from torchao.quantization import Int8DynamicActivationIntxWeightConfig, quantize_
    from torchao.quantization.granularity import PerGroup

    module = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 8)).eval()
    config = Int8DynamicActivationIntxWeightConfig(weight_dtype=torch.int4, weight_granularity=PerGroup(32))
    quantize_(module, config)
    return lower(module, [x], ({0: ROWS},), dynamic=True)


def test_groups_of_four_bits(device: Device) -> None:
    torch.manual_seed(8)
    made = [(torch.randn(n, 64),) for n in (9, 3, 1, 7)]
    compare(device, groups_of_four_bits(made[0][0]), made, rtol=1e-3, atol=1e-3)


def test_weights_in_another_file(device: Device, tmp_path: Any) -> None:
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower
    from executorch.exir.passes.external_constants_pass import delegate_external_constants_pass_unlifted

    torch.manual_seed(5)
    x = torch.randn(2, 8)
    module = nn.Linear(8, 4).eval()
    tagged = torch.export.export(module, (x,), strict=True).module()
    delegate_external_constants_pass_unlifted(tagged, gen_tag_fn=lambda node: "weights")
    program = torch.export.export(tagged, (x,), strict=True)
    made = to_edge_transform_and_lower(program, partitioner=[XnnpackPartitioner()]).to_executorch()
    made.write_tensor_data_to_file(str(tmp_path))
    with pteron.load(bytes(made.buffer), data_path=tmp_path / "weights.ptd", device=device) as loaded:
        torch.testing.assert_close(loaded(x), module(x).detach())
    with pytest.raises(pteron.PteronError, match=r"\.ptd"):
        pteron.load(bytes(made.buffer), device=device)


# -- kinds of nodes that no exporter writes: the graph of a delegate is changed --------------------------


def with_graph(
    data: bytes,
    change: Callable[[xnnpack_graph.XnnGraph], xnnpack_graph.XnnGraph],
    outputs: Mapping[int, schema.ScalarType] | None = None,
) -> bytes:
    """The program with a change in the graph of its only delegate, and other types of outputs."""
    with ProgramFile.open(data) as file:
        (delegate,) = file.plan("forward").delegates
        blob = xnnpack.write_delegate(change(xnnpack.read_delegate(file.delegate_blob(delegate)).graph))
        where = schema.BackendDelegateDataReference(schema.DataLocation.INLINE, 0)
        plan = file.plan("forward")
        values = list(plan.values)
        for number, dtype in (outputs or {}).items():
            at = plan.outputs[number]
            values[at] = replace(values[at], val=replace(values[at].val, scalar_type=dtype))
        plan = replace(plan, values=tuple(values), delegates=(replace(delegate, processed=where),))
        inline = (schema.BackendDelegateInlineData(memoryview(blob)),)
        program = replace(file.program, execution_plan=(plan,), backend_delegate_data=inline)
        segments = [bytes(file.segment(n).view) for n in range(len(file.program.segments))]
        return b"".join(program_chunks(replace(program, segments=()), segments))


def with_nodes(data: bytes, change: Callable[[Any], Any]) -> bytes:
    """The program with other nodes in its delegate."""

    def changed(graph: xnnpack_graph.XnnGraph) -> xnnpack_graph.XnnGraph:
        nodes = tuple(replace(item, node=change(item.node)) for item in graph.nodes)
        return replace(graph, nodes=nodes)

    return with_graph(data, changed)


def test_elu(device: Device) -> None:
    torch.manual_seed(12)
    made = [(torch.randn(n, 6),) for n in (9, 1, 4)]

    def other(node: Any) -> Any:
        assert isinstance(node, xnnpack_graph.LeakyReLU)
        return xnnpack_graph.ELU(0.7, node.input_id, node.output_id)

    compare(device, with_nodes(lower(nn.LeakyReLU(), made[0], ({0: ROWS},)), other), made)


class TwoPools(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        small = functional.avg_pool2d(x, (2, 3))
        return small, small * 2.0


def argmax_pools(x: torch.Tensor, images: Dim) -> bytes:
    """A program whose second output has the places of the largest elements."""

    def other(graph: xnnpack_graph.XnnGraph) -> xnnpack_graph.XnnGraph:
        pool, *_, last = graph.nodes
        index = last.node.output_id
        node = xnnpack_graph.ArgMaxPooling2d(
            pooling_height=2,
            pooling_width=3,
            input_id=pool.node.input_id,
            output_value_id=pool.node.output_id,
            output_index_id=index,
        )
        values = []
        for item in graph.values:
            tensor = item.tensor
            if tensor.id_out == index:
                tensor = replace(tensor, datatype=xnnpack_graph.XnnDataType.INT32)
            values.append(replace(item, value=tensor))
        return replace(graph, nodes=(replace(pool, node=node),), values=tuple(values))

    return with_graph(lower(TwoPools(), [x], ({0: images},)), other, {1: schema.ScalarType.INT})


def test_argmax_pooling(device: Device) -> None:
    torch.manual_seed(13)
    made = [(torch.randn(n, 3, 5, 7).to(memory_format=torch.channels_last),) for n in (4, 2, 3)]
    data = argmax_pools(made[0][0], Dim("n", min=2, max=4))
    assert kinds(data) == {"ArgMaxPooling2d"}
    compare(device, data, made)


class Parts(nn.Module):
    """The inputs of attention, in one delegate."""

    def forward(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: torch.Tensor, mask: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        return q * scale, k + v, mask * 2.0


def test_attention(device: Device) -> None:
    """ExecuTorch has not run this node since its release 0.7: the results are torch's."""
    torch.manual_seed(14)

    def inputs(n: int) -> tuple[torch.Tensor, ...]:
        q, k, v = (torch.randn(1, 2, rows, 8) for rows in (n, 5, 5))
        return q, k, v, torch.full((8,), 0.3), torch.randn(n, 5)

    def other(graph: xnnpack_graph.XnnGraph) -> xnnpack_graph.XnnGraph:
        first, *rest = graph.nodes
        product, total, doubled = (item.node for item in graph.nodes)
        node = xnnpack_graph.ScaledDotProductAttention(
            product.input1_id,
            total.input1_id,
            total.input2_id,
            product.input2_id,
            doubled.input1_id,
            product.output_id,
        )
        return replace(graph, nodes=(replace(first, node=node), *rest))

    data = lower(Parts(), inputs(9), ({2: ROWS}, None, None, None, {0: ROWS}))
    with pteron.load(with_graph(data, other), device=device) as program:
        for n in (9, 1, 4):
            q, k, v, scale, mask = inputs(n)
            want = functional.scaled_dot_product_attention(q, k, v, mask, scale=0.3)
            torch.testing.assert_close(program.method().execute([q, k, v, scale, mask])[0], want)


def test_nodes_that_cannot_run_are_named() -> None:
    """No exporter writes a pool that returns indices."""

    def odd(node: Any) -> Any:
        if not isinstance(node, xnnpack_graph.MaxPooling2d):
            return node
        return xnnpack_graph.ArgMaxPooling2d(
            padding_top=1,
            pooling_height=2,
            pooling_width=2,
            input_id=node.input_id,
            output_value_id=node.output_id,
            output_index_id=node.output_id,
        )

    report = pteron.check(with_nodes(lower(Stem().eval(), (torch.randn(1, 3, 4, 4),)), odd))
    assert [finding.what for finding in report.findings] == ["XNNPACK ArgMaxPooling2d"]
    assert "(ArgMaxPooling2d)" in str(report) and "padding" in str(report)
