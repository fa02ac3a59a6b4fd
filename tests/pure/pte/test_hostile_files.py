"""Damaged files: any bytes give a program or a FormatError, in a short time."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pteron.errors import FormatError
from pteron.pte import ProgramFile, read_delegate, schema
from tests.pure.pte.pte_samples import DATA, FIXTURES


def visit_everything(data: bytes) -> int:
    """Open a file and read everything that it refers to. Returns the number of records."""
    reached = 0
    with ProgramFile.open(data) as file:
        for name in file.method_names:
            plan = file.plan(name)
            for value in plan.values:
                if isinstance(value.val, schema.Tensor):
                    file.tensor_data(value.val)
                reached += 1
            for delegate in plan.delegates:
                opened = read_delegate(file.delegate_blob(delegate))
                for index in range(len(opened.graph.constants)):
                    opened.constant(index, file.named_data)
                reached += len(opened.graph.values)
    return reached


def survives(data: bytes) -> bool:
    """Whether damaged bytes still load. An exception other than FormatError fails the test."""
    try:
        visit_everything(data)
    except FormatError as fault:
        assert str(fault)
        return False
    return True


def test_the_undamaged_files_are_visited_whole(real_file: Path) -> None:
    assert visit_everything(real_file.read_bytes()) > 5


def test_truncation_at_every_byte() -> None:
    data = (DATA / "dyn_rms.pte").read_bytes()
    loaded = [size for size in range(len(data)) if survives(data[:size])]
    assert loaded == []


@pytest.mark.parametrize("value", [0x00, 0x7F, 0xFF])
def test_every_byte_overwritten(value: int) -> None:
    data = bytearray((DATA / "dyn_rms.pte").read_bytes())
    refused = 0
    for at in range(len(data)):
        kept, data[at] = data[at], value
        refused += not survives(bytes(data))
        data[at] = kept
    assert refused > 100


@given(
    name=st.sampled_from(FIXTURES),
    edits=st.lists(st.tuples(st.integers(0, 2**16), st.integers(0, 255)), min_size=1, max_size=6),
)
@settings(max_examples=400, deadline=2000, suppress_health_check=[HealthCheck.too_slow])
def test_random_edits(name: str, edits: list[tuple[int, int]]) -> None:
    data = bytearray((DATA / name).read_bytes())
    for at, value in edits:
        data[at % len(data)] = value
    survives(bytes(data))


@given(st.sampled_from(FIXTURES), st.integers(0, 2**16), st.binary(min_size=4, max_size=64))
@settings(max_examples=200, deadline=2000)
def test_random_splices(name: str, at: int, patch: bytes) -> None:
    data = (DATA / name).read_bytes()
    at %= len(data)
    survives(data[:at] + patch + data[at + len(patch) :])


@given(st.binary(max_size=200))
def test_random_bytes(data: bytes) -> None:
    assert not survives(data)
    survives(b"\x10\0\0\0ET12" + data)  # and now as what might be a program
