"""The options of an answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypedDict

from pteron.errors import InputError
from pteron.llm.context import POLICIES, ContextPolicy
from pteron.llm.grammar import Source
from pteron.llm.sampling import Sampling
from pteron.llm.tools.definitions import ToolError, ToolSelection


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

    max_new_tokens: int | None = None
    stop: str | Sequence[str] = ()
    eos_token_id: int | Sequence[int] | None = None
    schema: Mapping[str, Any] | None = None
    regex: str | None = None
    grammar: str | None = None
    tools: Sequence[Mapping[str, Any]] = ()
    tool_choice: str | Mapping[str, Any] = "auto"
    parallel_tool_calls: bool = True
    context_policy: ContextPolicy = "stop"
    logprobs: bool = False
    top_logprobs: int = 0
    prefill_chunk: int | None = None
    on_prefill: Callable[[int, int], None] | None = None

    def __post_init__(self) -> None:
        for name in ("max_new_tokens", "prefill_chunk"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InputError(f"{name} is {value}: expected 1 or more, or None")
        if "" in self.stops:
            raise InputError("stop has an empty string, which every text contains")
        if self.context_policy not in POLICIES:
            raise InputError(f"context_policy is {self.context_policy!r}: expected {' or '.join(POLICIES)}")
        if self.top_logprobs < 0:
            raise InputError(f"top_logprobs is {self.top_logprobs}: expected 0 or more")

    @property
    def stops(self) -> tuple[str, ...]:
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)

    @property
    def selected_tools(self) -> ToolSelection | None:
        """The tools that the answer may call. None if it may call none."""
        selection = ToolSelection.read(self.tools, self.tool_choice, self.parallel_tool_calls)
        if selection and (self.regex is not None or self.grammar is not None):
            raise ToolError("tools cannot be used together with regex or grammar: give one of them")
        return selection

    @property
    def source(self) -> Source | None:
        """The grammar of the answer, if it calls no tools."""
        return Source.of(self.schema, self.regex, self.grammar)

    def ends(self, models_own: frozenset[int]) -> frozenset[int]:
        """The tokens that end the text."""
        if self.eos_token_id is None:
            return models_own
        return frozenset([self.eos_token_id] if isinstance(self.eos_token_id, int) else self.eos_token_id)


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
