"""Compare the predictions of two language models on a text, for example before and after quantization.

Both models read the same text in windows. At every place, the probabilities of the next token are compared.
A GPU rounds operands (`precision=`) only in calls of several tokens. Then both models read several tokens in
a call, and the places are the ends of the calls.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from pteron._util.extras import needs
from pteron._util.progress import NotebookBar, Progress
from pteron.errors import InputError
from pteron.llm.model import LanguageModel, load
from pteron.llm.model_files import is_source

Row = np.ndarray[Any, Any]

WINDOW = 256  # tokens that are read one after the other, with nothing before them
STEP = 16  # tokens of a call, if operands are rounded

# Called with the number of tokens that are done, and of all.


@dataclass(frozen=True, slots=True)
class Comparison:
    """How much a model differs from a reference on a text.

    Attributes:
        places: The number of places where the next token was predicted.
        divergence: The mean Kullback-Leibler divergence of the model from the reference.
        agreement: The share of places where both find the same token most probable.
        perplexity: The perplexity of the model.
        reference_perplexity: The perplexity of the reference.
    """

    places: int
    divergence: float
    agreement: float
    perplexity: float
    reference_perplexity: float


class Predictor(Protocol):
    """A model that says what comes next."""

    vocab_size: int
    context_length: int

    def encode(self, text: str) -> list[int]: ...

    def rows(self, tokens: Sequence[int], step: int = 1) -> Iterator[Row]:
        """The logits [vocabulary] after each of the tokens, or after every `step` tokens."""


def compare(
    model: str | Path,
    reference: str | Path,
    text: str,
    *,
    device: Any = None,
    precision: str = "float32",
    progress: Progress | None = None,
) -> Comparison:
    """Compare the predictions of a model with those of a reference, on a text.

    Args:
        model: A `.pte` file runs on the GPU. A `.gguf` file or a Hugging Face folder is computed as float32
            in numpy.
        reference: The same.
        text: The text.
        device: An adapter's index or part of its name, or an open device.
        precision: What `model` may round operands to: see `pteron.load`. The reference rounds nothing. In
            numpy, they are rounded as on a GPU.
        progress: A function that is called with what is being done, the number of tokens done, and of
            all tokens. Default: a bar in notebooks.

    Raises:
        InputError: The vocabularies differ, or the text is too short.
    """
    with ExitStack() as stack:
        ours = stack.enter_context(_opened(Path(model), device, precision))
        theirs = stack.enter_context(_opened(Path(reference), device, "float32"))
        if ours.vocab_size != theirs.vocab_size:
            raise InputError(
                f"{model} has {ours.vocab_size} tokens and {reference} has {theirs.vocab_size}: "
                "only models of one vocabulary can be compared"
            )
        tokens = theirs.encode(text)
        step = 1 if precision == "float32" or is_source(Path(model)) else STEP
        if len(tokens) <= step:
            raise InputError(f"the text has {len(tokens)} tokens: more than {step} are needed")
        return _compared(ours, theirs, tokens, step, progress or NotebookBar("comparing"))


def _compared(
    ours: Predictor, theirs: Predictor, tokens: list[int], step: int, progress: Progress
) -> Comparison:
    window = min(WINDOW, ours.context_length, theirs.context_length)
    sums, places = np.zeros(4), 0
    for start in range(0, len(tokens) - 1, window):
        read = tokens[start : start + window]
        expected = tokens[start + step : start + 1 + window : step]
        rows = zip(expected, ours.rows(read, step), theirs.rows(read, step), strict=False)
        for next_token, mine, other in rows:
            sums += _difference(_log_probabilities(mine), _log_probabilities(other), next_token)
            places += 1
            progress("comparing", places * step, len(tokens) - 1)
    divergence, agreement, surprise, reference_surprise = sums / places
    return Comparison(
        places, divergence, agreement, float(np.exp(surprise)), float(np.exp(reference_surprise))
    )


def _difference(mine: Row, other: Row, next_token: int) -> Row:
    """The divergence from the other, whether both agree, and how much the next token surprises each."""
    divergence = float(np.exp(other) @ (other - mine))
    same = float(mine.argmax() == other.argmax())
    return np.array([divergence, same, -mine[next_token], -other[next_token]])


def _log_probabilities(logits: Row) -> Row:
    wide = logits.astype(np.float64)
    wide -= wide.max()
    return np.asarray(wide - np.log(np.exp(wide).sum()))


def _opened(path: Path, device: Any, precision: str) -> Any:
    """A predictor, as a context."""
    if is_source(path):
        with needs("llm", "to read a model"):
            from pteron.llm.gguf.predictor import SourcePredictor
        return SourcePredictor(path, precision)
    return ProgramPredictor(load(path, device=device, precision=precision))


class ProgramPredictor:
    """A converted or exported model on the GPU."""

    def __init__(self, model: LanguageModel) -> None:
        self._model = model
        self.vocab_size = model.decoder.vocab_size
        self.context_length = model.context_length

    def encode(self, text: str) -> list[int]:
        return self._model.tokenizer.encode(text)

    def rows(self, tokens: Sequence[int], step: int = 1) -> Iterator[Row]:
        state = self._model.decoder.new_state()
        for position in range(0, len(tokens) - step + 1, step):
            yield self._model.decoder.logits(tokens[position : position + step], position, state).reshape(-1)

    def __enter__(self) -> ProgramPredictor:
        return self

    def __exit__(self, *exception: object) -> None:
        self._model.close()
