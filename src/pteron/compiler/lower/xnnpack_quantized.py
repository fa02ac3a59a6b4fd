"""Nodes of the XNNPACK delegate on quantized values.

Values with one scale and one zero point are int8 tensors. Products of them are sums of integers, as in the
file. Values that are quantized when they are computed stay floats until a product reads them: it quantizes
them per row. Other nodes compute with floats between a dequantization and a quantization. Where a result lies
exactly between two codes, its rounding depends on the order of these steps, which is therefore XNNPACK's.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from math import inf, isfinite, prod
from typing import Any

from pteron.compiler.ir.dtypes import DType
from pteron.compiler.ir.values import Arg, Constant, Tensor, ValueId
from pteron.compiler.lower.builder import CAST, VIEW
from pteron.compiler.lower.xnnpack_nodes import TRANSPOSED_WEIGHT, XnnInlining, equal_padding
from pteron.compiler.lower.xnnpack_values import NCHW, Held, plain
from pteron.compiler.ops.elementwise import nearest_f32
from pteron.errors import FormatError, UnsupportedError
from pteron.pte import xnnpack_graph as xnn
from pteron.pte.bytesource import ByteSource
from pteron.pte.schema import ScalarType
from pteron.pte.xnnpack_graph import XnnDataType

QUANTIZE = "quantized_decomposed.quantize_per_tensor.default"
DEQUANTIZE = "quantized_decomposed.dequantize_per_tensor.default"
CHOOSE = "quantized_decomposed.choose_qparams_per_token_asymmetric.default"
LOW, HIGH, CHAR = -128, 127, ScalarType.CHAR

# Values whose elements are codes, and how the codes are stored.
CODES = {
    XnnDataType.QINT8: DType.int8,
    XnnDataType.QCINT8: DType.int8,
    XnnDataType.QCINT4: DType.uint8,
    XnnDataType.QBINT4: DType.uint8,
}
# Quantized when it is computed. The packed type has an order of elements that XNNPACK chooses.
DYNAMIC = (XnnDataType.QDINT8, XnnDataType.QPINT8)
# These move elements, so they work on codes as they are.
MOVES = (
    xnn.StaticTranspose,
    xnn.StaticReshape,
    xnn.StaticSlice,
    xnn.Copy,
    xnn.Concatenate2,
    xnn.Concatenate3,
    xnn.Concatenate4,
    xnn.Concatenate5,
)


class QuantizedInlining(XnnInlining):
    """Inlines one call of the XNNPACK delegate, with quantized values."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._dynamic: dict[int, Held] = {}  # the floats that a product quantizes
        self._scaled: dict[ValueId, tuple[Tensor, Tensor]] = {}  # scales and zero points of rows
        self._in_floats = False
        self._in_steps = False

    def _lower(self, node: xnn.NodeKind) -> None:
        if not any(self._is_quantized(index) for _, index in xnn.ids_of(node) if index in self.values):
            super()._lower(node)
        elif isinstance(node, xnn.Convert):
            self._convert(node)
        elif isinstance(node, xnn.FullyConnected | xnn.Filters2d):
            self._product(node)
        elif isinstance(node, xnn.Add | xnn.Subtract):
            self._sum(node)
        elif isinstance(node, MOVES):
            super()._lower(node)
        elif isinstance(node, xnn.Multiply | xnn.GlobalAvgPooling2d) and self._all_codes(node):
            self._with_steps(node)
        elif isinstance(node, xnn.Clamp) and self._same_codes(node.input_id, node.output_id):
            held = self.read(node.input_id)
            self.held[node.output_id] = Held(self._clamp_codes(held.tensor, node.output_id), held.order)
        else:
            self._with_floats(node)

    # -- values ---------------------------------------------------------------------------------

    def _is_quantized(self, index: int) -> bool:
        return isinstance(self.values[index].value, xnn.XnnQuantizedTensor)

    def _type(self, index: int) -> XnnDataType:
        return self.values[index].tensor.datatype

    def _parameters(self, index: int) -> tuple[float, int]:
        """The scale and the zero point of a whole value."""
        value = self.values[index].value
        found = value.quant_params if isinstance(value, xnn.XnnQuantizedTensor) else None
        if not isinstance(found, xnn.PerTensorQuant) or not found.scale:
            raise UnsupportedError(
                f"value {index} ({self._type(index).name.lower()}) has no scale of its own"
            )
        if not 0 < found.scale < inf:
            raise FormatError(
                f"{self._origin}: the scale of value {index} is {found.scale}: expected a number above 0"
            )
        return found.scale, found.zero_point

    def _same_codes(self, a: int, b: int) -> bool:
        return self._parameters(a) == self._parameters(b)

    def dtype(self, index: int) -> DType:
        code = self._type(index)
        if self._in_floats and code is XnnDataType.QINT8:
            return DType.float32
        return CODES[code] if code in CODES else super().dtype(index)

    def read(self, index: int) -> Held:
        held = super().read(index)
        if self._in_floats and held.tensor.dtype is DType.int8:
            return self._dequantized(held, index)
        return held

    def _constant(self, index: int) -> Tensor:
        tensor = self.values[index].tensor
        if tensor.datatype not in CODES:
            return super()._constant(index)
        dims = tuple(tensor.dims)
        if tensor.datatype in (XnnDataType.QCINT4, XnnDataType.QBINT4):  # two codes in a byte
            if not dims:
                raise FormatError(f"{self._origin}: the 4-bit weights {index} have no dimensions")
            dims = (*dims[:-1], -(-dims[-1] // 2))
        dtype = CODES[tensor.datatype]
        data = self.delegate.constant(tensor.constant_buffer_idx, self.lowering.file.named_data)
        return self.lowering.tensor(dtype, dims, self._name(index), Constant(data, dtype.label))

    def _made(self, numbers: array[float], name: str, shape: tuple[int, ...]) -> Tensor:
        """A constant with these float32 numbers."""
        data = ByteSource(numbers.tobytes()).region()
        return self.lowering.tensor(DType.float32, shape, name, Constant(data, "float32"))

    def _channel_scales(self, index: int, channels: int) -> array[float]:
        """The scale of each output channel of a weight."""
        value = self.values[index].value
        found = value.quant_params if isinstance(value, xnn.XnnQuantizedTensor) else None
        match found:
            case xnn.PerTensorQuant(scale=scale):
                scales = array("f", [scale]) * channels
            case xnn.PerChannelQuant(scale=inline, scale_buffer_idx=0):
                scales = array("f", inline)
            case xnn.PerChannelQuant(scale_buffer_idx=buffer):
                scales = array("f", self._bytes(buffer))
            case _:
                raise UnsupportedError(f"the weights {index} have no scale for each channel")
        if len(scales) != channels:
            raise FormatError(f"{self._origin}: {len(scales)} scales for {channels} channels")
        return scales

    def _bytes(self, buffer: int, itemsize: int = 4) -> bytes:
        data = bytes(self.delegate.constant(buffer, self.lowering.file.named_data).view)
        if len(data) % itemsize:
            raise FormatError(f"{self._origin}: {len(data)} bytes are no numbers of {itemsize} bytes")
        return data

    # -- codes and floats -----------------------------------------------------------------------

    def _dequantized(self, held: Held, index: int) -> Held:
        scale, zero = self._parameters(index)
        scale = 1.0 if self._in_steps else scale
        out = self.lowering.tensor(DType.float32, held.tensor.max_shape, f"{self._name(index)}.float")
        self.node(DEQUANTIZE, [held.tensor, scale, zero, LOW, HIGH, CHAR, None, out])
        return Held(out, held.order)

    def _quantized(self, held: Held, index: int, step: float | None = None, zero_first: bool = False) -> Held:
        """The codes of floats in units of `step` codes. The zero point is added after or before rounding."""
        scale, zero = self._parameters(index)
        step = 1 / scale if step is None else step
        x = held.tensor
        if x.dtype is not DType.float32:
            wide = self.lowering.tensor(DType.float32, x.max_shape, f"{x.name}.float32")
            self.node(CAST, [x, wide])
            x = wide
        if zero_first:
            x = self._apply("aten.mul.Scalar", x, step) if step != 1 else x
            x = self._apply("aten.add.Scalar", x, float(zero), 1)
            step, zero = 1.0, 0
        out = self.lowering.tensor(DType.int8, x.max_shape, self._name(index))
        self.node(QUANTIZE, [x, 1 / step, zero, LOW, HIGH, CHAR, out])
        return Held(out, held.order)

    def _apply(self, name: str, x: Tensor, *rest: Arg) -> Tensor:
        made = self.lowering.tensor(x.dtype, x.max_shape, f"{x.name}.scaled")
        self.node(name, [x, *rest, made])
        return made

    def _convert(self, node: xnn.Convert) -> None:
        given, wanted = self._type(node.input_id), self._type(node.output_id)
        if wanted in DYNAMIC:
            self._dynamic[node.output_id] = self.read(node.input_id)
        elif wanted is XnnDataType.QINT8 and given is XnnDataType.QINT8:
            with self._floats():
                held = self.read(node.input_id)
            self.held[node.output_id] = self._quantized(held, node.output_id, zero_first=True)
        elif wanted is XnnDataType.QINT8:
            self.held[node.output_id] = self._quantized(self.read(node.input_id), node.output_id)
        elif given is XnnDataType.QINT8:
            held = self._dequantized(self.read(node.input_id), node.input_id)
            dtype = self.dtype(node.output_id)
            if dtype is not DType.float32:
                out = self.lowering.tensor(dtype, held.tensor.max_shape, self._name(node.output_id))
                self.node(CAST, [held.tensor, out])
                held = Held(out, held.order)
            self.held[node.output_id] = held
        else:
            super()._convert(node)

    @contextmanager
    def _floats(self) -> Iterator[None]:
        """Values are read as floats, and results are floats."""
        self._in_floats = True
        try:
            yield
        finally:
            self._in_floats = False

    def _with_floats(self, node: xnn.NodeKind) -> None:
        outputs = [index for name, index in xnn.ids_of(node) if name.startswith("output")]
        with self._floats():
            super()._lower(node)
        for index in outputs:
            if self._type(index) is XnnDataType.QINT8:
                self.held[index] = self._quantized(self.held[index], index, zero_first=True)

    def _with_steps(self, node: xnn.Multiply | xnn.GlobalAvgPooling2d) -> None:
        """Compute with whole numbers of steps, and scale the result once."""
        inputs = [self._parameters(index)[0] for name, index in xnn.ids_of(node) if name.startswith("input")]
        step = nearest_f32(nearest_f32(prod(inputs)) / self._parameters(node.output_id)[0])
        if not step or not isfinite(step):
            raise UnsupportedError(f"one step of its inputs is {step} steps of its result")
        bounds, self._bounds, self._in_steps = self._bounds, None, True
        try:
            with self._floats():
                super()._lower(node)
        finally:
            self._bounds, self._in_steps = bounds, False
        zero_first = isinstance(node, xnn.GlobalAvgPooling2d)
        held = self._quantized(self.held[node.output_id], node.output_id, step, zero_first)
        self.held[node.output_id] = Held(self._clamp_codes(held.tensor, node.output_id), held.order)

    def _all_codes(self, node: xnn.NodeKind) -> bool:
        return all(self._type(index) is XnnDataType.QINT8 for _, index in xnn.ids_of(node))

    def _clamp_codes(self, x: Tensor, index: int) -> Tensor:
        """Clamp codes to the bounds of the node."""
        low, high = self._code_bounds(index)
        if (low, high) == (LOW, HIGH):
            return x
        made = self.lowering.tensor(DType.int8, x.max_shape, f"{x.name}.clamped")
        self.node("aten.clamp.default", [x, low, high, made])
        return made

    def _code_bounds(self, index: int) -> tuple[int, int]:
        if self._bounds is None:
            return LOW, HIGH
        scale, zero = self._parameters(index)

        def code(bound: float, limit: int) -> int:
            code = bound / scale
            return min(max(round(code) + zero, LOW), HIGH) if isfinite(code) else limit

        return code(self._bounds.output_min, LOW), code(self._bounds.output_max, HIGH)

    # -- sums and products of codes -------------------------------------------------------------

    def _sum(self, node: xnn.Add | xnn.Subtract) -> None:
        if not self._all_codes(node):
            self._with_floats(node)
            return
        (a, b), order = self._aligned([self.read(node.input1_id), self.read(node.input2_id)])
        out = self.result(node.output_id, order)
        scale, zero = self._parameters(node.input2_id)
        second = -scale if isinstance(node, xnn.Subtract) else scale
        parameters = (*self._parameters(node.input1_id), second, zero, *self._parameters(node.output_id))
        self.node("pteron.add_codes", [a, b, *parameters, out])
        self.held[node.output_id] = Held(self._clamp_codes(out, node.output_id), order)

    def _product(self, node: xnn.FullyConnected | xnn.Filters2d) -> None:
        given = self._type(node.input1_id)
        if given not in (*DYNAMIC, XnnDataType.QINT8):
            raise UnsupportedError(f"its input is {given.name.lower()}, its weights are quantized")
        if isinstance(node, xnn.FullyConnected):
            if node.flags & TRANSPOSED_WEIGHT:
                raise UnsupportedError("its weights are transposed")
            lower = self._dynamic_linear if given in DYNAMIC else self._static_linear
            lower(node)
        elif given in DYNAMIC:
            self._dynamic_convolution(node)
        else:
            self._static_convolution(node)

    def _bias(self, node: xnn.FullyConnected | xnn.Filters2d, scales: array[float]) -> Tensor | None:
        """The bias in floats. Codes have the scale of the input times that of the weights."""
        if node.bias_id == xnn.NO_VALUE:
            return None
        if not self._is_quantized(node.bias_id):
            return self.read(node.bias_id).tensor
        scale, _ = self._parameters(node.input1_id)
        data = self._bytes(self.values[node.bias_id].tensor.constant_buffer_idx)
        codes = struct.unpack(f"<{len(data) // 4}i", data)
        if len(codes) != len(scales):
            raise FormatError(f"{self._origin}: {len(codes)} biases for {len(scales)} channels")
        numbers = array("f", (code * scale * each for code, each in zip(codes, scales, strict=True)))
        return self._made(numbers, f"{self._name(node.bias_id)}.float", (len(codes),))

    def _finish(self, index: int, out: Tensor, order: tuple[int, ...]) -> None:
        self.held[index] = Held(self._clamp_codes(out, index), order)

    def _static_linear(self, node: xnn.FullyConnected) -> None:
        x, weight = self.plain(node.input1_id), self.weights(node.filter_id, 2)
        channels = weight.max_shape[0]
        scales = self._channel_scales(node.filter_id, channels)
        out = self.lowering.tensor(DType.int8, (*x.max_shape[:-1], channels), self._name(node.output_id))
        args: list[Arg] = [
            x,
            *self._parameters(node.input1_id),
            weight,
            weight,  # the operator has sums of weights, which Pteron does not need
            self._made(scales, f"{self._name(node.filter_id)}.scales", (channels,)),
            *self._parameters(node.output_id),
            self._bias(node, scales),
            "none",
        ]
        self.node("et_vk.q8ta_linear.default", [*args, out])
        self._finish(node.output_id, out, plain(out).order)

    def _static_convolution(self, node: xnn.Filters2d) -> None:
        x = self.nchw(node.input1_id)
        out = self.result(node.output_id, NCHW)
        channels = out.max_shape[1]
        scales = self._channel_scales(node.filter_id, channels)
        weight = self.weights(node.filter_id, 4)
        height, width = node.kernel_height, node.kernel_width
        name = "et_vk.q8ta_conv2d.default"
        shape: tuple[int, ...] = (channels, height * width * node.group_input_channels)
        if not isinstance(node, xnn.DepthwiseConv2d):
            filters = self.lowering.tensor(DType.int8, shape, weight.name, weight.constant)
        elif node.group_output_channels == 1:
            name, shape = "et_vk.q8ta_conv2d_dw.default", (height, width, channels)
            filters = self.lowering.tensor(DType.int8, shape, weight.name, weight.constant)
        else:
            filters = self._viewed(self.permuted(weight, (3, 1, 2, 0)), shape)
        padding = equal_padding(node)
        window: list[Arg] = [(height, width), (node.subsampling_height, node.subsampling_width), padding]
        if isinstance(node, xnn.ConvTranspose2d):
            if node.groups > 1 and len(set(scales)) > 1:
                raise UnsupportedError("a transposed convolution with groups and a scale for each channel")
            name = "et_vk.q8ta_conv2d_transposed.default"
            window.append((node.adjustment_height, node.adjustment_width))
        args: list[Arg] = [
            x,
            *self._parameters(node.input1_id),
            filters,
            filters,
            self._made(scales, f"{self._name(node.filter_id)}.scales", (channels,)),
            *self._parameters(node.output_id),
            self._bias(node, scales),
            *window,
            (node.dilation_height, node.dilation_width),
            node.groups,
            "none",
        ]
        self.node(name, [*args, out])
        self._finish(node.output_id, out, NCHW)

    # -- inputs that are quantized when they are computed ---------------------------------------

    def _row_parameters(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """A scale and a zero point for each row. Layers with the same input share them."""
        if x.id in self._scaled:
            return self._scaled[x.id]
        shape = (*x.max_shape[:-1], 1)
        scales = self.lowering.tensor(DType.float32, shape, f"{x.name}.scales")
        zeros = self.lowering.tensor(DType.int32, shape, f"{x.name}.zeros")
        self.node(CHOOSE, [x, CHAR, (scales, zeros)])
        self._scaled[x.id] = scales, zeros
        return scales, zeros

    def _rounded(self, x: Tensor) -> Tensor:
        """x, quantized per row and dequantized."""
        scales, zeros = self._row_parameters(x)
        codes = self.lowering.tensor(DType.int8, x.max_shape, f"{x.name}.codes")
        made = self.lowering.tensor(x.dtype, x.max_shape, f"{x.name}.rounded")
        rest: tuple[Arg, ...] = (scales, zeros, LOW, HIGH, CHAR)
        self.node("quantized_decomposed.quantize_per_token.default", [x, *rest, codes])
        self.node("quantized_decomposed.dequantize_per_token.default", [codes, *rest, None, made])
        return made

    def _dynamic_input(self, index: int) -> Held:
        if index not in self._dynamic:
            raise self.nowhere(index)
        return self._dynamic[index]

    def _dynamic_linear(self, node: xnn.FullyConnected) -> None:
        held = self._dynamic_input(node.input1_id)
        x = self._own_order(held)
        if not x.max_shape:
            raise FormatError(f"{self._origin}: its input has no dimensions")
        weight = self.weights(node.filter_id, 2)
        rows = weight.max_shape[0]
        bias = None if node.bias_id == xnn.NO_VALUE else self.read(node.bias_id).tensor
        shape = (*x.max_shape[:-1], rows)
        out = self.lowering.tensor(self.dtype(node.output_id), shape, self._name(node.output_id))
        if weight.dtype is DType.int8:
            scales = self._made(
                self._channel_scales(node.filter_id, rows), f"{weight.name}.scales", (rows, 1)
            )
            depth = weight.max_shape[1]
            self.node("pteron.linear_int8", [self._rounded(x), weight, scales, None, depth, bias, out])
        else:
            scales, group = self._group_scales(node.filter_id, rows, x.max_shape[-1])
            given = self._row_parameters(x)
            args: list[Arg] = [x, *given, weight, weight, scales, group, bias]
            self.node("et_vk.linear_dq8ca_q4gsw.default", [*args, out])
        self.held[node.output_id] = Held(self._clamped(out), plain(out).order)

    def _dynamic_convolution(self, node: xnn.Filters2d) -> None:
        """Each image has a scale and a zero point. The weights are dequantized."""
        x = self.ordered(self._dynamic_input(node.input1_id), NCHW)
        scales, zeros = self._image_parameters(x)
        codes = self.lowering.tensor(DType.int8, x.max_shape, f"{x.name}.codes")
        made = self.lowering.tensor(x.dtype, x.max_shape, f"{x.name}.rounded")
        rest: tuple[Arg, ...] = (scales, zeros, 0, LOW, HIGH, CHAR)
        self.node("quantized_decomposed.quantize_per_channel.default", [x, *rest, codes])
        self.node("quantized_decomposed.dequantize_per_channel.default", [codes, *rest, None, made])
        self.held[node.input1_id] = Held(made, NCHW)
        self.held[node.filter_id] = plain(self._float_filters(node))
        self._convolution(node)

    def _image_parameters(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The scales [N] and the zero points [N] of N images."""
        images, *size = x.max_shape
        count = self.lowering.symint(f"{x.name}.images")
        self.node("sym_size.int", [x, 0, count])
        rows = self.lowering.tensor(x.dtype, (images, prod(size)), f"{x.name}.rows")
        self.node(VIEW, [x, (count, -1), rows])
        scales, zeros = self._row_parameters(rows)
        return self._viewed(scales, (-1,)), self._viewed(zeros, (-1,))

    def _float_filters(self, node: xnn.Filters2d) -> Tensor:
        weight = self.weights(node.filter_id, 4)
        axis = len(weight.max_shape) - 1 if isinstance(node, xnn.DepthwiseConv2d) else 0
        channels = weight.max_shape[axis]
        scales = self._made(
            self._channel_scales(node.filter_id, channels), f"{weight.name}.scales", (channels,)
        )
        zeros = self._made(array("f", bytes(4 * channels)), f"{weight.name}.zeros", (channels,))
        out = self.lowering.tensor(DType.float32, weight.max_shape, f"{weight.name}.float")
        args: list[Arg] = [weight, scales, zeros, axis, LOW, HIGH, CHAR, None]
        self.node("quantized_decomposed.dequantize_per_channel.default", [*args, out])
        return out

    def _group_scales(self, index: int, rows: int, depth: int) -> tuple[Tensor, int]:
        """The scales [groups, rows] of 4-bit weights, and the size of a group."""
        value = self.values[index].value
        found = value.quant_params if isinstance(value, xnn.XnnQuantizedTensor) else None
        if not isinstance(found, xnn.PerChannelGroupQuant):
            return self._made(
                self._channel_scales(index, rows), f"{self._name(index)}.scales", (1, rows)
            ), depth
        numbers = array("f", found.scale)
        if found.scale_buffer_idx:
            numbers = _floats_of(self._bytes(found.scale_buffer_idx, 2))
        groups = -(-depth // max(found.group_size, 1))
        if len(numbers) != rows * groups:
            raise FormatError(f"{self._origin}: {len(numbers)} scales for {rows} rows of {groups} groups")
        scales = self._made(numbers, f"{self._name(index)}.scales", (rows, groups))
        return self.permuted(scales, (1, 0)), found.group_size


def _floats_of(data: bytes) -> array[float]:
    """bfloat16 numbers as floats: they are the upper halves."""
    wide = bytearray(2 * len(data))
    wide[2::4], wide[3::4] = data[0::2], data[1::2]
    return array("f", bytes(wide))
