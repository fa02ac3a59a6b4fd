"""`pteron bench`: the speed of a language model, as in llama-bench; with --report, of all kernels."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from statistics import mean, median
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from pteron.cli import common, language
from pteron.cli.progress import loading_bar, steps
from pteron.cli.terminal import markdown_table, nbytes, print_json

if TYPE_CHECKING:
    from pteron.cli.bench_runner import Row
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
    precision: language.Precision = "float32",
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
    tests = [("tg", length) for length in _lengths(generations, "-n")]
    counts = _lengths(parallel, "--parallel") if parallel else []
    if not parallel:
        tests = [*(("pp", length) for length in _lengths(prompts, "-p")), *tests]
        if not tests:
            raise typer.BadParameter("nothing to measure: -p and -n are both 0")
    elif not counts or len(tests) != 1:
        raise typer.BadParameter("--parallel needs numbers of conversations, and one length (-n)")
    model = language.convert_if_needed(language.fetch_model(model, from_hub))
    options = {"kv_dtype": kv_dtype, "precision": precision}
    with _opened(model, data, device, max(counts, default=1), **options) as decoder:
        from pteron.cli.bench_runner import Runner

        _check_room(depth + max(length for _, length in tests), decoder)
        runner = Runner(decoder, depth)
        with steps("measuring") as told:
            if counts:
                rows = runner.measure_many(counts, tests[0][1], repetitions, told)
            else:
                rows = [runner.measure(kind, length, repetitions, told) for kind, length in tests]
        facts = _facts(model, decoder)
    if as_json or output == "json":
        print_json([facts | row.as_json() for row in rows])
    else:
        table = parallel_table(rows) if counts else _table(facts, rows)
        typer.echo("\n".join((*table, *_footer(facts))))


@contextmanager
def _opened(
    model: Path, data: list[Path] | None, device: str | None, parallel: int, **options: Any
) -> Iterator[Decoder]:
    """The program of a language model. It needs no tokenizer."""
    from pteron.api.loading import load
    from pteron.compiler.segments.graph import Batching
    from pteron.engine.devices.opening import open_device
    from pteron.llm.decoder import Decoder

    batching = Batching(parallel, last_rows=True, required=False) if parallel > 1 else None
    gpu = open_device(device)
    try:
        with loading_bar(model, gpu) as told:
            program = load(model, data_path=data, device=gpu, segments=batching, progress=told, **options)
        with program:
            yield Decoder(program)
    finally:
        gpu.close()


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


def _facts(model: Path, decoder: Decoder) -> dict[str, Any]:
    from pteron import __version__

    adapter: Any = decoder.program.device.adapter
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


def _table(facts: dict[str, Any], rows: list[Row]) -> Iterator[str]:
    from pteron.cli.bench_runner import spread

    header = ("model", "size", "backend", "test", "t/s", "cpu ms/token")
    model = Path(facts["model_filename"]).name, nbytes(facts["model_size"]), facts["backend"]
    speeds = (f"{mean(row.rates):.2f} ± {spread(row.rates):.2f}" for row in rows)
    yield from markdown_table(
        header,
        [
            (*model, row.name, speed, f"{row.cpu_ms_per_token:.2f}")
            for row, speed in zip(rows, speeds, strict=True)
        ],
    )


def parallel_table(rows: list[Row]) -> Iterator[str]:
    first = rows[0]
    header = ("conversations", "t/s", "t per CPU s", f"t per CPU s, ratio to {first.conversations}")
    speeds = [(median(row.rates), row.per_cpu_second) for row in rows]
    yield from markdown_table(
        header,
        [
            (str(row.conversations), f"{rate:.2f}", f"{cpu:.2f}", f"{cpu / first.per_cpu_second:.2f}")
            for row, (rate, cpu) in zip(rows, speeds, strict=True)
        ],
    )


def _footer(facts: dict[str, Any]) -> Iterator[str]:
    yield ""
    yield f"pteron {facts['pteron_version']} on {facts['gpu_info']} ({facts['driver']})"
    yield (
        f"{nbytes(facts['gpu_nbytes'])} on the GPU, {nbytes(facts['kv_nbytes'])} of it for the KV cache of "
        f"{facts['n_ctx']} tokens"
    )
