"""`pteron map`: a file with rows through a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

import typer

from pteron.cli import common, language
from pteron.cli.output_places import prepare_file, prepare_folder
from pteron.cli.progress import progress_console
from pteron.cli.row_progress import row_progress
from pteron.cli.terminal import plural, print_json

if TYPE_CHECKING:
    from pteron.data import FileJob, MapOptions


Source: TypeAlias = Annotated[
    Path,
    typer.Argument(
        metavar="IN",
        help="A .parquet, .csv, .jsonl, .npy or .npz file, or a folder of Parquet files or images; also "
        "s3://, gs://, hf:// and the like.",
    ),
]
Output: TypeAlias = Annotated[
    Path,
    typer.Argument(
        metavar="OUT", help="A .parquet, .csv, .jsonl, .npy or .npz file, or a folder for Parquet files."
    ),
]
OnBadRow: TypeAlias = Annotated[
    Literal["fail", "skip", "column"],
    typer.Option(
        "--on-error", help="At a bad row: stop, leave it out, or write the reason into a column `error`."
    ),
]
Keep: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--keep", metavar="COLUMN", help="A column of the input to copy. Repeatable. Default: all; '': none."
    ),
]
PartRows: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--part-rows",
        min=1,
        help="Rows of a part. An interrupted run loses at most one part. Default: 10000, or 100 prompts.",
    ),
]
Restart: TypeAlias = Annotated[
    bool, typer.Option("--restart", help="Start again, instead of continuing an interrupted run.")
]
Overwrite: TypeAlias = Annotated[
    bool, typer.Option("--overwrite", help="Replace an output that is there. Default: it is refused.")
]
Devices: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--device", "-d", help="An adapter's index, part of its name, or software. Repeatable: side by side."
    ),
]
BatchRows: TypeAlias = Annotated[
    int | None, typer.Option("--batch", "-b", min=1, help="Rows of a batch. Default: the program's largest.")
]
Truncate: TypeAlias = Annotated[
    bool, typer.Option("--truncate", help="Cut texts that are too long. Default: they are bad rows.")
]


def map_file(
    model: Annotated[
        Path, typer.Argument(help="A .pte file, or for texts and prompts also a .gguf file or HF folder.")
    ],
    source: Source,
    output: Output,
    columns: Annotated[
        list[str] | None,
        typer.Option("--columns", "-c", metavar="INPUT=COLUMN", help="The column of an input. Repeatable."),
    ] = None,
    mask: Annotated[
        str | None, typer.Option("--mask", help="The input that says which elements are real, not padding.")
    ] = None,
    text: Annotated[
        str | None, typer.Option("--text-column", help="A column with texts, which are tokenized.")
    ] = None,
    image: Annotated[
        str | None,
        typer.Option("--image-column", help="A column with images: paths, or the bytes of image files."),
    ] = None,
    mean: Annotated[
        str, typer.Option("--mean", metavar="R,G,B", help="Is subtracted from pixels, which are in 0..1.")
    ] = "",
    std: Annotated[str, typer.Option("--std", metavar="R,G,B", help="Pixels are divided by it.")] = "",
    prompt: Annotated[
        str | None, typer.Option("--prompt-column", help="A column with prompts for a language model.")
    ] = None,
    raw: Annotated[
        bool, typer.Option("--raw", help="Continue prompts as they are, without the chat template.")
    ] = False,
    max_new_tokens: Annotated[
        int, typer.Option("-n", "--predict", min=1, help="Generate at most this many tokens per answer.")
    ] = 256,
    temperature: Annotated[
        float, typer.Option("--temp", min=0, help="Of answers. 0: always the likeliest token.")
    ] = 0.0,
    seed: Annotated[int | None, typer.Option("--seed", "-s", help="Of answers with a temperature.")] = None,
    truncate: Truncate = False,
    tokenizer: language.TokenizerPath = None,
    method: common.MethodName = "forward",
    batch: BatchRows = None,
    device: Devices = None,
    on_error: OnBadRow = "fail",
    keep: Keep = None,
    part_rows: PartRows = None,
    restart: Restart = False,
    overwrite: Overwrite = False,
    ray: Annotated[bool, typer.Option("--ray", help="Run on a Ray cluster. It is not resumable.")] = False,
    actors: Annotated[int, typer.Option("--actors", min=1, help="Processes with a model, with --ray.")] = 1,
    address: Annotated[
        str | None, typer.Option("--address", help="Of the Ray cluster. Default: this machine alone.")
    ] = None,
    as_json: common.AsJson = False,
) -> None:
    """Run a model on every row of a file. An interrupted run continues where it stopped."""
    from pteron.data import FileJob, MapOptions, address_of, at_hand

    if ray and (address_of(source) or address_of(output)):
        raise typer.BadParameter("--ray reads and writes files that all machines of the cluster see")
    with at_hand(source, output, overwrite) as (here, made):
        options = MapOptions(
            columns=_columns(columns),
            mask=mask,
            batch=batch,
            devices=tuple(device or ()),
            method=method,
            text=text,
            truncate=truncate,
            image=image or ("image" if _has_images(here) else None),
            mean=_numbers(mean, "--mean"),
            std=_numbers(std, "--std"),
            prompt=prompt,
            raw=raw,
            generation={"max_new_tokens": max_new_tokens, "temperature": temperature, "seed": seed},
            tokenizer=None if tokenizer is None else str(tokenizer),
        )
        overwrites = overwrite or address_of(output) is not None  # what is at the address is checked already
        job = FileJob(here, made, options, on_error, chosen(keep), part_rows, restart, overwrites)
        if ray:
            _run_on_ray(model, job, actors, address, as_json)
        else:
            run_with_progress(model, job, as_json, address_of(output))


def _has_images(source: Path) -> bool:
    from pteron.data.readers import parquet_files

    return source.is_dir() and not parquet_files(source)


def _run_on_ray(model: Path, job: FileJob, actors: int, address: str | None, as_json: bool) -> None:
    from pteron.data import check_job, open_table
    from pteron.ray import map_file_on_ray

    check_job(job, open_table(job.source))
    prepare_output(job)
    map_file_on_ray(model, job, actors=actors, address=address)
    if as_json:
        print_json({"file": str(job.output)})


def run_with_progress(model: Path, job: FileJob, as_json: bool, address: str | None = None) -> None:
    """Run a job in this process, with a progress bar. After Ctrl-C, say how to continue.

    address: of the output, if it is not local.
    """
    from pteron.data import check_job, open_mapper, open_table, run_job

    reader = open_table(job.source)
    check_job(job, reader)
    prepare_output(job)
    mapper = open_mapper(language.convert_if_needed(model) if _is_text(job.options) else model, job.options)
    try:
        with row_progress(job.source.name, reader.count) as report:
            done = run_job(job, reader, mapper, report)
    except KeyboardInterrupt:
        begun = (
            f"the same command continues from {job.parts}" if job.parts.exists() else "no part is finished"
        )
        progress_console().print(f"interrupted: {begun}", style="yellow")
        raise typer.Exit(130) from None
    finally:
        mapper.close()
    if as_json:
        print_json({"file": address or str(job.output), **asdict(done)})
    elif done.bad_rows:
        what = "left out" if job.on_error == "skip" else "without a result"
        progress_console().print(f"{plural(done.bad_rows, 'row')} {what}", style="yellow")


def prepare_output(job: FileJob) -> None:
    (prepare_folder if job.is_folder else prepare_file)(job.output)


def chosen(keep: Sequence[str] | None) -> tuple[str, ...] | None:
    return None if keep is None else tuple(name for name in keep if name)


def _is_text(options: MapOptions) -> bool:
    return options.text is not None or options.prompt is not None


def _columns(pairs: Sequence[str] | None) -> dict[str, str] | None:
    if not pairs:
        return None
    split = [pair.partition("=") for pair in pairs]
    for pair, (name, _, column) in zip(pairs, split, strict=True):
        if not name or not column:
            raise typer.BadParameter(f"--columns {pair}: expected INPUT=COLUMN, such as input0=features")
    return {name: column for name, _, column in split}


def _numbers(text: str, option: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in text.split(",")) if text else ()
    except ValueError:
        raise typer.BadParameter(f"{option} {text}: expected numbers, such as 0.5,0.5,0.5") from None
