"""Shared by the commands for language models: options, progress bars, and Ctrl-C."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer
from rich.console import Console

if TYPE_CHECKING:
    from pteron.llm import LanguageModel, Options, Piece, Stream

# The letters of llama-cli, where the meaning is the same.
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
Tokens: TypeAlias = Annotated[
    int, typer.Option("-n", "--predict", "--n-predict", help="Maximum tokens to generate; -1: no limit.")
]
Context: TypeAlias = Annotated[
    int, typer.Option("-c", "--ctx-size", min=0, help="Context size in tokens; 0: the model's maximum.")
]
Seed: TypeAlias = Annotated[int, typer.Option("-s", "--seed", help="Random seed; -1: a new one each time.")]
Temperature: TypeAlias = Annotated[
    float, typer.Option("--temp", "--temperature", min=0, help="Temperature; 0: the most probable token.")
]
TopK: TypeAlias = Annotated[
    int, typer.Option("--top-k", min=0, help="Sample from the k most probable tokens; 0: all.")
]
TopP: TypeAlias = Annotated[
    float, typer.Option("--top-p", help="Sample from the most probable tokens with this total; 1: all.")
]
MinP: TypeAlias = Annotated[
    float, typer.Option("--min-p", help="Minimum probability, relative to the best token; 0: all.")
]
RepeatPenalty: TypeAlias = Annotated[
    float, typer.Option("--repeat-penalty", help="Penalty for repeated tokens; 1: none.")
]
Stop: TypeAlias = Annotated[
    list[str] | None, typer.Option("-r", "--reverse-prompt", help="Stop before this text. Repeatable.")
]
AllowSpecial: TypeAlias = Annotated[
    bool, typer.Option("--allow-special", help="Let messages write control tokens such as <|im_end|>.")
]
IgnoreEnd: TypeAlias = Annotated[bool, typer.Option("--ignore-eos", help="Continue after an end token.")]
DeviceName: TypeAlias = Annotated[
    str | None, typer.Option("-d", "-dev", "--device", help="An adapter's index, or part of its name.")
]
TokenizerPath: TypeAlias = Annotated[
    Path | None,
    typer.Option("--tokenizer", help="A tokenizer.json, if there is none in or beside the model."),
]


@dataclass(frozen=True, slots=True)
class ModelSource:
    """The files, the device and the context size of a language model."""

    model: Path
    tokenizer: Path | None
    data: list[Path] | None
    device: str | None
    context: int = 0


def progress_console() -> Console:
    """A console on stderr, so that stdout contains only the answer."""
    return Console(stderr=True, highlight=False)


@contextmanager
def opened(source: ModelSource) -> Iterator[LanguageModel]:
    """Load a model and show a progress bar."""
    import pteron.llm
    from pteron.devices import open_device

    model = ready(source.model, source.context)
    device = open_device(source.device)
    try:
        with loading_bar(model, device):
            llm = pteron.llm.load(
                model,
                tokenizer=source.tokenizer,
                data_path=source.data,
                context_length=source.context or None,
                device=device,
            )
        with llm:
            yield llm
    finally:
        device.close()


def located(model: Path, from_hub: bool) -> Path:
    """The file or folder of a model, which is downloaded if `model` is its name on the hub."""
    if not from_hub:
        return model
    from pteron.llm.hub import download

    return download(model.as_posix())


def ready(model: Path, context: int = 0) -> Path:
    """A model as a `.pte` file: others are converted behind a progress bar, or found in the cache."""
    from pteron.llm.model import is_source, model_file

    if not is_source(model):
        return model
    with conversion_bar() as report:
        return Path(model_file(model, context or None, report))


@contextmanager
def conversion_bar() -> Iterator[Callable[[float, str], None]]:
    """A bar that hears of the share of a conversion that is done."""
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    with Progress(*columns, console=progress_console(), transient=True) as bar:
        task = bar.add_task("reading", total=1.0)
        yield lambda share, what: bar.update(task, completed=share, description=what)


@contextmanager
def loading_bar(model: Path, device: Any) -> Iterator[None]:
    """Show how many bytes are on the GPU, as counted by the device, while the block runs."""
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

    console = progress_console()
    columns = (TextColumn("loading {task.description}"), BarColumn(), DownloadColumn(binary_units=True))
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        total = model.stat().st_size
        task = progress.add_task(model.name, total=total)
        done = threading.Event()

        def watch() -> None:
            while not done.wait(0.1):
                progress.update(task, completed=min(device.allocated_nbytes, total))

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        try:
            yield
        finally:
            done.set()
            watcher.join()


class PromptBar:
    """Shows how much of the prompt has been read. It disappears when the answer begins."""

    def __init__(self) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn

        console = progress_console()
        columns = (SpinnerColumn(), TextColumn("reading the prompt"), BarColumn(), MofNCompleteColumn())
        self._progress = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self._task = self._progress.add_task("prompt", total=None)

    def __call__(self, done: int, total: int) -> None:
        self._progress.update(self._task, completed=done, total=total)

    def __enter__(self) -> PromptBar:
        self._progress.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._progress.stop()


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


def options(
    tokens: int,
    temperature: float,
    top_k: int,
    top_p: float,
    min_p: float,
    repeat_penalty: float,
    seed: int,
    stop: list[str] | None,
    ignore_end: bool,
) -> Options:
    """The command-line options as the library's `Options`."""
    return {
        "max_new_tokens": None if tokens < 0 else tokens,
        "temperature": temperature,
        "top_k": top_k,
        "top_p": top_p,
        "min_p": min_p,
        "repetition_penalty": repeat_penalty,
        "seed": None if seed < 0 else seed,
        "stop": stop or [],
        "eos_token_id": [] if ignore_end else None,
    }
