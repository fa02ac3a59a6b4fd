"""How rows become the inputs of a method, and its outputs become results of rows.

The first dimension of every tensor is the batch. If the method has a mask, rows of different lengths share a
batch: their second dimension is padded, and the mask says which elements are real (1) and which are not (0).
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from pteron.api.mapping.row_tables import as_array
from pteron.api.method import Method
from pteron.api.method_info import IOInfo
from pteron.errors import InputError

Array: TypeAlias = np.ndarray[Any, Any]
Columns: TypeAlias = Mapping[str, str] | Sequence[str]


@dataclass(frozen=True, slots=True)
class Item:
    """A row that is ready for a batch: one array per input that is not the mask."""

    number: int
    arrays: tuple[Array, ...]
    kind: Hashable
    length: int

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self.arrays)


class RowInputs:
    """Which column of a row goes to which input of a method."""

    def __init__(
        self, method: Method, first: Any, columns: Columns | None, mask: str | None, pad: float = 0
    ) -> None:
        """first: a row, which shows the columns that rows have."""
        self._infos = method.inputs
        self._outputs = method.outputs
        self._pad = pad
        self._columns = _columns_by_input(method, first, columns)
        rest = [info for info in self._infos if info.is_tensor and info.name not in self._columns]
        self._mask = _mask(method, self._columns, rest, mask)
        given = [info for info in self._infos if info.name in self._columns]
        _check_inputs(method, self._columns, self._mask)
        self.given = tuple(given)
        self.size = _batch_size([*given, *([self._mask] if self._mask else [])])
        self.is_static = any(0 not in info.dynamic_dims for info in given)
        self._padded = [self._is_padded(info) for info in given]

    @property
    def varies(self) -> bool:
        """Whether rows may have different shapes."""
        return self._mask is not None or any(d > 0 for info in self.given for d in info.dynamic_dims)

    @property
    def padding_is_avoidable(self) -> bool:
        """Whether a call with fewer or shorter rows costs less."""
        return self._mask is not None and 1 in self._mask.dynamic_dims and not self.is_static

    def _is_padded(self, info: IOInfo) -> bool:
        return (
            self._mask is not None
            and len(info.max_shape) > 1
            and info.max_shape[1] == self._mask.max_shape[1]
        )

    # -- in -------------------------------------------------------------------------------------

    def item(self, number: int, row: Any) -> Item:
        """A row as arrays of the types and shapes that the method takes."""
        values = self._values(row)
        arrays = tuple(
            _converted(info, value, padded)
            for info, value, padded in zip(self.given, values, self._padded, strict=True)
        )
        lengths = {len(array) for array, padded in zip(arrays, self._padded, strict=True) if padded}
        if len(lengths) > 1:
            raise InputError(f"the inputs of one row have different lengths: {sorted(lengths)}")
        kind = tuple(
            array.shape[1:] if padded else array.shape
            for array, padded in zip(arrays, self._padded, strict=True)
        )
        return Item(number, arrays, kind, lengths.pop() if lengths else 0)

    def _values(self, row: Any) -> list[Any]:
        if isinstance(row, Mapping):
            missing = [c for c in self._columns.values() if c not in row]
            if missing:
                raise InputError(f"there is no column {missing[0]!r}; the columns are {', '.join(row)}")
            return [row[self._columns[info.name]] for info in self.given]
        values = list(row) if isinstance(row, tuple) else [row]
        if len(values) != len(self.given):
            raise InputError(f"expected {len(self.given)} values, got {len(values)}")
        return values

    def stack(self, items: Sequence[Item]) -> list[Any]:
        """The inputs of one call. A batch of a fixed size is filled with its last row."""
        if self.is_static:
            items = [*items, *[items[-1]] * (self.size - len(items))]
        length = self._length(items)
        stacked: dict[str, Any] = {
            info.name: _stacked([item.arrays[place] for item in items], length if padded else None, self._pad)
            for place, (info, padded) in enumerate(zip(self.given, self._padded, strict=True))
        }
        if self._mask is not None:
            real = np.arange(length)[None, :] < np.array([item.length for item in items])[:, None]
            stacked[self._mask.name] = real.astype(self._mask.array_dtype)
        return [stacked.get(info.name, info.fixed) for info in self._infos]

    def _length(self, items: Sequence[Item]) -> int:
        """The length to pad to: the longest row's, or the only one that the method takes."""
        if self._mask is not None and 1 not in self._mask.dynamic_dims:
            return self._mask.max_shape[1]
        return max(item.length for item in items)

    # -- out ------------------------------------------------------------------------------------

    def results(self, items: Sequence[Item], outputs: Sequence[Any]) -> list[Any]:
        """The result of each row: its output, or a tuple of several outputs."""
        called = self.size if self.is_static else len(items)
        for info, output in zip(self._outputs, outputs, strict=True):
            if isinstance(output, np.ndarray) and (not output.ndim or len(output) != called):
                raise InputError(
                    f"{info.name} has shape {list(output.shape)} for a batch of {called} rows: map needs "
                    "an output with one entry per row in its first dimension"
                )
        length = self._length(items)
        cut = [
            self._follows_length(info, output, length)
            for info, output in zip(self._outputs, outputs, strict=True)
        ]
        results = []
        for number, item in enumerate(items):
            made = [
                output[number][: item.length] if cut_here else _row(output, number)
                for output, cut_here in zip(outputs, cut, strict=True)
            ]
            results.append(made[0] if len(made) == 1 else tuple(made))
        return results

    def _follows_length(self, info: IOInfo, output: Any, length: int) -> bool:
        """Whether an output has an element for each element of the padded inputs."""
        return (
            self._mask is not None
            and isinstance(output, np.ndarray)
            and output.ndim > 1
            and output.shape[1] == length
            and info.max_shape[1] == self._mask.max_shape[1]
        )


def _columns_by_input(method: Method, first: Any, columns: Columns | None) -> dict[str, str]:
    """The column of each input, by the input's name. For rows without columns, it is the input's name."""
    names = [info.name for info in method.inputs if info.is_tensor]
    if columns is not None:
        pairs = dict(columns) if isinstance(columns, Mapping) else dict(zip(names, columns))  # noqa: B905
        unknown = [name for name in pairs if name not in names]
        if unknown:
            raise InputError(f"columns: there is no tensor input {unknown[0]!r}; the inputs are {names}")
        return pairs
    if not isinstance(first, Mapping):
        return {name: name for name in names[: len(first) if isinstance(first, tuple) else 1]}
    found = {name: name for name in names if name in first}
    if not found and len(first) == 1:
        return {names[0]: next(iter(first))}
    if not found:
        raise InputError(
            f"no column is named like an input. The columns are {', '.join(first)}; the inputs are "
            f"{', '.join(map(str, method.inputs))}. {_how_to_name(names[0], first)}"
        )
    return found


def _how_to_name(name: str, first: Mapping[str, Any]) -> str:
    """How to say which column goes to an input."""
    column = next(iter(first), "name")
    hint = f"Say which goes where: columns={{{name!r}: {column!r}}} (pteron map --columns {name}={column})"
    texts = [column for column, value in first.items() if isinstance(value, str)]
    return f"{hint}. For texts: pteron map --text-column {texts[0]}" if texts else hint


def _mask(
    method: Method, columns: Mapping[str, str], rest: Sequence[IOInfo], wanted: str | None
) -> IOInfo | None:
    """The input that is the mask: the named one, or the only one without a column, if it looks like one."""
    if wanted is not None:
        found = [info for info in rest if info.name == wanted]
        if not found or len(found[0].max_shape) != 2:
            raise InputError(
                f"mask: {wanted!r} should be an input of shape [batch, length] that has no column; the "
                f"inputs are {', '.join(map(str, method.inputs))}"
            )
        return found[0]
    if len(rest) != 1 or len(rest[0].max_shape) != 2:
        return None
    alike = [i for i in method.inputs if i.name in columns and i.max_shape[:2] == rest[0].max_shape]
    return rest[0] if alike else None


def _check_inputs(method: Method, columns: Mapping[str, str], mask: IOInfo | None) -> None:
    for info in method.inputs:
        if info.is_tensor and info.name not in columns and info is not mask:
            raise InputError(
                f"{info} has no column: name it in columns= (pteron map --columns), or in mask= (--mask) if "
                "it says which elements are real"
            )
        if info.is_integer:
            raise InputError(f"{info} is one number for the whole batch, which map cannot give")
        if info.is_tensor and not info.max_shape:
            raise InputError(f"{info} has no dimension for the batch")


def _batch_size(infos: Sequence[IOInfo]) -> int:
    sizes = {info.name: info.max_shape[0] for info in infos}
    if len(set(sizes.values())) > 1:
        raise InputError(f"the first dimension of every input should be the batch, but the sizes are {sizes}")
    return next(iter(sizes.values()))


def _converted(info: IOInfo, value: Any, padded: bool) -> Array:
    if value is None:
        raise InputError(f"{info.name}: the value is missing")
    try:
        array = as_array(value)
    except (ValueError, TypeError) as error:
        raise InputError(f"{info.name}: expected an array, got a {type(value).__name__}: {error}") from None
    _check_row_shape(info, array, padded)
    wanted = np.dtype(info.array_dtype)
    if array.dtype == wanted:
        return array
    if array.dtype.kind not in "biufc" or not np.can_cast(array.dtype, wanted, "same_kind"):
        found = f"a text: {str(value)[:40]!r}" if isinstance(value, str) else array.dtype
        raise InputError(f"{info.name}: expected {wanted} values, got {found}")
    made = array.astype(wanted)
    if wanted.kind in "iu" and not np.array_equal(made, array):
        raise InputError(f"{info.name}: a value does not fit {wanted}")
    return made


def _check_row_shape(info: IOInfo, array: Array, padded: bool) -> None:
    most = info.max_shape[1:]
    fits = array.ndim == len(most) and all(
        size == bound or (size < bound and (d in info.dynamic_dims or (padded and d == 1)))
        for d, (size, bound) in enumerate(zip(array.shape, most, strict=True), 1)
    )
    if not fits:
        sizes = list(info.size_texts[1:])
        if padded and 1 not in info.dynamic_dims:
            sizes[0] = f"<={most[0]}"
        raise InputError(f"{info.name}: a row must have shape [{', '.join(sizes)}], got {list(array.shape)}")


def _stacked(arrays: Sequence[Array], length: int | None, pad: float) -> Array:
    if length is None:
        return np.stack(arrays)
    batch = np.full((len(arrays), length, *arrays[0].shape[1:]), pad, arrays[0].dtype)
    for row, array in zip(batch, arrays, strict=True):
        row[: len(array)] = array
    return batch


def _row(output: Any, number: int) -> Any:
    return output[number] if isinstance(output, np.ndarray) else output
