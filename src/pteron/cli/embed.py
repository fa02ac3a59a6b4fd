"""`pteron embed`: texts as vectors."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from pteron._util.distinct_files import refuse_inputs
from pteron.cli import common, language, map_file
from pteron.cli.output_places import prepare_file
from pteron.cli.terminal import print_json


def embed(
    arguments: Annotated[
        list[str],
        typer.Argument(
            metavar="MODEL [TEXT]... | IN OUT",
            help="An embedder (a .pte or .gguf file, or a Hugging Face folder) and texts. Without them, each "
            "line of standard input is one. With --model: a table, and the file for its vectors.",
        ),
    ],
    model: Annotated[
        Path | None, typer.Option("--model", help="The embedder, for a table. See `pteron map` for tables.")
    ] = None,
    from_hub: language.FromHub = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", help="Write the vectors to a .npy file, as float32, one row per text."
        ),
    ] = None,
    truncate: map_file.Truncate = False,
    tokenizer: language.TokenizerPath = None,
    device: map_file.Devices = None,
    column: Annotated[str, typer.Option("--text-column", help="The column of a table with texts.")] = "text",
    on_error: map_file.OnBadRow = "fail",
    keep: map_file.Keep = None,
    part_rows: map_file.PartRows = None,
    restart: map_file.Restart = False,
    overwrite: map_file.Overwrite = False,
    as_json: common.AsJson = False,
) -> None:
    """Turn texts into vectors (embeddings). Prints one JSON object per line, or writes a table.

    With --json: one JSON array, or what was written.
    """
    if model is None:
        first, *texts = arguments
        found = language.fetch_model(Path(first), from_hub)
        _check_output(output, overwrite, [found, *([tokenizer] if tokenizer else [])])
        _embed_texts(found, texts, output, truncate, tokenizer, device, as_json)
        return
    if len(arguments) != 2:
        raise typer.BadParameter(f"with --model, expected a table and an output, got {len(arguments)} names")
    from pteron.data import FileJob, MapOptions, address_of, at_hand

    options = MapOptions(
        text=column,
        truncate=truncate,
        tokenizer=None if tokenizer is None else str(tokenizer),
        devices=tuple(device or ()),
    )
    source, table = (Path(name) for name in arguments)
    address = address_of(table)
    with at_hand(source, table, overwrite) as (here, made):
        kept, overwrites = map_file.chosen(keep), overwrite or address is not None
        job = FileJob(here, made, options, on_error, kept, part_rows, restart, overwrites)
        map_file.run_with_progress(language.fetch_model(model, from_hub), job, as_json, address)


def _check_output(output: Path | None, overwrite: bool, inputs: Sequence[Path]) -> None:
    if output is None:
        return
    if output.suffix != ".npy":
        raise typer.BadParameter(f"{output}: vectors are written as .npy")
    refuse_inputs(output, inputs)
    if output.exists() and not overwrite:
        raise typer.BadParameter(f"{output} is there already: replace it with --overwrite")
    prepare_file(output)


def _embed_texts(
    model: Path,
    texts: Sequence[str],
    output: Path | None,
    truncate: bool,
    tokenizer: Path | None,
    devices: Sequence[str] | None,
    as_json: bool,
) -> None:
    from pteron.llm import load_embedder

    given = texts or sys.stdin.read().splitlines()
    device = devices[0] if devices else None
    with load_embedder(language.convert_if_needed(model), tokenizer=tokenizer, device=device) as embedder:
        vectors = embedder.embed(given, truncate=truncate)
    if output is not None:
        import numpy as np

        np.save(output, vectors)
        if as_json:
            print_json({"file": str(output), "shape": list(vectors.shape)})
        return
    rows = [{"text": t, "embedding": v} for t, v in zip(given, vectors.tolist(), strict=True)]
    if as_json:
        print_json(rows)
        return
    for row in rows:
        typer.echo(json.dumps(row, ensure_ascii=False))
