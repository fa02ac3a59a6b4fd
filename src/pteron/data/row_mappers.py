"""What maps rows to results: a program on arrays, texts or images, or a language model on prompts."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from pteron.api.loading import load
from pteron.api.program import Program
from pteron.data.arrow_columns import column_type
from pteron.data.images import image_array
from pteron.errors import DeviceError, InputError, OutOfMemory, PteronError, RowError
from pteron.llm import Embedder, LanguageModel, Tokenizer, load_embedder
from pteron.llm import load as load_language_model
from pteron.llm.answer import Answer, Piece
from pteron.llm.batch import outcomes
from pteron.llm.companions import Companions
from pteron.llm.embedder import is_embedder
from pteron.llm.generate import collect
from pteron.llm.model_files import is_source, model_file
from pteron.llm.tokenizer import prompt_worker

PROMPTS = 64  # that a language model gets at once; it runs as many of them together as it can


@dataclass(frozen=True, slots=True)
class MapOptions:
    """Which columns go into a model, and how. It can be pickled.

    Attributes:
        columns: The column of each input. See `Program.map`.
        mask: The name of the mask input. See `Program.map`.
        batch: The largest number of rows in a batch.
        devices: The adapters to use side by side.
        method: The program's method.
        text: The column with texts. They are tokenized for the first input.
        truncate: Cut texts that are too long.
        image: The column with images, as paths or bytes.
        mean: What is subtracted from each colour channel, after it was scaled to 0..1.
        std: What each colour channel is then divided by.
        prompt: The column with prompts for a language model.
        raw: Texts are continued as they are, without the model's chat template.
        generation: The options of the language model (see `Sampling` and `AnswerOptions`).
        tokenizer: A `tokenizer.json`. Default: the one in the model or beside it.
    """

    columns: Mapping[str, str] | None = None
    mask: str | None = None
    batch: int | None = None
    devices: tuple[str | int, ...] = ()
    method: str = "forward"
    text: str | None = None
    truncate: bool = False
    image: str | None = None
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    prompt: str | None = None
    raw: bool = False
    generation: Mapping[str, Any] = field(default_factory=dict)
    tokenizer: str | None = None

    @property
    def named_columns(self) -> list[str]:
        """The columns that rows must have."""
        names = [*(self.columns or {}).values(), self.text, self.image, self.prompt]
        return [name for name in names if name is not None]

    def __post_init__(self) -> None:
        given = [name for name in ("text", "image", "prompt") if getattr(self, name)]
        if len(given) > 1:
            raise InputError(f"{' and '.join(given)} cannot be used together: they fill the same input")


class RowMapper(Protocol):
    fields: list[pa.Field]  # the columns of the results
    reads: list[str]  # the columns that it reads, in the order of the model's inputs
    digest: str  # of the model

    def map(self, rows: Iterator[Mapping[str, Any]]) -> Iterator[Any]:
        """A result per row, in order: a tuple with a value per field, or a RowError."""

    def close(self) -> None: ...


def open_mapper(model: str | Path, options: MapOptions) -> RowMapper:
    """Load a model for rows. GGUF files and Hugging Face folders are converted, or found in the cache."""
    if options.prompt is not None:
        return PromptMapper(Path(model), options)
    path = Path(model_file(Path(model)))
    if options.text is not None and is_embedder(path):
        return ProgramMapper.of_embedder(path, options)
    if is_source(Path(model)):
        raise InputError(
            f"{model}: say which column has the texts of an embedder (text=, pteron map --text-column), or "
            "the prompts of a language model (prompt=, --prompt-column)"
        )
    return ProgramMapper.of_program(path, options)


class ProgramMapper:
    """A program on the columns of rows."""

    def __init__(self, program: Program, options: MapOptions, owner: Program | Embedder) -> None:
        self._program = program
        self._owner = owner
        self._options = options
        self._prepare: Any = None
        self._tokenizer: Tokenizer | None = None
        self._columns: Any = options.columns
        method = program.method(options.method)
        self.fields = [pa.field(info.name, column_type(info)) for info in method.outputs]
        self.reads = self._columns_read([info.name for info in method.inputs])
        self.digest = program.file.digest()

    @classmethod
    def of_program(cls, path: Path, options: MapOptions) -> ProgramMapper:
        program = load(path, device=_first_device(options), methods=[options.method])
        try:
            made = cls(program, options, program)
            if options.text is not None:
                made._read_texts(Companions(program, path), options)
            elif options.image is not None:
                info = program.method(options.method).inputs[0]
                made._prepare = partial(_image_of, options, info)
            return made
        except BaseException:
            program.close()
            raise

    @classmethod
    def of_embedder(cls, path: Path, options: MapOptions) -> ProgramMapper:
        embedder = load_embedder(path, tokenizer=options.tokenizer, device=_first_device(options))
        made = cls(embedder.program, options, embedder)
        made._prepare = partial(_embedder_tokens, embedder, options)
        made.fields = [made.fields[0].with_name("embedding")]
        return made

    def _read_texts(self, found: Companions, options: MapOptions) -> None:
        worker = prompt_worker()
        self._tokenizer = (
            Tokenizer.from_file(options.tokenizer, worker=worker)
            if options.tokenizer
            else found.tokenizer(worker)
        )
        shape = self._program.method(options.method).inputs[0].max_shape
        if len(shape) != 2:
            raise InputError(f"the first input should be tokens [batch, length], but it has shape {shape}")
        self._prepare = partial(_tokens_of, self._tokenizer, shape[1], options)

    def _columns_read(self, inputs: list[str]) -> list[str]:
        column = self._options.text or self._options.image
        if column is not None:
            return [column]
        columns = self._options.columns
        return inputs if columns is None else [columns[name] for name in inputs if name in columns]

    def map(self, rows: Iterator[Mapping[str, Any]]) -> Iterator[Any]:
        options = self._options
        results = self._program.map(
            rows,
            self._columns if self._prepare is None else None,
            method=options.method,
            devices=options.devices if len(options.devices) > 1 else None,
            mask=options.mask,
            batch=options.batch,
            prepare=self._prepare,
            on_error="return",
        )
        several = len(self.fields) > 1
        return (r if several or isinstance(r, RowError) else (r,) for r in results)

    def close(self) -> None:
        if self._tokenizer is not None:
            self._tokenizer.close()
        self._owner.close()


def _first_device(options: MapOptions) -> str | int | None:
    return options.devices[0] if options.devices else None


def _value(row: Mapping[str, Any], column: str) -> Any:
    if column not in row:
        raise InputError(f"there is no column {column!r}; the columns are {', '.join(row)}")
    return row[column]


def _text(row: Mapping[str, Any], column: str) -> str:
    text = _value(row, column)
    if not isinstance(text, str):
        raise InputError(f"column {column!r}: expected a text, {_instead(text)}")
    return text


def _instead(value: Any) -> str:
    return "but the value is missing" if value is None else f"got {value!s:.40} ({type(value).__name__})"


def _image_of(options: MapOptions, info: Any, row: Mapping[str, Any]) -> Any:
    return image_array(_value(row, options.image or ""), info, options.mean, options.std)


def _embedder_tokens(embedder: Embedder, options: MapOptions, row: Mapping[str, Any]) -> Any:
    (tokens,) = embedder.encode(_text(row, options.text or ""), truncate=options.truncate)
    return np.array(tokens, np.int64)


def _tokens_of(tokenizer: Tokenizer, most: int, options: MapOptions, row: Mapping[str, Any]) -> Any:
    tokens = tokenizer.encode(_text(row, options.text or ""))
    if len(tokens) > most and not options.truncate:
        raise InputError(
            f"the text has {len(tokens)} tokens, but the program takes {most}: cut it (truncate=True; "
            "pteron map --truncate)"
        )
    return np.array(tokens[:most], np.int64)


class PromptMapper:
    """A language model on prompts: lists of messages, or texts. A text is a message unless `raw`."""

    def __init__(self, path: Path, options: MapOptions) -> None:
        self._model: LanguageModel = load_language_model(
            path, tokenizer=options.tokenizer, device=_first_device(options)
        )
        self._options = options
        self.fields = [pa.field("answer", pa.string()), pa.field("finish_reason", pa.string())]
        self.reads = [options.prompt or ""]
        self.digest = self._model.identity

    def map(self, rows: Iterator[Mapping[str, Any]]) -> Iterator[Any]:
        number = 0
        while some := list(islice(rows, PROMPTS)):
            yield from self._answers(number, some)
            number += len(some)

    def _answers(self, first: int, rows: list[Mapping[str, Any]]) -> Iterator[Any]:
        """A result per row, as soon as it and those before it are there. Who fails does not stop others."""
        answers: dict[int, Answer] = {}
        results: dict[int, Any] = {}
        for number, row in enumerate(rows, first):
            try:
                answers[number] = self._model.answer(self._prompt(row), **self._options.generation)
            except PteronError as error:
                results[number] = _row_error(number, error)
        numbers = list(answers)
        pieces: dict[int, list[Piece]] = {number: [] for number in numbers}
        following = first
        for place, item in outcomes(self._model, list(answers.values())):
            number = numbers[place]
            if isinstance(item, Exception):
                results[number] = _row_error(number, item)
            else:
                pieces[number].append(item)
                if item.finish_reason:
                    whole = collect(pieces.pop(number))
                    results[number] = whole.text, whole.finish_reason
            while following in results:
                yield results[following]
                following += 1
        yield from (results[number] for number in range(following, first + len(rows)))

    def _prompt(self, row: Mapping[str, Any]) -> Any:
        column = self._options.prompt or ""
        prompt = _value(row, column)
        if isinstance(prompt, str):
            is_text = self._options.raw or self._model.chat_template is None
            return prompt if is_text else [{"role": "user", "content": prompt}]
        if isinstance(prompt, (list, np.ndarray)) and len(prompt) and isinstance(prompt[0], Mapping):
            return list(prompt)
        raise InputError(f"column {column!r}: expected a text or messages, {_instead(prompt)}")

    def close(self) -> None:
        self._model.close()


def _row_error(number: int, error: Exception) -> RowError:
    """The error of a row. A device that has failed is not the row's fault."""
    if isinstance(error, (DeviceError, OutOfMemory)) or not isinstance(error, PteronError):
        raise error
    return RowError(number, error)


def options_digest(options: MapOptions) -> str:
    """Changes when an option does that results depend on."""
    return hashlib.sha256(repr(replace(options, devices=(), batch=None)).encode()).hexdigest()
