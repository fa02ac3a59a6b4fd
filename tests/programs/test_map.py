"""`program.map`: any number of rows, in batches, with the results of calls one by one."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from torch.export import Dim

import pteron
from pteron.engine.devices.opening import Device
from pteron.errors import InputError, RowError

VOCABULARY = 50


class Pooled(torch.nn.Module):
    """The mean vector of the real tokens, and the vectors of all tokens."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.words = torch.nn.Embedding(VOCABULARY, 8)
        self.out = torch.nn.Linear(8, 6)

    def forward(self, tokens: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        rows = torch.tanh(self.out(self.words(tokens)))
        weights = mask.to(torch.float32).unsqueeze(-1)
        return (rows * weights).sum(1) / weights.sum(1).clamp(min=1.0), rows


class Shifted(torch.nn.Module):
    def forward(self, x: torch.Tensor, shift: torch.Tensor) -> torch.Tensor:
        return torch.relu(x) + shift


@pytest.fixture(scope="module")
def masked(exported: Callable[..., bytes], device: Device) -> Iterator[pteron.Program]:
    def arguments() -> tuple[Any, ...]:
        rows, length = Dim("rows", min=1, max=8), Dim("length", min=1, max=24)
        example = (torch.zeros(8, 24, dtype=torch.int64), torch.ones(8, 24, dtype=torch.int64))
        return Pooled(), example, ({0: rows, 1: length}, {0: rows, 1: length})

    with pteron.load(exported("map_masked", arguments), device=device) as program:
        yield program


@pytest.fixture(scope="module")
def shifted(exported: Callable[..., bytes], device: Device) -> Iterator[pteron.Program]:
    def arguments() -> tuple[Any, ...]:
        rows, length = Dim("rows", min=1, max=5), Dim("length", min=1, max=16)
        example = (torch.zeros(5, 16, 3), torch.zeros(5, 1, 3))
        return Shifted(), example, ({0: rows, 1: length}, {0: rows})

    with pteron.load(exported("map_shifted", arguments), device=device) as program:
        yield program


def texts(count: int, longest: int = 24) -> list[np.ndarray[Any, Any]]:
    generator = np.random.default_rng(count)
    return [generator.integers(0, VOCABULARY, generator.integers(1, longest + 1)) for _ in range(count)]


def by_torch(tokens: np.ndarray[Any, Any]) -> tuple[Any, Any]:
    with torch.no_grad():
        mean, rows = Pooled()(torch.tensor(tokens[None]), torch.ones(1, len(tokens), dtype=torch.int64))
    return mean[0].numpy(), rows[0].numpy()


def check(results: list[Any], rows: list[Any]) -> None:
    assert len(results) == len(rows)
    for (mean, every), tokens in zip(results, rows, strict=True):
        wanted_mean, wanted_rows = by_torch(tokens)
        assert every.shape == (len(tokens), 6), "the result of a row has no padding"
        np.testing.assert_allclose(mean, wanted_mean, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(every, wanted_rows, rtol=1e-5, atol=1e-6)


def calls_of(program: pteron.Program, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """The shapes of the first input, in all calls from now on."""
    shapes = []
    method = program.method()
    submit = method.submit

    def counted(*inputs: Any) -> Any:
        shapes.append(inputs[0].shape)
        return submit(*inputs)

    monkeypatch.setattr(method, "submit", counted)
    return shapes


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 50])
def test_rows_of_different_lengths(masked: pteron.Program, count: int) -> None:
    rows = texts(count)
    check(list(masked.map(rows)), rows)


def test_nothing_is_allocated(masked: pteron.Program) -> None:
    list(masked.map(texts(20)))  # makes the second staging buffer
    device = masked.device
    before = device.allocations, device.compilations
    list(masked.map(texts(50)))
    assert (device.allocations, device.compilations) == before


def test_similar_lengths_share_a_batch(masked: pteron.Program, monkeypatch: pytest.MonkeyPatch) -> None:
    shapes = calls_of(masked, monkeypatch)
    rows = texts(64)
    check(list(masked.map(rows)), rows)
    assert len(shapes) == 8
    assert [shape[1] for shape in shapes] == sorted(len(row) for row in rows)[7::8]


def test_a_smaller_batch_and_window(masked: pteron.Program, monkeypatch: pytest.MonkeyPatch) -> None:
    shapes = calls_of(masked, monkeypatch)
    rows = texts(10)
    check(list(masked.map(rows, batch=3, window=4)), rows)
    assert [shape[0] for shape in shapes] == [3, 1, 3, 1, 2]


def test_without_a_mask_only_rows_of_one_shape_share_a_batch(
    shifted: pteron.Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    shapes = calls_of(shifted, monkeypatch)
    generator = np.random.default_rng(0)
    rows = [
        (generator.standard_normal((length, 3)).astype(np.float32), np.full((1, 3), length, np.float32))
        for length in (4, 9, 4, 4, 9, 1)
    ]
    for (x, shift), got in zip(rows, shifted.map(rows), strict=True):
        np.testing.assert_allclose(got, np.maximum(x, 0) + shift, rtol=1e-6)
    assert sorted(shapes) == [(1, 1, 3), (2, 9, 3), (3, 4, 3)]


class TestSources:
    def test_dictionaries_and_columns(self, masked: pteron.Program) -> None:
        rows = texts(11)
        names = {"input0": "ids"}
        check(list(masked.map([{"ids": row, "id": 5} for row in rows], names)), rows)
        check(list(masked.map({"ids": rows, "id": range(11)}, ["ids"])), rows)
        check(list(masked.map({"input0": rows, "id": range(11)})), rows)
        check(list(masked.map({"any name": rows})), rows)

    def test_arrow(self, masked: pteron.Program) -> None:
        rows = texts(11)
        table = pa.table({"ids": [row.tolist() for row in rows], "id": range(11)})
        names = {"input0": "ids"}
        check(list(masked.map(table, names)), rows)
        check(
            list(masked.map(pa.RecordBatchReader.from_batches(table.schema, table.to_batches(4)), names)),
            rows,
        )
        check(list(masked.map(table.to_pandas(), names)), rows)

    def test_an_array_and_python_numbers(self, masked: pteron.Program) -> None:
        rows = np.stack([np.arange(5) + n for n in range(20)])
        check(list(masked.map(rows)), list(rows))
        check(list(masked.map(rows.tolist())), list(rows))
        check(list(masked.map(iter(rows.astype(np.int16)))), list(rows))

    def test_the_input_is_not_read_at_once(self, masked: pteron.Program) -> None:
        read = 0

        def endless() -> Iterator[Any]:
            nonlocal read
            while True:
                read += 1
                yield np.arange(1 + read % 20)

        results = masked.map(endless(), window=16)
        for _ in range(100):
            next(results)
        assert read <= 100 + 3 * 16

    def test_prepare(self, masked: pteron.Program) -> None:
        rows = texts(9)
        spoken = [" ".join(map(str, row)) for row in rows]
        check(list(masked.map(spoken, prepare=lambda text: np.array([int(w) for w in text.split()]))), rows)


class TestDevices:
    def test_side_by_side(self, masked: pteron.Program) -> None:
        rows = texts(60)
        check(list(masked.map(rows, devices=[0, 0], batch=2, window=8)), rows)

    def test_a_caller_that_stops(self, masked: pteron.Program) -> None:
        results = masked.map((np.arange(1 + n % 20) for n in range(10**9)), devices=[0, 0], window=8)
        first = next(results)
        results.close()
        check([first], [np.arange(1)])

    def test_a_bad_row(self, masked: pteron.Program) -> None:
        rows = texts(20)
        rows[13] = np.array([VOCABULARY])
        got = list(masked.map(rows, devices=[0, 0], on_error="return", batch=2, window=8))
        assert [n for n, result in enumerate(got) if isinstance(result, RowError)] == [13]


class TestErrors:
    def bad_rows(self) -> list[Any]:
        rows: list[Any] = texts(30)
        rows[3] = np.zeros(25, np.int64)
        rows[4] = np.array([1.5])
        rows[17] = np.array([0, VOCABULARY])  # found only when its batch is checked
        rows[29] = None
        return rows

    def test_an_error_comes_after_the_results_of_the_rows_before_it(self, masked: pteron.Program) -> None:
        rows = self.bad_rows()
        got = []
        with pytest.raises(
            RowError, match=r"row 3: input0: a row must have shape \[m <= 24\], got \[25\]"
        ) as e:
            for result in masked.map(rows):
                got.append(result)
        assert e.value.row == 3
        check(got, rows[:3])
        check(list(masked.map(rows[:3])), rows[:3])

    def test_bad_rows_do_not_stop_the_others(self, masked: pteron.Program) -> None:
        rows = self.bad_rows()
        got = list(masked.map(rows, on_error="return"))
        errors = {n: str(result) for n, result in enumerate(got) if isinstance(result, RowError)}
        assert list(errors) == [3, 4, 17, 29]
        assert errors[4] == "row 4: input0: expected int64 values, got float64"
        assert errors[17].startswith("row 17: input0: element [0, 1] is 50")
        assert errors[29] == "row 29: input0: the value is missing"
        good = [n for n in range(30) if n not in errors]
        check([got[n] for n in good], [rows[n] for n in good])

    def test_all_rows_are_bad(self, masked: pteron.Program) -> None:
        got = list(masked.map(["x"] * 20, prepare=int, on_error="return"))
        assert str(got[19]) == "row 19: ValueError: invalid literal for int() with base 10: 'x'"
        again = pickle.loads(pickle.dumps(got[19]))
        assert (again.row, str(again)) == (19, str(got[19]))

    @pytest.mark.parametrize(
        ("rows", "options", "message"),
        [
            ([{"a": 1, "b": 2}], {}, "no column is named like an input. The columns are a, b"),
            ([{"a": 1}], {"columns": {"x": "a"}}, "there is no tensor input 'x'"),
            ([{"a": 1}], {"columns": {"input0": "b"}}, "row 0: there is no column 'b'; the columns are a"),
            ([[1]], {"mask": "input9"}, "mask: 'input9' should be an input of shape"),
            ([[1]], {"on_error": "skip"}, "expected 'raise' or 'return'"),
            ([[1]], {"batch": 0}, "batch is 0"),
            ([[1]], {"devices": []}, "devices: expected one or more"),
            ("text", {}, "expected an iterable of rows, got a str"),
            (5, {}, "expected an iterable of rows, got a int"),
        ],
    )
    def test_bad_arguments(self, masked: pteron.Program, rows: Any, options: Any, message: str) -> None:
        with pytest.raises(InputError, match=message):
            list(masked.map(rows, **options))

    def test_an_input_without_a_column(self, shifted: pteron.Program) -> None:
        with pytest.raises(InputError, match=r"input1: .* has no column: name it in columns="):
            list(shifted.map(np.zeros((2, 4, 3), np.float32)))


def test_a_program_of_a_fixed_size(exported: Callable[..., bytes], device: Device) -> None:
    """The last batch is filled, and rows are padded to the only length."""

    def arguments() -> tuple[Any, ...]:
        return Pooled(), (torch.zeros(4, 12, dtype=torch.int64), torch.ones(4, 12, dtype=torch.int64)), None

    with pteron.load(exported("map_fixed", arguments), device=device) as program:
        rows = texts(10, 12)
        check(list(program.map(rows)), rows)
