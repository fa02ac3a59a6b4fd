"""The XNNPACK delegate in a program: a header ("XH00"), a FlatBuffer graph ("XN01"), constants.

The first exporters wrote no header, the identifier "XN00", and the constants inside the graph.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from struct import Struct

from pteron.errors import FormatError
from pteron.pte.bytesource import ByteSource, Region
from pteron.pte.container import Blob
from pteron.pte.flat import decode, encode
from pteron.pte.validate import MAX_RANK, check_index
from pteron.pte.xnnpack_graph import (
    EXTERNAL_INPUT,
    EXTERNAL_OUTPUT,
    NO_VALUE,
    Concatenation,
    NodeKind,
    XnnGraph,
    ids_of,
)

BACKEND_ID = "XnnpackBackend"
MAX_EXTERNALS = 4096

# A constant with this offset is not in the blob: `named_key` is its key in the program's named data.
NAMED_OFFSET = 2**64 - 1

# magic (after four zero bytes), length of the header, FlatBuffer offset and size, constants offset and size
_HEADER = Struct("<4x4sHIIIQ")
_MAGIC = b"XH00"
_IDENTIFIERS = (b"XN01", b"XN00")
_FLATBUFFER_AT = 32
_ALIGNMENT = 16


@dataclass(frozen=True, slots=True)
class XnnDelegate:
    """The graph of a delegate, and the region of the blob with its constants."""

    graph: XnnGraph
    inline: Region

    @property
    def operators(self) -> list[str]:
        """The kinds of the nodes, in program order."""
        return [f"XNNPACK {type(item.node).__name__}" for item in self.graph.nodes]

    def accesses(self, args: Sequence[int]) -> tuple[list[int], list[int]]:
        """The arguments of a call that are inputs, and those that are outputs."""
        return self._arguments(args, EXTERNAL_INPUT), self._arguments(args, EXTERNAL_OUTPUT)

    def _arguments(self, args: Sequence[int], flag: int) -> list[int]:
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
