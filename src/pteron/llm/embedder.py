"""Embedders: models such as BERT that turn a text into a vector.

Texts of similar meaning have similar vectors.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pteron._util.progress import Progress
from pteron.api.loading import load as load_program
from pteron.api.loading import portable_source
from pteron.api.method_info import IOInfo
from pteron.api.program import Program
from pteron.engine.devices.opening import Adapter, Device
from pteron.errors import FormatError, InputError, UnsupportedError
from pteron.llm.companions import DESCRIPTION, Companions
from pteron.llm.loaded import LoadedModel
from pteron.llm.model_files import model_file
from pteron.llm.tokenizer import Tokenizer, TooLong, prompt_worker
from pteron.pte import ProgramFile

Vectors = NDArray[np.float32]

LONG = 64  # how many times longer than the limit a text may be that is to be cut


def load_embedder(
    source: Any,
    *,
    tokenizer: Tokenizer | str | Path | None = None,
    device: str | int | Adapter | Device | None = None,
    progress: Progress | None = None,
) -> Embedder:
    """Load an embedder: a model that turns texts into vectors.

    A `.gguf` file or a Hugging Face folder is converted once. The result is stored in a cache folder (see
    `pteron cache`).

    Args:
        source: A `.pte` file that `pteron convert` wrote (a path, bytes, or an open file), a `.gguf` file or
            a Hugging Face folder.
        tokenizer: A `tokenizer.json` or its folder. Default: the one in the file or beside it.
        device: An adapter's index or part of its name, or an open device. Default: the best adapter.
        progress: A function that is called during a conversion, with what is being done, the finished
            share, and 1.0. Default: a bar in notebooks.

    Raises:
        UnsupportedError: The program is not an embedder.

    Example:
        ```python
        embedder = pteron.llm.load_embedder("all-MiniLM-L6-v2.gguf")
        a, b = embedder.embed(["a man plays the guitar", "someone makes music"])
        print(a @ b)
        ```
    """
    path = model_file(source, None, progress)
    program = load_program(path, device=device)
    try:
        found = Companions(program, Path(path) if isinstance(path, (str, Path)) else None)
        if tokenizer is None:
            tokenizer = found.tokenizer(prompt_worker())
        elif not isinstance(tokenizer, Tokenizer):
            tokenizer = Tokenizer.from_file(tokenizer)
        embedder = Embedder(program, tokenizer, found.description())
        embedder.origin = partial(load_embedder, portable_source(source), device=program.device.name)
        return embedder
    except BaseException:
        program.close()
        raise


def _are_of_an_embedder(inputs: Sequence[IOInfo], outputs: Sequence[IOInfo]) -> bool:
    """Tokens [B, S], perhaps a mask of the same shape, and vectors [B, width]. Older files have no mask."""
    shapes = {info.max_shape for info in inputs}
    ranks = [len(info.max_shape) for info in (*inputs, *outputs)]
    return len(inputs) in (1, 2) and len(outputs) == 1 and len(shapes) == 1 and set(ranks) == {2}


def is_embedder(path: Path) -> bool:
    """Whether a `.pte` file is an embedder that `pteron convert` wrote."""
    with ProgramFile.open(path) as file:
        try:
            return "pooling" in json.loads(bytes(file.named_data(DESCRIPTION)))
        except (FormatError, ValueError):
            return False


class Embedder(LoadedModel):
    """Turns texts into vectors. `pteron.llm.load_embedder` makes it. Threads may share it.

    Attributes:
        width: The length of a vector.
        max_length: The largest number of tokens in a text.
    """

    def __init__(
        self, program: Program, tokenizer: Tokenizer, description: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(program, tokenizer, description)
        self.method = program.method("forward")
        inputs, outputs = self.method.inputs, self.method.outputs
        if not _are_of_an_embedder(inputs, outputs):
            found = ", ".join(f"{i.dtype}{list(i.max_shape)}" for i in inputs)
            raise UnsupportedError(
                "an embedder has forward(tokens [B, S], mask [B, S]) and returns vectors [B, width], but "
                f"this program has forward({found}): for a language model, use pteron.llm.load"
            )
        self.batch: int = inputs[0].max_shape[0]  # texts in a call
        self.max_length: int = inputs[0].max_shape[1]
        self.width: int = outputs[0].max_shape[1]

    def embed(self, texts: str | Sequence[str], *, truncate: bool = False) -> Vectors:
        """Turn texts into vectors.

        Args:
            texts: A list of texts. A single text counts as a list of one.
            truncate: Cut texts that have more tokens than the model takes. By default they are an error.

        Returns:
            float32 `[number of texts, width]`.

        Raises:
            InputError: A text is too long.
        """
        return self.vectors(self.encode(texts, truncate=truncate))

    def encode(self, texts: str | Sequence[str], *, truncate: bool = False) -> list[list[int]]:
        """The tokens of each text, as the model reads them. See `embed`."""
        texts = [texts] if isinstance(texts, str) else list(texts)
        return [self._tokens(number, text, truncate) for number, text in enumerate(texts)]

    def vectors(self, rows: Sequence[Sequence[int]]) -> Vectors:
        """The vectors of texts that are tokens: float32 [number of texts, width].

        Texts of similar length run in one call, at most `batch` of them.
        """
        vectors = np.empty((len(rows), self.width), np.float32)
        arrays = (np.array(row, np.int64) for row in rows)
        for number, vector in enumerate(self.program.map(arrays)):
            vectors[number] = vector
        return vectors

    def _tokens(self, number: int, text: str, truncate: bool) -> list[int]:
        if not isinstance(text, str):
            raise InputError(f"text {number} should be a string, not {type(text).__name__}")
        limit = self.max_length
        try:
            tokens = self.tokenizer.encode(text, most=LONG * limit if truncate else limit)
        except TooLong:
            tokens = None
        if tokens is None or (len(tokens) > limit and not truncate):
            count = "more" if tokens is None else f"{len(tokens)} tokens, which is more"
            way = "split it" if truncate else "split it, or cut it (truncate=True; pteron embed --truncate)"
            raise InputError(f"text {number} has {count} than the {limit} tokens that the model takes: {way}")
        if not tokens:
            raise InputError(f"text {number} has no tokens")
        return tokens if len(tokens) <= limit else self._cut(tokens)

    def _cut(self, tokens: list[int]) -> list[int]:
        """The first tokens, and those that the tokenizer puts at the end of every text."""
        end = self.tokenizer.encode("")
        while end and tokens[-len(end) :] != end:
            end = end[1:]
        return [*tokens[: self.max_length - len(end)], *end]

    def __repr__(self) -> str:
        return f"<Embedder, {self.width} numbers for up to {self.max_length} tokens>"
