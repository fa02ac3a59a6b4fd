"""Text to tokens, tokens to text, and text that arrives token by token."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from pteron.errors import FormatError, InputError, PteronError
from pteron.extras import needs
from pteron.llm.bounded import Bounds, Worker, WorkFailed

UNFINISHED = "\ufffd"  # what decoders write for bytes that are not, or not yet, a character
LONGEST_UNFINISHED = 3  # bytes of a four-byte character whose last one is missing
LONGEST_WINDOW, SHORT_WINDOW = 64, 16  # tokens; only a stream of broken bytes ever makes a window long


def prompt_worker(bounds: Bounds | None = None) -> Worker:
    """A process for the tokenizer and the chat template of one model."""
    return Worker(Path(__file__).with_name("prompt_process.py"), bounds)


class TooLong(InputError):
    """A text certainly has more tokens than were allowed."""


class Tokenizer:
    """A tokenizer in Hugging Face's `tokenizer.json` form.

    Text is tokenized in a process with limits: the regular expressions of a definition can be endless work,
    and the library holds Python's lock all the while. Tokens are decoded here, which is short work.
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
        # The process has read it within its limits, so it can be read here.
        self._tokenizer: Any = tokenizers.Tokenizer.from_str(definition)

    @classmethod
    def from_file(cls, path: str | Path, **options: Any) -> Tokenizer:
        """From `tokenizer.json`, or a folder that holds it."""
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
        """The tokens of a text, or of parts that follow each other.

        most: raise TooLong for a text that certainly has more tokens, and do little work for it.
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

    def close(self) -> None:
        """End the process. It is started again if it is needed."""
        self.worker.close()

    def __reduce__(self) -> tuple[Any, ...]:
        """It pickles as its definition, and has a process of its own where it arrives."""
        return partial(Tokenizer, name=self.name), (self._tokenizer.to_str(),)

    def decode(self, tokens: Iterable[int], *, skip_special_tokens: bool = True) -> str:
        return str(self._tokenizer.decode(list(tokens), skip_special_tokens=skip_special_tokens))

    def id_of(self, token: str) -> int | None:
        found = self._tokenizer.token_to_id(token)
        return None if found is None else int(found)

    def token_of(self, token_id: int) -> str | None:
        found = self._tokenizer.id_to_token(token_id)
        return None if found is None else str(found)


class Detokenizer:
    """Text as tokens arrive. What it gives is never taken back, and never ends inside a character.

    A token's text may depend on its neighbours (bytes of one character, the space before a word), so a short
    window is decoded again with every token, and what has been given is left out.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._window: list[int] = []
        self._given = 0  # characters of the window's text
        self._settled = 0  # tokens of the window whose text has all been given

    def push(self, token: int) -> str:
        """The text that is certain now; often none."""
        self._window.append(token)
        text = self._tokenizer.decode(self._window)
        piece = self._give(text, _certain(text))
        if _certain(text) == len(text) and piece:
            self._restart(self._settled)
            self._settled = len(self._window)
        elif len(self._window) > LONGEST_WINDOW:
            self._restart(-SHORT_WINDOW)
            self._settled = 0
        return piece

    def finish(self) -> str:
        """What was held back: no more tokens will complete it."""
        text = self._tokenizer.decode(self._window)
        return self._give(text, len(text))

    def _give(self, text: str, end: int) -> str:
        piece = text[self._given : end]
        self._given = max(self._given, end)
        return piece

    def _restart(self, first: int) -> None:
        """Go on with fewer tokens: the newest are context enough for those to come."""
        self._window = self._window[first:]
        self._given = _certain(self._tokenizer.decode(self._window))


def _certain(text: str) -> int:
    """How many characters of a text no later token can change."""
    unfinished = len(text) - len(text.rstrip(UNFINISHED))
    return len(text) - min(unfinished, LONGEST_UNFINISHED)


class StopStrings:
    """Watches text for strings that end it. They, and what begins like one, are never let through."""

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

    def __init__(self, tokenizer: Tokenizer, stops: Sequence[str] = ()) -> None:
        self._detokenizer = Detokenizer(tokenizer)
        self._stops = StopStrings(stops)

    @property
    def stopped(self) -> bool:
        return self._stops.found

    def push(self, token: int) -> str:
        return self._stops.push(self._detokenizer.push(token))

    def finish(self) -> str:
        """What was held back. It may still complete a stop string."""
        text = self._stops.push(self._detokenizer.finish())
        return text if self.stopped else text + self._stops.finish()


def _overlap(text: str, stop: str) -> int:
    """The length of the longest end of `text` that `stop` begins with."""
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
