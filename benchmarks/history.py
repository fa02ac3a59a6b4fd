"""The history of the benchmarks: one line per release, and the page docs/performance.md with its plot.

    python -m benchmarks.history add build/bench.jsonl --note "two cores, idle"    # after `make bench`
    python -m benchmarks.history page                                              # write the page again

`add` takes the last result of each row and side in the file. A second line for a version replaces the first.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeAlias

from benchmarks.plots import Panel, plot

ROOT = Path(__file__).parent.parent
HISTORY = ROOT / "benchmarks/history.jsonl"
PAGE = ROOT / "docs/performance.md"
PLOT = ROOT / "docs/images/performance.svg"

Times: TypeAlias = dict[str, float]  # by side

# Sides that the page names in another way.
NAMES = {
    "pteron": "Pteron",
    "llama": "llama.cpp, CPU",
    "llama_vulkan": "llama.cpp, Vulkan",
    "torch": "torch, CPU",
}

HEAD = """\
# Performance over time

`python -m benchmarks.history` generates this page from `benchmarks/history.jsonl`, which has one line per
release. A test checks that it is up to date. Numbers are CPU milliseconds of a call in all threads, for loads
of the whole process. So on a software adapter they include the kernels. Compare lines only if adapter and
machine are the same. [The method](../benchmarks/README.md) says how rows are measured.
[Comparison](comparison.md) has the other tools.

![CPU milliseconds of each row by release: Pteron and its peers](images/performance.svg)
"""


@dataclass(frozen=True, slots=True)
class Release:
    """The results of one version."""

    date: str
    version: str
    adapter: str
    note: str  # about the machine and the run
    rows: Mapping[str, Times]  # CPU milliseconds


def read(path: Path = HISTORY) -> list[Release]:
    """The releases, oldest first."""
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    return sorted((Release(**json.loads(line)) for line in lines), key=lambda release: release.date)


def write(releases: Iterable[Release], path: Path = HISTORY) -> None:
    path.write_text("".join(json.dumps(asdict(r), ensure_ascii=False) + "\n" for r in releases), "utf-8")


def summary(results: Iterable[Mapping[str, Any]], version: str, note: str) -> Release:
    """A release from the lines of a results file: the last time of each row and side."""
    rows: dict[str, Times] = {}
    date = adapter = ""
    for line in results:
        milliseconds = 1000 * line["cpu_s"] if "cpu_s" in line else line.get("cpu_ms")
        if milliseconds is None:
            continue
        rows.setdefault(line["row"], {})[line["side"]] = float(f"{milliseconds:.4g}")
        date = max(date, line["time"][:10])
        adapter = line["adapter"] if line["side"] == "pteron" else adapter
    return Release(date, version, adapter, note, rows)


def with_release(releases: Sequence[Release], new: Release) -> list[Release]:
    return [*(release for release in releases if release.version != new.version), new]


# -- the page --------------------------------------------------------------------------------------


def panels(releases: Sequence[Release]) -> Iterator[Panel]:
    """One panel per row: a line for each side, with a point for each release that has it."""
    for row in dict.fromkeys(row for release in releases for row in release.rows):
        sides = dict.fromkeys(side for release in releases for side in release.rows.get(row, {}))
        series = {
            NAMES.get(side, side): [release.rows.get(row, {}).get(side) for release in releases]
            for side in sides
        }
        yield Panel(row, [release.version for release in releases], series)


def page(releases: Sequence[Release]) -> str:
    parts = [HEAD]
    for release in reversed(releases):
        sides = list(dict.fromkeys(side for times in release.rows.values() for side in times))
        parts.append(f"\n## {release.version}\n\n{release.date}, {release.adapter}. {release.note}\n\n")
        names = " | ".join(NAMES.get(side, side) for side in sides)
        parts.append(f"| CPU ms | {names} |\n{'|---' * (1 + len(sides))}|\n")
        for row, times in release.rows.items():
            cells = [f"{times[side]:,g}" if side in times else "" for side in sides]
            parts.append(f"| {row} | {' | '.join(cells)} |\n")
    return "".join(parts)


def write_page() -> None:
    releases = read()
    PAGE.write_text(page(releases), "utf-8")
    PLOT.write_text(plot(list(panels(releases))), "utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.history", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    add = commands.add_parser("add", help="add a release from a file of results, and write the page")
    add.add_argument("results", type=Path, help="such as build/bench.jsonl")
    add.add_argument("--note", required=True, help="the machine, and what else it did")
    commands.add_parser("page", help="write the page")
    options = parser.parse_args()
    if options.command == "add":
        import pteron

        lines = map(json.loads, options.results.read_text("utf-8").splitlines())
        write(with_release(read(), summary(lines, pteron.__version__, options.note)))
    write_page()


if __name__ == "__main__":
    main()
