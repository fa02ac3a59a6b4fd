"""A whole file through a model. An interrupted job continues where it stopped."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import pyarrow as pa

from pteron._util.progress import Progress
from pteron.api.mapping.row_tables import rows_of
from pteron.data.arrow_columns import result_columns
from pteron.data.output_rules import (
    ARRAYS,
    check_arrays,
    check_columns,
    check_names,
    check_places,
    refuse_finished,
)
from pteron.data.part_files import SUFFIXES, PartFolder
from pteron.data.readers import TableReader, identity
from pteron.data.row_mappers import MapOptions, RowMapper, options_digest
from pteron.errors import InputError, RowError

ERROR = pa.field("error", pa.string())
Mode: TypeAlias = Literal["fail", "skip", "column"]
PART_ROWS = 10_000
PART_PROMPTS = 100  # an answer takes seconds: an interrupted run should not lose hours


@dataclass(frozen=True, slots=True)
class FileJob:
    """What to do: an input, an output, and what happens to bad rows.

    on_error: "fail" stops at a bad row. "skip" leaves it out. "column" leaves its results empty, and adds a
        column `error` with the reason.
    keep: the columns of the input that the output has too. Default: see `TableReader.kept`.
    part_rows: the rows of a part. Default: 10,000, or 100 prompts of a language model.
    restart: do not continue an interrupted run: remove its parts.
    overwrite: replace a finished output.
    """

    source: Path
    output: Path
    options: MapOptions
    on_error: Mode = "fail"
    keep: tuple[str, ...] | None = None
    part_rows: int | None = None
    restart: bool = False
    overwrite: bool = False

    def __post_init__(self) -> None:
        suffix = self.output.suffix.lower()
        if suffix and suffix not in SUFFIXES and not self.output.is_dir():
            raise InputError(
                f"{self.output}: {suffix} files cannot be written: expected {', '.join(SUFFIXES)}, or a "
                "folder, whose name has no dot unless it exists"
            )

    @property
    def rows_of_part(self) -> int:
        return self.part_rows or (PART_PROMPTS if self.options.prompt else PART_ROWS)

    @property
    def is_folder(self) -> bool:
        """Whether the output is a folder of parts, which are not joined."""
        return self.output.suffix.lower() not in SUFFIXES

    @property
    def parts(self) -> Path:
        return self.output if self.is_folder else self.output.with_name(f"{self.output.name}.parts")


@dataclass(frozen=True, slots=True)
class JobResult:
    """The rows of the input that are done, how many of them by earlier runs, and this run's bad ones."""

    rows: int
    earlier_rows: int
    bad_rows: int


def check_job(job: FileJob, reader: TableReader) -> None:
    """Refuse what cannot be read or written, before a model is loaded."""
    check_places(job.source, (job.output, job.parts))
    if not job.overwrite and (PartFolder(job.parts).is_finished if job.is_folder else job.output.exists()):
        refuse_finished(job.output)
    check_columns((*job.options.named_columns, *kept_columns(job, reader)), reader.schema.names)
    check_arrays(job.output.suffix.lower(), _fields_beside(job, reader))


def run_job(
    job: FileJob, reader: TableReader, mapper: RowMapper, progress: Progress = lambda *_: None
) -> JobResult:
    """Run a job, or the rest of it.

    progress: is told the number of finished rows, first of those that an earlier run has finished.
    """
    check_job(job, reader)
    check_names(kept_columns(job, reader), added_columns(mapper, job.on_error))
    check_arrays(job.output.suffix.lower(), _fields_beside(job, reader), mapper.fields)
    folder = PartFolder(job.parts)
    restart = job.restart or folder.is_finished
    with folder.begun(_manifest(job, reader, mapper), restart) as number:
        start, rows, bad = number * job.rows_of_part, 0, 0
        for table, results in _finished(job, reader, mapper, start, progress):
            rows += len(results)
            bad += sum(isinstance(result, RowError) for result in results)
            folder.write(number, _part(job, mapper, table, results))
            number += 1
        if number == 0:
            folder.write(0, _part(job, mapper, _no_rows(job, reader), []))
    if job.is_folder:
        folder.mark_finished()
    elif job.output.exists() and not job.overwrite:  # it was not when the work began
        refuse_finished(job.output)
    else:
        folder.finish(job.output)
    return JobResult(start + rows, start, bad)


def _manifest(job: FileJob, reader: TableReader, mapper: RowMapper) -> dict[str, Any]:
    """What the parts of a run depend on."""
    return {
        "input": identity(job.source),
        "model": mapper.digest,
        "options": options_digest(job.options),
        "columns": list(kept_columns(job, reader)),
        "part size": job.rows_of_part,
        # A run that failed at a bad row may continue without it: its parts are the same.
        "--on-error": "column" if job.on_error == "column" else "no column",
    }


def _fields_beside(job: FileJob, reader: TableReader) -> list[pa.Field]:
    """The columns of the output that are not results."""
    kept = [reader.schema.field(name) for name in kept_columns(job, reader)]
    return [*kept, ERROR] if job.on_error == "column" else kept


def added_columns(mapper: RowMapper, on_error: Mode) -> list[str]:
    return [field.name for field in mapper.fields] + ([ERROR.name] if on_error == "column" else [])


def kept_columns(job: FileJob, reader: TableReader) -> tuple[str, ...]:
    """The columns of the input that the output has too. Arrays have only the results."""
    if job.keep is not None:
        return job.keep
    return () if job.output.suffix.lower() in ARRAYS else reader.kept


def _finished(
    job: FileJob, reader: TableReader, mapper: RowMapper, start: int, progress: Progress
) -> Iterator[tuple[pa.Table, list[Any]]]:
    """The kept columns and the results of each part."""
    kept = KeptRows(kept_columns(job, reader), job.options.named_columns)
    results: list[Any] = []
    progress("rows", start, reader.count)
    for done, result in enumerate(mapper.map(kept.watch(reader.batches(start))), start + 1):
        progress("rows", done, reader.count)
        if isinstance(result, RowError):
            result = RowError(result.row + start, result.reason)
            if job.on_error == "fail":
                raise result
        results.append(result)
        if len(results) == job.rows_of_part:
            yield kept.take(len(results)), results
            results = []
    if results:
        yield kept.take(len(results)), results


class KeptRows:
    """The columns to keep, of rows that have been read and whose results are still to come."""

    def __init__(self, names: tuple[str, ...], read: Sequence[str]) -> None:
        """names: the columns to keep. read: the columns that the model reads, which must be there too."""
        self._names = list(names)
        self._read = list(read)
        self._batches: deque[pa.RecordBatch] = deque()

    def watch(self, batches: Iterator[pa.RecordBatch]) -> Iterator[Mapping[str, Any]]:
        """The rows of batches, whose columns are kept on the way."""
        for batch in batches:
            check_columns((*self._read, *self._names), batch.schema.names)
            if self._names:
                self._batches.append(batch.select(self._names))
            yield from rows_of(pa.Table.from_batches([batch]))

    def take(self, count: int) -> pa.Table:
        """The first rows, which are then no longer kept."""
        taken: list[pa.RecordBatch] = []
        while count and self._names:
            batch = self._batches.popleft()
            taken.append(batch.slice(0, count))
            if batch.num_rows > count:
                self._batches.appendleft(batch.slice(count))
            count -= taken[-1].num_rows
        return pa.Table.from_batches(taken) if taken else pa.table({})


def _no_rows(job: FileJob, reader: TableReader) -> pa.Table:
    """The kept columns of an input without rows, whose types nobody knows."""
    return pa.table({name: pa.array([], pa.null()) for name in kept_columns(job, reader)})


def _part(job: FileJob, mapper: RowMapper, kept: pa.Table, results: list[Any]) -> pa.Table:
    fields = list(mapper.fields)
    columns = result_columns(fields, results)
    if job.on_error == "column":
        fields.append(ERROR)
        texts = [str(r.reason) if isinstance(r, RowError) else None for r in results]
        columns.append(pa.array(texts, pa.string()))
    table = pa.Table.from_arrays([*kept.columns, *columns], schema=pa.schema([*kept.schema, *fields]))
    if job.on_error == "skip":
        table = table.filter(pa.array([not isinstance(result, RowError) for result in results], pa.bool_()))
    return table
