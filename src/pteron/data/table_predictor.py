"""A model for batches of rows, as engines for clusters pass them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from pteron.api.mapping.row_tables import rows_of
from pteron.data.arrow_columns import result_columns
from pteron.data.job import Mode, added_columns
from pteron.data.output_rules import check_columns, check_names
from pteron.data.row_mappers import MapOptions, open_mapper
from pteron.errors import InputError, RowError


class TablePredictor:
    """A model that is loaded once, and adds its results to batches of rows.

    Call it with a batch: a table of Arrow, or arrays by name. It returns the same kind.
    """

    def __init__(
        self,
        model: str | Path,
        *,
        on_error: Mode = "fail",
        keep: tuple[str, ...] | None = None,
        **options: Any,
    ) -> None:
        """Load the model.

        Args:
            model: A path that every machine has.
            on_error: `"fail"` raises the error of a bad row. `"column"` leaves its results empty, and adds a
                column `error`. `"skip"` leaves the row out.
            keep: The columns of a batch to return too. Default: all.
            **options: The fields of `MapOptions`.
        """
        if on_error not in ("fail", "skip", "column"):
            raise InputError(f"on_error is {on_error!r}: expected 'fail', 'skip' or 'column'")
        self._on_error = on_error
        self._keep = keep
        self._options = MapOptions(**options)
        self._mapper = open_mapper(model, self._options)

    @property
    def reads(self) -> list[str]:
        """The columns that the model reads, in the order of its inputs."""
        return self._mapper.reads

    def __call__(self, batch: Any) -> Any:
        """A table of Arrow for a table of Arrow, or arrays by name for arrays by name."""
        self._check(list(batch) if isinstance(batch, Mapping) else batch.column_names)
        results = list(self._mapper.map(rows_of(batch)))
        errors = [result for result in results if isinstance(result, RowError)]
        if errors and self._on_error == "fail":
            raise errors[0]
        if isinstance(batch, Mapping):
            return self._as_arrays(batch, results)
        return self._as_table(batch, results)

    def _check(self, there: list[str]) -> None:
        kept = there if self._keep is None else self._keep
        check_columns((*self._options.named_columns, *kept), there)
        check_names(kept, added_columns(self._mapper, self._on_error))

    def _as_table(self, batch: pa.Table, results: list[Any]) -> pa.Table:
        fields = list(self._mapper.fields)
        table = batch if self._keep is None else batch.select(list(self._keep))
        made = dict(zip((f.name for f in fields), result_columns(fields, results), strict=True))
        if self._on_error == "column":
            made["error"] = pa.array(_reasons(results), pa.string())
        for name, column in made.items():
            table = table.append_column(name, column) if table.num_columns else pa.table({name: column})
        good = [not isinstance(result, RowError) for result in results]
        return table.filter(pa.array(good, pa.bool_())) if self._on_error == "skip" else table

    def _as_arrays(self, batch: Mapping[str, Any], results: list[Any]) -> dict[str, Any]:
        kept = {name: batch[name] for name in (batch if self._keep is None else self._keep)}
        if self._on_error == "column":
            kept["error"] = np.array(_reasons(results), object)
        good = [not isinstance(result, RowError) for result in results]
        if self._on_error == "skip":
            kept = {name: np.asarray(column)[good] for name, column in kept.items()}
            results = [result for result in results if not isinstance(result, RowError)]
        for place, field in enumerate(self._mapper.fields):
            values = [None if isinstance(result, RowError) else result[place] for result in results]
            kept[field.name] = _one_array(values)
        return kept

    def close(self) -> None:
        self._mapper.close()


def _reasons(results: list[Any]) -> list[str | None]:
    return [str(result.reason) if isinstance(result, RowError) else None for result in results]


def _one_array(values: list[Any]) -> np.ndarray[Any, Any]:
    """An array of all values, or of objects where they have different shapes or one is missing."""
    shapes = {getattr(value, "shape", ()) for value in values}
    if len(shapes) == 1 and not any(value is None for value in values):
        return np.stack([np.asarray(value) for value in values])
    array = np.empty(len(values), object)
    array[:] = values
    return array
