"""Several conversations decode at once: tokens per CPU-second of Pteron and of llama.cpp, from one GGUF file.

    python -m benchmarks.batched [--counts 1,2,4,8] [--tokens 16] [--repetitions 3] [model.gguf]

llama.cpp runs through node-llama-cpp: on the GPU with Vulkan, and on one thread of the CPU. All sequences are
in one batch. CPU time is that of the process in all threads, so a software adapter's kernels count.
"""

from __future__ import annotations

import argparse
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

import pteron.llm
from benchmarks.compare import PEERS
from benchmarks.smollm2 import find_gguf
from pteron.cli.bench_runner import Runner

SCRIPT = Path(__file__).with_name("llama_cpp_batched.mjs")
NODE_MODULES = PEERS / "node"  # the folder that contains them
DEPTH = 4  # tokens in the context before the measurement

Speeds = dict[int, float]  # tokens per CPU-second, by the number of conversations


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.batched")
    parser.add_argument("model", nargs="?", type=Path, help="a GGUF file; default: SmolLM2")
    parser.add_argument("--counts", type=lambda text: [int(n) for n in text.split(",")], default=[1, 2, 4, 8])
    parser.add_argument("--tokens", type=int, default=16)
    parser.add_argument("--repetitions", type=int, default=3)
    options = parser.parse_args()
    model = options.model or find_gguf(PEERS) or find_gguf(Path(".venv"))
    if model is None:
        parser.error("SmolLM2 is not installed: run scripts/bench_peers.sh, or name a GGUF file")
    measured = {
        "Pteron": _pteron(model, options),
        "llama.cpp, Vulkan": _llama_cpp(model, "vulkan", options),
        "llama.cpp, one CPU thread": _llama_cpp(model, None, options),
    }
    table = Table("tokens per CPU-second", *(str(count) for count in options.counts), "last : first")
    for name, speeds in measured.items():
        if isinstance(speeds, str):
            table.add_row(name, speeds)
        else:
            table.add_row(name, *_cells(speeds, options.counts))
    Console().print(table)


def _cells(speeds: Speeds, counts: list[int]) -> Iterator[str]:
    for count in counts:
        yield f"{speeds[count]:.1f}"
    yield f"{speeds[counts[-1]] / speeds[counts[0]]:.2f}"


def _pteron(model: Path, options: argparse.Namespace) -> Speeds:
    with pteron.llm.load(model, parallel=max(options.counts)) as llm:
        rows = Runner(llm.decoder, DEPTH).measure_many(options.counts, options.tokens, options.repetitions)
        return {row.conversations: row.per_cpu_second for row in rows}


def _llama_cpp(model: Path, gpu: str | None, options: argparse.Namespace) -> Speeds | str:
    """The speeds, or why there are none."""
    task = {
        "model": str(model.resolve()),
        "gpu": gpu,
        "counts": options.counts,
        "tokens": options.tokens,
        "repetitions": options.repetitions,
    }
    try:
        found = subprocess.run(
            ["node", SCRIPT, NODE_MODULES, json.dumps(task)], capture_output=True, text=True, check=True
        )
    except FileNotFoundError:
        return "node is not installed"
    except subprocess.CalledProcessError as error:
        return (error.stderr.strip().splitlines() or ["failed"])[-1]
    rows = [json.loads(line) for line in found.stdout.splitlines() if line.startswith("{")]
    return {row["count"]: row["tokens"] / median(row["cpu_seconds"]) for row in rows}


if __name__ == "__main__":
    main()
