"""The texts of several requests run in common batches, and no request waits for another to end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import pteron.llm
from pteron.engine.devices.opening import Device
from pteron.llm import Embedder
from pteron.server.embedding_batch import Embedding, EmbeddingBatch
from tests.llm.tiny_encoders import model, write_folder

SHORT, LONG = [2, 5, 6, 3], [2, *[5, 6, 7] * 6, 3]


@pytest.fixture(scope="module")
def embedder(tmp_path_factory: pytest.TempPathFactory, device: Device) -> Iterator[Embedder]:
    folder = tmp_path_factory.mktemp("embedder")
    pteron.llm.convert(write_folder(folder / "tiny", model("bert")), folder / "tiny.pte", batch=8)
    with pteron.llm.load_embedder(folder / "tiny.pte", device=device) as made:
        yield made


@pytest.fixture
def calls(embedder: Embedder, monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """The lengths of the texts of each step."""
    seen: list[list[int]] = []
    vectors = embedder.vectors

    def watched(rows: Any) -> Any:
        seen.append([len(row) for row in rows])
        return vectors(rows)

    monkeypatch.setattr(embedder, "vectors", watched)
    return seen


def ended(batch: EmbeddingBatch) -> list[tuple[Embedding, str | None]]:
    """Run a step, and remove what has ended, as the scheduler does."""
    found = []
    for task, item in batch.step():
        assert not isinstance(item, Exception)
        found.append((task, item.finish_reason))
        batch.remove(task)
    return found


def test_texts_of_similar_length_share_a_step(embedder: Embedder, calls: list[list[int]]) -> None:
    batch = EmbeddingBatch(embedder)
    rows = [[SHORT, LONG], [SHORT[:3]], [LONG, LONG[:17]], [SHORT]]
    tasks = [Embedding(embedder, some) for some in rows]
    for task in tasks:
        batch.add(task)
    assert ended(batch) == [(tasks[1], "stop"), (tasks[3], "stop")]
    assert ended(batch) == [(tasks[2], "stop"), (tasks[0], "stop")]
    assert calls == [[4, 3, 4], [20, 17, 20]]
    for task, some in zip(tasks, rows, strict=True):
        alone = np.concatenate([embedder.vectors([row]) for row in some])
        np.testing.assert_allclose(task.vectors, alone, rtol=0, atol=1e-6)


def test_a_long_request_and_a_short_one_take_turns(embedder: Embedder, calls: list[list[int]]) -> None:
    batch = EmbeddingBatch(embedder)
    long, short = Embedding(embedder, [LONG] * 40), Embedding(embedder, [SHORT])
    batch.add(long)
    batch.add(short)
    assert ended(batch) == []
    assert ended(batch) == [(short, "stop")]
    assert calls == [[20] * 8, [4]]


def test_a_cancelled_request_ends_at_the_next_step(embedder: Embedder, calls: list[list[int]]) -> None:
    batch = EmbeddingBatch(embedder)
    task = Embedding(embedder, [SHORT] * 40)
    batch.add(task)
    assert ended(batch) == []
    task.cancel()
    assert ended(batch) == [(task, "cancelled")]
    assert batch.step() == [] and len(calls) == 1
