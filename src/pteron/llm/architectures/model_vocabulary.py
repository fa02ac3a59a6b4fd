"""A model's vocabulary, and the tokens that have a meaning of their own."""

from __future__ import annotations

from dataclasses import dataclass

from tokenizers import Tokenizer

# Tokens by which models end a turn. Many files name only one of those that their model really uses.
ENDINGS = (
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end|>",
    "<|end_of_text|>",
    "<|endoftext|>",
    "<end_of_turn>",
    "</s>",
)


@dataclass(frozen=True, slots=True)
class Vocabulary:
    bos: int | None
    eos: tuple[int, ...]  # the file's own first
    padding: int | None
    add_bos: bool
    chat_template: str | None
    tokenizer: Tokenizer
    tool_template: str | None = None  # a chat template for conversations with tools, if it is another one

    def text(self, token: int | None) -> str | None:
        return None if token is None else self.tokenizer.id_to_token(token)
