"""Results as columns of Arrow. The type of a column follows from the method, not from the results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from pteron.api.method_info import IOInfo
from pteron.errors import RowError


def column_type(info: IOInfo) -> pa.DataType:
    """The type of one row of an output: nested lists, of a fixed size where the dimension is static."""
    made = pa.from_numpy_dtype(np.dtype(info.array_dtype)) if info.is_tensor else pa.int64()
    for d in range(len(info.max_shape) - 1, 0, -1):
        made = pa.list_(made) if d in info.dynamic_dims else pa.list_(made, info.max_shape[d])
    return made


def column_of(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """A column. A value that is None becomes null."""
    present = [value for value in values if value is not None]
    column = _column(present, kind)
    if len(present) == len(values):
        return column
    places = np.cumsum([value is not None for value in values]) - 1
    missing = np.array([value is None for value in values])
    return column.take(pa.array(places, pa.int64(), mask=missing))


def _column(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    if not (pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind)):
        return pa.array([value.item() if hasattr(value, "item") else value for value in values], kind)
    if pa.types.is_list(kind):
        ends = np.cumsum([0, *(len(value) for value in values)])
        inner = _column([item for value in values for item in value], kind.value_type)
        return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), inner, type=kind)
    return pa.FixedSizeListArray.from_arrays(_elements(values, kind), type=kind)


def _elements(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """The elements of lists of a fixed size, one after the other."""
    inner = kind.value_type
    if pa.types.is_primitive(inner) and not pa.types.is_boolean(inner):
        flat = np.concatenate(values) if values else np.empty(0, inner.to_pandas_dtype())
        return pa.array(flat, inner)
    return _column([item for value in values for item in value], inner)


def result_columns(fields: Sequence[pa.Field], results: Sequence[Any]) -> list[pa.Array]:
    """The columns of results: each is a tuple with a value per field, or a RowError."""
    failed = (None,) * len(fields)
    rows = [failed if isinstance(result, RowError) else result for result in results]
    return [column_of([row[place] for row in rows], field.type) for place, field in enumerate(fields)]
