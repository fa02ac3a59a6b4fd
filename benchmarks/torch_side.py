"""The side of torch, eager on one thread of the CPU: whole models only."""

from __future__ import annotations

from collections.abc import Callable

import torch

from benchmarks import models
from benchmarks.rows import Array, Row, Unsupported


class Side:
    def __init__(self) -> None:
        torch.set_num_threads(1)

    def facts(self) -> dict[str, str]:
        return {"version": f"torch {torch.__version__}", "adapter": "one thread of the CPU"}

    def prepare(self, row: Row, data: dict[str, Array]) -> Callable[[int | None], Array]:
        if row.kind == "texts":
            return _texts(row)
        if row.kind != "model":
            raise Unsupported("torch is measured with whole models")
        module, x = models.build(row.name), torch.from_numpy(data["x"])

        def call(live: int | None) -> Array:
            with torch.inference_mode():
                result: Array = module(x).numpy()
            return result

        return call


def _texts(row: Row) -> Callable[[int | None], Array]:
    from benchmarks.map_texts import BATCH, by_torch, encoded, minilm, short_texts

    model, tokens = minilm(), encoded(short_texts(row.sizes["texts"]))
    return lambda live: by_torch(model, tokens, BATCH)
