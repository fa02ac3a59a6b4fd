"""Opening `.pte` files: their sources, their contents, and their errors."""

import dataclasses
import gc
import io
import struct
from pathlib import Path

import pytest

from pteron.errors import FormatError
from pteron.pte import ProgramFile, schema, write_ptd, write_pte
from pteron.pte.flat import encode
from pteron.pte.schema import (
    AllocationDetails,
    BackendDelegate,
    BackendDelegateDataReference,
    BackendDelegateInlineData,
    Buffer,
    DataLocation,
    ExtraTensorInfo,
    NamedData,
    ScalarType,
    SubsegmentOffsets,
    Tensor,
    TensorDataLocation,
)
from tests.pure.pte.pte_samples import DATA, calls, one_method, to_bytes

RMS = DATA / "dyn_rms.pte"


class TestSources:
    @pytest.mark.parametrize(
        "source",
        [
            pytest.param(RMS, id="Path"),
            pytest.param(str(RMS), id="str"),
            pytest.param(RMS.read_bytes(), id="bytes"),
            pytest.param(bytearray(RMS.read_bytes()), id="bytearray"),
            pytest.param(memoryview(RMS.read_bytes()), id="memoryview"),
            pytest.param(memoryview(RMS.read_bytes()).cast("I"), id="memoryview of integers"),
            pytest.param(io.BytesIO(RMS.read_bytes()), id="file"),
        ],
    )
    def test_all_kinds(self, source: object) -> None:
        with ProgramFile.open(source) as file:
            assert file.method_names == ("forward",)
            assert file.segment(1).view.readonly

    @pytest.mark.parametrize(("source", "name"), [(42, "int"), (None, "NoneType"), (["x"], "list")])
    def test_other_kinds_are_named(self, source: object, name: str) -> None:
        with pytest.raises(TypeError, match=f"not {name}"):
            ProgramFile.open(source)

    def test_text_files(self) -> None:
        with pytest.raises(TypeError, match="'rb'"):
            ProgramFile.open(io.StringIO("text"))

    def test_strided_views(self) -> None:
        with pytest.raises(TypeError, match="contiguous"):
            ProgramFile.open(memoryview(RMS.read_bytes())[::2])

    def test_one_data_path_is_not_a_sequence(self) -> None:
        with pytest.raises(TypeError, match="put a single path in a list"):
            ProgramFile.open(RMS, "model.ptd")

    def test_missing_path(self, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError):
            ProgramFile.open(tmp_path / "absent.pte")

    def test_nothing_is_copied(self) -> None:
        data = RMS.read_bytes()
        with ProgramFile.open(data) as file:
            assert file.segment(1).view.obj is data


class TestWrongFiles:
    @pytest.mark.parametrize(
        ("data", "guess"),
        [
            (b"", "an empty file"),
            (b"PK\x03\x04" + bytes(60), "zip archive"),
            (b"\x80\x02" + bytes(60), "pickle"),
            (b"GGUF" + bytes(60), "GGUF"),
            (b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"),
            (b"<!DOCTYPE html>", "HTML"),
            (b"\x10\0\0\0FT01" + bytes(60), "data_path="),
            (b"\x10\0\0\0ET99" + bytes(60), "another version"),
            (struct.pack("<Q", 90) + b'{"weight":', "safetensors"),
            (b"hello, world", "begins with b'hello, w'"),
        ],
    )
    def test_the_message_says_what_it_looks_like(self, data: bytes, guess: str) -> None:
        with pytest.raises(FormatError, match=guess):
            ProgramFile.open(data)

    def test_empty_path(self, tmp_path: Path) -> None:
        (tmp_path / "model.pte").touch()
        with pytest.raises(FormatError, match=r"model\.pte: the file is empty"):
            ProgramFile.open(tmp_path / "model.pte")


class TestHeader:
    def test_truncated_segments(self) -> None:
        data = RMS.read_bytes()
        promise = rf"truncated: the header says {len(data)} bytes, the file has {len(data) - 1}"
        with pytest.raises(FormatError, match=promise):
            ProgramFile.open(data[:-1])

    def test_truncated_program(self) -> None:
        with pytest.raises(FormatError, match=r"truncated: .* has 700"):
            ProgramFile.open(RMS.read_bytes()[:700])

    def test_short_header_states_no_segment_bytes(self) -> None:
        data = bytearray(RMS.read_bytes())
        struct.pack_into("<I", data, 12, 24)
        struct.pack_into("<Q", data, 32, 2**60)  # not part of a header of 24 bytes
        with ProgramFile.open(data) as file, ProgramFile.open(RMS) as whole:
            assert file.program == whole.program
            assert bytes(file.segment(1)) == bytes(whole.segment(1))

    def test_short_header_and_truncated_segments(self) -> None:
        data = bytearray(RMS.read_bytes()[:-200])
        struct.pack_into("<I", data, 12, 24)
        with pytest.raises(FormatError, match=r"segment \d ends at byte \d+, but the file has"):
            ProgramFile.open(data)

    def test_header_too_short(self) -> None:
        data = bytearray(RMS.read_bytes())
        struct.pack_into("<I", data, 12, 23)
        with pytest.raises(FormatError, match="header of 23 bytes"):
            ProgramFile.open(data)

    def test_segments_inside_the_program(self) -> None:
        data = bytearray(RMS.read_bytes())
        struct.pack_into("<Q", data, 24, 64)
        with pytest.raises(FormatError, match="inside the program"):
            ProgramFile.open(data)

    def test_absent_header(self) -> None:
        program = one_method(schema.Int(5))
        with ProgramFile.open(encode(program, identifier=b"ET12")) as file:
            assert file.program == program

    def test_absent_header_with_segments(self) -> None:
        program = dataclasses.replace(one_method(), segments=(schema.DataSegment(0, 8),))
        with pytest.raises(FormatError, match="gives no position"):
            ProgramFile.open(encode(program, identifier=b"ET12"))


class TestMethods:
    def test_the_error_for_an_unknown_method_lists_the_methods(self) -> None:
        with ProgramFile.open(RMS) as file, pytest.raises(KeyError, match=r"'decode'.*forward"):
            file.plan("decode")

    def test_several_methods(self) -> None:
        plans = tuple(schema.ExecutionPlan(name) for name in ("prefill", "decode"))
        with ProgramFile.open(to_bytes(schema.Program(execution_plan=plans))) as file:
            assert file.method_names == ("prefill", "decode")
            assert file.plan("decode") is file.program.execution_plan[1]

    def test_two_methods_of_one_name(self) -> None:
        data = encode(schema.Program(execution_plan=(schema.ExecutionPlan("f"),) * 2), identifier=b"ET12")
        with pytest.raises(FormatError, match="the same name"):
            ProgramFile.open(data)


class TestDelegates:
    def delegate(self, location: DataLocation, index: int) -> BackendDelegate:
        return BackendDelegate("VulkanBackend", BackendDelegateDataReference(location, index))

    def test_in_a_segment(self) -> None:
        with ProgramFile.open(to_bytes(one_method(), (b"first", b"second"))) as file:
            assert bytes(file.delegate_blob(self.delegate(DataLocation.SEGMENT, 1))) == b"second"
            with pytest.raises(FormatError, match="segment 2 is used, but there are 2"):
                file.delegate_blob(self.delegate(DataLocation.SEGMENT, 2))

    def test_inline(self) -> None:
        inline = (BackendDelegateInlineData(memoryview(b"blob")),)
        program = dataclasses.replace(one_method(), backend_delegate_data=inline)
        with ProgramFile.open(to_bytes(program)) as file:
            assert bytes(file.delegate_blob(self.delegate(DataLocation.INLINE, 0))) == b"blob"
            with pytest.raises(FormatError, match="inline data 1, but there are 1"):
                file.delegate_blob(self.delegate(DataLocation.INLINE, 1))


class TestTensorData:
    TWO = Tensor(ScalarType.SHORT, sizes=(2,))

    def tensor(self, **changes: object) -> Tensor:
        return dataclasses.replace(self.TWO, **changes)

    def test_constants_are_sliced_to_the_tensor(self) -> None:
        program = dataclasses.replace(one_method(), constant_segment=SubsegmentOffsets(1, (0, 0, 16)))
        with ProgramFile.open(to_bytes(program, (b"other", b"0123456789abcdefWXYZ!"))) as file:
            assert bytes(file.tensor_data(self.tensor(data_buffer_idx=1))) == b"0123"
            assert bytes(file.tensor_data(self.tensor(data_buffer_idx=2))) == b"WXYZ"
            assert bytes(file.tensor_data(self.tensor(data_buffer_idx=2, sizes=()))) == b"WX"
            assert bytes(file.tensor_data(self.tensor(data_buffer_idx=2, sizes=(0, 9)))) == b""
            with pytest.raises(FormatError, match="constant 3, but there are 3"):
                file.tensor_data(self.tensor(data_buffer_idx=3))
            with pytest.raises(FormatError, match=r"SHORT tensor of sizes \[3\] needs 6 bytes, but 5"):
                file.tensor_data(self.tensor(data_buffer_idx=2, sizes=(3,)))

    def test_constant_that_begins_past_its_segment(self) -> None:
        program = dataclasses.replace(one_method(), constant_segment=SubsegmentOffsets(0, (0, 2**63)))
        with (
            ProgramFile.open(to_bytes(program, (b"1234",))) as file,
            pytest.raises(FormatError, match="begins at"),
        ):
            file.tensor_data(self.tensor(data_buffer_idx=1))

    @pytest.mark.parametrize("segment", [None, SubsegmentOffsets()])
    def test_deprecated_constant_buffer(self, segment: SubsegmentOffsets | None) -> None:
        buffers = (Buffer(), Buffer(memoryview(b"0123456")))
        program = dataclasses.replace(one_method(), constant_buffer=buffers, constant_segment=segment)
        with ProgramFile.open(to_bytes(program)) as file:
            assert bytes(file.tensor_data(self.tensor(data_buffer_idx=1))) == b"0123"
            with pytest.raises(FormatError, match="constant buffer 2, but there are 2"):
                file.tensor_data(self.tensor(data_buffer_idx=2))

    def test_mutable_tensors_with_initial_bytes(self) -> None:
        groups = (SubsegmentOffsets(0, (0, 0)), SubsegmentOffsets(1, (0, 4)))
        program = dataclasses.replace(one_method(), mutable_data_segments=groups)
        mutable = self.tensor(data_buffer_idx=1, allocation_info=AllocationDetails(1))
        second = dataclasses.replace(mutable, extra_tensor_info=ExtraTensorInfo(1))
        third = dataclasses.replace(mutable, extra_tensor_info=ExtraTensorInfo(2))
        with ProgramFile.open(to_bytes(program, (b"AAAAaaaa", b"BBBBbbbb"))) as file:
            assert bytes(file.tensor_data(mutable)) == b"AAAA"
            assert bytes(file.tensor_data(second)) == b"bbbb"
            with pytest.raises(FormatError, match="mutable data segment 2, but there are 2"):
                file.tensor_data(third)

    def test_tensors_without_data(self) -> None:
        with ProgramFile.open(to_bytes(one_method())) as file:
            assert file.tensor_data(self.TWO) is None
            assert file.tensor_data(self.tensor(allocation_info=AllocationDetails(1))) is None

    def test_external_tensors(self, tmp_path: Path) -> None:
        outside = ExtraTensorInfo(fully_qualified_name="net.weight", location=TensorDataLocation.EXTERNAL)
        tensor = self.tensor(extra_tensor_info=outside)
        data = to_bytes(one_method())
        write_ptd(tmp_path / "a.ptd", {"else": b"x"})
        write_ptd(tmp_path / "b.ptd", {"net.weight": b"1234"})
        with ProgramFile.open(data, [tmp_path / "a.ptd", tmp_path / "b.ptd"]) as file:
            assert bytes(file.tensor_data(tensor)) == b"1234"
        with ProgramFile.open(data) as file, pytest.raises(FormatError, match=r"'net.weight'.*data_path="):
            file.tensor_data(tensor)
        with (
            ProgramFile.open(data, [tmp_path / "a.ptd"]) as file,
            pytest.raises(FormatError, match=r"'net.weight'.*nor in .*a\.ptd"),
        ):
            file.tensor_data(tensor)


class TestNamedData:
    def test_the_program_comes_before_data_files(self, tmp_path: Path) -> None:
        named = (NamedData("a", 0), NamedData("same", 0))
        program = dataclasses.replace(one_method(), named_data=named)
        write_ptd(tmp_path / "x.ptd", {"a": b"outside", "b": b"only outside"})
        with ProgramFile.open(to_bytes(program, (b"inside",)), [tmp_path / "x.ptd"]) as file:
            assert bytes(file.named_data("a")) == b"inside"
            assert bytes(file.named_data("same")) == b"inside"
            assert bytes(file.named_data("b")) == b"only outside"
            with pytest.raises(FormatError, match="'c' is not in the program"):
                file.named_data("c")

    def test_segment_out_of_range(self) -> None:
        program = dataclasses.replace(one_method(), named_data=(NamedData("a", 1),))
        with pytest.raises(FormatError, match="named data 'a' refers to segment 1, but there are 0"):
            ProgramFile.open(encode(program, identifier=b"ET12"))


class TestValidation:
    """Each test has one index that is out of range."""

    @pytest.mark.parametrize(
        ("program", "match"),
        [
            (one_method(inputs=(0,)), "inputs refers to value 0, but there are 0"),
            (one_method(schema.Null(), outputs=(0, -1)), "outputs refers to value -1"),
            (one_method(schema.IntList((1,))), "value 0 refers to value 1, but there are 1"),
            (one_method(schema.TensorList((-1,))), "value 0 refers to value -1"),
            (one_method(schema.OptionalTensorList((-2,))), "value 0 refers to value -2"),
            (one_method(Tensor(sizes=(2, -1))), r"negative in \[2, -1\]"),
            (one_method(Tensor(sizes=(2, 3), dim_order=(0, 0))), r"dim_order \[0, 0\]"),
            (one_method(Tensor(sizes=(2,), dim_order=(0, 1))), r"dim_order \[0, 1\]"),
            (one_method(Tensor(sizes=(1,) * 17)), "rank 17"),
            (one_method(Tensor(storage_offset=4)), "storage_offset is 4"),
            (one_method(chains=calls(schema.KernelCall(0))), r"\(KernelCall\) refers to operator 0"),
            (
                one_method(
                    operators=(schema.Operator("aten::add"),), chains=calls(schema.KernelCall(0, (3,)))
                ),
                r"instruction 0 \(KernelCall\) refers to value 3",
            ),
            (one_method(chains=calls(schema.DelegateCall(0))), "refers to delegate 0"),
            (one_method(schema.Null(), chains=calls(schema.MoveCall(0, 1))), "refers to value 1"),
            (one_method(schema.Null(), chains=calls(schema.MoveCall(1, 0))), "refers to value 1"),
            (one_method(chains=calls(schema.FreeCall(0))), r"\(FreeCall\) refers to value 0"),
            (one_method(schema.Bool(), chains=calls(schema.JumpFalseCall(1, 0))), "refers to value 1"),
            (one_method(schema.Bool(), chains=calls(schema.JumpFalseCall(0, 2))), "refers to instruction 2"),
            (
                one_method(schema.Bool(), chains=calls(schema.JumpFalseCall(0, -1))),
                "refers to instruction -1",
            ),
            (one_method(chains=(schema.Chain(inputs=(0,)),)), "chain inputs refers to value 0"),
            (one_method(chains=(schema.Chain(outputs=(0,)),)), "chain outputs refers to value 0"),
        ],
    )
    def test_out_of_range(self, program: schema.Program, match: str) -> None:
        with pytest.raises(FormatError, match=match):
            ProgramFile.open(encode(program, identifier=b"ET12"))
        with pytest.raises(FormatError, match=match):
            to_bytes(program)

    def test_what_is_allowed(self) -> None:
        program = one_method(
            Tensor(sizes=(2, 3, 4, 5), dim_order=(0, 2, 3, 1)),
            Tensor(sizes=(0, 3)),
            Tensor(),
            schema.OptionalTensorList((-1, 0)),
            schema.Bool(),
            schema.Int(1),
            schema.IntList((5, 5)),
            inputs=(0,),
            outputs=(1, 1, 0, 5),  # repeated, an input, and an Int
            chains=calls(schema.JumpFalseCall(4, 1)),  # the end of the method
        )
        with ProgramFile.open(to_bytes(program)) as file:
            assert file.program == program


class TestClosing:
    def test_views_outlive_the_file(self, tmp_path: Path) -> None:
        path = tmp_path / "model.pte"
        write_pte(path, one_method(), (b"still here",))
        file = ProgramFile.open(path)
        view = file.segment(0).view
        file.close()
        file.close()
        del file
        gc.collect()
        assert view == b"still here"

    def test_a_closed_file_says_so(self) -> None:
        file = ProgramFile.open(RMS)
        file.close()
        with pytest.raises(ValueError, match=r"dyn_rms\.pte is closed"):
            file.segment(0)

    def test_the_mapping_is_released(self, tmp_path: Path) -> None:
        maps = Path("/proc/self/maps")
        if not maps.exists():
            pytest.skip("needs /proc")
        path = tmp_path / "released.pte"
        path.write_bytes(RMS.read_bytes())
        file = ProgramFile.open(path)
        assert "released.pte" in maps.read_text()
        file.close()
        gc.collect()
        assert "released.pte" not in maps.read_text()
