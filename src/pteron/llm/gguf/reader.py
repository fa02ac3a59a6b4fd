"""The bytes of a GGUF file, read with every length checked.

    magic "GGUF", version, number of tensors, number of facts
    facts:    key, type, value            a value may be an array of scalars or of strings
    tensors:  name, dimensions, type, offset
    padding, then the tensors' data

Nothing is believed: a count or a length that goes beyond the file is refused before anything is made of it,
so reading takes time and memory in proportion to the file. Values are decoded when they are asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from struct import Struct
from typing import Any, TypeAlias

from pteron.errors import FormatError, UnsupportedError
from pteron.pte.bytesource import ByteSource
from pteron.pte.sniff import looks_like

MAGIC = b"GGUF"
VERSIONS = (2, 3)
DEFAULT_ALIGNMENT = 32
MAX_DIMENSIONS = 4

# More than any model has: a vocabulary has some hundred thousand tokens and merges.
MAX_ENTRIES = 2**16
MAX_ARRAY = 2**24

U32, U64 = Struct("<I"), Struct("<Q")
STRING, ARRAY = 8, 9
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}

# The elements of a block, and its bytes, by the number of a tensor's type.
BlockSizes: TypeAlias = Mapping[int, tuple[int, int]]
Fact: TypeAlias = Callable[[], Any]


@dataclass(frozen=True, slots=True)
class TensorEntry:
    name: str
    dims: tuple[int, ...]  # as the file has them: the innermost first
    type: int
    data: memoryview


class Reader:
    """An open file: its facts, each a function that decodes it, and its tensors."""

    def __init__(self, path: Path, block_sizes: BlockSizes) -> None:
        self.name = str(path)
        self._source = ByteSource(path)
        self._data = self._source.view
        self._at = 0
        magic = bytes(self._data[:4])
        if magic != MAGIC:
            raise FormatError(f"{path}: not a GGUF file; it looks like {looks_like(self._data)}")
        self._at = 4
        version = self._number(U32)
        if version not in VERSIONS:
            raise UnsupportedError(
                f"{path}: version {version} of GGUF; versions {VERSIONS[0]} and {VERSIONS[1]} can be read"
            )
        tensors = self._count(self._number(U64), 24, MAX_ENTRIES, "tensors")
        facts = self._count(self._number(U64), 13, MAX_ENTRIES, "facts")
        self.facts = self._by_name((self._text(), self._fact()) for _ in range(facts))
        entries = [self._entry() for _ in range(tensors)]
        start = self._data_start()
        self.tensors = self._by_name((e[0], self._tensor(e, start, block_sizes)) for e in entries)
        self._refuse_overlap(entries)

    # -- numbers and strings --------------------------------------------------------------------

    def _damage(self, why: str) -> FormatError:
        return FormatError(f"{self.name}: the file is damaged or cut short: {why}")

    def _take(self, nbytes: int) -> memoryview:
        start = self._at
        if nbytes > len(self._data) - start:
            raise self._damage(
                f"{nbytes} bytes are wanted at byte {start}, but the file has {len(self._data)}"
            )
        self._at = start + nbytes
        return self._data[start : self._at]

    def _number(self, kind: Struct) -> int:
        number: int = kind.unpack(self._take(kind.size))[0]
        return number

    def _count(self, count: int, least_bytes: int, most: int, what: str) -> int:
        """A number of items, each of which takes some bytes."""
        if count > (len(self._data) - self._at) // least_bytes or count > most:
            raise self._damage(f"{count} {what} at byte {self._at} are more than it can hold")
        return count

    def _text(self) -> str:
        return self._decode(self._take(self._number(U64)))

    def _decode(self, text: memoryview) -> str:
        try:
            return str(text, "utf-8")
        except UnicodeDecodeError as error:
            raise self._damage(f"a string is not UTF-8: {error.reason}") from None

    def _by_name(self, items: Iterator[tuple[str, Any]]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, item in items:
            if name in found:
                raise self._damage(f"{name!r} is there twice")
            found[name] = item
        return found

    # -- facts ----------------------------------------------------------------------------------

    def _fact(self) -> Fact:
        kind = self._number(U32)
        if kind in SCALARS:
            scalar = Struct("<" + SCALARS[kind])
            data = self._take(scalar.size)
            return lambda: scalar.unpack(data)[0]
        if kind == STRING:
            text = self._take(self._number(U64))
            return lambda: self._decode(text)
        if kind == ARRAY:
            return self._array()
        raise self._damage(f"a fact has the unknown type {kind}")

    def _array(self) -> Fact:
        kind, count = self._number(U32), self._number(U64)
        if kind in SCALARS:
            size = Struct("<" + SCALARS[kind]).size
            data = self._take(size * self._count(count, size, MAX_ARRAY, "array elements"))
            return lambda: list(Struct(f"<{count}{SCALARS[kind]}").unpack(data))
        if kind == STRING:
            self._count(count, 8, MAX_ARRAY, "strings")
            texts = [self._take(self._number(U64)) for _ in range(count)]
            return lambda: [self._decode(text) for text in texts]
        if kind == ARRAY:
            raise UnsupportedError(f"{self.name}: arrays of arrays are not supported")
        raise self._damage(f"an array has elements of the unknown type {kind}")

    # -- tensors --------------------------------------------------------------------------------

    def _entry(self) -> tuple[str, tuple[int, ...], int, int]:
        name, rank = self._text(), self._number(U32)
        if not 1 <= rank <= MAX_DIMENSIONS:
            raise self._damage(f"tensor {name!r} has {rank} dimensions; 1 to {MAX_DIMENSIONS} are possible")
        dims = tuple([self._number(U64) for _ in range(rank)])
        return name, dims, self._number(U32), self._number(U64)

    def _data_start(self) -> int:
        alignment = self.facts["general.alignment"]() if "general.alignment" in self.facts else None
        step = DEFAULT_ALIGNMENT if alignment is None else alignment
        if not isinstance(step, int) or step < 1 or step & (step - 1):
            raise self._damage(f"general.alignment is {step!r}, which is not a power of two")
        return -(-self._at // step) * step

    def _tensor(
        self, entry: tuple[str, tuple[int, ...], int, int], start: int, block_sizes: BlockSizes
    ) -> TensorEntry:
        name, dims, kind, offset = entry
        if kind not in block_sizes:
            raise UnsupportedError(f"{self.name}: tensor {name!r} has an unknown type: {kind}")
        elements, nbytes = block_sizes[kind]
        if min(dims) < 1 or dims[0] % elements:
            raise self._damage(
                f"tensor {name!r} has dimensions {dims}, which do not make blocks of {elements}"
            )
        self._at = min(start + offset, len(self._data))
        return TensorEntry(name, dims, kind, self._take(prod(dims) // elements * nbytes))

    def _refuse_overlap(self, entries: list[tuple[str, tuple[int, ...], int, int]]) -> None:
        """Tensors that share bytes would let a small file ask for the work of a large one."""
        end, before = 0, ""
        for name, _, _, offset in sorted(entries, key=lambda entry: entry[3]):
            if offset < end:
                raise self._damage(f"the tensors {before!r} and {name!r} share bytes")
            end, before = offset + len(self.tensors[name].data), name
