"""Files with rows: Parquet, CSV, JSON lines, `.npy`, `.npz`, and folders of images.

A reader gives record batches of Arrow, from any row on, and has only a few of them in memory. Only the arrays
of a `.npz` file are read whole.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet

from pteron.errors import FormatError, InputError

ROWS = 1024  # of a record batch
IMAGES = frozenset({".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff"})
NO_VALUE = "__HIVE_DEFAULT_PARTITION__"  # the name of a folder for rows without a value
KINDS = ".parquet, .csv, .jsonl, .npy, .npz, a folder of Parquet files or a folder of images"


class TableReader(Protocol):
    count: int | None  # of the rows, if it is known before they are read
    schema: pa.Schema  # of the columns, as far as it is known before they are read
    kept: tuple[str, ...]  # the columns that an output has too, unless others are named

    def batches(self, start: int) -> Iterator[pa.RecordBatch]:
        """The rows from number `start` on."""


def open_table(path: Path) -> TableReader:
    """A reader for a file or folder, by its name."""
    if not path.exists():
        raise InputError(f"there is no file {path}")
    if path.is_dir():
        return _open_folder(path)
    suffix = path.suffix.lower()
    with _said_of(path):
        match suffix:
            case ".parquet":
                return ParquetReader([path], path.parent)
            case ".csv":
                return StreamReader(path, pyarrow.csv.open_csv)
            case ".jsonl" | ".ndjson":
                return StreamReader(path, pyarrow.json.open_json)
            case ".npy":
                return ArrayReader({"data": np.load(path, mmap_mode="r", allow_pickle=False)})
            case ".npz":
                with np.load(path, allow_pickle=False) as arrays:
                    return ArrayReader(dict(arrays))
    raise InputError(f"{path}: expected {KINDS}")


def _open_folder(path: Path) -> TableReader:
    tables = parquet_files(path)
    if tables:
        with _said_of(path):
            return ParquetReader(tables, path)
    images = sorted(p for p in path.rglob("*") if p.suffix.lower() in IMAGES)
    if not images:
        raise InputError(f"{path}: the folder has neither .parquet files nor images")
    return ImageReader(path, images)


def parquet_files(folder: Path) -> list[Path]:
    """The Parquet files in a folder and its partitions. Names that begin with . or _ are not data."""
    found = (path.relative_to(folder) for path in folder.rglob("*.parquet"))
    return [folder / path for path in sorted(found) if not any(part[0] in "._" for part in path.parts)]


def identity(path: Path) -> str:
    """A digest of the contents, and in a folder also of the names. Times of change do not count."""
    digest = hashlib.sha256()
    for file in [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file()):
        name = "" if file == path else file.relative_to(path).as_posix()
        with file.open("rb") as contents:
            digest.update(f"{len(name)} {name}".encode() + hashlib.file_digest(contents, "sha256").digest())
    return digest.hexdigest()


@contextmanager
def _said_of(path: Path) -> Iterator[None]:
    """Name the file in errors of the libraries."""
    try:
        yield
    except (pa.ArrowException, ValueError, EOFError) as error:
        raise FormatError(f"{path} cannot be read: {error}") from error


class ParquetReader:
    """Parquet files of one table. Folders such as `day=3` between `folder` and a file are columns, too."""

    def __init__(self, paths: list[Path], folder: Path) -> None:
        self._paths = paths
        self._counts = [pyarrow.parquet.read_metadata(path).num_rows for path in paths]
        self.count: int | None = sum(self._counts)
        stored: pa.Schema = pyarrow.parquet.read_schema(paths[0])
        self._partitions = _partitions([path.relative_to(folder).parts[:-1] for path in paths], stored.names)
        self.schema = pa.schema(
            [*stored, *((name, values.type) for name, values in self._partitions.items())]
        )
        self.kept = tuple(self.schema.names)

    def batches(self, start: int) -> Iterator[pa.RecordBatch]:
        for number, (path, count) in enumerate(zip(self._paths, self._counts, strict=True)):
            if start >= count:
                start -= count
                continue
            with _said_of(path), pyarrow.parquet.ParquetFile(path) as file:
                groups, skipped = _groups_from(file.metadata, start)
                for batch in _without_first(skipped, file.iter_batches(ROWS, row_groups=groups)):
                    yield self._with_partitions(batch, number)
            start = 0

    def _with_partitions(self, batch: pa.RecordBatch, file: int) -> pa.RecordBatch:
        for name, values in self._partitions.items():
            batch = batch.append_column(name, pa.repeat(values[file], batch.num_rows))
        return batch


def _partitions(folders: Sequence[Sequence[str]], stored: Sequence[str]) -> dict[str, pa.Array]:
    """The values of each file in columns that the names of folders state, unless the files have them, too."""
    stated = [dict(part.split("=", 1) for part in parts if "=" in part) for parts in folders]
    found: dict[str, pa.Array] = {}
    for name in dict.fromkeys(name for values in stated for name in values):
        texts = [values.get(name, NO_VALUE) for values in stated]
        column = pa.array([None if text == NO_VALUE else unquote(text) for text in texts], pa.string())
        with suppress(pa.ArrowInvalid):
            column = column.cast(pa.int64())
        if name not in stored:
            found[unquote(name)] = column
    return found


def _groups_from(metadata: Any, start: int) -> tuple[list[int], int]:
    """The row groups from the one with row `start` on, and the rows to skip in the first of them."""
    number = 0
    while start >= metadata.row_group(number).num_rows:
        start -= metadata.row_group(number).num_rows
        number += 1
    return list(range(number, metadata.num_row_groups)), start


class StreamReader:
    """CSV or JSON lines. The types of the columns are those of the first megabyte."""

    def __init__(self, path: Path, open_stream: Any) -> None:
        self._path = path
        self._open = open_stream
        self.count: int | None = None
        with open_stream(path) as stream:
            self.schema: pa.Schema = stream.schema
        self.kept = tuple(self.schema.names)

    def batches(self, start: int) -> Iterator[pa.RecordBatch]:
        with _said_of(self._path), self._open(self._path) as stream:
            yield from _without_first(start, stream)


class ArrayReader:
    """The rows of arrays are their elements along the first dimension."""

    def __init__(self, arrays: Mapping[str, np.ndarray[Any, Any]]) -> None:
        lengths = {name: len(array) if array.ndim else 0 for name, array in arrays.items()}
        if len(set(lengths.values())) != 1:
            raise ValueError(f"its arrays should have one length, but they have {lengths}")
        self._arrays = arrays
        self.count: int | None = next(iter(lengths.values()))
        columns = {name: _arrow_array(array[:1]) for name, array in arrays.items()}
        self.schema = pa.schema([(name, column.type) for name, column in columns.items()])
        self.kept: tuple[str, ...] = ()

    def batches(self, start: int) -> Iterator[pa.RecordBatch]:
        assert self.count is not None
        for first in range(start, self.count, ROWS):
            columns = [_arrow_array(array[first : first + ROWS]) for array in self._arrays.values()]
            yield pa.RecordBatch.from_arrays(columns, names=list(self._arrays))


def _arrow_array(array: np.ndarray[Any, Any]) -> pa.Array:
    array = np.ascontiguousarray(array)
    return pa.array(array) if array.ndim == 1 else pa.FixedShapeTensorArray.from_numpy_ndarray(array)


class ImageReader:
    """A row is the path of an image. The image itself is read when the row is prepared."""

    def __init__(self, folder: Path, paths: list[Path]) -> None:
        self._folder = folder
        self._paths = paths
        self.count: int | None = len(paths)
        self.schema = pa.schema([("path", pa.string()), ("image", pa.string())])
        self.kept: tuple[str, ...] = ("path",)

    def batches(self, start: int) -> Iterator[pa.RecordBatch]:
        for first in range(start, len(self._paths), ROWS):
            some = self._paths[first : first + ROWS]
            names = pa.array([str(path.relative_to(self._folder)) for path in some])
            files = pa.array([str(path.absolute()) for path in some])
            yield pa.RecordBatch.from_arrays([names, files], names=["path", "image"])


def _without_first(count: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        if count < batch.num_rows:
            yield batch.slice(count)
        count = max(0, count - batch.num_rows)
