"""`pteron embed`: texts as vectors."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from pteron.cli import language


def embed(
    model: Annotated[
        Path, typer.Argument(help="An embedder: a .pte or .gguf file, or a Hugging Face folder.")
    ],
    texts: Annotated[
        list[str] | None, typer.Argument(help="The texts. Default: each line of standard input is one.")
    ] = None,
    from_hub: language.FromHub = False,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Write the vectors to a .npy file, as float32 [texts, width]."),
    ] = None,
    truncate: Annotated[
        bool, typer.Option("--truncate", help="Cut texts that are too long. Default: they are an error.")
    ] = False,
    tokenizer: language.TokenizerPath = None,
    device: language.DeviceName = None,
) -> None:
    """Turn texts into vectors (embeddings). Prints one JSON object per text."""
    from pteron.llm import load_embedder

    if output is not None and output.suffix != ".npy":
        raise typer.BadParameter(f"{output}: vectors are written as .npy")
    given = texts or sys.stdin.read().splitlines()
    program = language.ready(language.located(model, from_hub))
    with load_embedder(program, tokenizer=tokenizer, device=device) as embedder:
        vectors = embedder.embed(given, truncate=truncate)
    if output is not None:
        import numpy as np

        np.save(output, vectors)
        return
    for text, vector in zip(given, vectors.tolist(), strict=True):
        typer.echo(json.dumps({"text": text, "embedding": vector}, ensure_ascii=False))
