"""`.ptd` files: written, read back, and read by stock ExecuTorch."""

import struct
from pathlib import Path

import pytest

from pteron.errors import FormatError
from pteron.pte import DataFile, write_ptd
from pteron.pte.ptd import FlatTensor, TensorLayout
from pteron.pte.schema import ScalarType

DATA = {"weight": bytes(range(48)), "empty": b"", "bias": b"\x01\x02\x03\x04"}
LAYOUTS = {"bias": TensorLayout(ScalarType.FLOAT, (1,), (0,))}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write_ptd(tmp_path / "model.ptd", DATA, LAYOUTS)
    return tmp_path / "model.ptd"


def test_round_trip(path: Path) -> None:
    file = DataFile(path)
    assert {key: bytes(region) for key, region in file.items()} == DATA
    assert file.layouts == LAYOUTS
    assert len(file) == 3
    assert "absent" not in file
    file.close()


def test_no_data_at_all(tmp_path: Path) -> None:
    write_ptd(tmp_path / "none.ptd", {})
    assert dict(DataFile(tmp_path / "none.ptd")) == {}


@pytest.mark.parametrize("alignment", [1, 128])
def test_alignment(tmp_path: Path, alignment: int) -> None:
    write_ptd(tmp_path / "x.ptd", DATA, alignment=alignment)
    raw = (tmp_path / "x.ptd").read_bytes()
    assert {key: bytes(region) for key, region in DataFile(raw).items()} == DATA
    assert raw.index(DATA["weight"]) % alignment == 0


def test_truncation_at_every_byte(path: Path) -> None:
    raw = path.read_bytes()
    for size in range(len(raw)):
        with pytest.raises(FormatError):
            DataFile(raw[:size])


@pytest.mark.parametrize(
    ("at", "code", "value", "match"),
    [
        (4, "I", 0, "not a .ptd file"),
        (8, "I", 0, "expected a b'FH01' header"),
        (12, "I", 39, "of 39 bytes"),
        (24, "Q", 2**40, "truncated: the header says"),
        (32, "Q", 0, "gives no position"),
    ],
)
def test_damaged_header(path: Path, at: int, code: str, value: int, match: str) -> None:
    raw = bytearray(path.read_bytes())
    struct.pack_into("<" + code, raw, at, value)
    with pytest.raises(FormatError, match=match):
        DataFile(raw)


def test_every_byte_overwritten(path: Path) -> None:
    raw = bytearray(path.read_bytes())
    refused = 0
    for at in range(len(raw)):
        kept, raw[at] = raw[at], 0xFF
        try:
            dict(DataFile(bytes(raw)))
        except FormatError:
            refused += 1
        raw[at] = kept
    assert refused > 50


def test_newer_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pteron.pte.ptd.FlatTensor", lambda *fields: FlatTensor(1, *fields[1:]))
    write_ptd(tmp_path / "new.ptd", DATA)
    monkeypatch.undo()
    with pytest.raises(FormatError, match="version 1 is newer"):
        DataFile(tmp_path / "new.ptd")
