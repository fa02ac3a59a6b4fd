"""Constrained decoding: the answer is always a text of a grammar.

A grammar is a JSON schema, a regular expression, or a grammar in the Lark format of llguidance. At each step
llguidance says which tokens may come next, and the sampler chooses among them.

Grammars come from clients. To compile one may take very long, or end the process. So a child process with
limits tries each new grammar first. Only a grammar that passes is compiled here.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from pteron._util.extras import needs
from pteron.errors import InputError, UnsupportedError
from pteron.llm.bounded import Bounds, OutOfBounds, WorkFailed
from pteron.llm.candidates import Candidates
from pteron.llm.prompt_process import Refused, error_of, matcher, vocabulary
from pteron.llm.tokenizer import Tokenizer, prompt_worker

if TYPE_CHECKING:
    import llguidance

    from pteron.llm.options import AnswerOptions

Kind: TypeAlias = Literal["schema", "regex", "grammar", "tools"]

MOST_CHARACTERS = 1 << 17
REMEMBERED = 16  # compiled grammars: applications send the same schema with every request


class TooComplex(InputError):
    """To find the tokens that a grammar allows next takes more work than is allowed."""


@dataclass(frozen=True, slots=True)
class Source:
    """A grammar as text. The text of a schema is JSON, that of tools is Lark."""

    kind: Kind
    text: str
    explain: Callable[[str], str] | None = field(default=None, compare=False)  # an error, in plain words

    def __post_init__(self) -> None:
        if len(self.text) > MOST_CHARACTERS:
            raise InputError(
                f"{self.kind} has {len(self.text)} characters: expected at most {MOST_CHARACTERS}"
            )

    def refusal(self, error: Exception) -> str:
        return self.explain(str(error)) if self.explain else f"{self.kind} cannot be used: {error}"

    @classmethod
    def of(cls, options: AnswerOptions) -> Source | None:
        """The one that is given. None if there is none."""
        kinds: tuple[Kind, ...] = ("schema", "regex", "grammar")
        given = {kind: value for kind in kinds if (value := getattr(options, kind)) is not None}
        if len(given) > 1:
            raise InputError(f"{' and '.join(given)} cannot be used together: give one of them")
        for kind, value in given.items():
            if kind == "schema":
                return cls(kind, _as_json(value))
            if not isinstance(value, str):
                raise InputError(f"{kind} is {type(value).__name__}: expected a string")
            return cls(kind, value)
        return None


def _as_json(schema: Any) -> str:
    if not isinstance(schema, Mapping):
        raise InputError(f"schema is {type(schema).__name__}: expected a dictionary with a JSON schema")
    try:
        return json.dumps(schema)
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(f"schema is not JSON: {error}") from error


class Grammars:
    """Compiles grammars for the tokens of one model. Threads may share it."""

    def __init__(self, tokenizer: Tokenizer, ends: Collection[int], bounds: Bounds | None = None) -> None:
        self.tokenizer = tokenizer
        self._ends = frozenset(ends)
        self._worker = prompt_worker(bounds)
        self._vocabulary: llguidance.LLTokenizer | None = None
        self._reading = threading.Lock()
        self._compiled: dict[Source, llguidance.LLMatcher] = {}  # the newest last
        self._remembering = threading.Lock()

    def constraint(self, source: Source, ends: frozenset[int]) -> Constraint:
        """A grammar at the start of a text. `ends` are the tokens that end the text."""
        return Constraint(source.kind, self.compiled(source).deep_copy(), self._ends, ends)

    def compiled(self, source: Source) -> llguidance.LLMatcher:
        """InputError if the grammar is wrong, or needs too much time or memory."""
        with self._remembering:
            known = self._compiled.pop(source, None)
        made = known or self._compile(source)
        with self._remembering:
            self._compiled[source] = made
            if len(self._compiled) > REMEMBERED:
                del self._compiled[next(iter(self._compiled))]
        return made

    def _compile(self, source: Source) -> llguidance.LLMatcher:
        with needs("llm", "to constrain an answer by a grammar"):
            import llguidance  # noqa: F401
        tokens = self._tokens()
        try:
            self._worker.call("try_grammar", blame=source.kind, kind=source.kind, text=source.text)
            return matcher(tokens, source.kind, source.text)
        except (WorkFailed, Refused) as error:
            raise InputError(source.refusal(error)) from None
        except OutOfBounds as error:
            raise InputError(f"{error}: use a simpler {source.kind}") from None

    def _tokens(self) -> llguidance.LLTokenizer:
        """Read at first use: most models never need it."""
        with self._reading:
            if self._vocabulary is None:
                name, definition, ends = self.tokenizer.name, self.tokenizer.definition, sorted(self._ends)
                try:
                    self._worker.prepare("vocabulary", blame=name, definition=definition, ends=ends)
                except WorkFailed as error:
                    raise UnsupportedError(f"{name} cannot be used with a grammar: {error}") from None
                self._vocabulary = vocabulary(definition, ends)
            return self._vocabulary

    def close(self) -> None:
        self._worker.close()


class Constraint:
    """The place of one answer in its grammar."""

    def __init__(
        self, kind: Kind, state: llguidance.LLMatcher, known_ends: frozenset[int], ends: frozenset[int]
    ) -> None:
        """`known_ends` are the end tokens of the grammar's vocabulary, `ends` those of this answer."""
        self._kind = kind
        self._state = state
        self._ends = ends
        self._unwanted = sorted(known_ends - ends)
        self._added = sorted(ends - known_ends)

    def allow(self, candidates: Candidates) -> Candidates:
        """Keep the tokens that the grammar allows next. The end is allowed where the text may end."""
        mask = np.frombuffer(self._state.compute_bitmask(), np.uint8)
        if self._state.is_error():
            raise TooComplex(f"{self._kind} is too complex for this text: {error_of(self._state)}")
        bits = np.unpackbits(mask, bitorder="little").astype(bool)
        tokens = candidates.tokens
        inside = tokens < len(bits)  # the logits may have more columns than there are tokens
        allowed = inside & bits[np.where(inside, tokens, 0)]
        if self._unwanted:
            allowed &= ~np.isin(tokens, self._unwanted)
        if self._added and self._state.is_accepting():
            allowed |= np.isin(tokens, self._added)
        if not allowed.any():
            raise InputError(f"{self._kind} allows none of the model's tokens here")
        return candidates.keep(allowed)

    def consume(self, token: int) -> None:
        """A token was chosen."""
        if token not in self._ends:
            self._state.consume_token(token)

    @property
    def is_complete(self) -> bool:
        """Whether the text is complete, and nothing may follow."""
        return self._state.is_stopped() and not self._state.is_error()
