"""`make zoo`: try every model in every mode, and write docs/models.md from the results.

Results are stored in tests/zoo/results.jsonl. A run adds the missing ones, and may be interrupted:

    python -m tests.zoo                          all models and modes without a result
    python -m tests.zoo --only timm/ BertModel   models whose names contain one of these texts, in this order
    python -m tests.zoo --mode "vulkan static"   one mode
    python -m tests.zoo --again --only resnet    try these again
    python -m tests.zoo --again --part 2/7       the second of seven parts
    python -m tests.zoo --page                   write the page, run nothing
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.zoo import page, results
from tests.zoo.exporter import MODES
from tests.zoo.results import NOT_LOADED, Pair, Result
from tests.zoo.table import table

ROOT = Path(__file__).parents[2]
BATCH = 100  # pairs of a model and a mode that share a process


def main() -> None:
    options = read_options()
    known = results.read()
    pairs = [] if options.page else wanted(options)
    missing = [pair for pair in pairs if options.again or pair not in known]
    for result in run(missing):
        known[result.pair] = result
        results.write(known.values())
        print(f"{result.mode:18} {result.model:45} {result.outcome} {result.reason}", flush=True)
    page.write(list(known.values()))
    sys.exit(any(result.failed for result in known.values()))


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.zoo")
    parser.add_argument("--only", nargs="+", default=[""], help="models whose names contain one of these")
    parser.add_argument("--mode", default="", choices=["", *MODES], help="one mode")
    parser.add_argument("--again", action="store_true", help="also try what has a result")
    parser.add_argument(
        "--part", default="1/1", help="a share of these models, such as 2/7: the second of seven"
    )
    parser.add_argument("--page", action="store_true", help="write the page, run nothing")
    return parser.parse_args()


def wanted(options: argparse.Namespace) -> list[Pair]:
    """All modes of a model follow each other, so that they share its exported programs."""
    names = [name for text in options.only for name in matching(text)]
    part, _, parts = options.part.partition("/")
    names = list(dict.fromkeys(names))[int(part) - 1 :: int(parts)]
    modes = [options.mode] if options.mode else MODES
    return [(name, mode) for name in names for mode in modes]


def matching(text: str) -> list[str]:
    """The model of this name, or else all whose names contain the text."""
    return [text] if text in table() else [name for name in table() if text in name]


def run(pairs: list[Pair]) -> Iterator[Result]:
    """Yield the results. Each process tries a few models."""
    while pairs:
        done = 0
        for result in run_batch(pairs[:BATCH]):
            done += 1
            yield result
        if done < len(pairs[:BATCH]):  # the process died of the next one
            name, mode = pairs[done]
            yield Result(name, mode, NOT_LOADED, "the process died: see the terminal")
            done += 1
        pairs = pairs[done:]


def run_batch(pairs: list[Pair]) -> Iterator[Result]:
    command = [sys.executable, "-m", "tests.zoo.child"]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert child.stdin is not None and child.stdout is not None
    try:
        child.stdin.writelines(json.dumps(pair) + "\n" for pair in pairs)
        child.stdin.close()
        for line in child.stdout:
            yield Result(**json.loads(line))
    finally:
        child.kill()
        child.wait()


if __name__ == "__main__":
    main()
