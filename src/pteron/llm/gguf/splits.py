"""How byte-level vocabularies split a text into pieces, within which tokens are merged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tokenizers import Regex, pre_tokenizers

_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_WORDS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_REST = rf" ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_SPACES}"
_REST_WITH_SLASHES = rf" ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_SPACES}"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_CASED_WORDS = rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+", rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*"


@dataclass(frozen=True, slots=True)
class Split:
    """A way to split text, and what else comes with it in the files that use it."""

    pattern: str | None = None  # of the pieces. None: those of GPT-2
    single_digits: bool = False  # each digit is a piece
    whole_tokens: bool = False  # a piece that is a token is one, even if no merges make it
    adds_bos: bool = False  # a text begins with the BOS token, if the file does not say
    composes: bool = False  # characters and their accents are joined first (NFC)

    def pre_tokenizer(self) -> Any:
        by_gpt2 = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=self.pattern is None)
        first: list[Any] = []
        if self.single_digits:
            first.append(pre_tokenizers.Digits(individual_digits=True))
        if self.pattern is not None:
            first.append(pre_tokenizers.Split(Regex(self.pattern), "isolated"))
        return pre_tokenizers.Sequence([*first, by_gpt2])


_GPT_2 = Split()
_STARCODER = Split(single_digits=True)
_TIKTOKEN = rf"{_CONTRACTIONS}|{_WORDS}|\p{{N}}{{1,3}}|{_REST}"
_LLAMA_3 = Split(_TIKTOKEN, whole_tokens=True, adds_bos=True)
_DBRX = Split(_TIKTOKEN)
_ONE_DIGIT = rf"{_CONTRACTIONS}|{_WORDS}|\p{{N}}|{_REST}"
_TEKKEN = Split(rf"{'|'.join(_CASED_WORDS)}|\p{{N}}|{_REST_WITH_SLASHES}", whole_tokens=True, adds_bos=True)
_WITH_CONTRACTIONS = "|".join(f"{words}{_CONTRACTIONS}?" for words in _CASED_WORDS)
_GPT_4O = Split(rf"{_WITH_CONTRACTIONS}|\p{{N}}{{1,3}}|{_REST_WITH_SLASHES}")

# By the name that llama.cpp gives to each: `tokenizer.ggml.pre`.
SPLITS = {
    "default": _GPT_2,
    "gpt-2": _GPT_2,
    "phi-2": _GPT_2,
    "olmo": _GPT_2,
    "mpt": _GPT_2,
    "smollm": _STARCODER,
    "starcoder": _STARCODER,
    "refact": _STARCODER,  # granite
    "codeshell": _STARCODER,
    "command-r": _STARCODER,
    "exaone": _STARCODER,
    "llama-bpe": _LLAMA_3,
    "llama3": _LLAMA_3,
    "llama-v3": _LLAMA_3,
    "falcon3": _LLAMA_3,
    "pixtral": _LLAMA_3,
    "dbrx": _DBRX,  # olmo2, phi-4
    "smaug-bpe": _DBRX,
    "qwen2": Split(_ONE_DIGIT, composes=True),
    "deepseek-r1-qwen": Split(_ONE_DIGIT, composes=True),
    "stablelm2": Split(_ONE_DIGIT),
    "tekken": _TEKKEN,
    "gpt-4o": _GPT_4O,  # phi-4-mini
}
