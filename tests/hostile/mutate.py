"""Damage with a sense of structure: a seeded change to a real file.

Random bytes rarely get past a parser's first check. So most mutants are made of decoded records: an index is
moved, a count is changed, a value becomes one of another kind, a piece of another file is spliced in; then
everything is encoded again, and the file is well-formed but means something else. The rest are cut, spliced
or overwritten as plain bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, is_dataclass, replace
from functools import cache
from random import Random
from typing import Any, get_args, get_type_hints

from pteron.pte import schema, vulkan, xnnpack, xnnpack_graph
from pteron.pte.container import file_chunks, parts_of, place
from pteron.pte.file import ProgramFile
from pteron.pte.flat import encode
from pteron.pte.header import RESERVE, write_header

INTEGERS = (
    0,
    1,
    -1,
    2,
    3,
    7,
    8,
    16,
    64,
    255,
    1024,
    65535,
    2**31 - 1,
    -(2**31),
    2**32 - 1,
    2**63 - 1,
    -(2**63),
)
FLOATS = (0.0, -0.0, 1.0, -1.0, 0.5, 1e-45, 1e38, 1e308, float("inf"), float("-inf"), float("nan"))
ROUNDS = 20  # attempts to encode, before a mutant is left as it is

# Delegates have a header of the same form, and then a graph.
DelegateGraph = vulkan.VkGraph | xnnpack_graph.XnnGraph
FORMATS: dict[bytes, Any] = {b"VH00": vulkan, b"XH00": xnnpack}

Path = tuple[str | int, ...]
Site = tuple[Path, Any]


class Corpus:
    """Decoded programs, and their records by class: the material for splices."""

    def __init__(self, files: Sequence[bytes], operators: Sequence[str]) -> None:
        self.files = list(files)
        self.weights = [1 / (len(data) + 10_000) for data in files]  # mutants of large files take longer
        self.operators = list(operators)
        self.decoded = [Decoded(data) for data in files]
        self.records: dict[type, list[Any]] = {}
        self._sites: dict[int, list[Site]] = {}  # by the tree's id; most changes are the first in their tree
        for tree in (tree for decoded in self.decoded for tree in decoded.trees()):
            self._sites[id(tree)] = list(walk(tree))
            for _, value in self._sites[id(tree)]:
                if is_dataclass(value):
                    self.records.setdefault(type(value), []).append(value)

    def mutant(self, rng: Random) -> bytes:
        (number,) = rng.choices(range(len(self.files)), self.weights)
        if rng.random() < 0.1:
            return damage_bytes(self.files[number], rng, self.files)
        data = self.decoded[number].changed(rng, self)
        return damage_bytes(data, rng, self.files) if rng.random() < 0.03 else data

    def sites(self, tree: Any) -> list[Site]:
        """Everything inside a tree, with the way to it."""
        return self._sites.get(id(tree)) or list(walk(tree))


class Decoded:
    """A program, its delegates' graphs, and its segments."""

    def __init__(self, data: bytes) -> None:
        with ProgramFile.open(data) as file:
            self.program = file.program
            self.segments = [bytes(file.segment(i)) for i in range(len(file.program.segments))]
        self.graphs: dict[int, tuple[DelegateGraph, bytes]] = {}
        for number, segment in enumerate(self.segments):
            if segment[4:8] in FORMATS:
                delegate = FORMATS[segment[4:8]].read_delegate(memoryview(segment))
                self.graphs[number] = delegate.graph, bytes(delegate.inline)

    def trees(self) -> list[Any]:
        return [self.program, *(graph for graph, _ in self.graphs.values())]

    def changed(self, rng: Random, corpus: Corpus) -> bytes:
        """The file with one to four changes, most of them in delegates, where most of the operators are."""
        for _ in range(ROUNDS):
            program, graphs = self.program, {number: graph for number, (graph, _) in self.graphs.items()}
            for _ in range(rng.choice((1, 1, 1, 2, 2, 4))):
                if graphs and rng.random() < 0.7:
                    number = rng.choice(list(graphs))
                    graphs[number] = change(graphs[number], rng, corpus)
                else:
                    program = change(program, rng, corpus)
            try:
                return self._encode(program, graphs, rng)
            except (ValueError, struct.error, TypeError, OverflowError, AttributeError):
                continue  # a number that its field cannot hold
        return self._encode(self.program, {n: graph for n, (graph, _) in self.graphs.items()}, rng)

    def _encode(self, program: schema.Program, graphs: dict[int, DelegateGraph], rng: Random) -> bytes:
        segments = list(self.segments)
        for number, graph in graphs.items():
            stored, inline = self.graphs[number]
            if graph is not stored:
                segments[number] = delegate_blob(graph, inline)
        placed = place(segments, 16)
        if rng.random() < 0.97:  # else the segment table is the mutated one
            program = replace(program, segments=placed)
        head = bytearray(encode(program, identifier=schema.IDENTIFIER, reserve=RESERVE))
        parts = parts_of(len(head), placed, 16)
        write_header(head, parts)
        return b"".join(map(bytes, file_chunks(head, parts, placed, segments)))


def delegate_blob(graph: DelegateGraph, inline: bytes) -> bytes:
    """`write_delegate` refuses graphs that make no sense; this writes them."""
    empty = empty_delegate(type(graph))
    body = encode(graph, identifier=empty[36:40])
    start = struct.unpack_from("<I", empty, 10)[0]
    inline_start = start + len(body) + -(start + len(body)) % 16
    header = struct.pack("<4s4sHIIIQ", empty[:4], empty[4:8], 30, start, len(body), inline_start, len(inline))
    return b"".join((header.ljust(start, b"\0"), body, bytes(inline_start - start - len(body)), inline))


@cache
def empty_delegate(kind: type[DelegateGraph]) -> bytes:
    return vulkan.write_delegate(kind()) if kind is vulkan.VkGraph else xnnpack.write_delegate(kind())


# -- records --------------------------------------------------------------------------------------------


def walk(value: Any, path: Path = ()) -> Iterator[Site]:
    """Everything inside a record, with the way to it."""
    yield path, value
    if is_dataclass(value):
        for field in fields(value):
            yield from walk(getattr(value, field.name), (*path, field.name))
    elif isinstance(value, tuple):
        for number, item in enumerate(value):
            yield from walk(item, (*path, number))


def change(tree: Any, rng: Random, corpus: Corpus) -> Any:
    """The tree with one thing changed. Half of the changes go where operators meet their arguments."""
    _, *sites = corpus.sites(tree)  # without the tree itself
    if rng.random() < 0.5:
        sites = [site for site in sites if _is_argument(*site)] or sites
    path, value = rng.choice(sites)
    return put(tree, path, changed(value, rng, corpus, tree, path))


def _is_argument(path: Path, value: Any) -> bool:
    """An index of an argument, or a value that may be of several kinds."""
    if len(path) > 1 and path[-2] in ("args", "items", "dims", "sizes"):
        return True
    if isinstance(path[-1], str) and path[-1].endswith("_id"):
        return True
    return path[-1] in ("val", "value", "node") and is_dataclass(value)


def put(tree: Any, path: Path, value: Any) -> Any:
    if not path:
        return value
    key, rest = path[0], path[1:]
    if isinstance(key, int):
        return (*tree[:key], put(tree[key], rest, value), *tree[key + 1 :])
    return replace(tree, **{key: put(getattr(tree, key), rest, value)})


def changed(value: Any, rng: Random, corpus: Corpus, tree: Any, path: Path) -> Any:
    match value:
        case bool():
            return not value
        case int():
            return _integer(value, rng, tree)
        case float():
            return rng.choice((*FLOATS, value * 2, -value))
        case str():
            return rng.choice((rng.choice(corpus.operators), "", value[:-1], value + "x", "\0"))
        case tuple():
            return _tuple(value, rng, corpus)
        case memoryview():
            return memoryview(damage_bytes(bytes(value), rng, corpus.files))
    if is_dataclass(value):
        return _record(value, rng, corpus, tree, path)
    return value


def _integer(value: int, rng: Random, tree: Any) -> int:
    """A number that is special, or near, or that may be an index. An enum's number may become no member's."""
    near = int(value) + rng.choice((-1, 1)), int(value) * 2
    return rng.choice((rng.choice(INTEGERS), *near, rng.randrange(4), rng.randrange(12), rng.randrange(40)))


def _tuple(items: tuple[Any, ...], rng: Random, corpus: Corpus) -> tuple[Any, ...]:
    if not items:
        return (rng.randrange(20),)
    at = rng.randrange(len(items))
    again = rng.choice(corpus.records.get(type(items[at]), [items[at]]))
    changes: list[Callable[[], tuple[Any, ...]]] = [
        lambda: (*items[:at], *items[at + 1 :]),
        lambda: (*items[:at], items[at], *items[at:]),
        lambda: items[:at],
        lambda: items[::-1],
        lambda: items * rng.choice((2, 3, 50)),
        lambda: (*items[:at], again, *items[at + 1 :]),
        lambda: (*items[:at], again, *items[at:]),
        lambda: (),
    ]
    return rng.choice(changes)()


def _record(value: Any, rng: Random, corpus: Corpus, tree: Any, path: Path) -> Any:
    """Another record of the same class, or of another class that the field takes, too."""
    others = [cls for cls in _alternatives(tree, path) if cls in corpus.records]
    if others and rng.random() < 0.5 and type(value).__module__ != xnnpack_graph.__name__:
        kinds = vulkan if type(value).__module__ == vulkan.__name__ else schema
        special = (
            kinds.Int(rng.choice(INTEGERS)),
            kinds.Double(rng.choice(FLOATS)),
            kinds.Bool(rng.random() < 0.5),
            kinds.Null(),
            kinds.IntList(tuple([rng.randrange(8) for _ in range(rng.randrange(6))])),
        )
        return rng.choice(special)
    kind = rng.choice([type(value), *others])
    return rng.choice(corpus.records[kind])


def _alternatives(tree: Any, path: Path) -> list[type]:
    if not isinstance(path[-1], str):
        return []
    owner = tree
    for key in path[:-1]:
        owner = owner[key] if isinstance(key, int) else getattr(owner, key)
    hint = get_type_hints(type(owner))[path[-1]]
    return [member for member in get_args(hint) if is_dataclass(member)]


# -- bytes ----------------------------------------------------------------------------------------------


def damage_bytes(data: bytes, rng: Random, others: Sequence[bytes]) -> bytes:
    """Cut, splice, or overwrite a few places."""
    if not data:
        return b"\0"
    at = rng.randrange(len(data))
    match rng.randrange(5):
        case 0:
            return data[:at]
        case 1:
            other = rng.choice(others)
            start = rng.randrange(len(other))
            piece = other[start : start + rng.choice((4, 8, 64, 1024))]
            return data[:at] + piece + data[at + len(piece) :]
        case 2:
            return data[:at] + data[at + rng.choice((1, 4, 8, 16)) :]
        case 3:
            at -= at % 4
            number = struct.pack("<I", rng.choice(INTEGERS) & 0xFFFFFFFF)
            return data[:at] + number + data[at + 4 :]
    damaged = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4, 16))):
        damaged[rng.randrange(len(data))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
    return bytes(damaged)
