"""The tables of an XNNPACK graph, as the FlatBuffer in a delegate has them.

Fields are in slot order: never reorder them, only append. The newest tables read the files of the first
exporters, too. A field that is equal to its default is not stored. So an absent id is value 0: no value is
`NO_VALUE`.
"""

from collections.abc import Iterator
from dataclasses import fields
from enum import IntEnum
from typing import Annotated

from pteron.pte.flat import NO_BYTES, f32, i32, table, u16, u32, u64

NO_VALUE = 2**32 - 1
EXTERNAL_INPUT, EXTERNAL_OUTPUT = 1, 2


class XnnDataType(IntEnum):
    INVALID = 0
    FP32 = 1
    FP16 = 2
    QINT8 = 3  # per tensor
    QUINT8 = 4
    QINT32 = 5
    QCINT8 = 6  # per channel
    QCINT32 = 7
    QCINT4 = 8
    QDINT8 = 9  # quantized when it is computed, per row
    QBINT4 = 10  # per block of a row
    QPINT8 = 11
    INT32 = 12
    PFP32 = 13
    BF16 = 14


XnnType = Annotated[XnnDataType, "h"]


# -- values -------------------------------------------------------------------------------------------


@table
class PerChannelQuant:
    scale: tuple[f32, ...] = ()
    channel_dim: i32 = 0
    scale_buffer_idx: u32 = 0  # 0: the scales are `scale`
    num_scales: u32 = 0


@table
class PerTensorQuant:
    scale: f32 = 0.0
    zero_point: i32 = 0


@table
class PerTokenDynamicQuant:
    num_nonbatch_dims: i32 = 0


@table
class PerChannelGroupQuant:
    scale: tuple[f32, ...] = ()
    channel_dim: i32 = 0
    group_size: i32 = 0
    scale_bf16: tuple[u16, ...] = ()
    scale_buffer_idx: u32 = 0
    num_scales: u32 = 0


@table
class XnnTensor:
    datatype: XnnType = XnnDataType.INVALID
    num_dims: u32 = 0
    dims: tuple[u32, ...] = ()  # the largest shape, in the order of memory
    constant_buffer_idx: u32 = 0  # 0: no constant
    external_id: u32 = 0  # the argument of the delegate's call, if a flag is set
    flags: u32 = 0
    id_out: u32 = 0
    dq_datatype: XnnType = XnnDataType.INVALID  # of the first exporters: an input that is quantized first


@table
class XnnQuantizedTensor:
    tensor_value: XnnTensor
    quant_params: (
        PerChannelQuant | PerTensorQuant | PerTokenDynamicQuant | PerChannelGroupQuant | None
    ) = None  # fmt: skip


@table
class XnnValue:
    value: XnnTensor | XnnQuantizedTensor

    @property
    def tensor(self) -> XnnTensor:
        value = self.value
        return value if isinstance(value, XnnTensor) else value.tensor_value


# -- nodes: fields whose names end in _id are values ----------------------------------------------------


@table
class Unary:
    input_id: u32 = 0
    output_id: u32 = 0
    flags: u32 = 0


@table
class Binary:
    input1_id: u32 = 0
    input2_id: u32 = 0
    output_id: u32 = 0
    flags: u32 = 0


@table
class Concatenation:
    axis: u32 = 0
    input1_id: u32 = 0
    input2_id: u32 = 0
    input3_id: u32 = 0
    input4_id: u32 = 0
    output_id: u32 = 0
    flags: u32 = 0
    input5_id: u32 = 0


@table
class Filters2d:
    padding_top: u32 = 0
    padding_right: u32 = 0
    padding_bottom: u32 = 0
    padding_left: u32 = 0
    kernel_height: u32 = 0
    kernel_width: u32 = 0
    subsampling_height: u32 = 0
    subsampling_width: u32 = 0
    dilation_height: u32 = 0
    dilation_width: u32 = 0
    group_input_channels: u32 = 0
    group_output_channels: u32 = 0
    groups: u32 = 0
    adjustment_height: u32 = 0
    adjustment_width: u32 = 0
    input1_id: u32 = 0
    filter_id: u32 = 0
    bias_id: u32 = 0
    output_id: u32 = 0
    flags: u32 = 0


@table
class Window2d:
    padding_top: u32 = 0
    padding_right: u32 = 0
    padding_bottom: u32 = 0
    padding_left: u32 = 0
    pooling_height: u32 = 0
    pooling_width: u32 = 0
    stride_height: u32 = 0
    stride_width: u32 = 0
    dilation_height: u32 = 0
    dilation_width: u32 = 0
    input_id: u32 = 0
    output_id: u32 = 0
    flags: u32 = 0


@table
class FullyConnected:
    input1_id: u32 = 0
    filter_id: u32 = 0
    bias_id: u32 = 0
    output_id: u32 = 0
    flags: u32 = 0


@table
class StaticTranspose:
    num_dims: u32 = 0
    perm: tuple[u32, ...] = ()
    input_id: u32 = 0
    output_id: u32 = 0
    flags: u32 = 0


@table
class StaticResizeBilinear2D:
    new_height: u32 = 0
    new_width: u32 = 0
    input_id: u32 = 0
    output_id: u32 = 0
    flags: u32 = 0


@table
class StaticConstantPad:
    pre_paddings: tuple[u32, ...] = ()
    post_paddings: tuple[u32, ...] = ()
    padding_value: f32 = 0.0
    input_id: u32 = 0
    output_id: u32 = 0
    flags: u32 = 0


@table
class StaticReshape:
    num_dims: u32 = 0
    new_shape: tuple[u32, ...] = ()  # 0: the size that is left
    input_id: u32 = 0
    output_id: u32 = 0
    flags: u32 = 0


@table
class StaticSlice:
    num_dims: u32 = 0
    offsets: tuple[u32, ...] = ()
    sizes: tuple[u32, ...] = ()
    input_id: u32 = 0
    output_id: u32 = 0
    flags: u32 = 0


@table
class ScaledDotProductAttention:
    query_id: u32 = 0
    key_id: u32 = 0
    value_id: u32 = 0
    scale_id: u32 = 0
    mask_id: u32 = 0
    output_id: u32 = 0
    flags: u32 = 0


@table
class ArgMaxPooling2d:
    padding_top: u32 = 0
    padding_right: u32 = 0
    padding_bottom: u32 = 0
    padding_left: u32 = 0
    pooling_height: u32 = 0
    pooling_width: u32 = 0
    input_id: u32 = 0
    output_value_id: u32 = 0
    output_index_id: u32 = 0
    flags: u32 = 0


@table
class LeakyReLU:
    negative_slope: f32 = 0.0
    input_id: u32 = 0
    output_id: u32 = 0
    flags: u32 = 0


@table
class ELU:
    alpha: f32 = 0.0
    input_id: u32 = 0
    output_id: u32 = 0
    flags: u32 = 0


# Kinds of nodes with the same fields.
# fmt: off
class Add(Binary): ...
class Div(Binary): ...
class Minimum(Binary): ...
class Multiply(Binary): ...
class Subtract(Binary): ...
class Maximum(Binary): ...
class PReLU(Binary): ...
class BatchMatrixMultiply(Binary): ...
class Softmax(Unary): ...
class Sigmoid(Unary): ...
class Clamp(Unary): ...
class Floor(Unary): ...
class Convert(Unary): ...
class GlobalAvgPooling2d(Unary): ...
class SquareRoot(Unary): ...
class Ceiling(Unary): ...
class Hardswish(Unary): ...
class Negate(Unary): ...
class Square(Unary): ...
class Abs(Unary): ...
class ReciprocalSquareRoot(Unary): ...
class Log(Unary): ...
class Gelu(Unary): ...
class Tanh(Unary): ...
class Exp(Unary): ...
class Sin(Unary): ...
class Copy(Unary): ...
class Cos(Unary): ...
class Conv2d(Filters2d): ...
class DepthwiseConv2d(Filters2d): ...
class ConvTranspose2d(Filters2d): ...
class AvgPooling2d(Window2d): ...
class MaxPooling2d(Window2d): ...
class Concatenate2(Concatenation): ...
class Concatenate3(Concatenation): ...
class Concatenate4(Concatenation): ...
class Concatenate5(Concatenation): ...
# fmt: on

NodeKind = (
    Add | FullyConnected | Softmax | Sigmoid | StaticTranspose | Clamp | Conv2d | Div | StaticResizeBilinear2D
    | StaticConstantPad | AvgPooling2d | Minimum | DepthwiseConv2d | MaxPooling2d | Multiply | Subtract
    | Floor | Convert | GlobalAvgPooling2d | StaticReshape | ArgMaxPooling2d | SquareRoot | Ceiling
    | Hardswish | LeakyReLU | Maximum | Negate | Square | ELU | Abs | PReLU | Concatenate2 | Concatenate3
    | Concatenate4 | StaticSlice | ScaledDotProductAttention | BatchMatrixMultiply | Concatenate5
    | ConvTranspose2d | ReciprocalSquareRoot | Log | Gelu | Tanh | Exp | Sin | Copy | Cos
)  # fmt: skip


def ids_of(node: NodeKind) -> Iterator[tuple[str, int]]:
    """The fields of a node that name values, with the ids."""
    for field in fields(node):
        if field.name.endswith("_id"):
            yield field.name, getattr(node, field.name)


@table
class OutputMinMax:
    output_min: f32 = 0.0
    output_max: f32 = 0.0


@table
class XnnNode:
    node: NodeKind
    debug_handle: u32 = 0
    bounds: OutputMinMax | None = None


# -- the graph ------------------------------------------------------------------------------------------


@table
class Storage:
    storage: memoryview = NO_BYTES


@table
class ConstantData:
    offset: u64 = 0
    size: u64 = 0
    named_key: str | None = None


@table
class XnnGraph:
    version: str = ""
    nodes: tuple[XnnNode, ...] = ()
    values: tuple[XnnValue, ...] = ()
    num_externs: u32 = 0
    input_ids: tuple[u32, ...] = ()
    output_ids: tuple[u32, ...] = ()
    constant_buffer: tuple[Storage, ...] = ()  # of the first exporters
    mem_buffer_sizes: tuple[u32, ...] = ()
    constant_data: tuple[ConstantData, ...] = ()
