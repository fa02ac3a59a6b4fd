"""The tensors of a `.safetensors` file, read with every length checked.

    size of the header (8 bytes), header, data
    header:  JSON: {name: {"dtype": "BF16", "shape": [2, 3], "data_offsets": [begin, end]}, ...}

The file is mapped into memory: a tensor's bytes are read when they are used.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from math import prod
from pathlib import Path
from struct import Struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pteron.errors import FormatError, UnsupportedError
from pteron.pte.bytesource import ByteSource

SIZE = Struct("<Q")
LONGEST_HEADER = 100_000_000  # bytes; the limit of the format
MAX_DIMENSIONS = 8
INDEX, SINGLE = "model.safetensors.index.json", "model.safetensors"

# How numpy reads each dtype. It has no bfloat16: its bits are the upper half of a float32's.
STORED_AS = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "I64": "<i8", "I32": "<i4"}
STORED_AS |= {"I16": "<i2", "I8": "|i1", "U8": "|u1", "BOOL": "|b1"}
FLOATS = ("F32", "F16", "BF16")


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A tensor's bytes, and how to read them."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    data: memoryview

    def floats(self, rows: Any = slice(None)) -> NDArray[np.float32]:
        """Rows as float32, which holds every number of FLOATS."""
        stored: NDArray[Any] = np.frombuffer(self.data, STORED_AS[self.dtype]).reshape(self.shape)[rows]
        if self.dtype == "BF16":
            stored = (stored.astype(np.uint32) << 16).view(np.float32)
        return stored.astype(np.float32, copy=False)


def read_tensors(folder: Path) -> dict[str, StoredTensor]:
    """All tensors of a model: of one file, or of the files that an index names."""
    if (folder / INDEX).is_file():
        return _sharded(folder)
    if (folder / SINGLE).is_file():
        return read_safetensors(folder / SINGLE)
    raise FormatError(
        f"{folder}: there is neither {SINGLE} nor {INDEX}. Other formats of weights, such as "
        "pytorch_model.bin, are not supported: save the model with safetensors."
    )


def _sharded(folder: Path) -> dict[str, StoredTensor]:
    index = read_json(folder / INDEX)
    places = index.get("weight_map")
    if not isinstance(places, dict) or not all(isinstance(file, str) for file in places.values()):
        raise FormatError(f"{folder / INDEX}: weight_map should give the file of each tensor")
    found: dict[str, StoredTensor] = {}
    for file in sorted(set(places.values())):
        if Path(file).name != file:  # an index must not lead out of its folder
            raise FormatError(f"{folder / INDEX}: {file!r} is not the name of a file in the folder")
        if not (folder / file).is_file():
            raise FormatError(f"{folder / file} is missing, but {INDEX} names it")
        found |= read_safetensors(folder / file)
    if missing := sorted(set(places) - set(found)):
        raise FormatError(f"{folder}: {missing[0]!r} is in {INDEX}, but not in the file that it names")
    return found


def read_safetensors(path: Path) -> dict[str, StoredTensor]:
    data = ByteSource(path).view
    header, start = _header(path, data)
    tensors = {name: _tensor(path, name, entry, data[start:]) for name, entry in header.items()}
    _refuse_overlap(path, header)
    return tensors


def _header(path: Path, data: memoryview) -> tuple[dict[str, Any], int]:
    size = SIZE.unpack(data[: SIZE.size])[0] if len(data) >= SIZE.size else 0
    start = SIZE.size + size
    if not 0 < size <= min(LONGEST_HEADER, len(data) - SIZE.size):
        raise FormatError(f"{path}: not a safetensors file, or cut short: its header would have {size} bytes")
    header = _parsed(path, bytes(data[SIZE.size : start]))
    header.pop("__metadata__", None)
    return header, start


def _tensor(path: Path, name: str, entry: Any, data: memoryview) -> StoredTensor:
    try:
        dtype, shape, (begin, end) = entry["dtype"], tuple(entry["shape"]), entry["data_offsets"]
        sound = len(shape) <= MAX_DIMENSIONS and all(type(n) is int and n >= 0 for n in (*shape, begin, end))
    except (TypeError, KeyError, ValueError):
        sound = False
    if not sound:
        raise FormatError(f"{path}: the entry of tensor {name!r} is damaged: {str(entry)[:100]}")
    if dtype not in STORED_AS:
        raise UnsupportedError(f"{path}: tensor {name!r} has the dtype {dtype}, which is not supported")
    nbytes = prod(shape) * np.dtype(STORED_AS[dtype]).itemsize
    if end - begin != nbytes or end > len(data):
        raise FormatError(
            f"{path}: tensor {name!r} of shape {list(shape)} and dtype {dtype} has {nbytes} bytes, but the "
            f"header gives it bytes {begin} to {end} of {len(data)}"
        )
    return StoredTensor(name, dtype, shape, data[begin:end])


def _refuse_overlap(path: Path, header: dict[str, Any]) -> None:
    """Tensors that share bytes would let a small file ask for the work of a large one."""
    last, before = 0, ""
    for begin, end, name in sorted((*entry["data_offsets"], name) for name, entry in header.items()):
        if begin < last:
            raise FormatError(f"{path}: the tensors {before!r} and {name!r} share bytes")
        last, before = end, name


# -- JSON ------------------------------------------------------------------------------------------


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in a file."""
    return _parsed(path, path.read_bytes())


def _parsed(path: Path, text: bytes) -> dict[str, Any]:
    try:
        value = json.loads(text.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{path}: not JSON: {error}") from None
    if not isinstance(value, dict):
        raise FormatError(f"{path}: a JSON object was expected, not {type(value).__name__}")
    return value
