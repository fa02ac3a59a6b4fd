"""The bytes of a FlatBuffer: checked reads and aligned writes.

`WireReader` checks every offset, length and vtable against the buffer before it uses it. It also counts the
bytes that it visits, up to a limit. A hostile file can therefore neither read outside its buffer nor cause
much work with few bytes. `WireWriter` writes from front to back: a parent reserves space for each offset, and
fills it in when the child's position is known. `flat` knows what the fields mean; this module does not.
"""

from struct import Struct, pack_into, unpack_from
from typing import Any

from pteron.errors import FormatError

U32 = Struct("<I")
_I32 = Struct("<i")
_VTABLE_HEAD = Struct("<HH")

# Several parents may share a child. Normal writers share strings and small tables, so a byte is visited a
# few times. A file that needs more visits than this is hostile.
_VISITS_PER_BYTE = 8
_FREE_BYTES = 1024

# More than any schema here needs, and less than the limit of Python's stack.
_MAX_DEPTH = 64

# vtable distances are signed 32-bit integers, so a FlatBuffer cannot be larger.
_MAX_SIZE = 2**31 - 1


class WireReader:
    """Reads one FlatBuffer. `what` names it in errors: "program", "delegate"."""

    __slots__ = ("_budget", "_depth", "data", "memo", "size", "what")

    def __init__(self, data: memoryview, what: str) -> None:
        self.data = data
        self.size = len(data)
        self.what = what
        # The decoded vtables, by layout and position. Most tables share a vtable with others.
        self.memo: dict[tuple[object, int], Any] = {}
        self._budget = self.size * _VISITS_PER_BYTE + _FREE_BYTES
        self._depth = 0

    def error(self, where: str, at: int, why: str) -> FormatError:
        return FormatError(f"{self.what}: {where} at byte {at}: {why}")

    def root(self, identifier: bytes) -> int:
        """The position of the root table. Checks the file identifier first."""
        if self.size < 8:
            raise self.error("root", 0, f"{self.size} bytes are too few for a FlatBuffer")
        found = bytes(self.data[4:8])
        if found != identifier:
            raise self.error("identifier", 4, f"expected {identifier!r}, found {found!r}")
        return self.follow(0, "root")

    def follow(self, at: int, where: str) -> int:
        """The position that the offset at `at` points to. At least four bytes can be read there."""
        distance: int = U32.unpack_from(self.data, at)[0]
        target = at + distance
        if distance == 0 or target + 4 > self.size:
            raise self.error(where, at, f"offset {distance} points outside the buffer ({self.size} bytes)")
        return target

    def vector(self, at: int, item_size: int, where: str) -> tuple[int, int]:
        """(position of the first item, count) of the vector that the offset at `at` points to."""
        start = self.follow(at, where)
        count: int = U32.unpack_from(self.data, start)[0]
        if count * item_size > self.size - start - 4:
            raise self.error(where, start, f"vector of {count} items runs past the end ({self.size} bytes)")
        return start + 4, count

    def vtable_of(self, table: int, where: str) -> int:
        """The position of a table's vtable. At least four bytes can be read there."""
        vtable: int = table - _I32.unpack_from(self.data, table)[0]
        if not 0 <= vtable <= self.size - 4:
            raise self.error(where, table, f"vtable at {vtable} lies outside the buffer ({self.size} bytes)")
        return vtable

    def vtable(self, at: int, where: str) -> tuple[int, tuple[int, ...]]:
        """Decode a vtable: (bytes of the table, offset of each slot in the table)."""
        vtable_size, table_size = _VTABLE_HEAD.unpack_from(self.data, at)
        if vtable_size < 4 or vtable_size % 2 or at + vtable_size > self.size:
            raise self.error(where, at, f"vtable of {vtable_size} bytes is malformed or runs past the end")
        if table_size < 4:
            raise self.error(where, at, f"vtable describes a table of {table_size} bytes")
        return table_size, unpack_from(f"<{vtable_size // 2 - 2}H", self.data, at + 4)

    def enter(self, at: int, nbytes: int, where: str) -> None:
        """Begin to read a table of `nbytes`; `leave` ends it."""
        if at + nbytes > self.size:
            raise self.error(where, at, f"table of {nbytes} bytes runs past the end ({self.size} bytes)")
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise self.error(where, at, f"tables nest more than {_MAX_DEPTH} deep")
        self.spend(nbytes, at, where)

    def leave(self) -> None:
        self._depth -= 1

    def spend(self, nbytes: int, at: int, where: str) -> None:
        """Count `nbytes` of reading against the limit."""
        self._budget -= nbytes
        if self._budget < 0:
            raise self.error(where, at, f"children are shared beyond {_VISITS_PER_BYTE}x the buffer's size")


class WireWriter:
    """Writes one FlatBuffer. `reserve` bytes after the identifier are left for a header.

    `before` bytes will be put before the buffer. Alignment counts from their start.
    """

    __slots__ = ("_before", "_vtables", "data")

    def __init__(self, identifier: bytes, reserve: int, before: int = 0) -> None:
        self.data = bytearray(4) + identifier + bytes(reserve)
        self._before = before
        self._vtables: dict[bytes, int] = {}

    def link(self, at: int) -> None:
        """Make the offset at `at` point to the next bytes that are written."""
        pack_into("<I", self.data, at, len(self.data) - at)

    def align(self, alignment: int, ahead: int = 0) -> None:
        """Pad so that the position `ahead` bytes from here is aligned."""
        self.data.extend(bytes(-(self._before + len(self.data) + ahead) % alignment))

    def vector(self, at: int, count: int, item_size: int, payload: bytes | memoryview) -> int:
        """Write a vector, make the offset at `at` point to it, and return the position of its items."""
        # The count and the items must both be aligned, and the count is directly before the items.
        self.align(max(item_size, 4), ahead=4)
        self.link(at)
        self.data += U32.pack(count)
        start = len(self.data)
        self.data += payload
        return start

    def table(self, slots: list[bytes | None]) -> tuple[int, list[int]]:
        """Write a table from the inline bytes of its slots (None = absent): (its position, slot offsets)."""
        offsets, size = _pack_slots(slots)
        vtable = self._vtable(offsets, size)
        self.align(8)
        table = len(self.data)
        self.data += _I32.pack(table - vtable) + bytes(size - 4)
        for offset, inline in zip(offsets, slots, strict=True):
            if inline is not None:
                self.data[table + offset : table + offset + len(inline)] = inline
        return table, offsets

    def finish(self) -> bytes:
        if len(self.data) > _MAX_SIZE:
            raise ValueError(f"a FlatBuffer holds at most {_MAX_SIZE} bytes, this one has {len(self.data)}")
        return bytes(self.data)

    def _vtable(self, offsets: list[int], table_size: int) -> int:
        """The position of a vtable with these offsets: an existing one, or a new one."""
        while offsets and offsets[-1] == 0:  # absent slots at the end are not stored
            offsets = offsets[:-1]
        body = Struct(f"<{len(offsets) + 2}H").pack(2 * len(offsets) + 4, table_size, *offsets)
        if body not in self._vtables:
            self.align(2)
            self._vtables[body] = len(self.data)
            self.data += body
        return self._vtables[body]


def _pack_slots(slots: list[bytes | None]) -> tuple[list[int], int]:
    """(offset of each slot in the table, 0 if absent; bytes of the table)."""
    offsets = [0] * len(slots)
    size = 4
    present = [slot for slot, inline in enumerate(slots) if inline is not None]
    # A table starts at a multiple of 8. 4-byte items go first, after the 4-byte vtable distance.
    for slot in sorted(present, key=lambda slot: _PACKING_ORDER[len(slots[slot] or b"")]):
        width = len(slots[slot] or b"")
        size += -size % width
        offsets[slot] = size
        size += width
    return offsets, size


_PACKING_ORDER = {4: 0, 8: 1, 2: 2, 1: 3}
