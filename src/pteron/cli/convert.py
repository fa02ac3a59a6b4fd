"""`pteron convert`: convert a model to a `.pte` program."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import typer

from pteron.cli import common, language
from pteron.cli.output_places import prepare_file
from pteron.cli.progress import conversion_bar
from pteron.cli.terminal import console, nbytes, print_json


def convert(
    model: Annotated[
        Path, typer.Argument(help="A language model or an embedder: a .gguf file or a Hugging Face folder.")
    ],
    output: Annotated[Path, typer.Argument(help="The .pte file to write.")],
    from_hub: language.FromHub = False,
    max_seq_len: Annotated[int, typer.Option(min=1, help="The maximum number of tokens in one call.")] = 128,
    max_context: Annotated[
        int, typer.Option(min=1, help="The maximum number of tokens in a conversation.")
    ] = 2048,
    batch: Annotated[
        int | None,
        typer.Option(
            "--batch",
            min=1,
            help="The maximum number of texts in one call of an embedder. Default: up to 32.",
        ),
    ] = None,
    quantize: Annotated[
        Literal["4bit", "8bit"] | None,
        typer.Option("--quantize", help="Round weights that are floats. Default: keep all as they are."),
    ] = None,
    as_json: common.AsJson = False,
) -> None:
    """Convert a language model or an embedder to a .pte program, with the weights of the file."""
    from pteron.llm import convert as convert_model

    prepare_file(output)
    source = language.fetch_model(model, from_hub)
    with conversion_bar() as report:
        made = convert_model(
            source,
            output,
            max_seq_len=max_seq_len,
            max_context=max_context,
            batch=batch,
            quantize=quantize,
            progress=report,
        )
    if as_json:
        print_json({**asdict(made), "path": str(made.path)})
        return
    console().print(
        f"{made.path}: {made.name} ({made.architecture}, {made.parameters / 1e6:.0f} million parameters), "
        f"{nbytes(made.nbytes)}, {made.max_context} tokens of context"
    )
    console().print(f"weights: {made.quantization}")
    if made.rounding:
        console().print(
            f"They differ from the weights of the file by {made.rounding:.1%}, so answers differ too. "
            f"`pteron compare {made.path} {source} --text FILE` measures how much."
        )
