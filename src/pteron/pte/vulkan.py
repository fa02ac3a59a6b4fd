"""The Vulkan delegate in a program: a header ("VH00"), a FlatBuffer graph ("VK00"), inline constants.

Table fields are in slot order: never reorder them, only append. Storage types and memory layouts are plain
integers: Pteron ignores them, because it stores every tensor in a flat buffer.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Annotated

from pteron.errors import FormatError
from pteron.pte.bytesource import ByteSource, Region
from pteron.pte.container import Blob
from pteron.pte.delegate_blob import has_header, make_blob, split_blob, take
from pteron.pte.flat import decode, encode, f64, i32, i64, table, u8, u32, u64
from pteron.pte.validate import MAX_RANK, check_index

IDENTIFIER = b"VK00"

BACKEND_ID = "VulkanBackend"

# A VkBytes with this offset is not inline: `named_key` is the key of its bytes in the program's named data.
NAMED_OFFSET = 2**64 - 1

_DEFAULT = 255

_MAGIC = b"VH00"


class VkDataType(IntEnum):
    BOOL = 0
    UINT8 = 1
    INT8 = 2
    INT32 = 3
    FLOAT16 = 4
    FLOAT32 = 5
    FLOAT64 = 6
    INT64 = 7
    BFLOAT16 = 64  # Pteron's own: ExecuTorch's delegate has no such type
    UNSET = 127


@table
class OperatorCall:
    node_id: u32 = 0
    name: str = ""
    args: tuple[i32, ...] = ()  # value ids: the arguments of the operator's schema, then the output


@table
class VkTensor:
    datatype: Annotated[VkDataType, "b"] = VkDataType.BOOL
    dims: tuple[u32, ...] = ()  # the largest shape
    constant_id: i32 = 0  # negative: no constant
    mem_obj_id: i32 = 0  # negative: it shares no memory
    storage_type: u8 = _DEFAULT
    memory_layout: u8 = _DEFAULT
    staging_datatype: Annotated[VkDataType, "b"] = VkDataType.UNSET  # the type that the host passes


@table
class Null:
    pass


@table
class Int:
    int_val: i64 = 0


@table
class Double:
    double_val: f64 = 0.0


@table
class Bool:
    bool_val: bool = False


@table
class IntList:
    items: tuple[i64, ...] = ()  # numbers, unlike the program's IntList


@table
class DoubleList:
    items: tuple[f64, ...] = ()


@table
class BoolList:
    items: tuple[bool, ...] = ()


@table
class ValueList:
    items: tuple[i32, ...] = ()  # value ids


@table
class String:
    string_val: str = ""


@table
class SymInt:
    value: i32 = 0


@table
class VkValue:
    value: (
        Null | Int | Double | Bool | VkTensor | IntList | DoubleList | BoolList | ValueList | String | SymInt
    )  # fmt: skip


@table
class VkBytes:
    offset: u64 = 0
    length: u64 = 0
    named_key: str | None = None


@table
class VkGraph:
    version: str = ""
    chain: tuple[OperatorCall, ...] = ()
    values: tuple[VkValue, ...] = ()
    input_ids: tuple[u32, ...] = ()
    output_ids: tuple[u32, ...] = ()
    constants: tuple[VkBytes, ...] = ()
    shaders: tuple[VkBytes, ...] = ()
    storage_type_override: u8 = _DEFAULT
    memory_layout_override: u8 = _DEFAULT


@dataclass(frozen=True, slots=True)
class VkDelegate:
    """The graph of a delegate, and the region of the blob with its inline constants."""

    graph: VkGraph
    inline: Region

    @property
    def operators(self) -> list[str]:
        """The names of the operators, in program order."""
        return [call.name for call in self.graph.chain]

    def constant(self, index: int, named: Callable[[str], Region]) -> Region:
        """The region of constant `index`. `named` returns a region of the program's named data by key."""
        check_index(index, len(self.graph.constants), "constant", "delegate")
        where = f"delegate: constant {index}"
        entry = self.graph.constants[index]
        if entry.length == 0:
            return self.inline[:0]
        if entry.offset != NAMED_OFFSET:
            return take(self.inline, entry.offset, entry.length, f"{where}: inline data")
        if not entry.named_key:
            raise FormatError(f"{where} is in named data, but has no key")
        return take(named(entry.named_key), 0, entry.length, f"{where}: named data {entry.named_key!r}")


def read_delegate(source: Region | Blob) -> VkDelegate:
    """Read a delegate blob, and check that all ids in the graph are in range."""
    region = source if isinstance(source, Region) else ByteSource(source).region()
    if not has_header(region, _MAGIC):
        raise FormatError(f"delegate: expected a {_MAGIC!r} header, found {bytes(region[:8].view)!r}")
    # The exporter writes size 0 when it stores no constants inline.
    flatbuffer, inline = split_blob(region, zero_is_rest=True)
    graph = decode(VkGraph, flatbuffer.view, identifier=IDENTIFIER, what="delegate")
    _check_graph(graph)
    return VkDelegate(graph, inline)


def write_delegate(graph: VkGraph, inline: Blob = b"") -> bytes:
    """A blob that `read_delegate` can read."""
    _check_graph(graph)
    return make_blob(_MAGIC, encode(graph, identifier=IDENTIFIER), inline)


def _check_graph(graph: VkGraph) -> None:
    """Raise FormatError if an id in the graph is out of range."""
    count = len(graph.values)
    for number, call in enumerate(graph.chain):
        _check_ids(call.args, count, f"delegate: operator {number} ({call.name})")
    _check_ids(graph.input_ids, count, "delegate: input_ids")
    _check_ids(graph.output_ids, count, "delegate: output_ids")
    for number, value in enumerate(graph.values):
        where = f"delegate: value {number}"
        match value.value:
            case ValueList(items):
                _check_ids(items, count, where)
                if any(isinstance(graph.values[item].value, ValueList) for item in items):
                    raise FormatError(f"{where}: a list inside a list")
            case VkTensor(dims=dims, constant_id=constant):
                if len(dims) > MAX_RANK:
                    raise FormatError(
                        f"{where}: a tensor of rank {len(dims)} exceeds the format's {MAX_RANK}"
                    )
                if constant >= 0:
                    check_index(constant, len(graph.constants), "constant", where)


def _check_ids(ids: Iterable[int], count: int, where: str) -> None:
    for index in ids:
        check_index(index, count, "value", where)
