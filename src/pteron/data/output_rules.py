"""What a job may not write. It is refused before the work, as far as it can be known then."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from pteron._util.distinct_files import refuse_inputs, refuse_inside
from pteron.errors import InputError

ARRAYS = (".npy", ".npz")


def check_places(source: Path, places: Sequence[Path]) -> None:
    """Refuse to write to the input, around it or into it."""
    for place in places:
        refuse_inputs(place, [source])
        refuse_inside(place, source)


def refuse_finished(output: Path | str) -> None:
    raise InputError(
        f"{output} is there already: replace it with --overwrite (overwrite=True), or choose another output"
    )


def check_columns(wanted: Sequence[str], there: Sequence[str]) -> None:
    """Refuse a table without a column: this is no fault of single rows."""
    missing = [name for name in wanted if name not in there]
    if missing:
        raise InputError(f"there is no column {missing[0]!r}; the columns are {', '.join(there)}")


def check_names(kept: Sequence[str], added: Sequence[str]) -> None:
    """Refuse an output with two columns of one name."""
    for name in added:
        if name in kept:
            others = " ".join(f"--keep {other}" for other in kept if other != name) or "--keep ''"
            raise InputError(f"the input has a column {name!r}, as the results do: do not keep it ({others})")


def check_arrays(suffix: str, beside: Sequence[pa.Field], results: Sequence[pa.Field] = ()) -> None:
    """Refuse columns that a file of arrays cannot store.

    beside: the columns that are not results. results: as far as they are known.
    """
    if suffix not in ARRAYS:
        return
    for field in (*beside, *results):
        if not _is_numeric(field.type):
            raise InputError(
                f"{suffix} stores arrays of numbers, but column {field.name!r} is {field.type}: write "
                ".parquet instead, or leave the column out"
            )
    if suffix == ".npy" and (beside or len(results) > 1):
        names = ", ".join([field.name for field in (*beside, *results)])
        raise InputError(f".npy stores one array, but there are {names}: write .npz instead")


def _is_numeric(kind: pa.DataType) -> bool:
    while hasattr(kind, "value_type"):  # of lists and tensors
        kind = kind.value_type
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind))
