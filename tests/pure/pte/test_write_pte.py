"""Writing `.pte` files."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from pteron.pte import ProgramFile, program_chunks, schema, write_pte
from pteron.pte.schema import AllocationDetails, ScalarType, Tensor
from tests.pure.pte.pte_samples import calls, one_method


def planned(offset: int) -> Tensor:
    return Tensor(
        ScalarType.FLOAT, sizes=(2, 2), dim_order=(0, 1), allocation_info=AllocationDetails(1, offset)
    )


def addition() -> schema.Program:
    """x + y, as one kernel call."""
    return one_method(
        planned(0),
        planned(16),
        schema.Int(1),
        planned(32),
        inputs=(0, 1),
        outputs=(3,),
        operators=(schema.Operator("aten::add", "out"),),
        chains=calls(schema.KernelCall(0, (0, 1, 2, 3, 3))),
        non_const_buffer_sizes=(0, 48),
        container_meta_type=schema.ContainerMetadata("", ""),
    )


def rewritten(source: Path, target: Path) -> None:
    with ProgramFile.open(source) as file:
        write_pte(target, file.program, [file.segment(i).view for i in range(len(file.program.segments))])


class TestRoundTrip:
    def test_real_files(self, real_file: Path, tmp_path: Path) -> None:
        rewritten(real_file, tmp_path / "copy.pte")
        with ProgramFile.open(real_file) as old, ProgramFile.open(tmp_path / "copy.pte") as new:
            assert new.program.execution_plan == old.program.execution_plan
            assert new.program.named_data == old.program.named_data
            assert len(new.program.segments) == len(old.program.segments) > 0
            for index in range(len(new.program.segments)):
                assert bytes(new.segment(index)) == bytes(old.segment(index))

    @pytest.mark.parametrize("alignment", [1, 16, 4096])
    def test_alignment(self, tmp_path: Path, alignment: int) -> None:
        segments = (b"first", b"", b"second")
        write_pte(tmp_path / "x.pte", one_method(), segments, alignment=alignment)
        with ProgramFile.open(tmp_path / "x.pte") as file:
            assert tuple(bytes(file.segment(index)) for index in range(3)) == segments
        raw = (tmp_path / "x.pte").read_bytes()
        assert raw.index(b"first") % alignment == raw.index(b"second") % alignment == 0

    def test_alignment_is_a_power_of_two(self) -> None:
        with pytest.raises(ValueError, match="power of two"):
            program_chunks(one_method(), (b"x",), alignment=24)

    def test_segments_are_streamed_not_joined(self) -> None:
        segment = memoryview(bytearray(1 << 20))
        assert any(chunk is segment for chunk in program_chunks(one_method(), (segment,)))

    def test_wide_items_count_in_bytes(self) -> None:
        segment = memoryview(b"12345678").cast("I")
        data = b"".join(program_chunks(one_method(), (segment, b"next")))
        with ProgramFile.open(data) as file:
            assert bytes(file.segment(0)) == b"12345678"
            assert bytes(file.segment(1)) == b"next"


class TestAtomicity:
    def test_a_failed_write_leaves_the_old_file_and_nothing_else(self, tmp_path: Path) -> None:
        target = tmp_path / "model.pte"
        target.write_bytes(b"old")
        with pytest.raises(TypeError):
            write_pte(target, one_method(), (b"fine", "not bytes"))
        with pytest.raises(OSError, match="disk"):
            write_file_that_fails(target)
        assert target.read_bytes() == b"old"
        assert list(tmp_path.iterdir()) == [target]

    def test_the_file_has_the_usual_permissions(self, tmp_path: Path) -> None:
        (tmp_path / "plain").touch()
        write_pte(tmp_path / "model.pte", one_method())
        assert (tmp_path / "model.pte").stat().st_mode == (tmp_path / "plain").stat().st_mode


def write_file_that_fails(target: Path) -> None:
    from pteron.pte.container import write_file

    def chunks() -> Iterator[bytes]:
        yield b"half"
        raise OSError("disk full")

    write_file(target, chunks())
