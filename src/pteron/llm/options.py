"""The options of a generation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypedDict

from pteron.errors import InputError
from pteron.llm.sampling import Sampling


class Options(TypedDict, total=False):
    """The options of `stream` and `generate`. `Sampling` and `GenerationLimits` explain them."""

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
class GenerationLimits:
    """When a generation ends, and how its prompt is read.

    max_new_tokens: None: until the model ends its answer, or the context is full.
    stop: the text ends before the first of these strings.
    eos_token_id: tokens that end the text, instead of the model's own. An empty list: none.
    prefill_chunk: tokens of the prompt per run. Default: as many as the program accepts.
    on_prefill: called after each chunk of the prompt, with the number of tokens done and the total.
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
            raise InputError("stop has an empty string, which every text contains")

    @property
    def stops(self) -> tuple[str, ...]:
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)

    def ends(self, models_own: frozenset[int]) -> frozenset[int]:
        """The tokens that end the text."""
        if self.eos_token_id is None:
            return models_own
        return frozenset([self.eos_token_id] if isinstance(self.eos_token_id, int) else self.eos_token_id)


def split(options: Mapping[str, Any]) -> tuple[Sampling, GenerationLimits]:
    """Divide options into sampling and limits. A TypeError names unknown options."""
    sampling, limits = ({f.name for f in fields(kind)} for kind in (Sampling, GenerationLimits))
    unknown = options.keys() - sampling - limits
    if unknown:
        known = ", ".join(sorted(sampling | limits))
        raise TypeError(f"unknown option {', '.join(sorted(unknown))}; the options are: {known}")
    return (
        Sampling(**{name: value for name, value in options.items() if name in sampling}),
        GenerationLimits(**{name: value for name, value in options.items() if name in limits}),
    )
