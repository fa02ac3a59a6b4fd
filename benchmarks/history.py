"""The history of the benchmarks: one line per release, and the page that shows the numbers of the last one.

    python -m benchmarks.history add build/bench.jsonl --note "two cores, idle"    # after `make bench`
    python -m benchmarks.history page                                              # write the page again

`add` takes the last result of each row and side in the file. A second line for a version replaces the first.
The page has tables between two comments, of which the first names a group of rows (see GROUPS):

    <!-- numbers: SmolLM2-135M -->
    <!-- end of numbers -->
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeAlias

ROOT = Path(__file__).parent.parent
HISTORY = ROOT / "benchmarks/history.jsonl"
PAGE = ROOT / "docs/comparison.md"

GROUPS = {
    "SmolLM2-135M": "SmolLM2-135M, ",
    "whole models": ("ResNet", "MobileNet", "ViT", "ConvNeXt", "BERT", "Whisper"),
}  # by the beginning of a row's name
_TABLE = re.compile(r"(?<=<!-- numbers: )(?P<group>[^>]+) -->\n.*?(?=<!-- end of numbers -->)", re.S)
NATIVE = ("llama", "torch")  # sides that run on the CPU, without shaders

Times: TypeAlias = dict[str, float]  # by side

# Sides that the page names in another way.
NAMES = {
    "pteron": "Pteron",
    "llama": "llama.cpp, CPU",
    "llama_vulkan": "llama.cpp, Vulkan",
    "onnxruntime": "onnxruntime-webgpu",
    "ncnn": "ncnn, Vulkan",
    "torch": "torch, CPU",
}


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


def table(rows: Mapping[str, Times]) -> Iterator[str]:
    sides = list(dict.fromkeys(side for times in rows.values() for side in times))
    yield f"| CPU ms | {' | '.join(NAMES.get(side, side) for side in sides)} | Pteron / native code |\n"
    yield f"{'|---' * (2 + len(sides))}|\n"
    for row, times in rows.items():
        cells = [f"{times[side]:,g}" if side in times else "" for side in sides]
        native = min((times[side] for side in NATIVE if side in times), default=None)
        ratio = f"{times['pteron'] / native:.1f}" if native and "pteron" in times else ""
        yield f"| {row} | {' | '.join(cells)} | {ratio} |\n"


def with_tables(text: str, release: Release) -> str:
    """A page with the numbers of a release between its comments."""

    def numbers(found: re.Match[str]) -> str:
        group = found["group"]
        rows = {row: times for row, times in release.rows.items() if row.startswith(GROUPS[group])}
        head = f"Pteron {release.version}, {release.date}, {release.adapter}. {release.note}"
        return f"{group} -->\n{head}\n\n{''.join(table(rows))}"

    return _TABLE.sub(numbers, text)


def write_page() -> None:
    PAGE.write_text(with_tables(PAGE.read_text("utf-8"), read()[-1]), "utf-8")


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
