"""The XNNPACK delegate in a program: a header ("XH00"), a FlatBuffer graph ("XN01"), constants.

Table fields are in slot order: never reorder them, only append. The first exporters wrote no header, the
identifier "XN00", and the constants inside the graph. The newest tables read their files, too.

A field that is equal to its default is not stored. So an absent id is value 0: no value is `NO_VALUE`.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from enum import IntEnum
from struct import Struct
from typing import Annotated

from pteron.errors import FormatError
from pteron.pte.bytesource import ByteSource, Region
from pteron.pte.container import Blob
from pteron.pte.flat import NO_BYTES, decode, encode, f32, i32, table, u16, u32, u64
from pteron.pte.validate import MAX_RANK, check_index

BACKEND_ID = "XnnpackBackend"
NO_VALUE = 2**32 - 1
EXTERNAL_INPUT, EXTERNAL_OUTPUT = 1, 2
MAX_EXTERNALS = 4096

# A constant with this offset is not in the blob: `named_key` is its key in the program's named data.
NAMED_OFFSET = 2**64 - 1

# magic (after four zero bytes), length of the header, FlatBuffer offset and size, constants offset and size
_HEADER = Struct("<4x4sHIIIQ")
_MAGIC = b"XH00"
_IDENTIFIERS = (b"XN01", b"XN00")
_FLATBUFFER_AT = 32
_ALIGNMENT = 16


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


@dataclass(frozen=True, slots=True)
class XnnDelegate:
    """The graph of a delegate, and the region of the blob with its constants."""

    graph: XnnGraph
    inline: Region

    @property
    def operators(self) -> list[str]:
        """The kinds of the nodes, in program order."""
        return [f"XNNPACK {type(item.node).__name__}" for item in self.graph.nodes]

    def arguments(self, args: Sequence[int], flag: int) -> list[int]:
        """The arguments of a call that are inputs, or outputs."""
        tensors = [value.tensor for value in self.graph.values if value.tensor.flags & flag]
        for tensor in tensors:
            check_index(tensor.external_id, len(args), "argument", f"delegate: value {tensor.id_out}")
        return [args[tensor.external_id] for tensor in tensors]

    def constant_size(self, index: int) -> tuple[int, str | None]:
        """The bytes of a constant, and its key in the named data."""
        if self.graph.constant_buffer:
            return len(self.graph.constant_buffer[index].storage), None
        entry = self.graph.constant_data[index]
        return entry.size, entry.named_key

    def constant(self, index: int, named: Callable[[str], Region]) -> Region:
        """The region of constant `index`. `named` returns a region of the program's named data by key."""
        where = f"delegate: constant {index}"
        if self.graph.constant_buffer:
            check_index(index, len(self.graph.constant_buffer), "constant", "delegate")
            return ByteSource(self.graph.constant_buffer[index].storage).region()
        check_index(index, len(self.graph.constant_data), "constant", "delegate")
        entry = self.graph.constant_data[index]
        if entry.named_key:
            return _take(named(entry.named_key), 0, entry.size, f"{where}: named data {entry.named_key!r}")
        if entry.offset == NAMED_OFFSET:
            raise FormatError(f"{where} is in named data, but has no key")
        return _take(self.inline, entry.offset, entry.size, f"{where}: inline data")


def read_delegate(source: Region | Blob) -> XnnDelegate:
    """Read a delegate blob, and check that all ids in the graph are in range."""
    region = source if isinstance(source, Region) else ByteSource(source).region()
    flatbuffer, inline = _parts(region)
    view = flatbuffer.view
    identifier = next((known for known in _IDENTIFIERS if view[4:8] == known), _IDENTIFIERS[0])
    graph = decode(XnnGraph, view, identifier=identifier, what="delegate")
    _check_graph(graph)
    return XnnDelegate(graph, inline)


def _parts(region: Region) -> tuple[Region, Region]:
    """The FlatBuffer and the constants."""
    head = region[: _HEADER.size].view
    if len(head) < _HEADER.size or head[4:8] != _MAGIC:
        return region, region[:0]
    _, header_size, start, size, inline_start, inline_size = _HEADER.unpack_from(head)
    if header_size < _HEADER.size or start < header_size or size == 0:
        raise FormatError(
            f"delegate: header of {header_size} bytes places {size} bytes of graph at {start}; "
            f"expected a header of {_HEADER.size} or more, and a graph after it"
        )
    if inline_size and inline_start < start + size:
        raise FormatError(
            f"delegate: constants at {inline_start} overlap the graph at {start}..{start + size}"
        )
    flatbuffer = _take(region, start, size, "delegate: graph")
    inline = _take(region, inline_start, inline_size, "delegate: constants") if inline_size else region[:0]
    return flatbuffer, inline


def write_delegate(graph: XnnGraph, inline: Blob = b"") -> bytes:
    """A blob that `read_delegate` can read."""
    _check_graph(graph)
    flatbuffer = encode(graph, identifier=_IDENTIFIERS[0])
    end = _FLATBUFFER_AT + len(flatbuffer)
    inline_start = end + -end % _ALIGNMENT
    size = memoryview(inline).nbytes
    header = _HEADER.pack(_MAGIC, _HEADER.size, _FLATBUFFER_AT, len(flatbuffer), inline_start, size)
    padding = bytes(inline_start - end)
    return b"".join((header, bytes(_FLATBUFFER_AT - _HEADER.size), flatbuffer, padding, inline))


def _take(data: Region, start: int, size: int, what: str) -> Region:
    if start + size > len(data):
        raise FormatError(f"{what} needs bytes {start}..{start + size}, but there are {len(data)}")
    return data[start : start + size]


def ids_of(node: NodeKind) -> Iterator[tuple[str, int]]:
    """The fields of a node that name values, with the ids."""
    for field in fields(node):
        if field.name.endswith("_id"):
            yield field.name, getattr(node, field.name)


def _check_graph(graph: XnnGraph) -> None:
    """Raise FormatError if an id or a flag in the graph is out of range."""
    known: set[int] = set()
    for number, value in enumerate(graph.values):
        tensor, where = value.tensor, f"delegate: value {number}"
        if tensor.id_out in known:
            raise FormatError(f"{where}: a second value has the id {tensor.id_out}")
        known.add(tensor.id_out)
        if len(tensor.dims) > MAX_RANK:
            raise FormatError(f"{where}: a tensor of rank {len(tensor.dims)} exceeds the format's {MAX_RANK}")
        if tensor.flags & ~(EXTERNAL_INPUT | EXTERNAL_OUTPUT):
            raise FormatError(f"{where}: unknown flags {tensor.flags}")
        if tensor.constant_buffer_idx:
            count = len(graph.constant_buffer) or len(graph.constant_data)
            check_index(tensor.constant_buffer_idx, count, "constant", where)
    if graph.num_externs > MAX_EXTERNALS:
        raise FormatError(f"delegate: {graph.num_externs} inputs and outputs, at most {MAX_EXTERNALS}")
    for number, item in enumerate(graph.nodes):
        for name, index in ids_of(item.node):
            if index not in known and not _is_optional(item.node, name, index):
                kind = type(item.node).__name__
                raise FormatError(f"delegate: node {number} ({kind}): {name} is {index}, which is no value")


def _is_optional(node: NodeKind, name: str, index: int) -> bool:
    """Whether a field may name no value. A concatenation of two has fields for five."""
    if isinstance(node, Concatenation):
        return name.startswith("input") and int(name[5]) > int(type(node).__name__[-1])
    return index == NO_VALUE and name in ("bias_id", "mask_id")
