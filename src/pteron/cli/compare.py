"""`pteron compare`: how much a quantised model differs from its original."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from pteron.cli import common, language
from pteron.cli.progress import steps
from pteron.cli.terminal import console, print_json


def compare(
    model: Annotated[Path, typer.Argument(help="A language model: a .pte or .gguf file, or a folder.")],
    reference: Annotated[
        Path, typer.Argument(help="The reference model: a .pte or .gguf file, or a folder.")
    ],
    text: Annotated[Path, typer.Option("--text", help="A text file that both models read.")],
    as_json: common.AsJson = False,
    precision: language.Precision = "float32",
    device: language.DeviceName = None,
) -> None:
    """Compare a language model with another, or with the GGUF file it was made from, on a text.

    With --precision: the model with rounded operands, with the reference, which may be the same file.
    """
    from pteron.llm import compare as compare_models

    with steps("comparing") as report:
        words = text.read_text("utf-8")
        found = compare_models(model, reference, words, device=device, precision=precision, progress=report)
    if as_json:
        print_json(asdict(found))
        return
    console().print(
        f"{found.places} tokens\n"
        f"mean KL divergence from the reference: {found.divergence:.6f}\n"
        f"the same most probable token: {found.agreement:.2%}\n"
        f"perplexity: {found.perplexity:.4f}, of the reference {found.reference_perplexity:.4f}"
    )
