"""Ray, Spark and Dask on this machine. All tests here have the marker `own_venv`: see scripts/own_venv.sh."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

import pteron
from pteron.engine.devices.opening import Device
from tests.support import DATA

MODEL = DATA / "emb_dyn.pte"  # numbers in, vectors of 64 out, up to 16 at once
COUNT = 600
NUMBERS = [(7 * n) % 10 for n in range(COUNT)]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.own_venv)


@pytest.fixture(scope="session")
def vectors(device: Device) -> Any:
    """The vector of each row, by calls of one row."""
    with pteron.load(MODEL, device=device) as program:
        known = np.concatenate([program(np.array([number])) for number in range(10)])
    return known[NUMBERS]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "in.parquet"
    table = pa.table({"id": range(COUNT), "number": pa.array(NUMBERS, pa.int64())})
    pyarrow.parquet.write_table(table, path, row_group_size=100)
    return path


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[Any]:
    import os

    ray = pytest.importorskip("ray")
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    # Ray gives its workers a low priority. On a busy machine Ray Serve then gives up before they run.
    os.environ.setdefault("RAY_worker_niceness", "0")
    ray.init(num_cpus=2, include_dashboard=False, object_store_memory=200 << 20, log_to_driver=False)
    yield ray
    ray.shutdown()
