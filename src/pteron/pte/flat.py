"""FlatBuffer tables declared as dataclasses, with one codec for all of them.

A class marked `@table` lists its fields in slot order. Annotations give the wire types, defaults are the
schema's defaults, and a field without a default is required. A table needs no other code:

    @table
    class Tensor:
        scalar_type: Annotated[ScalarType, "b"] = ScalarType.BYTE   # an enum stored as a signed byte
        sizes: tuple[i32, ...] = ()                                 # a vector of scalars
        name: str | None = None                                     # a string that may be absent
        data: memoryview = NO_BYTES                                 # a vector of bytes, not copied
        info: ExtraTensorInfo | None = None                         # a nested table
        value: Int | Double | String | None = None                  # a union: two slots, tags in this order

`decode` turns bytes into records, `encode` turns records into bytes. Fields of newer schemas are ignored.
"""

import types
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields
from functools import cached_property
from struct import Struct, error, unpack_from
from typing import Annotated, Any, TypeVar, Union, dataclass_transform, get_args, get_origin, get_type_hints

from pteron.pte.wire import U32, WireReader, WireWriter

__all__ = [
    "NO_BYTES", "decode", "encode", "f32", "f64", "i8", "i32", "i64", "table", "u8", "u16", "u32", "u64",
]  # fmt: skip

T = TypeVar("T")

u8 = Annotated[int, "B"]
i8 = Annotated[int, "b"]
u16 = Annotated[int, "H"]
i32 = Annotated[int, "i"]
u32 = Annotated[int, "I"]
i64 = Annotated[int, "q"]
u64 = Annotated[int, "Q"]
f32 = Annotated[float, "f"]
f64 = Annotated[float, "d"]

NO_BYTES = memoryview(b"")

# Reads one field of the table at a position. There is one per field and vtable.
Step = Callable[[WireReader, int], Any]


@dataclass_transform(frozen_default=True)
def table(cls: type[T]) -> type[T]:
    """Declare a FlatBuffer table: a frozen dataclass with slots that `decode` and `encode` can handle."""
    return dataclass(frozen=True, slots=True)(cls)


def decode(cls: type[T], data: memoryview, *, identifier: bytes, what: str) -> T:
    """Read the root table of `data`. Every error is a FormatError that begins with `what`."""
    reader = WireReader(data, what)
    record: T = _layout_of(cls).read(reader, reader.root(identifier))
    return record


def encode(record: object, *, identifier: bytes, reserve: int = 0, size_prefixed: bool = False) -> bytes:
    """Write `record` as the root table. Leave `reserve` zero bytes after the identifier.

    size_prefixed: the size of the buffer comes first.
    """
    writer = WireWriter(identifier, reserve, before=U32.size if size_prefixed else 0)
    _layout_of(type(record)).write(writer, 0, record)
    data = writer.finish()
    return U32.pack(len(data)) + data if size_prefixed else data


class _Kind(ABC):
    """How one kind of field is encoded. `widths` are the inline bytes of each slot that the field uses."""

    widths: tuple[int, ...] = (4,)

    @abstractmethod
    def step(self, offsets: tuple[int, ...], where: str) -> Step:
        """A reader of this field, for tables whose slots for it are at `offsets`."""

    def inline(self, value: Any, default: Any) -> tuple[bytes | None, ...]:
        """The bytes of each slot: zeros where `attach` will write an offset, None where nothing is stored."""
        return (None if value is None else bytes(4),)

    @abstractmethod
    def attach(self, writer: WireWriter, at: tuple[int, ...], value: Any) -> None:
        """Write the data outside the table, and make the slots at `at` point to it."""


class _Scalar(_Kind):
    def __init__(self, code: str, python_type: type) -> None:
        self.struct = Struct("<" + code)
        self.widths = (self.struct.size,)
        self.python_type = python_type

    def step(self, offsets: tuple[int, ...], where: str) -> Step:
        (offset,) = offsets
        unpack = self.struct.unpack_from
        if self.python_type in (int, float, bool):
            return lambda reader, at: unpack(reader.data, at + offset)[0]
        enum = self.python_type

        def member(reader: WireReader, at: int) -> Any:
            number = unpack(reader.data, at + offset)[0]
            try:
                return enum(number)
            except ValueError:
                raise reader.error(where, at + offset, f"{number} is not a {enum.__name__}") from None

        return member

    def inline(self, value: Any, default: Any) -> tuple[bytes | None, ...]:
        # Compare bytes, not values: -0.0 equals the default 0.0 but must be stored.
        stored = self.struct.pack(value)
        return (None if stored == self.struct.pack(default) else stored,)

    def attach(self, writer: WireWriter, at: tuple[int, ...], value: Any) -> None:
        pass


class _Text(_Kind):
    def step(self, offsets: tuple[int, ...], where: str) -> Step:
        (offset,) = offsets

        def text(reader: WireReader, at: int) -> str:
            start, count = reader.vector(at + offset, 1, where)
            reader.spend(count, start, where)
            try:
                return str(reader.data[start : start + count], "utf-8")
            except UnicodeDecodeError as fault:
                raise reader.error(where, start, f"not UTF-8: {fault.reason}") from None

        return text

    def attach(self, writer: WireWriter, at: tuple[int, ...], value: str) -> None:
        raw = value.encode()
        writer.vector(at[0], len(raw), 1, raw + b"\0")


class _Bytes(_Kind):
    _ALIGNMENT = 16  # the schemas require it for tensor and delegate data, which is used in place

    def step(self, offsets: tuple[int, ...], where: str) -> Step:
        (offset,) = offsets

        def view(reader: WireReader, at: int) -> memoryview:
            start, count = reader.vector(at + offset, 1, where)
            return reader.data[start : start + count]

        return view

    def attach(self, writer: WireWriter, at: tuple[int, ...], value: memoryview) -> None:
        writer.align(self._ALIGNMENT, ahead=4)
        writer.vector(at[0], value.nbytes, 1, value)


class _Scalars(_Kind):
    def __init__(self, code: str) -> None:
        self.code = code
        self.item_size = Struct("<" + code).size

    def step(self, offsets: tuple[int, ...], where: str) -> Step:
        (offset,) = offsets
        code, item_size = self.code, self.item_size

        def items(reader: WireReader, at: int) -> tuple[Any, ...]:
            start, count = reader.vector(at + offset, item_size, where)
            reader.spend(count * item_size, start, where)
            return unpack_from(f"<{count}{code}", reader.data, start)

        return items

    def attach(self, writer: WireWriter, at: tuple[int, ...], value: tuple[Any, ...]) -> None:
        writer.vector(at[0], len(value), self.item_size, Struct(f"<{len(value)}{self.code}").pack(*value))


class _Child(_Kind):
    def __init__(self, cls: type) -> None:
        self.layout = _layout_of(cls)

    def step(self, offsets: tuple[int, ...], where: str) -> Step:
        (offset,) = offsets
        read = self.layout.read
        return lambda reader, at: read(reader, reader.follow(at + offset, where))

    def attach(self, writer: WireWriter, at: tuple[int, ...], value: object) -> None:
        self.layout.write(writer, at[0], value)


class _Children(_Kind):
    def __init__(self, cls: type) -> None:
        self.layout = _layout_of(cls)

    def step(self, offsets: tuple[int, ...], where: str) -> Step:
        (offset,) = offsets
        read = self.layout.read

        def children(reader: WireReader, at: int) -> tuple[Any, ...]:
            start, count = reader.vector(at + offset, 4, where)
            reader.spend(count * 4, start, where)
            items = range(start, start + 4 * count, 4)
            return tuple([read(reader, reader.follow(item, where)) for item in items])

        return children

    def attach(self, writer: WireWriter, at: tuple[int, ...], value: tuple[Any, ...]) -> None:
        start = writer.vector(at[0], len(value), 4, bytes(4 * len(value)))
        for index, child in enumerate(value):
            self.layout.write(writer, start + 4 * index, child)


class _Union(_Kind):
    widths = (1, 4)

    def __init__(self, members: tuple[type, ...], *, optional: bool) -> None:
        self.layouts = [_layout_of(member) for member in members]
        self.tags = {member: tag for tag, member in enumerate(members, start=1)}
        self.optional = optional

    def step(self, offsets: tuple[int, ...], where: str) -> Step:
        tag_offset, offset = offsets
        layouts, optional = self.layouts, self.optional

        def member(reader: WireReader, at: int) -> Any:
            tag = reader.data[at + tag_offset] if tag_offset else 0
            if tag == 0 and optional:
                return None
            if not 0 < tag <= len(layouts):
                raise reader.error(where, at + tag_offset, f"unknown union tag {tag}")
            if not offset:
                raise reader.error(where, at, f"union tag {tag} without a value")
            return layouts[tag - 1].read(reader, reader.follow(at + offset, where))

        return member

    def inline(self, value: Any, default: Any) -> tuple[bytes | None, ...]:
        if value is None:
            return (None, None)
        return (bytes([self.tags[type(value)]]), bytes(4))

    def attach(self, writer: WireWriter, at: tuple[int, ...], value: object) -> None:
        self.layouts[self.tags[type(value)] - 1].write(writer, at[1], value)


@dataclass(frozen=True)
class _Field:
    name: str
    where: str
    slot: int
    kind: _Kind
    default: Any  # MISSING: the field is required

    def step(self, offsets: tuple[int, ...]) -> Step:
        """The reader of this field, for tables whose slots for it are at `offsets` (0 = absent)."""
        if any(offsets):
            return self.kind.step(offsets, self.where)
        if self.default is MISSING:
            return self._missing
        default = self.default
        return lambda reader, at: default

    def _missing(self, reader: WireReader, at: int) -> Any:
        raise reader.error(self.where, at, "the field is missing")

    def inline(self, record: object) -> tuple[bytes | None, ...]:
        value = getattr(record, self.name)
        try:
            return self.kind.inline(value, self.default)
        except (error, KeyError, TypeError) as fault:
            raise ValueError(f"{self.where} cannot hold {value!r}: {fault}") from None

    def attach(self, writer: WireWriter, at: tuple[int, ...], record: object) -> None:
        value = getattr(record, self.name)
        if value is None:
            return
        try:
            self.kind.attach(writer, at, value)
        except (error, UnicodeEncodeError) as fault:
            raise ValueError(f"{self.where} cannot hold {value!r}: {fault}") from None


class _Layout:
    """The fields of a table class, computed once."""

    def __init__(self, cls: type) -> None:
        self.cls = cls
        self.name = cls.__name__

    @cached_property  # computed late, because a class may refer to itself
    def fields(self) -> tuple[_Field, ...]:
        hints = get_type_hints(self.cls, include_extras=True)
        found: list[_Field] = []
        slot = 0
        for field in fields(self.cls):
            kind = _kind_of(hints[field.name])
            found.append(_Field(field.name, f"{self.name}.{field.name}", slot, kind, field.default))
            slot += len(kind.widths)
        return tuple(found)

    def read(self, reader: WireReader, at: int) -> Any:
        vtable = reader.vtable_of(at, self.name)
        bound: tuple[int, list[Step]] | None = reader.memo.get((self, vtable))
        if bound is None:
            bound = reader.memo[self, vtable] = self._bind(reader, vtable)
        size, steps = bound
        reader.enter(at, size, self.name)
        record = self.cls(*[step(reader, at) for step in steps])
        reader.leave()
        return record

    def _bind(self, reader: WireReader, vtable: int) -> tuple[int, list[Step]]:
        """Read a vtable: (bytes of its tables, one reader per field)."""
        size, slots = reader.vtable(vtable, self.name)
        reader.spend(4 + 2 * len(slots), vtable, self.name)
        steps = []
        for field in self.fields:
            offsets = tuple(
                slots[slot] if slot < len(slots) else 0
                for slot in range(field.slot, field.slot + len(field.kind.widths))
            )
            for offset, width in zip(offsets, field.kind.widths, strict=True):
                if offset and not 4 <= offset <= size - width:
                    why = f"offset {offset} is outside its table of {size} bytes"
                    raise reader.error(field.where, vtable, why)
            steps.append(field.step(offsets))
        return size, steps

    def write(self, writer: WireWriter, link: int, record: object) -> None:
        """Write `record` and all of its children. Make the offset at `link` point to it."""
        inline = [slot for field in self.fields for slot in field.inline(record)]
        table, offsets = writer.table(inline)
        U32.pack_into(writer.data, link, table - link)
        for field in self.fields:
            at = tuple(table + offset for offset in offsets[field.slot : field.slot + len(field.kind.widths)])
            field.attach(writer, at, record)


_layouts: dict[type, _Layout] = {}


def _layout_of(cls: type) -> _Layout:
    return _layouts.setdefault(cls, _Layout(cls))


def _kind_of(hint: Any) -> _Kind:
    """The wire kind of an annotation."""
    if get_origin(hint) is Annotated:
        python_type, code = get_args(hint)
        return _Scalar(code, python_type)
    if get_origin(hint) in (Union, types.UnionType):
        members = tuple(member for member in get_args(hint) if member is not types.NoneType)
        optional = types.NoneType in get_args(hint)
        return _kind_of(members[0]) if len(members) == 1 else _Union(members, optional=optional)
    if get_origin(hint) is tuple:
        return _vector_of(get_args(hint)[0])
    plain: dict[Any, Callable[[], _Kind]] = {
        bool: lambda: _Scalar("?", bool),
        str: _Text,
        memoryview: _Bytes,
    }
    return plain[hint]() if hint in plain else _Child(hint)


def _vector_of(item: Any) -> _Kind:
    if item is bool:
        return _Scalars("?")
    if get_origin(item) is Annotated:
        return _Scalars(get_args(item)[1])
    return _Children(item)
