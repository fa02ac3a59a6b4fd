"""`make zoo`: try every model in every mode, and write docs/models.md from the results.

Results are stored in build/zoo.jsonl, so an interrupted run can continue:

    python -m tests.zoo                       all models and modes without a result
    python -m tests.zoo --only timm/          models whose names contain a text
    python -m tests.zoo --mode "vulkan static"
    python -m tests.zoo --again --only resnet discard the results of these models
    python -m tests.zoo --page                write the page, run nothing
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.zoo.exporter import MODES
from tests.zoo.page import PATH, page
from tests.zoo.table import table
from tests.zoo.trial import Result

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "build" / "zoo.jsonl"
BATCH = 12  # models that share a process

Pair = tuple[str, str]


def main() -> None:
    options = read_options()
    results = known()
    wanted = [
        (name, mode)
        for mode in MODES
        for name in table()
        if options.only in name and options.mode in ("", mode)
    ]
    if options.again:
        results = {pair: result for pair, result in results.items() if pair not in set(wanted)}
    if not options.page:
        for result in run([pair for pair in wanted if pair not in results]):
            results[result.model, result.mode] = result
            keep(results.values())
            said = result.failure or result.exported
            print(f"{result.mode:18} {result.model:45} {'ok' if said is True else said}", flush=True)
    PATH.write_text(page(list(results.values())), "utf-8")
    sys.exit(any(result.failure for result in results.values()))


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.zoo")
    parser.add_argument("--only", default="", help="models whose names contain this")
    parser.add_argument("--mode", default="", choices=["", *MODES], help="one mode")
    parser.add_argument("--again", action="store_true", help="forget what is known")
    parser.add_argument("--page", action="store_true", help="write the page, run nothing")
    return parser.parse_args()


def known() -> dict[Pair, Result]:
    if not RESULTS.exists():
        return {}
    results = [Result(**json.loads(line)) for line in RESULTS.read_text("utf-8").splitlines()]
    return {(r.model, r.mode): r for r in results if r.model in table() and r.mode in MODES}


def keep(results: Iterable[Result]) -> None:
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text("".join(json.dumps(result.record()) + "\n" for result in results), "utf-8")


def run(pairs: list[Pair]) -> Iterator[Result]:
    """Yield the results. Each process tries a few models."""
    while pairs:
        done = 0
        for result in run_batch(pairs[:BATCH]):
            done += 1
            yield result
        if done < len(pairs[:BATCH]):  # the process died of the next one
            name, mode = pairs[done]
            yield Result(name, mode, exported=True, loaded="the process died: see the terminal")
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
