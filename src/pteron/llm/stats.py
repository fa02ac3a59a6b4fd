"""The cost of a generation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

FinishReason: TypeAlias = Literal["stop", "length", "tool_calls", "cancelled"]


@dataclass(frozen=True, slots=True)
class Stats:
    """Counts and wall-clock seconds of one generation, including sampling, without tokenization.

    Attributes:
        prompt_tokens: The tokens of the prompt.
        cached_tokens: The tokens of the prompt that were already in the session.
        generated_tokens: The tokens of the answer.
        time_to_first_token: Seconds until the first token.
        generation_seconds: Seconds after the first token.
        gpu_nbytes: Bytes on the device, of all programs and sessions.
        shifts: How often the oldest part of the conversation was dropped because the context was full.
    """

    prompt_tokens: int
    cached_tokens: int
    generated_tokens: int
    time_to_first_token: float
    generation_seconds: float
    gpu_nbytes: int
    shifts: int = 0

    @property
    def prompt_tokens_per_second(self) -> float:
        """The speed of reading the prompt, without cached tokens. 0 if it was not read completely."""
        return (
            _rate(self.prompt_tokens - self.cached_tokens, self.time_to_first_token)
            if self.generated_tokens
            else 0
        )

    @property
    def generation_tokens_per_second(self) -> float:
        """The speed of generation, without the first token, which reading the prompt has computed."""
        return _rate(self.generated_tokens - 1, self.generation_seconds)

    def __str__(self) -> str:
        times = "once" if self.shifts == 1 else f"{self.shifts} times"
        dropped = f"; the context was full, the oldest part was dropped {times}" if self.shifts else ""
        cached = f", {self.cached_tokens} of them cached" if self.cached_tokens else ""
        return (
            f"prompt {self.prompt_tokens} tokens{cached}, {self.prompt_tokens_per_second:.1f} tokens/s; "
            f"generated {self.generated_tokens} tokens, {self.generation_tokens_per_second:.1f} tokens/s; "
            f"first token after {self.time_to_first_token:.2f} s; "
            f"{self.gpu_nbytes / 2**20:,.0f} MiB on the GPU{dropped}"
        )


def _rate(count: int, seconds: float) -> float:
    return count / seconds if count > 0 and seconds > 0 else 0.0
