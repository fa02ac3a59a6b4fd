"""A model that says what it is told to: for text that no random model would write."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from pteron.engine.staging import Pending
from pteron.llm import LanguageModel, Tokenizer
from pteron.llm.decoder import Segment
from tests.llm.tiny_llama import tokenizer_json


class Script:
    """Stands where a decoder does. After the prompt come the script's tokens, then the end token."""

    def __init__(self, tokens: Sequence[int], prompt_length: int, end: int, vocab_size: int) -> None:
        self.program = SimpleNamespace(device=SimpleNamespace(allocated_nbytes=0))
        self.method = SimpleNamespace(owns=lambda state: True)
        self.script = [*tokens, end]
        self.prompt_length = prompt_length
        self.vocab_size = vocab_size
        self.bos_id = None
        self.eos_ids = frozenset([end])
        self.context_length = 10_000
        self.max_length = 64
        self.parallel = 1
        self.slots = None
        self.free_states = None
        self.kv_nbytes = 0

    def new_state(self) -> Any:
        return SimpleNamespace(close=lambda: None)

    def row(self, place: int) -> Any:
        """The logits of the next token, at a place of the script."""
        row = np.zeros(self.vocab_size)
        row[self.script[place]] = 1
        return row

    def start(self, segment: Segment[Any]) -> Pending[Any]:
        row = self.row(segment.position + len(segment.tokens) - self.prompt_length)
        return Pending.ready(segment.look(row))

    def logits_many(self, segments: Sequence[Segment[Any]]) -> list[Any]:
        return [self.start(segment).result() for segment in segments]


def reciter(text: str | Sequence[int]) -> LanguageModel:
    """A model that answers the prompt "a" with a text, or with tokens."""
    tokenizer = Tokenizer(tokenizer_json())
    tokens = tokenizer.encode(text) if isinstance(text, str) else text
    end = tokenizer.id_of("<|end|>")
    script: Any = Script(tokens, len(tokenizer.encode("a")), end, tokenizer.vocab_size)  # type: ignore[arg-type]
    return LanguageModel(script, tokenizer)
