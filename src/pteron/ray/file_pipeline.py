"""`pteron map --ray`: the same job as a pipeline of Ray Data, which schedules, retries and shows progress."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import ray
import ray.data

from pteron.data.job import FileJob, check_job, kept_columns
from pteron.data.part_files import MANIFEST, PartFolder
from pteron.data.readers import open_table
from pteron.data.row_mappers import PROMPTS
from pteron.data.table_predictor import TablePredictor
from pteron.errors import InputError

BATCH = 1024  # rows that an actor gets at once; it finds rows of similar length among them


def map_file_on_ray(
    model: str | Path,
    job: FileJob,
    *,
    actors: int = 1,
    address: str | None = None,
    predictor: type[TablePredictor] = TablePredictor,
    batch_rows: int | None = None,
) -> None:
    """Run a job on a Ray cluster. The paths must be the same on all its machines.

    An actor that dies is started again, and its rows are run again. If the output is a folder, all machines
    write to it, in any order. If it is a file, this process writes it, in the order of the rows.
    batch_rows: the rows that an actor gets at once. Default: 1024, or 64 prompts of a language model.
    """
    parts, keep = job.parts, _checked_columns(job)
    if parts.exists() and job.restart:
        _remove_tables(parts)
    if parts.exists() and any(parts.iterdir()):
        raise InputError(f"{parts} is not empty: start again with --restart, or choose another output")
    options = {**asdict(job.options), "on_error": job.on_error, "keep": keep}
    with _connected(address):
        ray.data.DataContext.get_current().execution_options.preserve_order = True
        rows = _read(job.source.absolute())
        results = rows.map_batches(
            predictor,
            fn_constructor_args=(str(Path(model).absolute()),),
            fn_constructor_kwargs=options,
            batch_format="pyarrow",
            batch_size=batch_rows or (PROMPTS if job.options.prompt else BATCH),
            compute=ray.data.ActorPoolStrategy(size=actors),
            # An actor works on a GPU. If it reserved a CPU, readers and writers might find none.
            num_cpus=0,
        )
        if job.is_folder:
            results.write_parquet(str(parts.absolute()))
        else:
            _write_file(results, job)


def _checked_columns(job: FileJob) -> tuple[str, ...]:
    """The columns to keep. A wrong name is refused here, before a cluster starts."""
    reader = open_table(job.source)
    check_job(job, reader)
    return kept_columns(job, reader)


def _remove_tables(folder: Path) -> None:
    """Remove what an earlier run has written. Other files stay."""
    for path in folder.glob("*.parquet"):
        path.unlink()
    (folder / MANIFEST).unlink(missing_ok=True)


def _write_file(results: Any, job: FileJob) -> None:
    """One file is written here, in the order of the rows."""
    folder = PartFolder(job.parts)
    folder.path.mkdir(exist_ok=True)
    tables = results.iter_batches(batch_size=job.rows_of_part, batch_format="pyarrow")
    for number, table in enumerate(tables):
        folder.write(number, table)
    folder.finish(job.output)


@contextmanager
def _connected(address: str | None) -> Iterator[None]:
    """Connect to a cluster, or start one on this machine. A connection that is already there is kept."""
    if ray.is_initialized():
        yield
        return
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    ray.init(address=address, **({} if address else {"include_dashboard": False}))
    try:
        yield
    finally:
        ray.shutdown()


def _read(source: Path) -> Any:
    """The rows of a file, read by Ray's own readers where it has one."""
    path = str(source)
    match source.suffix.lower():
        case ".csv":
            return ray.data.read_csv(path)
        case ".jsonl" | ".ndjson":
            return ray.data.read_json(path, lines=True)
        case ".npy":
            return ray.data.read_numpy(path)
    if source.suffix.lower() == ".parquet" or any(source.glob("*.parquet")):
        return ray.data.read_parquet(path)
    return ray.data.from_arrow([pa.Table.from_batches([batch]) for batch in open_table(source).batches(0)])
