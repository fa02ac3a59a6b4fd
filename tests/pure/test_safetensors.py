"""safetensors files: every number, and no damaged file."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pteron.errors import FormatError, UnsupportedError
from pteron.llm.hf.safetensors import read_safetensors, read_tensors


def write(path: Path, header: Any, data: bytes = b"") -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


def entry(dtype: str, shape: list[int], begin: int, end: int) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def test_dtypes(tmp_path: Path) -> None:
    values = np.array([[1.0, -2.5], [2.0**-130, 3e38]], np.float32)
    upper = (values.view(np.uint32) >> 16).astype(np.uint16)
    halves = np.array([1.5, 2.0**-24], np.float16)
    header = {
        "a": entry("F32", [2, 2], 0, 16),
        "b": entry("BF16", [2, 2], 16, 24),
        "c": entry("F16", [2], 24, 28),
        "__metadata__": {"format": "pt"},
    }
    data = values.tobytes() + upper.tobytes() + halves.tobytes()
    tensors = read_safetensors(write(tmp_path / "x.safetensors", header, data))
    assert set(tensors) == {"a", "b", "c"}
    np.testing.assert_array_equal(tensors["a"].floats(), values)
    truncated = (upper.astype(np.uint32) << 16).view(np.float32)
    np.testing.assert_array_equal(tensors["b"].floats(), truncated)
    np.testing.assert_array_equal(tensors["b"].floats(np.array([1])), truncated[1:])
    np.testing.assert_array_equal(tensors["c"].floats(), halves.astype(np.float32))


DAMAGED: dict[str, tuple[Any, bytes, type[Exception], str]] = {
    "no JSON": (b"{]", b"", FormatError, "not JSON"),
    "a list": (b"[1]", b"", FormatError, "a JSON object was expected, not list"),
    "no shape": ({"a": {"dtype": "F32"}}, b"", FormatError, "the entry of tensor 'a' is damaged"),
    "a negative size": ({"a": entry("F32", [-1], 0, 4)}, bytes(4), FormatError, "is damaged"),
    "too many dimensions": ({"a": entry("F32", [1] * 99, 0, 4)}, bytes(4), FormatError, "is damaged"),
    "beyond the end": ({"a": entry("F32", [2], 0, 8)}, bytes(4), FormatError, "bytes 0 to 8 of 4"),
    "another size": ({"a": entry("F32", [2], 0, 4)}, bytes(4), FormatError, "has 8 bytes"),
    "a huge shape": ({"a": entry("F32", [2**60, 2**60], 0, 4)}, bytes(4), FormatError, "bytes 0 to 4"),
    "an unknown dtype": ({"a": entry("F8_E4M3", [4], 0, 4)}, bytes(4), UnsupportedError, "F8_E4M3"),
    "shared bytes": (
        {"a": entry("F32", [2], 0, 8), "b": entry("F32", [2], 4, 12)},
        bytes(12),
        FormatError,
        "the tensors 'a' and 'b' share bytes",
    ),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_damaged_files(case: str, tmp_path: Path) -> None:
    header, data, error, message = DAMAGED[case]
    with pytest.raises(error, match=message):
        read_safetensors(write(tmp_path / "x.safetensors", header, data))


@pytest.mark.parametrize("content", [b"abc", struct.pack("<Q", 2**60) + b"{}", struct.pack("<Q", 0)])
def test_a_header_that_is_not_there(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(content)
    with pytest.raises(FormatError, match="not a safetensors file, or cut short"):
        read_safetensors(path)


def test_files_of_an_index(tmp_path: Path) -> None:
    for number, name in enumerate("ab"):
        data = struct.pack("<f", number)
        write(tmp_path / f"{name}.safetensors", {name: entry("F32", [1], 0, 4)}, data)
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"a": "a.safetensors", "b": "b.safetensors"}}))
    tensors = read_tensors(tmp_path)
    assert [tensors[name].floats().tolist() for name in "ab"] == [[0.0], [1.0]]
    for places, message in (
        ({"a": "../a.safetensors"}, "is not the name of a file in the folder"),
        ({"a": "c.safetensors"}, "c.safetensors is missing"),
        ({"c": "a.safetensors"}, "'c' is in model.safetensors.index.json, but not in the file"),
        (["a"], "weight_map should give the file of each tensor"),
    ):
        index.write_text(json.dumps({"weight_map": places}))
        with pytest.raises(FormatError, match=message):
            read_tensors(tmp_path)


def test_a_folder_without_weights(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"there is neither model.safetensors nor"):
        read_tensors(tmp_path)
