"""The rows of anything that has rows: an iterable, an array, columns, or a table of Arrow.

A row is a mapping from column names to values, a tuple with a value for each input, or one value.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from pteron.errors import InputError


def rows_of(source: Any) -> Iterator[Any]:
    """The rows of a source, one after another. A table of Arrow is read batch by batch."""
    if isinstance(source, (str, bytes)):
        raise InputError(f"rows: expected an iterable of rows, got a {type(source).__name__}")
    if isinstance(source, Mapping):
        return _rows_of_columns(source)
    if hasattr(source, "to_batches"):  # a Table or Dataset of pyarrow
        return _rows_of_batches(source.to_batches())
    if hasattr(source, "__arrow_c_stream__"):  # pandas, polars, a RecordBatchReader and others
        return _rows_of_batches(_arrow_stream(source))
    if not isinstance(source, Iterable):
        raise InputError(f"rows: expected an iterable of rows, got a {type(source).__name__}")
    return iter(source)


def _rows_of_columns(columns: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        raise InputError(f"rows: the columns must have one length, but they have {lengths}")
    return (dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True))


def _arrow_stream(source: Any) -> Iterable[Any]:
    from pyarrow import RecordBatchReader

    return RecordBatchReader.from_stream(source)  # type: ignore[no-any-return]


def _rows_of_batches(batches: Iterable[Any]) -> Iterator[dict[str, Any]]:
    for batch in batches:
        names = batch.schema.names
        for values in zip(*(arrow_values(column) for column in batch.columns), strict=True):
            yield dict(zip(names, values, strict=True))


def arrow_values(column: Any) -> Any:
    """The values of an Arrow array. Lists are numpy arrays, and fixed-shape tensors keep their shape."""
    if column.null_count:
        return column.to_pylist()  # numpy has no missing integers
    if hasattr(column, "to_numpy_ndarray"):
        return column.to_numpy_ndarray()
    return column.to_numpy(zero_copy_only=False)


def as_array(value: Any) -> np.ndarray[Any, Any]:
    """A value of a row as an array. A nested list of Arrow is an array of arrays."""
    array = np.asarray(value)
    return array if array.dtype != object else np.array(_plain(value))


def _plain(value: Any) -> Any:
    return [_plain(item) for item in value] if isinstance(value, (np.ndarray, list, tuple)) else value
