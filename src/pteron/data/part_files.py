"""The parts of an unfinished output, and how they become one file.

A part is written under a temporary name and then renamed, so it is whole or absent. A manifest says which
input, model and options the parts belong to.
"""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from pteron.api.mapping.row_tables import arrow_values, as_array
from pteron.errors import InputError

MANIFEST = "_manifest.json"  # tools that read folders of tables ignore such a name
FINISHED = "finished"  # in a manifest: the folder has all rows
SUFFIXES = (".parquet", ".csv", ".jsonl", ".npy", ".npz")


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path. When the block ends without an error, the file there takes its place."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


class PartFolder:
    """A folder with a manifest and consecutive parts, each with the same number of input rows."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @contextmanager
    def begun(self, manifest: dict[str, Any], restart: bool) -> Iterator[int]:
        """Create the folder, or continue. Gives the number of parts that are already there.

        If the block fails before there is a part, nothing is left.
        """
        had_folder = self.path.exists()
        number = self._begin(manifest, restart)
        try:
            yield number
        except BaseException:
            if not self.parts():
                self._stored.unlink()
                if not had_folder:
                    with suppress(OSError):  # somebody has put a file there
                        self.path.rmdir()
            raise

    def _begin(self, manifest: dict[str, Any], restart: bool) -> int:
        is_ours = self._stored.exists()
        if restart and is_ours:
            self._remove()
        elif not is_ours and self.path.exists() and any(self.path.iterdir()):
            raise InputError(f"{self.path} is not empty and has no {MANIFEST}: choose another output")
        if not self.parts():  # there is nothing to continue
            self.path.mkdir(parents=True, exist_ok=True)
            self._write_manifest(manifest)
            return 0
        before = self._read_manifest()
        changed = [key for key in manifest if before.get(key) != manifest[key]]
        if changed:
            raise InputError(
                f"the parts in {self.path} are of a run with different {' and '.join(changed)}: start again "
                "with --restart, or choose another output"
            )
        return len(self.parts())

    def parts(self) -> list[Path]:
        """The parts without a gap, from the first on."""
        found: list[Path] = []
        while (path := self._part(len(found))).exists():
            found.append(path)
        return found

    def _part(self, number: int) -> Path:
        return self.path / f"part-{number:06d}.parquet"

    def write(self, number: int, table: pa.Table) -> None:
        with replacing(self._part(number)) as temporary:
            pyarrow.parquet.write_table(table, temporary)

    def finish(self, output: Path) -> None:
        """Join the parts into one file, and remove the folder."""
        join(self.parts(), output)
        self._remove()

    def _remove(self) -> None:
        """Remove what a run has written. Other files in the folder stay, and the folder with them."""
        for path in (*self.path.glob("part-*.parquet"), *self.path.glob(".part-*.tmp")):
            path.unlink()
        self._stored.unlink(missing_ok=True)
        with suppress(OSError):
            self.path.rmdir()

    @property
    def _stored(self) -> Path:
        return self.path / MANIFEST

    @property
    def is_finished(self) -> bool:
        """Whether all rows of the input are done."""
        return bool(self._read_manifest().get(FINISHED))

    def mark_finished(self) -> None:
        self._write_manifest({**self._read_manifest(), FINISHED: True})

    def _read_manifest(self) -> dict[str, Any]:
        """The manifest. One that is damaged is as good as that of another run."""
        with suppress(FileNotFoundError, NotADirectoryError, ValueError):
            found = json.loads(self._stored.read_text(encoding="utf-8"))
            if isinstance(found, dict):
                return found
        return {}

    def _write_manifest(self, manifest: dict[str, Any]) -> None:
        with replacing(self._stored) as temporary:
            temporary.write_text(json.dumps(manifest, indent=1), encoding="utf-8")


def join(parts: Sequence[Path], output: Path) -> None:
    """Write the rows of all parts to one file, part by part."""
    write: dict[str, Callable[[Sequence[Path], Path], None]] = {
        ".parquet": _join_parquet,
        ".csv": _join_csv,
        ".jsonl": _join_json,
        ".npy": _join_npy,
        ".npz": _join_npz,
    }
    with replacing(output) as temporary:
        write[output.suffix.lower()](parts, temporary)


def _join_parquet(parts: Sequence[Path], output: Path) -> None:
    with pyarrow.parquet.ParquetWriter(output, pyarrow.parquet.read_schema(parts[0])) as writer:
        for part in parts:
            writer.write_table(pyarrow.parquet.read_table(part))


def _join_csv(parts: Sequence[Path], output: Path) -> None:
    """CSV has no lists: they are written as JSON."""
    schema = _flat(pyarrow.parquet.read_table(parts[0])).schema
    with pyarrow.csv.CSVWriter(output, schema) as writer:
        for part in parts:
            writer.write_table(_flat(pyarrow.parquet.read_table(part)))


def _flat(table: pa.Table) -> pa.Table:
    for place, field in enumerate(table.schema):
        if pa.types.is_nested(field.type):
            texts = [None if v is None else json.dumps(v) for v in table.column(place).to_pylist()]
            table = table.set_column(place, field.name, pa.array(texts, pa.string()))
    return table


def _join_json(parts: Sequence[Path], output: Path) -> None:
    with output.open("w", encoding="utf-8") as file:
        for part in parts:
            for row in pyarrow.parquet.read_table(part).to_pylist():
                file.write(json.dumps(row, ensure_ascii=False, default=str) + "\n")


def _join_npy(parts: Sequence[Path], output: Path) -> None:
    names = pyarrow.parquet.read_schema(parts[0]).names
    if len(names) != 1:
        raise InputError(f".npy stores one array, but there are {', '.join(names)}: write .npz instead")
    with output.open("wb") as file:
        _write_array(parts, names[0], file)


def _join_npz(parts: Sequence[Path], output: Path) -> None:
    with zipfile.ZipFile(output, "w") as archive:
        for name in pyarrow.parquet.read_schema(parts[0]).names:
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                _write_array(parts, name, file)


def _write_array(parts: Sequence[Path], name: str, file: IO[bytes]) -> None:
    """One column as the contents of a `.npy` file, part by part."""
    rows = sum(pyarrow.parquet.read_metadata(part).num_rows for part in parts)
    for number, part in enumerate(parts):
        array = _as_one_array(pyarrow.parquet.read_table(part, columns=[name]).column(0), name)
        if number == 0:
            shape = (rows, *array.shape[1:])
            header = {
                "descr": np.lib.format.dtype_to_descr(array.dtype),
                "fortran_order": False,
                "shape": shape,
            }
            np.lib.format.write_array_header_2_0(file, header)
        file.write(array.tobytes())


def _as_one_array(column: pa.ChunkedArray, name: str) -> np.ndarray[Any, Any]:
    if column.null_count:
        raise InputError(
            f"column {name} has rows without a result, which an array cannot have: write .parquet"
        )
    try:
        return np.stack([as_array(value) for chunk in column.chunks for value in arrow_values(chunk)])
    except ValueError as error:
        raise InputError(f"column {name} is no array: {error}: write .parquet instead") from None
