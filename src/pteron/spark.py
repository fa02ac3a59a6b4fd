"""Pteron on Spark: a model for `pyspark.ml.functions.predict_batch_udf`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from pteron.data.table_predictor import TablePredictor
from pteron.errors import InputError


def predict_batch(model: str | Path, **options: Any) -> Callable[[], Callable[..., Any]]:
    """Make a function for `predict_batch_udf`. It loads the model once per process.

    The columns of a call are the inputs of the program, in order, or its texts or prompts. Several outputs
    are fields of a struct.

    Args:
        model: A path that every machine has.
        **options: The fields of `pteron.data.row_mappers.MapOptions`, except `columns`.

    Example:
        ```python
        from pyspark.ml.functions import predict_batch_udf

        embed = predict_batch_udf(
            pteron.spark.predict_batch("minilm.pte", text="text"),
            return_type=ArrayType(FloatType()),
            batch_size=1024,
        )
        table.withColumn("embedding", embed("text"))
        ```
    """
    path = str(Path(model).absolute())
    if "columns" in options:
        raise InputError("columns: a UDF gets its columns in the order of the program's inputs")

    def load() -> Callable[..., Any]:
        predictor = TablePredictor(path, keep=(), **options)
        names = predictor.reads

        def predict(*columns: np.ndarray[Any, Any]) -> Any:
            results = predictor(dict(zip(names, columns)))  # noqa: B905  a mask has no column
            return next(iter(results.values())) if len(results) == 1 else results

        return predict

    return load
