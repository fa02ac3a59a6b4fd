"""A GGUF file's vocabulary as a Hugging Face tokenizer, and the tokens that have a meaning of their own."""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from typing import TypeVar

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, processors

from pteron.errors import FormatError, UnsupportedError
from pteron.llm.architectures.model_vocabulary import ENDINGS, Vocabulary
from pteron.llm.gguf.source import GgufFile
from pteron.llm.gguf.splits import SPLITS
from pteron.llm.gguf.word_pieces import word_piece_tokenizer

T = TypeVar("T")

SPACE = "▁"  # how SentencePiece writes a space


class TokenType(IntEnum):
    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


def read_vocabulary(file: GgufFile) -> Vocabulary:
    kind = file.require("tokenizer.ggml.model", str)
    if kind not in ("gpt2", "llama", "bert"):
        raise UnsupportedError(
            f"{file.name}: the tokenizer {kind!r} is not supported; 'gpt2', 'llama' and 'bert' are"
        )
    tokens = _items(file, "tokenizer.ggml.tokens", str)
    types = _items(file, "tokenizer.ggml.token_type", int, [int(TokenType.NORMAL)] * len(tokens))
    if len(types) != len(tokens) or len(set(tokens)) != len(tokens):
        raise FormatError(
            f"{file.name}: expected one type for each token and no token twice, got {len(tokens)} tokens, "
            f"{len(tokens) - len(set(tokens))} of them again, and {len(types)} types"
        )
    pre = file.get("tokenizer.ggml.pre", str, "default")
    usual = kind == "llama" or (kind == "gpt2" and pre in SPLITS and SPLITS[pre].adds_bos)
    add_bos = file.get("tokenizer.ggml.add_bos_token", bool, usual)
    bos = _token(file, "bos", tokens)
    if kind == "bert":
        tokenizer = word_piece_tokenizer(file, tokens)
    elif kind == "gpt2":
        tokenizer = _byte_level(file, tokens, pre)
    else:
        tokenizer = _sentence_piece(file, tokens, types)
    _add_special_tokens(tokenizer, tokens, types)
    add_bos = add_bos and kind != "bert"  # that tokenizer adds what begins and ends a text
    if add_bos and bos is not None:
        _begin_with(tokenizer, tokens[bos], bos)
    return Vocabulary(
        bos=bos,
        eos=_endings(file, tokens, types),
        padding=_token(file, "padding", tokens),
        add_bos=add_bos and bos is not None,
        chat_template=file.get("tokenizer.chat_template", str, "") or None,
        tool_template=file.get("tokenizer.chat_template.tool_use", str, "") or None,
        tokenizer=tokenizer,
    )


def _items(file: GgufFile, key: str, kind: type[T], default: list[T] | None = None) -> list[T]:
    """A fact that is a list. The items of an array have one type, so that the first tells it."""
    items = file.require(key, list) if default is None else file.get(key, list, default)
    if items and not isinstance(items[0], kind):
        found = type(items[0]).__name__
        raise FormatError(
            f"{file.name}: the fact {key!r} should be a list of {kind.__name__}, not of {found}"
        )
    return items


def _token(file: GgufFile, role: str, tokens: list[str]) -> int | None:
    token = file.get(f"tokenizer.ggml.{role}_token_id", int, -1)
    if token >= len(tokens):
        raise FormatError(f"{file.name}: the {role} token is {token}, but there are {len(tokens)} tokens")
    return token if token >= 0 else None


def _endings(file: GgufFile, tokens: list[str], types: list[int]) -> tuple[int, ...]:
    stated = [_token(file, role, tokens) for role in ("eos", "eot", "eom")]
    ids = {tokens[token]: token for token in range(len(tokens)) if types[token] == TokenType.CONTROL}
    known = [ids[text] for text in ENDINGS if text in ids]
    return tuple(dict.fromkeys([token for token in stated if token is not None] + known))


def _add_special_tokens(tokenizer: Tokenizer, tokens: list[str], types: list[int]) -> None:
    """Tokens that text never splits: those that control the model, and those the model's makers added."""
    for kind, special in ((TokenType.CONTROL, True), (TokenType.USER_DEFINED, False)):
        wanted = [text for text, each in zip(tokens, types, strict=True) if each == kind]
        added = [AddedToken(text, special=special, normalized=False) for text in wanted]
        (tokenizer.add_special_tokens if special else tokenizer.add_tokens)(added)


def _begin_with(tokenizer: Tokenizer, text: str, token: int) -> None:
    begin = processors.TemplateProcessing(
        single=f"{text} $A", pair=f"{text} $A {text} $B", special_tokens=[(text, token)]
    )
    earlier = tokenizer.post_processor
    tokenizer.post_processor = begin if earlier is None else processors.Sequence([earlier, begin])


# -- "gpt2": byte-pair merges of bytes, within pieces that a pattern cuts out ------------------------


def _byte_level(file: GgufFile, tokens: list[str], pre: str) -> Tokenizer:
    if pre not in SPLITS:
        raise UnsupportedError(
            f"{file.name}: the way to split text {pre!r} is not known; these are: {', '.join(SPLITS)}"
        )
    vocabulary = {text: token for token, text in enumerate(tokens)}
    merges = [_merge(file, line, vocabulary) for line in _items(file, "tokenizer.ggml.merges", str)]
    split = SPLITS[pre]
    model = models.BPE(vocab=vocabulary, merges=merges, ignore_merges=split.whole_tokens)
    tokenizer = Tokenizer(model)
    if split.composes:
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = split.pre_tokenizer()
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    return tokenizer


def _merge(file: GgufFile, line: str, vocabulary: dict[str, int]) -> tuple[str, str]:
    left, _, right = line.partition(" ")
    if left not in vocabulary or right not in vocabulary or left + right not in vocabulary:
        raise FormatError(f"{file.name}: the merge {line!r} is not of tokens in the vocabulary")
    return left, right


# -- "llama": SentencePiece, which merges by score and spells unknown characters in bytes ---------------


def _sentence_piece(file: GgufFile, tokens: list[str], types: list[int]) -> Tokenizer:
    scores = _items(file, "tokenizer.ggml.scores", float)
    if len(scores) != len(tokens):
        raise FormatError(f"{file.name}: {len(tokens)} tokens with {len(scores)} scores")
    vocabulary = {text: token for token, text in enumerate(tokens)}
    normal = {text for text, kind in zip(tokens, types, strict=True) if kind == TokenType.NORMAL}
    unknown = next(
        (text for text, kind in zip(tokens, types, strict=True) if kind == TokenType.UNKNOWN), None
    )
    merges = [
        (left, right)
        for _, left, right in sorted(_splits(normal, vocabulary, scores), key=lambda merge: -merge[0])
    ]
    model = models.BPE(vocab=vocabulary, merges=merges, byte_fallback=True, fuse_unk=True, unk_token=unknown)
    tokenizer = Tokenizer(model)
    prefix = file.get("tokenizer.ggml.add_space_prefix", bool, True)
    begin = [normalizers.Prepend(SPACE)] if prefix else []
    tokenizer.normalizer = normalizers.Sequence([*begin, normalizers.Replace(" ", SPACE)])
    strip = [decoders.Strip(" ", 1, 0)] if prefix else []
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), *strip]
    )
    return tokenizer


def _splits(
    normal: set[str], vocabulary: dict[str, int], scores: list[float]
) -> Iterator[tuple[float, str, str]]:
    """Every way in which two tokens make a third, with the third's score."""
    for text in sorted(normal, key=vocabulary.__getitem__):
        pairs = [(text[:cut], text[cut:]) for cut in range(1, len(text))]
        pairs = [pair for pair in pairs if pair[0] in normal and pair[1] in normal]
        for left, right in sorted(pairs, key=lambda pair: (vocabulary[pair[0]], vocabulary[pair[1]])):
            yield scores[vocabulary[text]], left, right
