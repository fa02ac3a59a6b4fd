"""Turn text into tokens, tokens into text, and a stream of tokens into a stream of text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from pteron._util.extras import needs
from pteron.errors import FormatError, InputError, PteronError
from pteron.llm.bounded import Bounds, Worker, WorkFailed

UNFINISHED = "\ufffd"  # decoders write this for bytes that are not a complete character
LONGEST_UNFINISHED = 3  # bytes: a four-byte character without its last byte
LONGEST_WINDOW, SHORT_WINDOW = 64, 16  # tokens; only a stream of invalid bytes makes a window this long


def prompt_worker(bounds: Bounds | None = None) -> Worker:
    """A process for the tokenizer and the chat template of one model."""
    return Worker(Path(__file__).with_name("prompt_process.py"), bounds)


class TooLong(InputError):
    """A text certainly has more tokens than allowed."""


class Tokenizer:
    """A tokenizer in the format of Hugging Face's `tokenizer.json`.

    Text is tokenized in a process with limits: a regular expression in the definition can run for ever, and
    the library holds Python's lock in this time. Tokens are decoded in this process, which is fast.
    """

    def __init__(self, definition: str, *, name: str = "the tokenizer", worker: Worker | None = None) -> None:
        with needs("llm", "to read a tokenizer"):
            import tokenizers
        self.name = name
        self.worker = worker or prompt_worker()
        try:
            facts = self.worker.prepare("tokenizer", blame=name, definition=definition)
        except WorkFailed as error:
            raise PteronError(f"{name} cannot be read: {error}") from None
        self.longest_token: int = facts["longest"]  # in characters
        # The process has read the definition within its limits, so it is safe to read it here.
        self._tokenizer: Any = tokenizers.Tokenizer.from_str(definition)

    @classmethod
    def from_file(cls, path: str | Path, **options: Any) -> Tokenizer:
        """From `tokenizer.json`, or a folder that contains it."""
        path = Path(path)
        file = path / "tokenizer.json" if path.is_dir() else path
        try:
            return cls(file.read_text(encoding="utf-8"), **{"name": f"the tokenizer {file}", **options})
        except OSError as error:
            raise InputError(f"tokenizer: cannot read {file}: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise FormatError(f"tokenizer: {file} is not UTF-8: {error}") from error

    @property
    def vocab_size(self) -> int:
        return int(self._tokenizer.get_vocab_size(with_added_tokens=True))

    def encode(
        self, text: str | Sequence[str], *, add_special_tokens: bool = True, most: int | None = None
    ) -> list[int]:
        """The tokens of a text, or of consecutive parts.

        most: raise TooLong, after little work, for a text that certainly has more tokens.
        """
        parts = [text] if isinstance(text, str) else list(text)
        try:
            tokens: list[int] | None = self.worker.call(
                "encode", blame=self.name, parts=parts, special=add_special_tokens, most=most
            )
        except WorkFailed as error:
            raise InputError(f"{self.name} does not take this text: {error}") from None
        if tokens is None:
            raise TooLong(f"the text has more than {most} tokens")
        return tokens

    @property
    def definition(self) -> str:
        """The tokenizer as JSON."""
        return str(self._tokenizer.to_str())

    def close(self) -> None:
        """End the process. It is started again when needed."""
        self.worker.close()

    def __reduce__(self) -> tuple[Any, ...]:
        """It pickles as its definition, and has a process of its own where it arrives."""
        return partial(Tokenizer, name=self.name), (self.definition,)

    @cached_property
    def added_tokens(self) -> dict[int, tuple[str, bool]]:
        """The texts of the tokens that are matched before a text is split, and whether they are special."""
        added = self._tokenizer.get_added_tokens_decoder().items()
        return {int(number): (str(token.content), bool(token.special)) for number, token in added}

    def decode(
        self, tokens: Iterable[int], *, skip_special_tokens: bool = True, shown: frozenset[int] = frozenset()
    ) -> str:
        """The text of tokens. `shown` are special tokens that are not skipped."""
        if shown and skip_special_tokens:
            added = self.added_tokens
            tokens = [t for t in tokens if t in shown or not (t in added and added[t][1])]
            skip_special_tokens = False
        return str(self._tokenizer.decode(list(tokens), skip_special_tokens=skip_special_tokens))

    def id_of(self, token: str) -> int | None:
        found = self._tokenizer.token_to_id(token)
        return None if found is None else int(found)

    def token_of(self, token_id: int) -> str | None:
        found = self._tokenizer.id_to_token(token_id)
        return None if found is None else str(found)


class Detokenizer:
    """Turns tokens into text as they arrive. Text is never taken back, and never ends inside a character.

    The text of a token may depend on its neighbours (bytes of one character, the space before a word). So a
    short window of tokens is decoded again with every token, and text that was already returned is cut off.
    """

    def __init__(self, tokenizer: Tokenizer, shown: frozenset[int] = frozenset()) -> None:
        """`shown` are the special tokens that are part of the text."""
        self._decode = partial(tokenizer.decode, shown=shown)
        self._window: list[int] = []
        self._given = 0  # characters of the window's text that were returned
        self._settled = 0  # tokens of the window whose whole text was returned

    def push(self, token: int) -> str:
        """The text that is complete now; often empty."""
        self._window.append(token)
        text = self._decode(self._window)
        piece = self._give(text, _certain(text))
        if _certain(text) == len(text) and piece:
            self._restart(self._settled)
            self._settled = len(self._window)
        elif len(self._window) > LONGEST_WINDOW:
            self._restart(-SHORT_WINDOW)
            self._settled = 0
        return piece

    def finish(self) -> str:
        """The text that was held back for tokens that did not come."""
        text = self._decode(self._window)
        return self._give(text, len(text))

    def _give(self, text: str, end: int) -> str:
        piece = text[self._given : end]
        self._given = max(self._given, end)
        return piece

    def _restart(self, first: int) -> None:
        """Continue with fewer tokens: the newest are enough context for the next ones."""
        self._window = self._window[first:]
        self._given = _certain(self._decode(self._window))


def _certain(text: str) -> int:
    """The number of characters that no later token can change."""
    unfinished = len(text) - len(text.rstrip(UNFINISHED))
    return len(text) - min(unfinished, LONGEST_UNFINISHED)


class StopStrings:
    """Ends a text before a stop string. A text that may be the beginning of one is held back."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = stops
        self._held = ""
        self.found = False

    def push(self, text: str) -> str:
        """The text that cannot be part of a stop string."""
        if not self._stops:
            return text
        held = self._held + text
        places = [place for stop in self._stops if (place := held.find(stop)) >= 0]
        if places:
            self.found, self._held = True, ""
            return held[: min(places)]
        keep = max(_overlap(held, stop) for stop in self._stops)
        self._held = held[len(held) - keep :]
        return held[: len(held) - keep]

    def finish(self) -> str:
        held, self._held = self._held, ""
        return held


class TextStream:
    """The text of tokens, up to a stop string."""

    def __init__(
        self, tokenizer: Tokenizer, stops: Sequence[str] = (), shown: frozenset[int] = frozenset()
    ) -> None:
        self._detokenizer = Detokenizer(tokenizer, shown)
        self._stops = StopStrings(stops)

    @property
    def stopped(self) -> bool:
        return self._stops.found

    def push(self, token: int) -> str:
        return self._stops.push(self._detokenizer.push(token))

    def finish(self) -> str:
        """The text that was held back. It may still complete a stop string."""
        text = self._stops.push(self._detokenizer.finish())
        return text if self.stopped else text + self._stops.finish()


def _overlap(text: str, stop: str) -> int:
    """The length of the longest suffix of `text` that is a prefix of `stop`."""
    longest = min(len(text), len(stop) - 1)
    return next((n for n in range(longest, 0, -1) if text.endswith(stop[:n])), 0)


def special_tokens(config: Mapping[str, Any]) -> dict[str, str]:
    """The named special tokens (`bos_token`, `eos_token`, ...) of a `tokenizer_config.json`."""
    named = {}
    for name, value in config.items():
        text = value.get("content") if isinstance(value, dict) else value
        if name.endswith("_token") and isinstance(text, str):
            named[name] = text
    return named
