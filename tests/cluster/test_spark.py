"""Pteron in Spark: `predict_batch_udf` with a real session."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("pyspark")
if shutil.which("java") is None:
    pytest.skip("Spark needs Java", allow_module_level=True)

from pyspark.ml.functions import predict_batch_udf
from pyspark.sql import SparkSession
from pyspark.sql.types import ArrayType, FloatType

import pteron.spark
from pteron.errors import InputError
from tests.cluster.conftest import COUNT, MODEL


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


def test_predict_batch(spark: SparkSession, source: Path, vectors: Any) -> None:
    predict = predict_batch_udf(
        pteron.spark.predict_batch(MODEL), return_type=ArrayType(FloatType()), batch_size=128
    )
    table = spark.read.parquet(str(source)).repartition(3)
    made = table.withColumn("vector", predict("number")).collect()
    rows = sorted(made, key=lambda row: row["id"])
    assert [row["id"] for row in rows] == list(range(COUNT))
    np.testing.assert_array_equal(np.array([row["vector"] for row in rows], np.float32), vectors)


def test_columns_go_by_their_order() -> None:
    with pytest.raises(InputError, match="in the order of the program's inputs"):
        pteron.spark.predict_batch(MODEL, columns={"input0": "number"})
