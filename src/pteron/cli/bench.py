"""`pteron bench`: the speed of a language model, as in llama-bench; with --report, of all kernels."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import mean, median, stdev
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from pteron._util.progress import Progress
from pteron.cli import common, language
from pteron.cli.progress import loading_bar, steps
from pteron.cli.terminal import markdown_table, nbytes, print_json

if TYPE_CHECKING:
    from pteron import State
    from pteron.llm.decoder import Decoder


def bench(
    model: Annotated[
        Path | None, typer.Argument(help="A language model: a .pte or .gguf file, or a Hugging Face folder.")
    ] = None,
    from_hub: language.FromHub = False,
    prompts: Annotated[
        str, typer.Option("-p", "--n-prompt", help="Prompt lengths, separated by commas; 0: none.")
    ] = "128",
    generations: Annotated[
        str, typer.Option("-n", "--n-gen", help="Tokens to generate, separated by commas; 0: none.")
    ] = "32",
    depth: Annotated[
        int, typer.Option("--n-depth", min=0, help="Tokens in the context before the measurement.")
    ] = 0,
    parallel: Annotated[
        str, typer.Option("--parallel", help="Instead: conversations at the same time, such as 1,2,4,8.")
    ] = "",
    repetitions: Annotated[int, typer.Option("-r", "--repetitions", min=1, help="Runs per test.")] = 5,
    report: Annotated[
        Path | None,
        typer.Option("--report", help="Instead: time all kernels on this device, and write a JSON file."),
    ] = None,
    seconds: Annotated[
        float, typer.Option("--seconds", min=1, help="With --report: begin no measurement after this time.")
    ] = 120.0,
    output: Annotated[Literal["md", "json"], typer.Option("-o", "--output", help="Output format.")] = "md",
    as_json: common.AsJson = False,
    kv_dtype: language.KvDtype = "f16",
    data: common.DataPaths = None,
    device: language.DeviceName = None,
) -> None:
    """Measure a language model: tokens per second for prompts (pp) and for generated tokens (tg).

    With --parallel: tokens per second and per CPU-second, with several conversations at the same time.
    With --report: no model is needed. The file says what every kernel takes on this device, at built-in
    shapes, next to the memory bandwidth and the arithmetic that the device can do.
    """
    if report is not None:
        from pteron.cli.bench_report import write_report

        write_report(report, seconds, device, as_json or output == "json")
        return
    if model is None:
        raise typer.BadParameter("name a language model to measure, or write --report FILE")
    model = language.convert_if_needed(language.fetch_model(model, from_hub))
    source = language.ModelSource(model, None, data, device, kv_dtype=kv_dtype)
    as_json = as_json or output == "json"
    if parallel:
        _bench_parallel(source, parallel, generations, depth, repetitions, as_json)
    else:
        _bench_alone(source, prompts, generations, depth, repetitions, as_json)


def _bench_alone(
    source: language.ModelSource, prompts: str, generations: str, depth: int, repetitions: int, as_json: bool
) -> None:
    from pteron.api.loading import load
    from pteron.engine.devices.opening import open_device
    from pteron.llm.decoder import Decoder

    tests = [("pp", length) for length in _lengths(prompts, "-p")]
    tests += [("tg", length) for length in _lengths(generations, "-n")]
    if not tests:
        raise typer.BadParameter("nothing to measure: -p and -n are both 0")
    gpu = open_device(source.device)
    try:
        with loading_bar(source.model, gpu) as told:
            program = load(
                source.model, data_path=source.data, device=gpu, kv_dtype=source.kv_dtype, progress=told
            )
            decoder = Decoder(program)
        with program:
            _check_room(depth + max(length for _, length in tests), decoder)
            rows = []
            with steps("measuring") as report:
                for kind, length in tests:
                    rows.append(Runner(decoder, depth).measure(kind, length, repetitions, report))
            facts = _facts(source.model, gpu, decoder)
    finally:
        gpu.close()
    if as_json:
        print_json([facts | row.as_json() for row in rows])
    else:
        typer.echo("\n".join((*_markdown(facts, rows), *_footer(facts))))


def _bench_parallel(
    source: language.ModelSource, parallel: str, generations: str, depth: int, repetitions: int, as_json: bool
) -> None:
    from pteron.cli.bench_parallel import ParallelRunner, as_markdown, rows_as_json

    counts, lengths = _lengths(parallel, "--parallel"), _lengths(generations, "-n")
    if not counts or len(lengths) != 1:
        raise typer.BadParameter("--parallel needs numbers of conversations, and one length (-n)")
    with language.open_model(replace(source, parallel=max(counts))) as llm:
        _check_room(depth + lengths[0], llm.decoder)
        runner = ParallelRunner(llm)
        with steps("measuring") as report:
            rows = runner.measure(counts, lengths[0], depth, repetitions, report)
        arrival = runner.arrival()
        facts = _facts(source.model, llm.program.device, llm.decoder)
    if as_json:
        print_json([facts | row for row in rows_as_json(rows, arrival)])
    else:
        typer.echo("\n".join((*as_markdown(rows, arrival), *_footer(facts))))


def _check_room(length: int, decoder: Decoder) -> None:
    if length > decoder.context_length:
        raise typer.BadParameter(f"{length} tokens do not fit the context of {decoder.context_length}")


def _lengths(text: str, option: str) -> list[int]:
    try:
        lengths = [int(part) for part in text.split(",")]
    except ValueError:
        lengths = [-1]
    if any(length < 0 for length in lengths):
        raise typer.BadParameter(f"{option} {text}: write lengths separated by commas, such as 128,512")
    return [length for length in lengths if length]


@dataclass(slots=True)
class Row:
    """One test, and the seconds of each of its runs."""

    kind: str  # pp: read a prompt, tg: generate tokens
    length: int
    depth: int
    seconds: list[float] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)

    @property
    def name(self) -> str:
        return f"{self.kind}{self.length}" + (f" @ d{self.depth}" if self.depth else "")

    @property
    def rates(self) -> list[float]:
        return [self.length / s for s in self.seconds]

    @property
    def cpu_ms_per_token(self) -> float:
        return 1000 * median(self.cpu_seconds) / self.length

    def as_json(self) -> dict[str, Any]:
        """As JSON, with llama-bench's names where the meaning is the same."""
        return {
            "n_prompt": self.length if self.kind == "pp" else 0,
            "n_gen": self.length if self.kind == "tg" else 0,
            "n_depth": self.depth,
            "avg_ns": round(1e9 * mean(self.seconds)),
            "stddev_ns": round(1e9 * spread(self.seconds)),
            "avg_ts": mean(self.rates),
            "stddev_ts": spread(self.rates),
            "samples_ns": [round(1e9 * s) for s in self.seconds],
            "samples_ts": self.rates,
            "cpu_ms_per_token": self.cpu_ms_per_token,
        }


class Runner:
    """Runs a decoder on random tokens. The time does not depend on which tokens they are."""

    def __init__(self, decoder: Decoder, depth: int) -> None:
        self._decoder = decoder
        self._depth = depth
        self._random = random.Random(0)
        self._state: State = decoder.new_state()

    def measure(self, kind: str, length: int, repetitions: int, progress: Progress | None = None) -> Row:
        run: Callable[[int], None] = self._read if kind == "pp" else self._write
        row = Row(kind, length, self._depth)
        self._fill()
        run(length)  # warm-up: the first call at a shape plans
        for number in range(repetitions):
            if progress is not None:
                progress(f"{kind}{length}", number, repetitions)
            wall, cpu = time.perf_counter(), time.process_time()
            run(length)
            row.cpu_seconds.append(time.process_time() - cpu)
            row.seconds.append(time.perf_counter() - wall)
        self._state.close()
        return row

    def _fill(self) -> None:
        for start, tokens in self._chunks(0, self._depth):
            self._decoder.logits(tokens, start, self._state)

    def _read(self, length: int) -> None:
        for start, tokens in self._chunks(self._depth, length):
            self._decoder.logits(tokens, start, self._state)

    def _write(self, length: int) -> None:
        for step in range(length):
            self._decoder.logits([self._token()], self._depth + step, self._state)

    def _chunks(self, start: int, length: int) -> Iterator[tuple[int, list[int]]]:
        """Split a prompt as in a real run: as many tokens per call as the program accepts."""
        most = self._decoder.max_length
        for done in range(0, length, most):
            yield start + done, [self._token() for _ in range(min(most, length - done))]

    def _token(self) -> int:
        return self._random.randrange(self._decoder.vocab_size)


def spread(numbers: list[float]) -> float:
    return stdev(numbers) if len(numbers) > 1 else 0.0


def _facts(model: Path, device: Any, decoder: Decoder) -> dict[str, Any]:
    from pteron import __version__

    adapter = device.adapter
    return {
        "pteron_version": __version__,
        "test_time": datetime.now(UTC).isoformat(timespec="seconds"),
        "model_filename": str(model),
        "model_size": model.stat().st_size,
        "n_ctx": decoder.context_length,
        "kv_nbytes": decoder.kv_nbytes,
        "gpu_nbytes": decoder.method.memory.total,
        "gpu_info": adapter.name,
        "backend": adapter.backend,
        "driver": adapter.driver,
    }


def _markdown(facts: dict[str, Any], rows: list[Row]) -> Iterator[str]:
    header = ("model", "size", "backend", "test", "t/s", "cpu ms/token")
    model, size = Path(facts["model_filename"]).name, nbytes(facts["model_size"])
    cells = [
        (
            model,
            size,
            facts["backend"],
            row.name,
            f"{mean(row.rates):.2f} ± {spread(row.rates):.2f}",
            f"{row.cpu_ms_per_token:.2f}",
        )
        for row in rows
    ]
    yield from markdown_table(header, cells)


def _footer(facts: dict[str, Any]) -> Iterator[str]:
    yield ""
    yield f"pteron {facts['pteron_version']} on {facts['gpu_info']} ({facts['driver']})"
    yield (
        f"{nbytes(facts['gpu_nbytes'])} on the GPU, {nbytes(facts['kv_nbytes'])} of it for the KV cache of "
        f"{facts['n_ctx']} tokens"
    )
