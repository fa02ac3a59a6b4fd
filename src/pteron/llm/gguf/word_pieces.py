"""BERT's tokenizer from a GGUF file: words, and pieces that continue a word.

GGUF marks the beginnings of words, where BERT's own vocabulary marks what continues one.
"""

from __future__ import annotations

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from pteron.errors import FormatError
from pteron.llm.gguf.source import GgufFile

BEGIN, CONTINUE = "▁", "##"


def word_piece_tokenizer(file: GgufFile, tokens: list[str]) -> Tokenizer:
    texts = [_as_in_bert(token) for token in tokens]
    ids = {text: token for token, text in enumerate(texts)}
    first = _special(file, ("cls", "bos"), "[CLS]", texts, ids)
    last = _special(file, ("seperator", "eos"), "[SEP]", texts, ids)  # GGUF spells it so
    unknown = _special(file, ("unknown",), "[UNK]", texts, ids)
    tokenizer = Tokenizer(models.WordPiece(ids, unk_token=unknown, continuing_subword_prefix=CONTINUE))
    is_cased = any(text != text.lower() for text in texts if not _is_special(text))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=not is_cased)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(CONTINUE)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{first} $A {last}", special_tokens=[(text, ids[text]) for text in {first, last}]
    )
    return tokenizer


def _as_in_bert(token: str) -> str:
    if _is_special(token):
        return token
    return token[len(BEGIN) :] if token.startswith(BEGIN) else CONTINUE + token


def _is_special(token: str) -> bool:
    return len(token) > 2 and token.startswith("[") and token.endswith("]")


def _special(
    file: GgufFile, roles: tuple[str, ...], usual: str, texts: list[str], ids: dict[str, int]
) -> str:
    """The text of a special token that the file names, or else has under its usual text."""
    for role in roles:
        token = file.get(f"tokenizer.ggml.{role}_token_id", int, -1)
        if 0 <= token < len(texts):
            return texts[token]
    if usual not in ids:
        raise FormatError(f"{file.name}: the vocabulary has no {usual}")
    return usual
