"""The XNNPACK delegate in a program: a header ("XH00"), a FlatBuffer graph ("XN01"), constants.

The first exporters wrote no header, the identifier "XN00", and the constants inside the graph.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pteron.errors import FormatError
from pteron.pte.bytesource import ByteSource, Region
from pteron.pte.container import Blob
from pteron.pte.delegate_blob import has_header, make_blob, split_blob, take
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

_MAGIC = b"XH00"
_IDENTIFIERS = (b"XN01", b"XN00")


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
            return take(named(entry.named_key), 0, entry.size, f"{where}: named data {entry.named_key!r}")
        if entry.offset == NAMED_OFFSET:
            raise FormatError(f"{where} is in named data, but has no key")
        return take(self.inline, entry.offset, entry.size, f"{where}: inline data")


def read_delegate(source: Region | Blob) -> XnnDelegate:
    """Read a delegate blob, and check that all ids in the graph are in range."""
    region = source if isinstance(source, Region) else ByteSource(source).region()
    if has_header(region, _MAGIC):
        flatbuffer, inline = split_blob(region, zero_is_rest=False)
    else:
        flatbuffer, inline = region, region[:0]
    view = flatbuffer.view
    identifier = next((known for known in _IDENTIFIERS if view[4:8] == known), _IDENTIFIERS[0])
    graph = decode(XnnGraph, view, identifier=identifier, what="delegate")
    _check_graph(graph)
    return XnnDelegate(graph, inline)


def write_delegate(graph: XnnGraph, inline: Blob = b"") -> bytes:
    """A blob that `read_delegate` can read."""
    _check_graph(graph)
    return make_blob(_MAGIC, encode(graph, identifier=_IDENTIFIERS[0]), inline)


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
