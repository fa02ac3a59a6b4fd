"""Shared by the commands for language models: which model, loading it, and printing an answer."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import typer

from pteron.cli.progress import PromptBar, conversion_bar, loading_bar

if TYPE_CHECKING:
    from pteron.llm import LanguageModel, Piece, Stream


KvType: TypeAlias = Literal["f16", "f32"]
PrecisionType: TypeAlias = Literal["float32", "float16", "int8"]

# An option that llama-cli has too uses the same letter.
Model: TypeAlias = Annotated[
    Path, typer.Argument(help="A language model: a .pte or .gguf file, or a Hugging Face folder.")
]
FromHub: TypeAlias = Annotated[
    bool,
    typer.Option(
        "-hf",
        "--hf-repo",
        help="The model is org/repo, or org/repo:Q4_K_M, on the Hugging Face Hub: download it once.",
    ),
]
Context: TypeAlias = Annotated[
    int,
    typer.Option(
        "-c", "--ctx-size", min=0, help="Context size in tokens; 0: the model's, as far as memory allows."
    ),
]
AllowSpecial: TypeAlias = Annotated[
    bool, typer.Option("--allow-special", help="Let messages write control tokens such as <|im_end|>.")
]
KvDtype: TypeAlias = Annotated[
    KvType, typer.Option("--kv-dtype", help="The type of stored keys and values. f32 takes twice the memory.")
]
Precision: TypeAlias = Annotated[
    PrecisionType,
    typer.Option("--precision", help="What GPUs may round operands of large products to; this is faster."),
]
Ubatch: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "-ub",
        "--ubatch-size",
        "--ubatch",
        min=1,
        help="The most tokens of a prompt in one call; default: 512 on GPUs, 128 on software adapters.",
    ),
]
NoWait: TypeAlias = Annotated[
    bool,
    typer.Option("--no-wait", help="Begin before all kernels are compiled; the first answers are slower."),
]
DeviceName: TypeAlias = Annotated[
    str | None,
    typer.Option("-d", "-dev", "--device", help="An adapter's index, part of its name, or software."),
]
TokenizerPath: TypeAlias = Annotated[
    Path | None,
    typer.Option("--tokenizer", help="A tokenizer.json, if there is none in or beside the model."),
]


@contextmanager
def open_model(model: Path, device: str | None, **options: Any) -> Iterator[LanguageModel]:
    """Load a model and show a progress bar. The options are those of `pteron.llm.load`."""
    import pteron.llm
    from pteron.engine.devices.opening import open_device

    model = convert_if_needed(model, options.get("context_length"), options.get("ubatch"))
    opened = open_device(device)
    try:
        with loading_bar(model, opened) as report:
            llm = pteron.llm.load(model, device=opened, progress=report, **options)
        with llm:
            yield llm
    finally:
        opened.close()


def fetch_model(model: Path, from_hub: bool) -> Path:
    """The file or folder of a model, which is downloaded if `model` is its name on the hub."""
    if not from_hub:
        return model
    from pteron.llm.hub import download

    return download(model.as_posix())


def convert_if_needed(model: Path, context: int | None = None, ubatch: int | None = None) -> Path:
    """A model as a `.pte` file: others are converted behind a progress bar, or found in the cache."""
    from pteron.llm.model_files import is_source, model_file

    if not is_source(model):
        return model
    with conversion_bar() as report:
        return Path(model_file(model, context or None, report, ubatch=ubatch))


@contextmanager
def cancelled_by_interrupt(stream: Stream) -> Iterator[None]:
    """Ctrl-C cancels the stream, not the process. It takes effect between two steps, never inside one."""
    before = signal.signal(signal.SIGINT, lambda *_: stream.cancel())
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def show(stream: Stream, bar: PromptBar, beginning: str = "") -> tuple[str, Piece]:
    """Print an answer while it is generated. Returns the whole text and the last piece."""
    texts = []
    with cancelled_by_interrupt(stream), stream:
        with bar:
            piece = next(stream)
        write(beginning)
        while True:
            write(piece.text)
            texts.append(piece.text)
            if piece.finish_reason:
                write("\n")
                return "".join(texts), piece
            piece = next(stream)


def write(text: str) -> None:
    """Write text. On a terminal, leave out the control characters that could change its state."""
    if sys.stdout.isatty():
        text = "".join(c for c in text if c.isprintable() or c in "\n\t" or ord(c) > 0x9F)
    sys.stdout.write(text)
    sys.stdout.flush()
