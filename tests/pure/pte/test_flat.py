"""The FlatBuffer codec: written records are read back, and damaged buffers are refused."""

import math
import struct
import time
from typing import Annotated

import pytest
from hypothesis import given, settings

from pteron.errors import FormatError
from pteron.pte import ptd, schema, vulkan
from pteron.pte.flat import NO_BYTES, decode, encode, f64, i8, i32, i64, table, u8, u32
from tests.pure.pte.table_strategies import records


@table
class Leaf:
    number: i32 = 7
    real: f64 = 0.0


@table
class Pair:
    left: i8 = 0
    right: bool = True


@table
class Node:
    name: str | None = None
    kids: tuple["Node", ...] = ()
    leaf: Leaf | None = None
    numbers: tuple[i64, ...] = ()
    either: Leaf | Pair | None = None
    data: memoryview = NO_BYTES
    kind: Annotated[schema.ScalarType, "b"] = schema.ScalarType.BYTE


@table
class Forest:
    trees: tuple[Node, ...] = ()


@table
class Wrapped:
    tree: Node


@table
class Grown:  # Leaf, as a newer schema might have it
    number: i32 = 7
    real: f64 = 0.0
    later: str = "new"


def read(cls: type, data: bytes) -> object:
    return decode(cls, memoryview(data), identifier=b"TEST", what="test")


def write(record: object) -> bytes:
    return encode(record, identifier=b"TEST")


def handmade(*parts: tuple[str, int | float | bytes]) -> bytes:
    """A buffer from (struct code, value) pairs; the root offset and the identifier come first."""
    return b"".join(
        value if isinstance(value, bytes) else struct.pack("<" + code, value)
        for code, value in (("I", 8), ("", b"TEST"), *parts)
    )


class TestRoundTrip:
    @given(records(schema.Program))
    def test_programs(self, program: schema.Program) -> None:
        data = encode(program, identifier=b"ET12")
        assert decode(schema.Program, memoryview(data), identifier=b"ET12", what="program") == program

    @given(records(vulkan.VkGraph))
    def test_graphs(self, graph: vulkan.VkGraph) -> None:
        assert read(vulkan.VkGraph, write(graph)) == graph

    @given(records(ptd.FlatTensor))
    def test_flat_tensors(self, flat_tensor: ptd.FlatTensor) -> None:
        assert read(ptd.FlatTensor, write(flat_tensor)) == flat_tensor

    @given(records(schema.Tensor))
    def test_unaligned_buffers_are_read(self, tensor: schema.Tensor) -> None:
        shifted = memoryview(b"?" + write(tensor))[1:]
        assert decode(schema.Tensor, shifted, identifier=b"TEST", what="test") == tensor

    def test_negative_zero_is_not_the_default_zero(self) -> None:
        assert math.copysign(1, read(Leaf, write(Leaf(real=-0.0))).real) == -1

    def test_nan_and_infinity(self) -> None:
        assert math.isnan(read(Leaf, write(Leaf(real=math.nan))).real)
        assert read(Leaf, write(Leaf(real=-math.inf))).real == -math.inf

    def test_reserved_bytes_are_left_free(self) -> None:
        data = encode(Leaf(3), identifier=b"TEST", reserve=32)
        assert data[8:40] == bytes(32)
        assert read(Leaf, data) == Leaf(3)

    def test_bytes_are_a_view_of_the_buffer_and_aligned(self) -> None:
        data = write(Node(name="x", data=memoryview(b"payload")))
        view = read(Node, data).data
        assert view.obj is data
        assert data.index(b"payload") % 16 == 0

    @pytest.mark.parametrize("name", ["", "a", "abcd", "abcdefgh"])
    def test_wide_items_are_aligned(self, name: str) -> None:
        data = write(Node(name, numbers=(1234567, 89)))
        assert data.index(struct.pack("<qq", 1234567, 89)) % 8 == 0

    def test_twenty_thousand_values(self) -> None:
        tensor = schema.Tensor(
            sizes=(1, 2, 3), dim_order=(0, 1, 2), allocation_info=schema.AllocationDetails(1)
        )
        values = tuple(schema.EValue(tensor if index % 2 else schema.Int(index)) for index in range(20_000))
        data = write(schema.ExecutionPlan("forward", values=values))
        assert read(schema.ExecutionPlan, data).values == values


class TestCompatibility:
    def test_unknown_fields_are_ignored(self) -> None:
        assert read(Leaf, write(Grown(3, 4.0, "later"))) == Leaf(3, 4.0)

    def test_fields_the_writer_did_not_know_take_their_defaults(self) -> None:
        assert read(Grown, write(Leaf(3))) == Grown(3, 0.0, "new")

    def test_absent_vectors_are_empty(self) -> None:
        empty = handmade(("H", 4), ("H", 4), ("i", 4))
        empty = struct.pack("<I", 12) + empty[4:]
        assert read(Node, empty) == Node()

    def test_stock_builder_output_is_read(self) -> None:
        import flatbuffers

        builder = flatbuffers.Builder(0)
        name = builder.CreateString("größe")
        builder.StartVector(8, 3, 8)
        for number in (30, -20, 10):
            builder.PrependInt64(number)
        numbers = builder.EndVector()
        builder.StartObject(8)
        builder.PrependUOffsetTRelativeSlot(0, name, 0)
        builder.PrependUOffsetTRelativeSlot(3, numbers, 0)
        builder.PrependInt8Slot(7, 6, 0)  # `either` takes two slots, so `kind` is in slot 7
        builder.Finish(builder.EndObject(), file_identifier=b"TEST")
        assert read(Node, bytes(builder.Output())) == Node(
            "größe", numbers=(10, -20, 30), kind=schema.ScalarType.FLOAT
        )

    def test_slots_after_a_union_are_counted_right(self) -> None:
        node = Node(either=Pair(-3, False), data=memoryview(b"d"), kind=schema.ScalarType.UINT64)
        assert read(Node, write(node)) == node


class TestWriterRefuses:
    @pytest.mark.parametrize(
        "record",
        [
            Leaf(number=2**31),
            Leaf(real="x"),
            Node(numbers=(2**63,)),
            Node(either=Node()),
            Node(name="\ud800"),
        ],
    )
    def test_values_the_wire_cannot_hold(self, record: object) -> None:
        with pytest.raises(ValueError, match=r"(Leaf|Node)\.\w+ cannot hold"):
            write(record)


class TestDamage:
    """Each test has one error in an otherwise valid buffer."""

    def refused(self, cls: type, data: bytes, match: str) -> None:
        with pytest.raises(FormatError, match=match):
            read(cls, data)

    @pytest.mark.parametrize("size", range(8))
    def test_too_short_for_a_root(self, size: int) -> None:
        self.refused(Leaf, write(Leaf())[:size], "too few")

    def test_identifier(self) -> None:
        self.refused(Leaf, encode(Leaf(), identifier=b"NOPE"), r"expected b'TEST', found b'NOPE'")

    @pytest.mark.parametrize("offset", [0, 2**31, 2**32 - 1])
    def test_root_offset(self, offset: int) -> None:
        self.refused(Leaf, struct.pack("<I", offset) + write(Leaf())[4:], "outside the buffer")

    @pytest.mark.parametrize("distance", [-(2**31), -1000, 9, 2**31 - 1])
    def test_vtable_outside(self, distance: int) -> None:
        self.refused(Leaf, handmade(("i", distance), ("I", 0)), "vtable at .* lies outside")

    @pytest.mark.parametrize("vtable_size", [0, 2, 5, 4000])
    def test_vtable_size(self, vtable_size: int) -> None:
        data = handmade(("i", -4), ("H", vtable_size), ("H", 4), ("Q", 0))
        self.refused(Leaf, data, f"vtable of {vtable_size} bytes")

    def test_vtable_describes_an_impossible_table(self) -> None:
        self.refused(Leaf, handmade(("i", -4), ("H", 4), ("H", 3)), "table of 3 bytes")

    def test_table_past_the_end(self) -> None:
        self.refused(Leaf, handmade(("i", -4), ("H", 4), ("H", 400)), "table of 400 bytes runs past the end")

    @pytest.mark.parametrize("offset", [1, 3, 5, 4000])
    def test_field_outside_its_table(self, offset: int) -> None:
        data = handmade(("i", -8), ("i", 1), ("H", 6), ("H", 8), ("H", offset))
        self.refused(Leaf, data, r"Leaf\.number .* is outside its table of 8 bytes")

    @pytest.mark.parametrize("offset", [0, 5000, 2**32 - 1])
    def test_string_offset(self, offset: int) -> None:
        data = handmade(("i", -8), ("I", offset), ("H", 6), ("H", 8), ("H", 4))
        self.refused(Node, data, r"Node\.name .* outside the buffer")

    @pytest.mark.parametrize(("slot", "field"), [(0, "name"), (1, "kids"), (3, "numbers"), (6, "data")])
    def test_giant_vectors(self, slot: int, field: str) -> None:
        offsets = [("H", 4 if index == slot else 0) for index in range(7)]
        data = handmade(("i", -8), ("I", 22), ("H", 18), ("H", 8), *offsets, ("I", 2**32 - 1), ("q", 0))
        self.refused(Node, data, rf"Node\.{field} at byte 34: vector of 4294967295 items runs past the end")

    def test_vector_one_item_too_long(self) -> None:
        data = write(Node(numbers=(1, 2, 3)))
        at = data.index(struct.pack("<Iqqq", 3, 1, 2, 3))
        grown = data[:at] + struct.pack("<I", 4) + data[at + 4 : at + 28]
        self.refused(Node, grown, "vector of 4 items")

    def test_text_that_is_not_utf8(self) -> None:
        self.refused(Node, write(Node("abc")).replace(b"abc", b"a\xffc"), r"Node\.name .* not UTF-8")

    def test_unknown_union_tag(self) -> None:
        data = handmade(("i", -12), ("I", 4), ("I", 3), *[("H", n) for n in (16, 12, 0, 0, 0, 0, 8, 4)])
        self.refused(Node, data, r"Node\.either at byte 16: unknown union tag 3")

    def test_union_tag_without_a_value(self) -> None:
        data = handmade(("i", -8), ("I", 1), *[("H", n) for n in (14, 8, 0, 0, 0, 0, 4)])
        self.refused(Node, data, "union tag 1 without a value")

    def test_unknown_enum_number(self) -> None:
        data = handmade(("i", -8), ("I", 99), *[("H", n) for n in (20, 8, 0, 0, 0, 0, 0, 0, 0, 4)])
        self.refused(Node, data, r"Node\.kind .* 99 is not a ScalarType")

    def test_required_field_missing(self) -> None:
        data = struct.pack("<I", 12) + handmade(("H", 4), ("H", 4), ("i", 4))[4:]
        self.refused(Wrapped, data, r"Wrapped\.tree .* missing")
        self.refused(schema.EValue, data, r"EValue\.val .* missing")

    def test_table_that_contains_itself(self) -> None:
        # The vector's only item is an offset of 0 bytes, back to itself.
        data = handmade(("i", -16), ("I", 4), ("I", 1), ("I", 0), *[("H", n) for n in (8, 8, 0, 4)])
        self.refused(Node, data, "points outside")

    def test_endless_nesting(self) -> None:
        node = Node()
        for _ in range(300):
            node = Node(kids=(node,))
        self.refused(Node, write(node), "nest more than")

    def test_exponential_sharing(self) -> None:
        """Thirty levels, each with two references to the next: a billion tables in a kilobyte."""
        vtable = [("H", n) for n in (8, 8, 0, 4)]
        level = [("i", 0), ("I", 4), ("I", 2), ("I", 8), ("I", 4)]  # table, vector offset, count, two kids
        parts: list[tuple[str, int | bytes]] = [*vtable]
        for depth in range(30):
            level[0] = ("i", 8 + 20 * depth)
            parts += level
        data = handmade(*parts, ("i", 8 + 20 * 30), ("I", 4), ("I", 0))
        data = struct.pack("<I", 16) + data[4:]
        start = time.perf_counter()
        self.refused(Node, data, "shared beyond")
        assert time.perf_counter() - start < 1.0

    def test_one_large_vector_shared_by_many(self) -> None:
        """A thousand tables that all point to the same eight thousand numbers."""
        count = 1000
        forest_vtable, node_vtable, root, items = 8, 16, 28, 40
        tables = items + 4 * count
        numbers = tables + 8 * count
        parts = [("H", n) for n in (6, 8, 4, 0)] + [("H", n) for n in (12, 8, 0, 0, 0, 4)]
        parts += [("i", root - forest_vtable), ("I", 4), ("I", count)]
        parts += [("I", (tables + 8 * n) - (items + 4 * n)) for n in range(count)]
        for at in range(tables, numbers, 8):
            parts += [("i", at - node_vtable), ("I", numbers - (at + 4))]
        parts += [("I", 8000), ("", bytes(64_000))]
        data = struct.pack("<I", root) + handmade(*parts)[4:]
        self.refused(Forest, data, r"Node\.numbers .* shared beyond")

    @given(records(schema.Program))
    @settings(max_examples=20)
    def test_every_truncation(self, program: schema.Program) -> None:
        data = memoryview(write(program))
        for size in range(0, len(data), 3):
            try:
                decode(schema.Program, data[:size], identifier=b"TEST", what="test")
            except FormatError as fault:
                assert str(fault).startswith("test: ")


def test_field_names_and_places_are_in_the_message() -> None:
    data = write(Node("abc"))
    with pytest.raises(FormatError) as caught:
        read(Node, data.replace(b"abc", b"\xffbc"))
    place = data.index(b"abc")
    assert str(caught.value) == f"test: Node.name at byte {place}: not UTF-8: invalid start byte"


def test_wire_types_hold_their_whole_range() -> None:
    @table
    class Bounds:
        small: u8 = 0
        signed: i8 = 0
        large: u32 = 0

    for record in (Bounds(255, -128, 2**32 - 1), Bounds(0, 127, 0)):
        assert read(Bounds, write(record)) == record
