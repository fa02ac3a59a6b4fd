"""Vulkan delegate blobs: header, graph, constants, and ids that must be in range."""

import dataclasses
import struct
from pathlib import Path

import pytest

from pteron.errors import FormatError
from pteron.pte import ProgramFile, read_delegate, write_delegate
from pteron.pte.bytesource import ByteSource
from pteron.pte.vulkan import (
    NAMED_OFFSET,
    Int,
    IntList,
    Null,
    OperatorCall,
    SymInt,
    ValueList,
    VkBytes,
    VkDataType,
    VkDelegate,
    VkGraph,
    VkTensor,
    VkValue,
)
from tests.pure.pte.pte_samples import DATA


def tensor(*dims: int, constant_id: int = -1) -> VkValue:
    return VkValue(VkTensor(VkDataType.FLOAT32, dims, constant_id, mem_obj_id=-1))


GRAPH = VkGraph(
    version="0",
    chain=(OperatorCall(3, "aten.add.Tensor", (0, 1, 2, 3)),),
    values=(tensor(4, 8), tensor(constant_id=0), VkValue(Int(1)), tensor(4, 8), VkValue(SymInt())),
    input_ids=(0, 4),
    output_ids=(3,),
    constants=(VkBytes(0, 4),),
)


def reopened(graph: VkGraph, inline: bytes = b"") -> VkDelegate:
    return read_delegate(memoryview(write_delegate(graph, inline)))


def no_names(key: str) -> memoryview:
    raise AssertionError(f"nothing named was expected, but {key!r} was looked up")


class TestRealFiles:
    def test_graphs_survive_being_rewritten(self, real_file: Path) -> None:
        with ProgramFile.open(real_file) as file:
            delegates = file.plan("forward").delegates
            assert delegates
            for delegate in delegates:
                graph = read_delegate(file.delegate_blob(delegate)).graph
                assert graph.chain
                assert reopened(graph).graph == graph

    def test_rms_norm(self) -> None:
        with ProgramFile.open(DATA / "dyn_rms.pte") as file:
            delegate = read_delegate(file.delegate_blob(file.plan("forward").delegates[0]))
            names = [call.name for call in delegate.graph.chain]
            assert "et_vk.rms_norm.default" in names
            weight = delegate.constant(0, file.named_data)
            assert len(weight) == delegate.graph.constants[0].length > 0
            assert delegate.graph.constants[0].offset == NAMED_OFFSET

    def test_an_int_in_place_of_a_double_stays_an_int(self) -> None:
        with ProgramFile.open(DATA / "sdpa_dyn.pte") as file:
            delegate = read_delegate(file.delegate_blob(file.plan("forward").delegates[0]))
        (call,) = [call for call in delegate.graph.chain if call.name == "sdpa_with_kv_cache.default"]
        values = [delegate.graph.values[index].value for index in call.args]
        dropout, mask = values[8], values[7]
        assert dropout == Int(0)
        assert mask == Null()


class TestHeader:
    def damaged(self, at: int, code: str, value: int) -> memoryview:
        blob = bytearray(write_delegate(GRAPH, b"1234"))
        struct.pack_into("<" + code, blob, at, value)
        return memoryview(blob)

    @pytest.mark.parametrize("size", [0, 8, 29])
    def test_too_short(self, size: int) -> None:
        with pytest.raises(FormatError, match="VH00"):
            read_delegate(memoryview(write_delegate(GRAPH))[:size])

    @pytest.mark.parametrize(
        ("at", "code", "value", "match"),
        [
            (4, "I", 0, "expected a b'VH00' header"),
            (8, "H", 29, "header of 29 bytes"),
            (10, "I", 29, "places .* at 29"),
            (10, "I", 2**31, "overlap"),
            (14, "I", 0, "places 0 bytes"),
            (14, "I", 2**32 - 1, "overlap"),
            (18, "I", 100, "constants at 100 overlap the graph"),
            (22, "Q", 5, "constants needs bytes"),
            (22, "Q", 2**64 - 1, "constants needs bytes"),
            (36, "I", 0, "expected b'VK00'"),
        ],
    )
    def test_damage(self, at: int, code: str, value: int, match: str) -> None:
        with pytest.raises(FormatError, match=match):
            read_delegate(self.damaged(at, code, value))

    def test_graph_past_the_end(self) -> None:
        blob = write_delegate(GRAPH)
        with pytest.raises(FormatError, match="graph needs bytes"):
            read_delegate(memoryview(blob)[:100])

    def test_size_zero_means_the_rest(self) -> None:
        assert bytes(read_delegate(self.damaged(22, "Q", 0)).inline) == b"1234"

    def test_size_zero_without_data(self) -> None:
        blob = write_delegate(GRAPH)
        assert bytes(read_delegate(memoryview(blob).toreadonly()).inline) == b""

    def test_inline_constants_are_aligned(self) -> None:
        assert write_delegate(GRAPH, b"findme").index(b"findme") % 16 == 0


class TestConstants:
    def graph(self, *constants: VkBytes) -> VkGraph:
        return dataclasses.replace(GRAPH, constants=constants)

    def test_inline(self) -> None:
        delegate = reopened(self.graph(VkBytes(0, 2), VkBytes(16, 4)), b"ab" + bytes(14) + b"WXYZ")
        assert bytes(delegate.constant(0, no_names)) == b"ab"
        assert bytes(delegate.constant(1, no_names)) == b"WXYZ"

    @pytest.mark.parametrize(("offset", "length"), [(0, 5), (4, 1), (2**63, 1), (0, 2**64 - 1)])
    def test_inline_past_the_end(self, offset: int, length: int) -> None:
        with pytest.raises(FormatError, match="constant 0: inline data needs bytes"):
            reopened(self.graph(VkBytes(offset, length)), b"1234").constant(0, no_names)

    def test_named(self) -> None:
        delegate = reopened(self.graph(VkBytes(NAMED_OFFSET, 3, "key")))
        assert bytes(delegate.constant(0, {"key": ByteSource(b"1234").region()}.__getitem__)) == b"123"
        with pytest.raises(FormatError, match="named data 'key' needs bytes"):
            delegate.constant(0, {"key": ByteSource(b"12").region()}.__getitem__)

    @pytest.mark.parametrize("key", [None, ""])
    def test_named_without_a_key(self, key: str | None) -> None:
        with pytest.raises(FormatError, match="has no key"):
            reopened(self.graph(VkBytes(NAMED_OFFSET, 3, key))).constant(0, no_names)

    def test_zero_elements_need_no_data(self) -> None:
        assert bytes(reopened(self.graph(VkBytes(NAMED_OFFSET, 0, "key"))).constant(0, no_names)) == b""

    @pytest.mark.parametrize("index", [-1, 1])
    def test_out_of_range(self, index: int) -> None:
        with pytest.raises(FormatError, match=f"constant {index}, but there are 1"):
            reopened(GRAPH).constant(index, no_names)


class TestIds:
    @pytest.mark.parametrize(
        ("changes", "match"),
        [
            (
                {"chain": (OperatorCall(0, "aten.mul.Tensor", (0, 5)),)},
                r"operator 0 \(aten.mul.Tensor\).* value 5",
            ),
            (
                {"chain": (OperatorCall(0, "aten.mul.Tensor", (-1,)),)},
                r"\(aten.mul.Tensor\) refers to value -1",
            ),
            ({"input_ids": (5,)}, "input_ids refers to value 5"),
            ({"output_ids": (2**32 - 1,)}, "output_ids refers to value 4294967295"),
            ({"values": (*GRAPH.values, VkValue(ValueList((6,))))}, "value 5 refers to value 6"),
            ({"values": (*GRAPH.values, VkValue(ValueList((-1,))))}, "value 5 refers to value -1"),
            ({"constants": ()}, "value 1 refers to constant 0, but there are 0"),
        ],
    )
    def test_out_of_range(self, changes: dict[str, object], match: str) -> None:
        graph = dataclasses.replace(GRAPH, **changes)
        with pytest.raises(FormatError, match=match):
            write_delegate(graph)
        with pytest.raises(FormatError, match=match):
            read_delegate(memoryview(written_unchecked(graph)))

    def test_int_lists_hold_numbers_not_ids(self) -> None:
        graph = dataclasses.replace(GRAPH, values=(*GRAPH.values, VkValue(IntList((-1, 99)))))
        assert reopened(graph).graph == graph


def written_unchecked(graph: VkGraph) -> bytes:
    """A blob whose graph the writer would refuse."""
    from pteron.pte.flat import encode

    flatbuffer = encode(graph, identifier=b"VK00")
    return struct.pack("<4x4sHIIIQ2x", b"VH00", 30, 32, len(flatbuffer), 32 + len(flatbuffer), 0) + flatbuffer


def test_a_list_inside_a_list_is_refused() -> None:
    with pytest.raises(FormatError, match="list inside a list"):
        write_delegate(VkGraph(values=(VkValue(ValueList((0,))),)))
