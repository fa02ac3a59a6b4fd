"""`pteron map` with partitioned folders, and with inputs and outputs in stores."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet
import pytest

from pteron._util import user_cache
from pteron.data import address_of, open_table
from tests.gpu_only.test_map_file import MODEL, table
from tests.support.cli import answer, pteron_cli

COLUMNS = ("--columns", "input0=number")
COPIES = "stores"


@pytest.fixture(autouse=True)
def stores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    memory = fsspec.filesystem("memory")
    yield memory
    memory.store.clear()
    memory.pseudo_dirs[:] = [""]


@pytest.fixture
def partitioned(tmp_path: Path) -> Path:
    """Two columns as folders; one has text, one numbers and a row without a value."""
    days, places = pa.array([1, 2, None] * 10, pa.int64()), pa.array(["a b", "c", "c"] * 10)
    rows = table([n % 10 for n in range(30)]).append_column("day", days).append_column("place", places)
    folder = tmp_path / "in"
    parts = pa.dataset.partitioning(pa.schema([("place", pa.string()), ("day", pa.int64())]), flavor="hive")
    pa.dataset.write_dataset(rows, folder, format="parquet", partitioning=parts)
    (folder / "_delta_log").mkdir()
    (folder / "_delta_log" / "x.parquet").write_text("not data")
    return folder


def by_id(path: Any) -> dict[str, dict[str, Any]]:
    return {row["id"]: row for row in pyarrow.parquet.read_table(path).to_pylist()}


def test_partitions_are_columns(partitioned: Path) -> None:
    reader = open_table(partitioned)
    assert reader.schema.names == ["id", "number", "place", "day"]
    assert reader.schema.field("day").type == pa.int64()
    rows = [row for batch in reader.batches(0) for row in batch.to_pylist()]
    assert sorted((row["place"], row["day"]) for row in rows[:0]) == []
    assert {(row["place"], row["day"]) for row in rows} == {("a b", 1), ("c", 2), ("c", None)}
    for start in (0, 1, 9, 10, 29):
        assert [row for batch in reader.batches(start) for row in batch.to_pylist()] == rows[start:]


def test_a_partitioned_folder_through_a_model(partitioned: Path, tmp_path: Path) -> None:
    told = answer("map", MODEL, partitioned, tmp_path / "out.parquet", *COLUMNS)
    assert told["rows"] == 30
    rows = by_id(tmp_path / "out.parquet")
    assert [rows[f"row {n}"]["day"] for n in range(3)] == [1, 2, None]
    assert [rows[f"row {n}"]["place"] for n in range(3)] == ["a b", "c", "c"]


def test_a_store_in_and_out(partitioned: Path, tmp_path: Path, stores: Any) -> None:
    answer("map", MODEL, partitioned, tmp_path / "local.parquet", *COLUMNS)
    stores.put(str(partitioned), "/bucket/in", recursive=True)
    told = answer("map", MODEL, "memory://bucket/in", "memory://bucket/out/y.parquet", *COLUMNS)
    assert told["file"] == "memory://bucket/out/y.parquet"
    with stores.open("/bucket/out/y.parquet") as file:
        got = by_id(file)
    for key, row in by_id(tmp_path / "local.parquet").items():
        np.testing.assert_array_equal(got[key].pop("output0"), row.pop("output0"))
        assert got[key] == row
    assert not list((user_cache.folder() / COPIES).iterdir())  # copies are gone

    message = pteron_cli(
        "map", MODEL, "memory://bucket/in", "memory://bucket/out/y.parquet", *COLUMNS, code=1
    )
    assert "memory://bucket/out/y.parquet is there already" in message.stderr
    answer("map", MODEL, "memory://bucket/in", "memory://bucket/out/y.parquet", *COLUMNS, "--overwrite")
    message = pteron_cli("map", MODEL, "memory://bucket/in", "memory://bucket/in/y.parquet", *COLUMNS, code=1)
    assert "which is read" in message.stderr


def test_a_file_address_and_a_folder_of_parts(tmp_path: Path, stores: Any) -> None:
    pyarrow.parquet.write_table(table(), tmp_path / "in.parquet")
    source, out = f"file://{tmp_path}/in.parquet", "memory://parts/out"
    assert address_of(Path(source)) == source
    assert answer("map", MODEL, source, out, *COLUMNS, "--part-rows", 40)["rows"] == 100
    names = sorted(name.rsplit("/", 1)[1] for name in stores.find("/parts/out"))
    assert names == ["_manifest.json", *(f"part-{n:06d}.parquet" for n in range(3))]


def test_a_run_that_stopped_continues_and_leaves_nothing_in_the_store(tmp_path: Path, stores: Any) -> None:
    numbers = [*range(10)] * 3
    pyarrow.parquet.write_table(table([*numbers, None]), tmp_path / "in.parquet")
    stores.put(str(tmp_path / "in.parquet"), "/bucket/in.parquet")
    line = (
        "map",
        MODEL,
        "memory://bucket/in.parquet",
        "memory://bucket/y.parquet",
        *COLUMNS,
        "--part-rows",
        10,
    )
    assert pteron_cli(*line, code=1)
    assert not stores.exists("/bucket/y.parquet")
    told = answer(*line, "--on-error", "skip")
    assert (told["earlier_rows"], told["rows"], told["bad_rows"]) == (30, 31, 1)
    assert stores.exists("/bucket/y.parquet")


def test_addresses_that_cannot_be_read(tmp_path: Path) -> None:
    assert address_of(Path("s3://bucket/in.parquet")) == "s3://bucket/in.parquet"
    assert address_of(Path("C:/in.parquet")) is None and address_of(Path("in.parquet")) is None
    out = tmp_path / "out.parquet"
    told = pteron_cli("map", MODEL, "memory://bucket/none.parquet", out, *COLUMNS, code=1)
    assert "there is no file memory://bucket/none.parquet" in told.stderr
    told = pteron_cli("map", MODEL, "nonsense://bucket/in.parquet", out, *COLUMNS, code=1)
    assert "nonsense://bucket/in.parquet: Protocol not known" in told.stderr
