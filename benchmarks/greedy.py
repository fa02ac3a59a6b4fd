"""Greedy answers of Pteron and of llama.cpp to the same prompts, from the same GGUF file, as a table.

    python -m benchmarks.greedy [--float32] [model.gguf]

Both apply the model's chat template and always take the most probable token. If the answers differ, the table
shows the first different token and the probabilities of the two best tokens there. On the CPU, llama.cpp
rounds activations to 8 bits before it multiplies them with quantized weights: of two tokens that are about
equally probable, it may take the other one. With --float32 it gets the same weights as float32, and rounds
nothing.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.table import Table

import pteron.llm
from benchmarks.compare import PEERS
from benchmarks.dequantized import write_dequantized
from benchmarks.smollm2 import find_gguf

TOKENS = 24
PROMPTS = (
    "Name three colors.",
    "What is the capital of Italy?",
    "Write one sentence about the sea.",
    "How many days does a week have?",
    "Explain what a magnet does.",
    "Give me a name for a black cat.",
    "What is 12 plus 7?",
    "Translate 'good morning' into French.",
    "Why do leaves fall in autumn?",
    "Write a short poem about snow.",
    "Which planet is the largest?",
    "How do I boil an egg?",
    "What does a carpenter do?",
    "Tell me a fact about bees.",
    "Write a Python function that adds two numbers.",
    "Who wrote Hamlet?",
    "List two uses of copper.",
    "What should I pack for a day at the beach?",
    "Is the sun a star?",
    "Finish this sentence: The old door opened and",
)

Place = tuple[int, float, float]  # a token, and the probabilities of the best token and of the second
END = -1  # in the place of a token: the answer has ended


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.greedy")
    parser.add_argument("model", nargs="?", type=Path, help="a GGUF file; default: SmolLM2")
    parser.add_argument("--float32", action="store_true", help="give llama.cpp the weights as float32")
    options = parser.parse_args()
    model = options.model or _smollm2()
    theirs = _llama_cpp_in_float32(model) if options.float32 else _llama_cpp(model)
    equal = 0
    table = Table("prompt", "the first difference", "probabilities of the two best tokens")
    with pteron.llm.load(model) as llm:
        for prompt, their_places in zip(PROMPTS, theirs, strict=True):
            answer = llm.generate([{"role": "user", "content": prompt}], max_new_tokens=TOKENS, temperature=0)
            rows = [_describe(llm, *places) for places in _differences(llm, answer.tokens, their_places)]
            equal += not rows
            table.add_row(prompt, *(rows[0] if rows else ("equal", "")))
    Console().print(table)
    print(f"{equal} of {len(PROMPTS)} answers are equal in their first {TOKENS} tokens")


def _smollm2() -> Path:
    found = find_gguf(PEERS) or find_gguf(Path(sys.prefix))
    if found is None:
        raise SystemExit("SmolLM2 is not installed: run scripts/bench_peers.sh, or name a GGUF file")
    return found


def _llama_cpp_in_float32(model: Path) -> list[list[Place]]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "float32.gguf"
        write_dequantized(model, path)
        return _llama_cpp(path)


def _llama_cpp(model: Path) -> list[list[Place]]:
    peer = PEERS / "bin" / "python"
    python = str(peer) if peer.exists() else sys.executable
    task = json.dumps({"model": str(model), "prompts": PROMPTS, "tokens": TOKENS})
    command = [python, "-m", "benchmarks.llama_cpp_side"]
    run = subprocess.run(command, input=task, capture_output=True, text=True, check=False)
    if run.returncode:
        raise SystemExit(f"{run.stderr}\nllama.cpp failed: scripts/bench_peers.sh installs xllamacpp")
    answers: list[list[Place]] = json.loads(run.stdout.splitlines()[-1])
    return answers


def _differences(
    llm: pteron.llm.LanguageModel, ours: list[int], theirs: list[Place]
) -> Iterator[tuple[int, int, Place]]:
    """The places where the answers differ: the number of the token, ours, and theirs."""
    mine = [token for token in ours if token not in llm.eos_ids]
    others = [place for place in theirs if place[0] not in llm.eos_ids]
    ended = (END, math.nan, math.nan)
    for number in range(min(TOKENS, max(len(mine), len(others)))):
        token = mine[number] if number < len(mine) else END
        other = others[number] if number < len(others) else ended
        if token != other[0]:
            yield number + 1, token, other


def _describe(llm: pteron.llm.LanguageModel, number: int, token: int, place: Place) -> tuple[str, str]:
    other, best, second = place
    ours, theirs = ("the end" if t == END else repr(llm.tokenizer.decode([t])) for t in (token, other))
    return f"token {number}: {ours}, llama.cpp {theirs}", f"{best:.4f} and {second:.4f}"


if __name__ == "__main__":
    main()
