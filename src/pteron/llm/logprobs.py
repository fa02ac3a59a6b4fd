"""How probable the model finds a token: the natural logarithm, before penalties and filters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from pteron.llm.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """The natural logarithm of a token's probability, before penalties and filters.

    Attributes:
        token: The token.
        text: Its text.
        logprob: Its log probability.
        top: The most probable tokens in its place.
    """

    token: int
    text: str
    logprob: float
    top: tuple[TokenLogprob, ...] = ()


def token_logprob(
    logits: np.ndarray[Any, Any], token: int, tokenizer: Tokenizer, top: int = 0
) -> TokenLogprob:
    wide = logits.astype(np.float64).reshape(-1)
    wide -= wide.max()
    wide -= np.log(np.exp(wide).sum())
    best = np.argsort(-wide, kind="stable")[:top] if top else ()
    alternatives = tuple(TokenLogprob(int(t), token_text(tokenizer, int(t)), float(wide[t])) for t in best)
    return TokenLogprob(token, token_text(tokenizer, token), float(wide[token]), alternatives)


def token_text(tokenizer: Tokenizer, token: int) -> str:
    """The text of a token inside a text. Some decoders drop a space at the start of a text."""
    once, twice = (tokenizer.decode([token] * count, skip_special_tokens=False) for count in (1, 2))
    return twice[len(once) :]
