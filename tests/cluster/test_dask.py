"""The recipe for Dask in docs/scaling.md."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from pteron.data.table_predictor import TablePredictor
from tests.cluster.conftest import COUNT, MODEL

dd = pytest.importorskip("dask.dataframe")

loaded: dict[str, TablePredictor] = {}


def predict(frame: pd.DataFrame) -> pd.DataFrame:
    if "model" not in loaded:  # once per process
        loaded["model"] = TablePredictor(MODEL, columns={"input0": "number"})
    columns = loaded["model"]({name: frame[name].to_numpy() for name in frame})
    return frame.assign(vector=list(columns["output0"]))


def test_map_partitions(source: Path, vectors: Any) -> None:
    frame = dd.from_pandas(pd.read_parquet(source), npartitions=3)
    meta = {"id": "int64", "number": "int64", "vector": "object"}
    made = frame.map_partitions(predict, meta=meta).compute(scheduler="synchronous").sort_values("id")
    assert list(made["id"]) == list(range(COUNT))
    np.testing.assert_array_equal(np.stack(list(made["vector"])), vectors)
