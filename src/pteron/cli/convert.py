"""`pteron convert`: convert a GGUF file to a `.pte` program."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pteron.cli.language import conversion_bar
from pteron.cli.terminal import console, nbytes


def convert(
    model: Annotated[Path, typer.Argument(help="A .gguf file of the llama family.")],
    output: Annotated[Path, typer.Argument(help="The .pte file to write.")],
    max_seq_len: Annotated[int, typer.Option(min=1, help="The maximum number of tokens in one call.")] = 128,
    max_context: Annotated[
        int, typer.Option(min=1, help="The maximum number of tokens in a conversation.")
    ] = 2048,
    stock: Annotated[
        bool,
        typer.Option(
            "--stock", help="Use only operators of stock ExecuTorch: weights are rounded to 4 bits."
        ),
    ] = False,
) -> None:
    """Convert a GGUF language model to a .pte program, with the weights of the file."""
    from pteron.llm import convert as convert_model

    with conversion_bar() as report:
        made = convert_model(
            model, output, max_seq_len=max_seq_len, max_context=max_context, stock=stock, progress=report
        )
    console().print(
        f"{made.path}: {made.name} ({made.architecture}, {made.parameters / 1e6:.0f} million parameters), "
        f"{nbytes(made.nbytes)}, {made.max_context} tokens of context"
    )
    console().print(f"weights: {made.quantization}")
    if stock:
        console().print(
            f"They differ from the weights of the file by {made.rounding:.1%}, so answers differ too. "
            f"`pteron compare {made.path} {model} --text FILE` measures how much."
        )
