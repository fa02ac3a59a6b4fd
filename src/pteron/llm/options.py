"""The options of an answer: one table for Python, the command line, the server and docs/generation.md.

The fields of `Sampling` and `AnswerOptions` are its rows, and their docstrings the texts of `--help` and of
the page. This module imports little, because every command reads it.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, NamedTuple, TypeAlias, TypedDict, get_args

from pteron.errors import InputError

ContextPolicy: TypeAlias = Literal["stop", "shift"]


class Check(NamedTuple):
    """Which values an option may have, besides None."""

    expected: str
    holds: Callable[[Any], bool]


AT_LEAST_0 = Check("0 or more", lambda value: value >= 0)
AT_LEAST_1 = Check("1 or more", lambda value: value >= 1)
ABOVE_0 = Check("above 0", lambda value: value > 0)
SHARE = Check("above 0 and at most 1", lambda value: 0 < value <= 1)
FRACTION = Check("between 0 and 1", lambda value: 0 <= value <= 1)
COUNT_OR_ALL = Check("-1 or more", lambda value: value >= -1)
FINITE = Check("a finite number", math.isfinite)
BIASES = Check("finite numbers by token", lambda biases: all(map(math.isfinite, biases.values())))
TEXTS = Check("no empty string, which every text contains", lambda given: "" not in texts(given))
POLICY = Check("stop or shift", lambda value: value in get_args(ContextPolicy))


@dataclass(frozen=True, slots=True)
class Option:
    """A row of the table.

    Attributes:
        default: In Python.
        check: The values that it may have, besides None.
        flags: The names on the command line.
        typed: The default on the command line.
        names: The names in requests.
        sent: The default of the server.
        name: The name in Python.
        text: What it means.
    """

    default: Any
    check: Check | None
    flags: tuple[str, ...]
    typed: Any
    names: tuple[str, ...]
    sent: Any
    name: str = ""
    text: str = ""

    @property
    def kind(self) -> type:
        """float, int, tuple or dict."""
        return int if self.default is None else type(self.default)


def option(
    default: Any,
    check: Check | None = None,
    flags: str = "",
    names: str = "",
    *,
    typed: Any = ...,
    sent: Any = ...,
) -> Any:
    """A field with a row. By default, requests have the name in Python, and all defaults are equal."""
    typed, sent = (default if other is ... else other for other in (typed, sent))
    row = Option(default, check, tuple(flags.split()), typed, tuple(names.split()), sent)
    given: Any = {"default_factory": dict} if default == {} else {"default": default}
    return field(**given, metadata={"option": row})


def check_options(options: Any) -> None:
    """Refuse a value that an option may not have."""
    for f in fields(options):
        value, check = getattr(options, f.name), f.metadata["option"].check if f.metadata else None
        if value is not None and check and not check.holds(value):
            raise InputError(f"{f.name} is {value!r}: expected {check.expected}")


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the next token is chosen. The default is greedy.

    Attributes:
        temperature: Divide the logits by this; 0: always take the most probable token.
        top_k: Keep the k most probable tokens; 0: all.
        top_p: Keep the most probable tokens until their probabilities add up to p; 1: all.
        min_p: Keep the tokens whose probability is at least this fraction of the highest one; 0: all.
        typical_p: Keep the tokens whose surprise is nearest to the expected one, with this total; 1: all.
        xtc_probability: How often XTC removes the tokens above its threshold, but the least probable of them;
            0: never.
        xtc_threshold: XTC removes tokens above this probability.
        repetition_penalty: Above 1, tokens that are already in the text become less probable; 1: off.
        presence_penalty: Subtract this from the logits of tokens that are in the text.
        frequency_penalty: Subtract this from the logit of a token for each time that it is in the text.
        penalty_last_n: The number of last tokens that these three penalties look at; -1: all, 0: none.
        dry_multiplier: Above 0, DRY penalizes a token that continues a repetition of n tokens, by
            multiplier * base ** (n - allowed length).
        dry_base: How fast the penalty of DRY grows with the length of a repetition.
        dry_allowed_length: DRY allows shorter repetitions.
        dry_last_n: The number of last tokens in which DRY looks for repetitions; -1: all.
        dry_breakers: A repetition does not extend over tokens that contain one of these texts.
        logit_bias: Numbers to add to the logits of some tokens.
        seed: The same seed gives the same text. None: a new seed each time.
    """

    temperature: float = option(0.0, AT_LEAST_0, "--temp --temperature", typed=0.8, sent=1.0)
    top_k: int = option(0, AT_LEAST_0, "--top-k", typed=40)
    top_p: float = option(1.0, SHARE, "--top-p", typed=0.95)
    min_p: float = option(0.0, FRACTION, "--min-p", typed=0.05)
    typical_p: float = option(1.0, SHARE, "--typical")
    xtc_probability: float = option(0.0, FRACTION, "--xtc-probability")
    xtc_threshold: float = option(0.1, FRACTION, "--xtc-threshold")
    repetition_penalty: float = option(1.0, ABOVE_0, "--repeat-penalty", "repeat_penalty repetition_penalty")
    presence_penalty: float = option(0.0, FINITE, "--presence-penalty")
    frequency_penalty: float = option(0.0, FINITE, "--frequency-penalty")
    penalty_last_n: int = option(64, COUNT_OR_ALL, "--repeat-last-n", "repeat_last_n")
    dry_multiplier: float = option(0.0, AT_LEAST_0, "--dry-multiplier")
    dry_base: float = option(1.75, AT_LEAST_1, "--dry-base")
    dry_allowed_length: int = option(2, AT_LEAST_1, "--dry-allowed-length")
    dry_last_n: int = option(-1, COUNT_OR_ALL, "--dry-penalty-last-n", "dry_penalty_last_n")
    dry_breakers: tuple[str, ...] = ("\n", ":", '"', "*")
    logit_bias: Mapping[int, float] = option({}, BIASES, "-l --logit-bias")
    seed: int | None = option(None, AT_LEAST_0, "-s --seed")

    def __post_init__(self) -> None:
        check_options(self)

    @property
    def penalizes(self) -> bool:
        """Whether the tokens of the text are penalized."""
        neutral = self.repetition_penalty == 1 and self.presence_penalty == self.frequency_penalty == 0
        return not neutral and self.penalty_last_n != 0

    @property
    def changes_logits(self) -> bool:
        """Whether any token may become more or less probable than others before the filters."""
        return bool(self.logit_bias) or self.penalizes or self.dry_multiplier > 0


@dataclass(frozen=True, slots=True)
class AnswerOptions:
    """Options of an answer, besides those of `Sampling`.

    Attributes:
        max_new_tokens: The largest number of tokens in the answer. None: until the model ends its answer, or
            the context is full.
        stop: The text ends before the first of these strings.
        eos_token_id: Tokens that end the text, instead of the model's own. An empty list: none.
        schema: The answer is JSON that satisfies this JSON schema.
        regex: The answer matches this regular expression, from its first character to its last.
        grammar: The answer is a text of this grammar, in the Lark format of llguidance.
        tools: Functions that the model may call, in OpenAI's format. The prompt must be messages.
        tool_choice: `"auto"`: the model decides. `"required"`: the answer is a call. `"none"`: no call.
            `{"type": "function", "function": {"name": ...}}`: the answer is a call of this function.
        parallel_tool_calls: The answer may have several calls, if the model's format allows it.
        context_policy: What to do when the context is full. `"stop"`: the answer ends; a prompt that is too
            long is refused. `"shift"`: the oldest turns are dropped (the system prompt stays), and the rest
            is read again. If the prompt is a text, its older half is dropped.
        logprobs: Whether each piece has the log probability of its token.
        top_logprobs: The number of most probable tokens to report in each place.
        prefill_chunk: Tokens of the prompt per run. Default: as many as the program accepts.
        on_prefill: A function that is called after each chunk of the prompt, with the number of tokens done
            and the total.
    """

    max_new_tokens: int | None = option(None, AT_LEAST_1, "-n --predict --n-predict", "max_tokens")
    stop: str | Sequence[str] = option((), TEXTS, "-r --reverse-prompt")
    eos_token_id: int | Sequence[int] | None = None
    schema: Mapping[str, Any] | None = None
    regex: str | None = None
    grammar: str | None = None
    tools: Sequence[Mapping[str, Any]] = ()
    tool_choice: str | Mapping[str, Any] = "auto"
    parallel_tool_calls: bool = True
    context_policy: ContextPolicy = option("stop", POLICY)  # noqa: RUF009
    logprobs: bool = False
    top_logprobs: int = option(0, AT_LEAST_0)
    prefill_chunk: int | None = option(None, AT_LEAST_1)
    on_prefill: Callable[[int, int], None] | None = None

    def __post_init__(self) -> None:
        check_options(self)

    @property
    def stops(self) -> tuple[str, ...]:
        return texts(self.stop)

    def ends(self, models_own: frozenset[int]) -> frozenset[int]:
        """The tokens that end the text."""
        if self.eos_token_id is None:
            return models_own
        return frozenset([self.eos_token_id] if isinstance(self.eos_token_id, int) else self.eos_token_id)


class Options(TypedDict, total=False):
    """The options of `stream` and `generate`. `Sampling` and `AnswerOptions` explain them."""

    temperature: float
    top_k: int
    top_p: float
    min_p: float
    typical_p: float
    xtc_probability: float
    xtc_threshold: float
    repetition_penalty: float
    presence_penalty: float
    frequency_penalty: float
    penalty_last_n: int
    dry_multiplier: float
    dry_base: float
    dry_allowed_length: int
    dry_last_n: int
    dry_breakers: tuple[str, ...]
    logit_bias: Mapping[int, float]
    seed: int | None
    max_new_tokens: int | None
    stop: str | Sequence[str]
    eos_token_id: int | Sequence[int] | None
    schema: Mapping[str, Any] | None
    regex: str | None
    grammar: str | None
    tools: Sequence[Mapping[str, Any]]
    tool_choice: str | Mapping[str, Any]
    parallel_tool_calls: bool
    context_policy: ContextPolicy
    logprobs: bool
    top_logprobs: int
    prefill_chunk: int | None
    on_prefill: Callable[[int, int], None] | None


def split(options: Mapping[str, Any]) -> tuple[Sampling, AnswerOptions]:
    """Divide options by what they are about. A TypeError names unknown options."""
    sampling, answer = ({f.name for f in fields(kind)} for kind in (Sampling, AnswerOptions))
    unknown = options.keys() - sampling - answer
    if unknown:
        known = ", ".join(sorted(sampling | answer))
        raise TypeError(f"unknown option {', '.join(sorted(unknown))}; the options are: {known}")
    return (
        Sampling(**{name: value for name, value in options.items() if name in sampling}),
        AnswerOptions(**{name: value for name, value in options.items() if name in answer}),
    )


def texts(given: str | Sequence[str]) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)


def _rows() -> Iterator[Option]:
    """The options of both classes that have flags, with the texts of the docstrings."""
    for kind in (AnswerOptions, Sampling):
        explained = dict(
            re.findall(r"^    (\w+): (.*(?:\n        .*)*)", inspect.cleandoc(kind.__doc__ or ""), re.M)
        )
        for f in fields(kind):
            row = f.metadata.get("option")
            if row and row.flags:
                text = " ".join(explained.get(f.name, "").split())
                yield replace(row, name=f.name, names=row.names or (f.name,), text=text)


TABLE = {row.name: row for row in _rows()}
