"""`make bench`: measure Pteron and its peers in turns, on the same adapter.

Every side (Pteron or a peer) is a separate process for all rows of a group. For each row the sides take
turns, in several rounds, so other load on the machine affects all of them. The tables show medians.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from shutil import which
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks import loads, smollm2
from benchmarks.rows import MODEL_ROWS, ROWS, TEXT_ROWS, Row

ROOT = Path(__file__).parent.parent
PEERS = ROOT / ".venv-peers"
US = "pteron"

# Shader caches on disk are off, so the first call at a shape includes the compilation.
NO_SHADER_CACHE = {"MESA_SHADER_CACHE_DISABLE": "true"}


def side_of(name: str, python: Path) -> list[str]:
    return [str(python), "-m", "benchmarks.worker", name]


HERE, THERE = Path(sys.executable), PEERS / "bin/python"
COMMANDS = {
    US: side_of(US, HERE),
    "onnxruntime": side_of("onnxruntime", THERE),
    "ncnn": side_of("ncnn", THERE),
    "torch": side_of("torch", HERE),
    "llama": side_of("llama", THERE),
    "llama_vulkan": ["node", "benchmarks/llama_vulkan_side.mjs"],
}


@dataclass(frozen=True, slots=True)
class Group:
    """Rows that are measured with the same sides, and shown in one table."""

    title: str
    rows: Sequence[Row]
    sides: Sequence[str]
    has_shader_cache: bool = True


def is_language_model(row: Row) -> bool:
    return row.kind.startswith("llm")


OPERATORS = Group(
    "operators",
    [row for row in ROWS if not is_language_model(row)],
    (US, "onnxruntime", "ncnn"),
    has_shader_cache=False,
)
LANGUAGE = Group("language model", list(filter(is_language_model, ROWS)), (US, "llama", "llama_vulkan"))
IMAGE = Group("image model", MODEL_ROWS[:1], (US, "onnxruntime", "ncnn", "torch"))
TEXTS = Group("texts", TEXT_ROWS, (US, "torch"))
MODELS = Group("models", MODEL_ROWS, IMAGE.sides)


class Missing(Exception):
    """A side cannot execute a command. The message says why."""


class Process:
    """The process of a side. `ask` sends a command and returns the answer."""

    def __init__(self, name: str, environment: dict[str, str]) -> None:
        self.name = name
        command = COMMANDS[name]
        if which(command[0]) is None:
            raise Missing(f"{command[0]} is not there: see scripts/bench_peers.sh")
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  closed with the process
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            cwd=ROOT,
            env=os.environ | environment,
        )

    def ask(self, **command: Any) -> dict[str, Any]:
        assert self._process.stdin and self._process.stdout
        try:
            self._process.stdin.write(json.dumps(command) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise Missing(f"its process has ended: {self._last_words()}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise Missing(answer["error"])
        return answer

    def _last_words(self) -> str:
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else "without a word"

    def close(self) -> None:
        assert self._process.stdin
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._log.close()


@dataclass(slots=True)
class Samples:
    """The times of one side for one row: the median of its calls, or the worst of its first calls.

    A first call is compared with later calls at the same shape. The worst one differs the most from them.
    """

    cpu_ms: list[float] = field(default_factory=list)
    wall_ms: list[float] = field(default_factory=list)
    steady_cpu_ms: list[float] = field(
        default_factory=list
    )  # later calls at the same shape, one per first call
    missing: str = ""
    note: str = ""

    @property
    def cpu(self) -> float | None:
        return self._typical(self.cpu_ms)

    @property
    def wall(self) -> float | None:
        return self._typical(self.wall_ms)

    @property
    def steady(self) -> float | None:
        return self._typical(self.steady_cpu_ms)

    def _typical(self, ms: list[float]) -> float | None:
        if not ms:
            return None
        return ms[self._worst] if self.steady_cpu_ms else median(ms)

    @property
    def _worst(self) -> int:
        ratios = [first / later for first, later in zip(self.cpu_ms, self.steady_cpu_ms, strict=True)]
        return ratios.index(max(ratios))


def measure(row: Row, sides: Sequence[Process], rounds: int, seconds: float) -> dict[str, Samples]:
    found = {side.name: Samples() for side in sides}
    ready = []
    for side in sides:
        try:
            found[side.name].note = side.ask(do="prepare", row=row.name, kind=row.kind, sizes=row.sizes).get(
                "note", ""
            )
            ready.append(side)
        except Missing as reason:
            found[side.name].missing = str(reason)
    if row.first_calls:
        for live in row.first_calls:
            for side in ready:
                side.ask(do="run", calls=5, live=None)  # warm up at a known shape
                answer = side.ask(do="run", calls=8, live=live)
                found[side.name].cpu_ms.append(answer["cpu_ms"][0])
                found[side.name].wall_ms.append(answer["wall_ms"][0])
                found[side.name].steady_cpu_ms.append(median(answer["cpu_ms"][1:]))
    else:
        for number in range(rounds):
            for side in ready[number % len(ready) :] + ready[: number % len(ready)]:  # rotate the order
                answer = side.ask(do="run", seconds=seconds)
                found[side.name].cpu_ms += answer["cpu_ms"]
                found[side.name].wall_ms += answer["wall_ms"]
    return found


def record(row: Row, found: dict[str, Samples], facts: dict[str, dict[str, str]]) -> Iterable[dict[str, Any]]:
    ours = found[US].cpu if US in found else None
    now = datetime.now(UTC).isoformat(timespec="seconds")
    for name, samples in found.items():
        yield {
            "time": now,
            "row": row.name,
            "side": name,
            **facts[name],
            "cpu_ms": samples.cpu,
            "wall_ms": samples.wall,
            "steady_cpu_ms": samples.steady,
            "calls": len(samples.cpu_ms),
            "cpu_ratio_to_pteron": samples.cpu / ours if samples.cpu and ours else None,
            "missing": samples.missing or None,
            "note": samples.note or None,
        }


def table(title: str, names: Sequence[str]) -> Table:
    made = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    made.add_column(f"{title}: cpu_ms (wall ms)")
    for name in names:
        made.add_column(name, justify="right")
        if name != US:
            made.add_column("ratio", justify="right")
    return made


def cells(row: Row, found: dict[str, Samples]) -> list[str]:
    ours = found[US].cpu if US in found else None
    line = [row.name]
    for name, samples in found.items():
        line.append(_times(samples))
        if name != US:
            line.append(_ratio(samples.cpu, ours))
    return line


def _times(samples: Samples) -> str:
    if samples.cpu is None or samples.wall is None:
        return ""
    text = f"{_ms(samples.cpu)} ({_ms(samples.wall)})"
    return text if samples.steady is None else f"{text}, then {_ms(samples.steady)}"


def _ms(ms: float) -> str:
    return f"{ms:.0f}" if ms >= 100 else f"{ms:.1f}" if ms >= 10 else f"{ms:.2f}"


def _ratio(theirs: float | None, ours: float | None) -> str:
    return f"{theirs / ours:.2f}×" if theirs and ours else ""


def measure_group(group: Group, options: argparse.Namespace, say: Callable[[str], None]) -> list[str]:
    """Measure the rows, print the table, append the results to the file. Returns notes."""
    rows = [row for row in group.rows if options.only in row.name]
    if not rows:
        return []
    environment = model_files() if group is LANGUAGE else {}
    if not group.has_shader_cache:
        environment |= NO_SHADER_CACHE
    notes: list[str] = []
    with ExitStack() as stack:
        sides, facts = [], {}
        for name in group.sides:
            try:
                side = Process(name, environment)
                stack.callback(side.close)
                facts[name] = side.ask(do="facts")
                sides.append(side)
                say(", ".join(facts[name].values()))
            except Missing as reason:
                notes.append(f"{name}: {reason}")
        out = table(group.title, [side.name for side in sides])
        with options.output.open("a", encoding="utf-8") as file:
            for row in rows:
                say(f"measuring {row.name}")
                export(row)
                found = measure(row, sides, options.rounds, options.seconds)
                out.add_row(*cells(row, found))
                file.writelines(
                    json.dumps(line, ensure_ascii=False) + "\n" for line in record(row, found, facts)
                )
                for name, samples in found.items():
                    notes += [
                        f"{row.name}, {name}: {text}" for text in (samples.missing, samples.note) if text
                    ]
    Console(width=150, highlight=False).print(out, "")
    return notes


def model_files() -> dict[str, str]:
    """Where the sides find SmolLM2, and llama.cpp for node."""
    files = {
        "PTERON_BENCH_MODEL": smollm2.program(PEERS),
        "PTERON_BENCH_GGUF": smollm2.find_gguf(PEERS),
        "PTERON_BENCH_NODE": PEERS / "node",
    }
    return {name: str(path) for name, path in files.items() if path is not None}


def export(row: Row) -> None:
    """Make the files of a row in a process of its own, because the exporters need much memory."""
    if row.kind in ("model", "texts"):
        module = "benchmarks.models" if row.kind == "model" else "benchmarks.map_texts"
        arguments = [row.name] if row.kind == "model" else ["--export"]
        subprocess.run([sys.executable, "-m", module, *arguments], cwd=ROOT, check=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="rounds per row")
    parser.add_argument("--seconds", type=float, default=0.3, help="the minimum seconds of a turn")
    parser.add_argument("--models", action="store_true", help="all whole models, and nothing else")
    parser.add_argument("--only", default="", help="only rows whose name contains this text")
    parser.add_argument("--output", type=Path, default=ROOT / "build/bench.jsonl", help="appended to")
    options = parser.parse_args()
    options.output.parent.mkdir(parents=True, exist_ok=True)
    say = Console(stderr=True, highlight=False, soft_wrap=True).print
    groups = [MODELS] if options.models else [OPERATORS, LANGUAGE, IMAGE, TEXTS]
    notes = [note for group in groups for note in measure_group(group, options, say)]
    console = Console(width=150, highlight=False)
    if not options.models and options.only in loads.ROW:
        notes += loads.measure_loads(smollm2.program(PEERS), options.output, console)
    console.print("A ratio is a peer's CPU time over Pteron's: above 1, Pteron is faster.")
    for note in notes:
        console.print(f"- {note}")
    console.print(f"\nsaved {options.output}", style="dim")


if __name__ == "__main__":
    main()
