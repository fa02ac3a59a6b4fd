"""Inline a call of the XNNPACK delegate: its nodes become nodes of the method's graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from typing import Any

from pteron.compiler.ir.checks import OpError
from pteron.compiler.ir.dtypes import DType
from pteron.compiler.ir.values import Arg, Constant, Shape, Tensor, numel
from pteron.compiler.lower.builder import CAST, VIEW
from pteron.compiler.lower.xnnpack_values import NCHW, Held, XnnValues, plain
from pteron.compiler.ops.shapes import broadcast
from pteron.errors import FormatError, UnsupportedError
from pteron.pte import xnnpack_graph as xnn

PAD = "aten.constant_pad_nd.default"
TRANSPOSED_WEIGHT = 1  # a flag of FullyConnected
ALIGN_CORNERS = 8  # a flag of StaticResizeBilinear2D

# Nodes that apply a function to every element: the operator, and its arguments after the tensors.
ELEMENTWISE: dict[type, tuple[str, tuple[Arg, ...]]] = {
    xnn.Add: ("aten.add.Tensor", (1,)),
    xnn.Subtract: ("aten.sub.Tensor", (1,)),
    xnn.Multiply: ("aten.mul.Tensor", ()),
    xnn.Div: ("aten.div.Tensor", ()),
    xnn.Minimum: ("aten.minimum.default", ()),
    xnn.Maximum: ("aten.maximum.default", ()),
    xnn.Sigmoid: ("aten.sigmoid.default", ()),
    xnn.Tanh: ("aten.tanh.default", ()),
    xnn.Exp: ("aten.exp.default", ()),
    xnn.Log: ("aten.log.default", ()),
    xnn.SquareRoot: ("aten.sqrt.default", ()),
    xnn.ReciprocalSquareRoot: ("aten.rsqrt.default", ()),
    xnn.Sin: ("aten.sin.default", ()),
    xnn.Cos: ("aten.cos.default", ()),
    xnn.Abs: ("aten.abs.default", ()),
    xnn.Negate: ("aten.neg.default", ()),
    xnn.Square: ("aten.square.default", ()),
    xnn.Floor: ("aten.floor.default", ()),
    xnn.Ceiling: ("aten.ceil.default", ()),
    xnn.Gelu: ("aten.gelu.default", ("none",)),
    xnn.Hardswish: ("aten.hardswish.default", ()),
    xnn.Copy: ("aten.clone.default", (None,)),
}


class XnnInlining(XnnValues):
    """Inlines one call of the XNNPACK delegate."""

    def run(self) -> None:
        for index, value in self.values.items():
            if value.tensor.flags & xnn.EXTERNAL_INPUT:
                self.held[index] = self._external(value.tensor)
        for number, item in enumerate(self.delegate.graph.nodes):
            kind = type(item.node).__name__
            self._origin = f"{self.name}, node {number} ({kind})"
            self._bounds = item.bounds
            try:
                self._lower(item.node)
            except OpError as error:
                raise FormatError(f"{self._origin}: {error}") from None
            except UnsupportedError as error:
                self.lowering.problem(f"XNNPACK {kind}", self._origin, str(error))
                self._leave_out(item.node)
        self._origin = f"{self.name}, result"
        for index, value in self.values.items():
            if value.tensor.flags & xnn.EXTERNAL_OUTPUT:
                self._write(self.read(index), self._argument(value.tensor))

    def _leave_out(self, node: xnn.NodeKind) -> None:
        """A node that cannot be lowered: its results exist, so that later nodes are looked at, too."""
        for field, index in xnn.ids_of(node):
            if field.startswith("output") and index not in self.held:
                shape = tuple(self.values[index].tensor.dims)
                self.held[index] = plain(self.lowering.tensor(DType.float32, shape, self._name(index)))

    def _lower(self, node: xnn.NodeKind) -> None:
        kind = type(node)
        if kind in ELEMENTWISE:
            inputs = [index for field, index in xnn.ids_of(node) if field.startswith("input")]
            self._elementwise(inputs, node.output_id, *ELEMENTWISE[kind])  # type: ignore[union-attr]
            return
        lower = _KINDS.get(kind)
        if lower is None:
            raise UnsupportedError("Pteron has no such operator")
        lower(self, node)

    def _elementwise(self, inputs: Sequence[int], output: int, name: str, rest: Sequence[Arg]) -> None:
        tensors, order = self._aligned([self.read(index) for index in inputs])
        shape = broadcast(*(tensor.max_shape for tensor in tensors))
        out = self.lowering.tensor(self.dtype(output), shape, self._name(output))
        self.make(output, name, [*tensors, *rest], out, order)

    def _aligned(self, operands: Sequence[Held]) -> tuple[list[Tensor], tuple[int, ...]]:
        """Tensors that broadcast like the values, and the order of the result."""
        first = max(operands, key=lambda held: (len(held.order), held.tensor.constant is None))
        return [self._like(held, first) for held in operands], first.order

    def _like(self, held: Held, other: Held) -> Tensor:
        """A tensor that broadcasts to `other` like the value does."""
        missing = len(other.order) - len(held.order)
        if not missing:
            return self.ordered(held, other.order)
        tensor = self._own_order(held)
        if other.is_plain or all(size == 1 for size in tensor.max_shape):
            return tensor
        for _ in range(missing):
            tensor = self._with_dimension(tensor)
        return self.ordered(plain(tensor), other.order)

    def _own_order(self, held: Held) -> Tensor:
        return self.ordered(held, tuple(range(len(held.order))))

    def _with_dimension(self, tensor: Tensor) -> Tensor:
        """The tensor with a first dimension of size 1."""
        shape = (1, *tensor.max_shape)
        if isinstance(tensor.constant, Constant) and not tensor.constant.dim_order:
            return self.lowering.tensor(tensor.dtype, shape, tensor.name, tensor.constant)
        made = self.lowering.tensor(tensor.dtype, shape, f"{tensor.name}.wide")
        self.node("aten.unsqueeze_copy.default", [tensor, 0, made])
        return made

    def _leaky_relu(self, node: xnn.LeakyReLU) -> None:
        slope = (node.negative_slope,)
        self._elementwise([node.input_id], node.output_id, "aten.leaky_relu.default", slope)

    def _elu(self, node: xnn.ELU) -> None:
        self._elementwise([node.input_id], node.output_id, "aten.elu.default", (node.alpha, 1.0, 1.0))

    def _clamp(self, node: xnn.Clamp) -> None:
        held = self.read(node.input_id)
        self.held[node.output_id] = Held(self._clamped(held.tensor), held.order)

    def _prelu(self, node: xnn.PReLU) -> None:
        x = self.read(node.input1_id)
        (tensor, slope), order = self._aligned([x, self.read(node.input2_id)])
        is_low = self.lowering.tensor(DType.bool, tensor.max_shape, f"{tensor.name}.negative")
        self.node("aten.lt.Scalar", [tensor, 0.0, is_low])
        scaled = self.lowering.tensor(tensor.dtype, tensor.max_shape, f"{tensor.name}.scaled")
        self.node("aten.mul.Tensor", [tensor, slope, scaled])
        out = self.result(node.output_id, order)
        self.make(node.output_id, "aten.where.self", [is_low, scaled, tensor], out, order)

    def _softmax(self, node: xnn.Softmax) -> None:
        x = self.plain(node.input_id)
        out = self.lowering.tensor(self.dtype(node.output_id), x.max_shape, self._name(node.output_id))
        self.make(node.output_id, "aten._softmax.default", [x, -1, False], out, plain(x).order)

    def _convert(self, node: xnn.Convert) -> None:
        held = self.read(node.input_id)
        dtype = self.dtype(node.output_id)
        out = self.lowering.tensor(dtype, held.tensor.max_shape, self._name(node.output_id))
        self.make(node.output_id, CAST, [held.tensor], out, held.order)

    # -- products and convolutions --------------------------------------------------------------

    def _fully_connected(self, node: xnn.FullyConnected) -> None:
        x, weight = self.plain(node.input1_id), self.weights(node.filter_id, 2)
        if node.flags & TRANSPOSED_WEIGHT:
            weight = self.permuted(weight, (1, 0))
        bias = self.optional(node.bias_id)
        shape = (*x.max_shape[:-1], weight.max_shape[0])
        out = self.lowering.tensor(self.dtype(node.output_id), shape, self._name(node.output_id))
        args = [x, weight, bias.tensor if bias else None]
        self.make(node.output_id, "aten.linear.default", args, out, plain(out).order)

    def _batch_matrix_multiply(self, node: xnn.BatchMatrixMultiply) -> None:
        a, b = self.plain(node.input1_id), self.plain(node.input2_id)
        if len(a.max_shape) != 3 or len(b.max_shape) != 3:
            raise UnsupportedError(f"its operands have {len(a.max_shape)} dimensions, not 3")
        if node.flags & 1:
            b = self.permuted(b, (0, 2, 1))
        out = self.result(node.output_id, (0, 1, 2))
        self.make(node.output_id, "aten.bmm.default", [a, b], out, (0, 1, 2))

    def _convolution(self, node: xnn.Filters2d) -> None:
        x = self.nchw(node.input1_id)
        bias = self.optional(node.bias_id)
        transposed = isinstance(node, xnn.ConvTranspose2d)
        x, padding = self._padded(x, node, 0.0) if not transposed else (x, equal_padding(node))
        args = [
            x,
            self._filters(node),
            bias.tensor if bias else None,
            (node.subsampling_height, node.subsampling_width),
            padding,
            (node.dilation_height, node.dilation_width),
            transposed,
            (node.adjustment_height, node.adjustment_width),
            node.groups,
        ]
        out = self.result(node.output_id, NCHW)
        self.make(node.output_id, "aten.convolution.default", args, out, NCHW)

    def _filters(self, node: xnn.Filters2d) -> Tensor:
        """The weights as torch has them: [O, I/groups, H, W], or [I, O/groups, H, W] if transposed."""
        weight = self.weights(node.filter_id, 4)
        if isinstance(node, xnn.DepthwiseConv2d):  # [1, H, W, O]
            return self.permuted(weight, (3, 0, 1, 2))
        if not isinstance(node, xnn.ConvTranspose2d):  # [O, H, W, I/groups]
            return self.permuted(weight, (0, 3, 1, 2))
        if node.groups == 1:
            return self.permuted(weight, (3, 0, 1, 2))
        outs, height, width, ins = weight.max_shape
        if not isinstance(weight.constant, Constant) or not node.groups or outs % node.groups:
            raise UnsupportedError("the weights of a transposed convolution with groups must be constants")
        split = (node.groups, outs // node.groups, height, width, ins)
        grouped = self.lowering.tensor(weight.dtype, split, weight.name, weight.constant)
        swapped = self.permuted(grouped, (0, 4, 1, 2, 3))
        shape = (node.groups * ins, outs // node.groups, height, width)
        joined = self.lowering.tensor(weight.dtype, shape, f"{weight.name}.joined")
        self.node(VIEW, [swapped, shape, joined])
        return joined

    def _padded(
        self, x: Tensor, node: xnn.Filters2d | xnn.Window2d, value: float
    ) -> tuple[Tensor, tuple[int, int]]:
        """x, and the padding that is equal on both sides. Other padding becomes a part of x."""
        if node.padding_top == node.padding_bottom and node.padding_left == node.padding_right:
            return x, (node.padding_top, node.padding_left)
        n, c, height, width = x.max_shape
        shape = (
            n,
            c,
            height + node.padding_top + node.padding_bottom,
            width + node.padding_left + node.padding_right,
        )
        pads = (node.padding_left, node.padding_right, node.padding_top, node.padding_bottom)
        made = self.lowering.tensor(x.dtype, shape, f"{x.name}.padded")
        self.node(PAD, [x, pads, value, made])
        return made, (0, 0)

    # -- windows --------------------------------------------------------------------------------

    def _max_pooling(self, node: xnn.MaxPooling2d) -> None:
        x, padding = self._padded(self.nchw(node.input_id), node, -inf)
        kernel, stride = _window(node)
        dilation = (node.dilation_height, node.dilation_width)
        out = self.result(node.output_id, NCHW)
        args: list[Arg] = [x, kernel, stride, padding, dilation, False]
        self.make(node.output_id, "aten.max_pool2d.default", args, out, NCHW)

    def _argmax_pooling(self, node: xnn.ArgMaxPooling2d) -> None:
        """The largest element of each window, and its place: a window is counted column by column."""
        if any((node.padding_top, node.padding_right, node.padding_bottom, node.padding_left)):
            raise UnsupportedError("its windows have padding")
        x, height, width = self.nchw(node.input_id), node.pooling_height, node.pooling_width
        if not height or not width:
            raise FormatError(f"{self._origin}: its windows have {height} x {width} elements")
        channels, rows, columns = x.max_shape[1], x.max_shape[2] // height, x.max_shape[3] // width
        x = self._cut(self._cut(x, 2, 0, rows * height), 3, 0, columns * width)
        split = self._viewed(x, (-1, channels, rows, height, columns, width))
        windows = self._viewed(
            self.permuted(split, (0, 1, 2, 4, 5, 3)), (-1, channels, rows, columns, height * width)
        )
        outs = tuple(self.result(index, NCHW) for index in (node.output_value_id, node.output_index_id))
        self.node("aten.max.dim", [windows, -1, False, outs])
        for index, out in zip((node.output_value_id, node.output_index_id), outs, strict=True):
            self.held[index] = Held(out, NCHW)

    def _viewed(self, x: Tensor, size: Shape) -> Tensor:
        """x in another shape. One size may be -1: what is left."""
        rest = numel(tuple(n for n in size if n != -1))
        shape = tuple(numel(x.max_shape) // max(rest, 1) if n == -1 else n for n in size)
        made = self.lowering.tensor(x.dtype, shape, f"{x.name}.view")
        self.node(VIEW, [x, size, made])
        return made

    def _average_pooling(self, node: xnn.AvgPooling2d) -> None:
        kernel, stride = _window(node)
        out = self.result(node.output_id, NCHW)
        args: list[Arg] = [self.nchw(node.input_id), kernel, stride, equal_padding(node), False, False, None]
        self.make(node.output_id, "aten.avg_pool2d.default", args, out, NCHW)

    def _global_average(self, node: xnn.GlobalAvgPooling2d) -> None:
        x = self.nchw(node.input_id)
        out = self.lowering.tensor(x.dtype, (*x.max_shape[:2], 1, 1), self._name(node.output_id))
        self.make(node.output_id, "aten.mean.dim", [x, (2, 3), True, None], out, NCHW)

    def _resize(self, node: xnn.StaticResizeBilinear2D) -> None:
        x = self.nchw(node.input_id)
        out = self.result(node.output_id, NCHW)
        args: list[Arg] = [x, (node.new_height, node.new_width), bool(node.flags & ALIGN_CORNERS), None]
        self.make(node.output_id, "aten.upsample_bilinear2d.vec", args, out, NCHW)

    # -- shapes ---------------------------------------------------------------------------------

    def _transpose(self, node: xnn.StaticTranspose) -> None:
        held = self.read(node.input_id)
        if sorted(node.perm) != list(range(len(held.order))):
            raise FormatError(
                f"{self._origin}: {list(node.perm)} is no order of {len(held.order)} dimensions"
            )
        self.held[node.output_id] = Held(held.tensor, tuple(node.perm.index(d) for d in held.order))

    def _reshape(self, node: xnn.StaticReshape) -> None:
        shape = tuple(node.new_shape)
        out = self.result(node.output_id, tuple(range(len(shape))))
        size = tuple(-1 if n == 0 else n for n in shape)
        self.make(node.output_id, VIEW, [self.plain(node.input_id), size], out, plain(out).order)

    def _slice(self, node: xnn.StaticSlice) -> None:
        held = self.read(node.input_id)
        self._check_rank(held, node.offsets, node.sizes)
        x = held.tensor
        for place, dim in enumerate(held.order):
            x = self._cut(x, place, node.offsets[dim], node.sizes[dim])
        self.held[node.output_id] = Held(self._clamped(x), held.order)

    def _cut(self, x: Tensor, dim: int, start: int, size: int) -> Tensor:
        """A part of x along a dimension."""
        most = x.max_shape[dim]
        if not start and size >= most:
            return x
        shape = (*x.max_shape[:dim], min(size, most), *x.max_shape[dim + 1 :])
        cut = self.lowering.tensor(x.dtype, shape, f"{x.name}[{start}:{start + size}]")
        self.node("aten.slice_copy.Tensor", [x, dim, start, start + size, 1, cut])
        return cut

    def _pad(self, node: xnn.StaticConstantPad) -> None:
        held = self.read(node.input_id)
        before, after = node.pre_paddings, node.post_paddings
        self._check_rank(held, before, after)
        x = held.tensor
        shape = tuple(n + before[d] + after[d] for n, d in zip(x.max_shape, held.order, strict=True))
        pads = tuple(n for d in reversed(held.order) for n in (before[d], after[d]))
        out = self.lowering.tensor(x.dtype, shape, self._name(node.output_id))
        self.make(node.output_id, PAD, [x, pads, node.padding_value], out, held.order)

    def _check_rank(self, held: Held, *lists: Sequence[int]) -> None:
        for numbers in lists:
            if len(numbers) != len(held.order):
                raise FormatError(
                    f"{self._origin}: {list(numbers)} for a value with {len(held.order)} dimensions"
                )

    def _concatenate(self, node: xnn.Concatenation) -> None:
        count = int(type(node).__name__[-1])
        parts = [self.read(getattr(node, f"input{n}_id")) for n in range(1, count + 1)]
        order = max(parts, key=lambda held: held.tensor.constant is None).order
        if not all(len(part.order) == len(order) for part in parts) or node.axis >= len(order):
            raise FormatError(f"{self._origin}: the parts have different ranks, or no dimension {node.axis}")
        tensors = tuple(self.ordered(part, order) for part in parts)
        place = order.index(node.axis)
        shape = list(tensors[0].max_shape)
        shape[place] = sum(tensor.max_shape[place] for tensor in tensors)
        out = self.lowering.tensor(self.dtype(node.output_id), tuple(shape), self._name(node.output_id))
        self.make(node.output_id, "aten.cat.default", [tensors, place], out, order)

    def _attention(self, node: xnn.ScaledDotProductAttention) -> None:
        query, scale = self.plain(node.query_id), self.plain(node.scale_id)
        scaled = self.lowering.tensor(query.dtype, query.max_shape, f"{query.name}.scaled")
        self.node("aten.mul.Tensor", [query, scale, scaled])
        mask = None if node.mask_id == xnn.NO_VALUE else self.plain(node.mask_id)
        out = self.result(node.output_id, (0, 1, 2, 3))
        args = [scaled, self.plain(node.key_id), self.plain(node.value_id), mask, 1.0]
        self.make(node.output_id, "et_vk.sdpa.default", args, out, (0, 1, 2, 3))


def _window(node: xnn.Window2d) -> tuple[Shape, Shape]:
    """The size of the window, and its stride."""
    return (node.pooling_height, node.pooling_width), (node.stride_height, node.stride_width)


def equal_padding(node: xnn.Filters2d | xnn.Window2d) -> Shape:
    if node.padding_top != node.padding_bottom or node.padding_left != node.padding_right:
        raise UnsupportedError("its padding is different on two sides")
    return node.padding_top, node.padding_left


_KINDS: dict[type, Callable[[XnnInlining, Any], None]] = {
    xnn.Clamp: XnnInlining._clamp,
    xnn.LeakyReLU: XnnInlining._leaky_relu,
    xnn.ELU: XnnInlining._elu,
    xnn.PReLU: XnnInlining._prelu,
    xnn.Softmax: XnnInlining._softmax,
    xnn.Convert: XnnInlining._convert,
    xnn.FullyConnected: XnnInlining._fully_connected,
    xnn.BatchMatrixMultiply: XnnInlining._batch_matrix_multiply,
    xnn.Conv2d: XnnInlining._convolution,
    xnn.DepthwiseConv2d: XnnInlining._convolution,
    xnn.ConvTranspose2d: XnnInlining._convolution,
    xnn.MaxPooling2d: XnnInlining._max_pooling,
    xnn.ArgMaxPooling2d: XnnInlining._argmax_pooling,
    xnn.AvgPooling2d: XnnInlining._average_pooling,
    xnn.GlobalAvgPooling2d: XnnInlining._global_average,
    xnn.StaticResizeBilinear2D: XnnInlining._resize,
    xnn.StaticTranspose: XnnInlining._transpose,
    xnn.StaticReshape: XnnInlining._reshape,
    xnn.StaticSlice: XnnInlining._slice,
    xnn.StaticConstantPad: XnnInlining._pad,
    xnn.Concatenate2: XnnInlining._concatenate,
    xnn.Concatenate3: XnnInlining._concatenate,
    xnn.Concatenate4: XnnInlining._concatenate,
    xnn.Concatenate5: XnnInlining._concatenate,
    xnn.ScaledDotProductAttention: XnnInlining._attention,
}
