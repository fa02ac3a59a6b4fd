"""`pteron map`: files of many kinds in and out, bad rows, and runs that continue."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

import pteron
from pteron.data import FileJob, MapOptions, open_mapper, open_table, run_job
from pteron.data.table_predictor import TablePredictor
from pteron.errors import FormatError, InputError, RowError
from tests.support import DATA
from tests.support.cli import answer, pteron_cli

MODEL = DATA / "emb_dyn.pte"  # numbers in, vectors of 64 out, up to 16 at once
COUNT = 100
NUMBERS = [(7 * n) % 10 for n in range(COUNT)]


@pytest.fixture(scope="module")
def vectors(device) -> np.ndarray[Any, Any]:
    """The vector of each number, by calls of one row."""
    with pteron.load(MODEL, device=device) as program:
        rows = [program(np.array([number])) for number in NUMBERS]
    return np.concatenate(rows)


def table(numbers: list[Any] = NUMBERS) -> pa.Table:
    return pa.table(
        {"id": [f"row {n}" for n in range(len(numbers))], "number": pa.array(numbers, pa.int64())}
    )


def write(path: Path, numbers: list[Any] = NUMBERS) -> Path:
    match path.suffix:
        case ".parquet":
            pyarrow.parquet.write_table(table(numbers), path, row_group_size=13)
        case ".csv":
            pyarrow.csv.write_csv(table(numbers), path)
        case ".jsonl":
            path.write_text("".join(json.dumps(row) + "\n" for row in table(numbers).to_pylist()))
        case ".npy":
            np.save(path, np.array(numbers))
        case ".npz":
            np.savez(path, number=np.array(numbers), other=np.zeros((len(numbers), 2, 3)))
    return path


def read(path: Path) -> dict[str, Any]:
    """The columns of an output."""
    match path.suffix:
        case ".npy":
            return {"output0": np.load(path)}
        case ".npz":
            return dict(np.load(path))
        case ".csv":
            columns = pyarrow.csv.read_csv(path).to_pydict()
            return columns | {"output0": np.array([json.loads(v) for v in columns["output0"]])}
        case ".jsonl":
            rows = [json.loads(line) for line in path.read_text().splitlines()]
            return {name: [row[name] for row in rows] for name in rows[0]}
    return pyarrow.parquet.read_table(path).to_pydict()


def run(source: Path, output: Path, column: str = "number", **options: Any) -> int:
    job = FileJob(source, output, MapOptions(columns={"input0": column}), **options)
    mapper = open_mapper(MODEL, job.options)
    try:
        return run_job(job, open_table(source), mapper).bad_rows
    finally:
        mapper.close()


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".jsonl", ".npz"])
def test_kinds_of_inputs(suffix: str, tmp_path: Path, vectors: Any) -> None:
    source, output = write(tmp_path / f"in{suffix}"), tmp_path / "out.parquet"
    pteron_cli("map", MODEL, source, output, "-c", "input0=number", "--part-rows", 33)
    made = read(output)
    np.testing.assert_array_equal(made["output0"], vectors)
    assert suffix == ".npz" or (made["id"], made["number"]) == (table()["id"].to_pylist(), NUMBERS)
    assert sorted(p.name for p in tmp_path.iterdir()) == [source.name, "out.parquet"]


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".jsonl", ".npy", ".npz"])
def test_kinds_of_outputs(suffix: str, tmp_path: Path, vectors: Any) -> None:
    output = tmp_path / f"out{suffix}"
    pteron_cli("map", MODEL, write(tmp_path / "in.npy"), output, "--part-rows", 40)
    np.testing.assert_array_equal(np.array(read(output)["output0"], np.float32), vectors)


def test_folders_of_tables(tmp_path: Path, vectors: Any) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    for number, start in enumerate((0, 30, 30, 77)):  # the second file has no rows
        end = (30, 30, 77, COUNT)[number]
        pyarrow.parquet.write_table(table().slice(start, end - start), folder / f"{number}.parquet")
    run(folder, tmp_path / "out", keep=(), part_rows=40)
    assert sorted(p.name for p in (tmp_path / "out").glob("*.parquet")) == [
        f"part-{number:06d}.parquet" for number in range(3)
    ]
    np.testing.assert_array_equal(read(tmp_path / "out")["output0"], vectors)
    assert list(read(tmp_path / "out")) == ["output0"]


@pytest.mark.parametrize("start", [0, 1, 13, 29, 30, 31, 99, 100, 5000])
@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".jsonl", ".npy"])
def test_readers_start_anywhere(suffix: str, start: int, tmp_path: Path) -> None:
    batches = list(open_table(write(tmp_path / f"in{suffix}")).batches(start))
    name = "data" if suffix == ".npy" else "number"
    assert [n for batch in batches for n in batch.column(name).to_pylist()] == NUMBERS[start:]


class TestContinuing:
    """An interrupted run leaves whole parts. The next run does the rest, and the output is the same."""

    def interrupted(self, source: Path, output: Path, after: int, **options: Any) -> None:
        reader = open_table(source)
        batches = reader.batches

        def broken(start: int) -> Iterator[Any]:
            for batch in batches(start):
                yield batch.slice(0, after - start)
                raise KeyboardInterrupt

        reader.batches = broken  # type: ignore[method-assign]
        job = FileJob(source, output, MapOptions(columns={"input0": "number"}), part_rows=10, **options)
        mapper = open_mapper(MODEL, job.options)
        with pytest.raises(KeyboardInterrupt):
            run_job(job, reader, mapper)
        mapper.close()

    def test_the_rest_is_done(self, tmp_path: Path, vectors: Any) -> None:
        source, output = write(tmp_path / "in.jsonl"), tmp_path / "out.parquet"
        self.interrupted(source, output, after=75)
        parts = sorted((tmp_path / "out.parquet.parts").glob("*.parquet"))
        assert not output.exists() and 1 <= len(parts) <= 7
        before = {part: part.stat().st_mtime_ns for part in parts}
        self.interrupted(source, output, after=95)
        assert {part: part.stat().st_mtime_ns for part in parts} == before, "no part is made twice"
        run(source, output, part_rows=10)
        made = read(output)
        np.testing.assert_array_equal(made["output0"], vectors)
        assert made["number"] == NUMBERS

    def test_a_half_written_part_does_not_count(self, tmp_path: Path, vectors: Any) -> None:
        source, output = write(tmp_path / "in.jsonl"), tmp_path / "out.parquet"
        self.interrupted(source, output, after=75)
        parts = tmp_path / "out.parquet.parts"
        (parts / ".part-000007.parquet.1.tmp").write_bytes(b"PAR1")
        run(source, output, part_rows=10)
        np.testing.assert_array_equal(read(output)["output0"], vectors)

    def test_another_input_is_refused(self, tmp_path: Path, vectors: Any) -> None:
        source, output = write(tmp_path / "in.jsonl"), tmp_path / "out.parquet"
        self.interrupted(source, output, after=75)
        before = source.stat()
        write(source, NUMBERS[::-1])
        os.utime(source, ns=(before.st_atime_ns, before.st_mtime_ns))  # the contents decide, not the times
        with pytest.raises(InputError, match="of a run with different input: start again with --restart"):
            run(source, output, part_rows=10)
        with pytest.raises(InputError, match="different input and part size"):
            run(source, output, part_rows=11)
        run(source, output, part_rows=11, restart=True)
        np.testing.assert_array_equal(read(output)["output0"], vectors[::-1])

    def test_another_time_of_change_is_no_other_input(self, tmp_path: Path, vectors: Any) -> None:
        source, output = write(tmp_path / "in.jsonl"), tmp_path / "out.parquet"
        self.interrupted(source, output, after=75)
        os.utime(source, ns=(1, 1))
        run(source.rename(tmp_path / "renamed.jsonl"), output, part_rows=10)
        np.testing.assert_array_equal(read(output)["output0"], vectors)

    def test_a_restart_removes_only_what_a_run_has_written(self, tmp_path: Path) -> None:
        source, output = write(tmp_path / "in.jsonl"), tmp_path / "out"
        self.interrupted(source, output, after=75)
        (output / "notes.txt").write_text("mine")
        run(source, output, part_rows=50, restart=True)
        parts = ["part-000000.parquet", "part-000001.parquet"]
        assert sorted(p.name for p in output.iterdir()) == ["_manifest.json", "notes.txt", *parts]

    def test_a_mistake_before_the_first_part_can_be_corrected(self, tmp_path: Path, vectors: Any) -> None:
        source, output = write(tmp_path / "in.jsonl"), tmp_path / "out.parquet"
        with pytest.raises(InputError, match=r"^there is no column 'nothing'; the columns are id, number"):
            run(source, output, "nothing", on_error="skip")
        run(source, output)
        np.testing.assert_array_equal(read(output)["output0"], vectors)

    def test_a_run_that_fails_before_its_first_part_leaves_nothing(self, tmp_path: Path) -> None:
        source = write(tmp_path / "in.jsonl")
        (tmp_path / "there").mkdir()
        for output in ("out.parquet", "new", "there"):
            with pytest.raises(InputError, match="there is no column 'nothing'"):
                run(source, tmp_path / output, "nothing")
        assert sorted(p.name for p in tmp_path.rglob("*")) == ["in.jsonl", "there"]

    def test_two_columns_of_one_name_are_refused_at_once(self, tmp_path: Path) -> None:
        source = tmp_path / "in.parquet"
        for name, on_error in (("output0", "fail"), ("error", "column")):
            pyarrow.parquet.write_table(table().append_column(name, [["x"] * COUNT]), source)
            with pytest.raises(InputError, match=rf"a column '{name}', .*--keep id --keep number\)$"):
                run(source, tmp_path / "out.parquet", part_rows=10, on_error=on_error)
            assert not (tmp_path / "out.parquet.parts").exists(), "no part was computed"

    def test_an_unknown_kind_of_output_is_refused(self, tmp_path: Path) -> None:
        source = write(tmp_path / "in.jsonl")
        with pytest.raises(InputError, match=r"out\.xlsx: \.xlsx files cannot be written"):
            run(source, tmp_path / "out.xlsx")
        (tmp_path / "run.2").mkdir()
        run(source, tmp_path / "run.2")
        assert list((tmp_path / "run.2").glob("*.parquet"))

    def test_a_folder_with_other_files_is_refused(self, tmp_path: Path) -> None:
        source, folder = write(tmp_path / "in.npy"), tmp_path / "mine"
        folder.mkdir()
        (folder / "notes.txt").write_text("mine")
        with pytest.raises(InputError, match=r"is not empty and has no _manifest\.json"):
            run(source, folder, "data")


class TestOutputs:
    """What would be lost is refused, and nothing has changed."""

    @pytest.mark.parametrize("link", [None, "symlink_to", "hardlink_to"])
    def test_an_output_that_is_the_input(self, link: str | None, tmp_path: Path) -> None:
        source = write(tmp_path / "in.parquet")
        output = tmp_path / "out.parquet" if link else source
        if link:
            getattr(output, link)(source)
        before = source.read_bytes()
        refused = pteron_cli("map", MODEL, source, output, "-c", "input0=number", "--overwrite", code=1)
        assert ("is another name of" if link else "is an input") in refused.stderr
        assert source.read_bytes() == before

    def test_an_output_around_the_input_or_in_it(self, tmp_path: Path) -> None:
        folder = tmp_path / "in"
        run(write(tmp_path / "in.jsonl"), folder)
        with pytest.raises(InputError, match=r"in/deeper/out\.parquet is in .*/in, which is read"):
            run(folder, folder / "deeper" / "out.parquet")
        with pytest.raises(InputError, match=r"holds .*part-000000\.parquet, which is read"):
            run(folder / "part-000000.parquet", folder, restart=True, overwrite=True)
        assert len(read(folder)["number"]) == COUNT

    @pytest.mark.parametrize("name", ["out.parquet", "out"])
    def test_a_finished_output_is_replaced_only_if_asked(self, name: str, tmp_path: Path) -> None:
        source, output = write(tmp_path / "in.parquet"), tmp_path / name
        run(source, output)
        few = write(tmp_path / "few.parquet", [1, 2])
        for options in ({}, {"restart": True}):
            with pytest.raises(InputError, match=r"is there already: replace it with --overwrite"):
                run(few, output, **options)
        assert read(output)["number"] == NUMBERS
        run(few, output, overwrite=True)
        assert read(output)["number"] == [1, 2]

    def test_an_output_that_appears_during_the_work_stays(self, tmp_path: Path) -> None:
        source, output = write(tmp_path / "in.parquet"), tmp_path / "out.parquet"
        job = FileJob(source, output, MapOptions(columns={"input0": "number"}))
        mapper = open_mapper(MODEL, job.options)
        with pytest.raises(InputError, match="is there already"):
            run_job(job, open_table(source), mapper, lambda *_: output.write_text("mine"))
        mapper.close()
        assert output.read_text() == "mine"
        run(source, output, overwrite=True)
        assert read(output)["number"] == NUMBERS

    @pytest.mark.parametrize(
        ("name", "options", "message"),
        [
            ("out.npy", ("--keep", "number"), ".npy stores one array, but there are number"),
            ("out.npz", ("--keep", "id"), "column 'id' is string"),
            ("out.npz", ("--on-error", "column"), "column 'error' is string"),
            ("out.parquet", ("--keep", "nothing"), "there is no column 'nothing'"),
            ("out.parquet", ("-c", "input0=nothing"), "there is no column 'nothing'"),
        ],
    )
    def test_impossible_outputs_are_refused_before_a_model_is_loaded(
        self, name: str, options: tuple[str, ...], message: str, tmp_path: Path
    ) -> None:
        source = write(tmp_path / "in.parquet")
        refused = pteron_cli("map", tmp_path / "no model", source, tmp_path / name, *options, code=1)
        assert message in refused.stderr
        assert [path.name for path in tmp_path.iterdir()] == ["in.parquet"]


def test_the_command_counts_rows(tmp_path: Path) -> None:
    source, output = write(tmp_path / "in.jsonl", [1, 10**6, 2]), tmp_path / "out.csv"
    options = ("-c", "input0=number", "--on-error", "skip")
    counts = {"rows": 3, "earlier_rows": 0, "bad_rows": 1}
    assert answer("map", MODEL, source, output, *options) == {"file": str(output), **counts}


class TestBadRows:
    @pytest.fixture
    def source(self, tmp_path: Path) -> Path:
        numbers: list[Any] = list(NUMBERS)
        numbers[17], numbers[55] = 10**6, None
        return write(tmp_path / "in.jsonl", numbers)

    def test_fail(self, source: Path, tmp_path: Path) -> None:
        with pytest.raises(RowError, match=r"row 17: input0: element .* is 1000000"):
            run(source, tmp_path / "out.parquet", part_rows=10)
        with pytest.raises(RowError, match="row 17: input0"):  # the number counts from the input's start
            run(source, tmp_path / "out.parquet", part_rows=10)
        assert run(source, tmp_path / "out.parquet", part_rows=10, on_error="skip") == 2  # it continues
        assert len(read(tmp_path / "out.parquet")["id"]) == COUNT - 2

    def test_skip(self, source: Path, tmp_path: Path, vectors: Any) -> None:
        assert run(source, tmp_path / "out.parquet", on_error="skip", part_rows=10) == 2
        made = read(tmp_path / "out.parquet")
        good = [n for n in range(COUNT) if n not in (17, 55)]
        assert made["id"] == [f"row {n}" for n in good]
        np.testing.assert_array_equal(made["output0"], vectors[good])

    def test_column(self, source: Path, tmp_path: Path, vectors: Any) -> None:
        assert run(source, tmp_path / "out.parquet", on_error="column", part_rows=10) == 2
        made = read(tmp_path / "out.parquet")
        errors = {n: error for n, error in enumerate(made["error"]) if error}
        assert list(errors) == [17, 55]
        assert errors[55] == "input0: the value is missing"
        assert made["output0"][17] is None and made["output0"][55] is None
        np.testing.assert_array_equal(made["output0"][18], vectors[18])

    def test_the_command_says_how_many(self, source: Path, tmp_path: Path) -> None:
        arguments = ("map", MODEL, source, tmp_path / "out.csv", "-c", "input0=number", "--on-error", "skip")
        assert "2 rows left out" in pteron_cli(*arguments).stderr


def test_a_batch_without_a_column_is_refused_whatever_happens_to_bad_rows() -> None:
    """As engines for clusters pass it."""
    predictor = TablePredictor(MODEL, columns={"input0": "number"}, on_error="column")
    try:
        assert predictor(table().slice(0, 3)).column_names == ["id", "number", "output0", "error"]
        with pytest.raises(InputError, match="there is no column 'number'; the columns are id"):
            predictor(table().select(["id"]))
        for name in ("output0", "error"):
            with pytest.raises(InputError, match=f"the input has a column '{name}'"):
                predictor({"number": np.array([1]), name: np.array([1])})
    finally:
        predictor.close()


def test_no_rows(tmp_path: Path) -> None:
    run(write(tmp_path / "in.parquet", []), tmp_path / "out.parquet")
    assert read(tmp_path / "out.parquet") == {"id": [], "number": [], "output0": []}


def test_what_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no file"):
        open_table(tmp_path / "none.csv")
    with pytest.raises(InputError, match=r"expected \.parquet, \.csv"):
        open_table(DATA / "emb_dyn.pte")
    with pytest.raises(InputError, match=r"neither \.parquet files nor images"):
        open_table(tmp_path)
    for suffix in (".parquet", ".npy", ".npz"):
        broken = tmp_path / f"broken{suffix}"
        broken.write_bytes(b"PK not a file")
        with pytest.raises((FormatError, InputError), match="cannot be read"):
            open_table(broken)


def test_bad_options(tmp_path: Path) -> None:
    source = write(tmp_path / "in.parquet")
    bad = pteron_cli("map", MODEL, source, tmp_path / "out.csv", "-c", "number", code=2)
    assert "expected INPUT=COLUMN" in bad.stderr
    with pytest.raises(InputError, match="there is no column 'x'; the columns are"):
        run(source, tmp_path / "out.parquet", keep=("x",))
    hint = r"pteron map --columns input0=id\). For texts: pteron map --text-column id"
    with pytest.raises(InputError, match=hint):
        run_job(
            FileJob(source, tmp_path / "o.csv", MapOptions()),
            open_table(source),
            open_mapper(MODEL, MapOptions()),
        )
    with pytest.raises(InputError, match=r"input0: expected int64 values, got a text: 'row 0'"):
        run(source, tmp_path / "out.parquet", "id")
    assert FileJob(source, tmp_path / "out", MapOptions(prompt="id")).rows_of_part == 100
    with pytest.raises(InputError, match="text and image cannot be used together"):
        MapOptions(text="a", image="b")
