"""Whole files through a model: tables, arrays and images in, tables and arrays out.

`open_mapper` is the model's side. `run_job` reads a file, maps it, and writes a file; an interrupted job
continues where it stopped. `pteron.ray` and `pteron.spark` use the same mapper.
"""

from pteron._util.extras import needs

with needs("data", "to read and write tables"):
    import pyarrow  # noqa: F401

from pteron.data.job import FileJob, JobResult, check_job, run_job
from pteron.data.readers import open_table
from pteron.data.row_mappers import MapOptions, RowMapper, open_mapper
from pteron.data.stores import address_of, at_hand

__all__ = [
    "FileJob",
    "JobResult",
    "MapOptions",
    "RowMapper",
    "address_of",
    "at_hand",
    "check_job",
    "open_mapper",
    "open_table",
    "run_job",
]
