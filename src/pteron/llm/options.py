"""What a caller may ask of a generation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypedDict

from pteron.errors import InputError
from pteron.llm.sampling import Sampling


class Options(TypedDict, total=False):
    """What `stream` and `generate` take besides the prompt. `Sampling` and `Limits` explain them."""

    temperature: float
    top_k: int
    top_p: float
    min_p: float
    repetition_penalty: float
    seed: int | None
    max_new_tokens: int | None
    stop: str | Sequence[str]
    eos_token_id: int | Sequence[int] | None
    prefill_chunk: int | None
    on_prefill: Callable[[int, int], None] | None


@dataclass(frozen=True, slots=True)
class Limits:
    """When a generation ends, and how its prompt is read.

    max_new_tokens: None goes on until the model ends, or its context does.
    stop: the text ends before the first of these strings.
    eos_token_id: the tokens that end the text, instead of the model's own; an empty list is none at all.
    prefill_chunk: how many tokens of the prompt are run at once; the most the program takes when left out.
    on_prefill: called with the number of tokens done and to do, after each chunk of the prompt.
    """

    max_new_tokens: int | None = None
    stop: str | Sequence[str] = ()
    eos_token_id: int | Sequence[int] | None = None
    prefill_chunk: int | None = None
    on_prefill: Callable[[int, int], None] | None = None

    def __post_init__(self) -> None:
        for name in ("max_new_tokens", "prefill_chunk"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InputError(f"{name} is {value}: expected 1 or more, or None")
        if "" in self.stops:
            raise InputError("stop holds an empty string, which every text contains")

    @property
    def stops(self) -> tuple[str, ...]:
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)

    def ends(self, models_own: frozenset[int]) -> frozenset[int]:
        """The tokens that end the text."""
        if self.eos_token_id is None:
            return models_own
        return frozenset([self.eos_token_id] if isinstance(self.eos_token_id, int) else self.eos_token_id)


def split(options: Mapping[str, Any]) -> tuple[Sampling, Limits]:
    """Options by what they are for. TypeError names those that do not exist."""
    sampling, limits = ({f.name for f in fields(kind)} for kind in (Sampling, Limits))
    unknown = options.keys() - sampling - limits
    if unknown:
        known = ", ".join(sorted(sampling | limits))
        raise TypeError(f"unknown option {', '.join(sorted(unknown))}; there are: {known}")
    return (
        Sampling(**{name: value for name, value in options.items() if name in sampling}),
        Limits(**{name: value for name, value in options.items() if name in limits}),
    )
