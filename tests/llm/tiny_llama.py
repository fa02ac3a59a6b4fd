"""A language model small enough to export in seconds: one layer, bytes and a few words for a vocabulary."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pteron.pte import schema
from pteron.pte.file import ProgramFile
from pteron.pte.writer import write_pte
from tests.support.export import vulkan_partitioner

WIDTH, HEADS, KV_HEADS, HEAD, HIDDEN = 64, 4, 2, 16, 96
MAX_LENGTH, CONTEXT = 16, 96
WORDS = ["he", "llo", " world", " the", "ing", "🙂"]
SPECIALS = ["<|end|>", "<|im_start|>", "<|im_end|>"]
TEMPLATE = (
    "{% for m in messages %}"
    "{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
GREEDY_PROMPTS = ("hello world", "a", "the quick brown fox jumps over the lazy dog")
GREEDY_TOKENS = 12


def tokenizer_json() -> str:
    """Byte-level BPE: every byte, a few merged words, and special tokens after them."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    split = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    pieces = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges: list[tuple[str, str]] = []
    for word in WORDS:
        letters = split.pre_tokenize_str(word)[0][0]
        for n in range(2, len(letters) + 1):
            if letters[:n] not in pieces:
                pieces.append(letters[:n])
                merges.append((letters[: n - 1], letters[n - 1]))
    tokenizer = Tokenizer(models.BPE({piece: i for i, piece in enumerate(pieces)}, merges))
    tokenizer.pre_tokenizer = split
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(text, special=True) for text in SPECIALS])
    return tokenizer.to_str()


def make(folder: Path) -> None:
    """model.pte with everything inside, bare.pte with the tokenizer beside it, and torch's own answers."""
    from tokenizers import Tokenizer

    definition = tokenizer_json()
    tokenizer = Tokenizer.from_str(definition)
    model = build(tokenizer)
    (folder / "bare").mkdir()
    bare = folder / "bare" / "model.pte"
    bare.write_bytes(export(model, tokenizer))
    (bare.parent / "tokenizer.json").write_text(definition)
    special = {"eos_token": {"content": "<|im_end|>"}, "chat_template": TEMPLATE}
    (bare.parent / "tokenizer_config.json").write_text(json.dumps(special))
    with_data = {"pteron.tokenizer.json": definition, "pteron.chat_template": TEMPLATE}
    add_named_data(bare, folder / "model.pte", with_data)
    answers = {p: torch_greedy(model, tokenizer.encode(p).ids, GREEDY_TOKENS) for p in GREEDY_PROMPTS}
    (folder / "greedy.json").write_text(json.dumps(answers))


def add_named_data(source: Path, target: Path, data: dict[str, str]) -> None:
    with ProgramFile.open(source) as file:
        count = len(file.program.segments)
        segments = [bytes(file.segment(i)) for i in range(count)] + [text.encode() for text in data.values()]
        named = tuple(schema.NamedData(key, count + i) for i, key in enumerate(data))
        write_pte(target, replace(file.program, named_data=(*file.program.named_data, *named)), segments)


def build(tokenizer: Any) -> Any:
    import torch
    from executorch.extension.llm.custom_ops import custom_ops  # noqa: F401  registers torch.ops.llama
    from torch import nn

    class TinyLlama(nn.Module):
        def __init__(self, vocabulary: int, printable: list[int]) -> None:
            super().__init__()
            self.embedding = nn.Embedding(vocabulary, WIDTH)
            self.q = nn.Linear(WIDTH, HEADS * HEAD, bias=False)
            self.k = nn.Linear(WIDTH, KV_HEADS * HEAD, bias=False)
            self.v = nn.Linear(WIDTH, KV_HEADS * HEAD, bias=False)
            self.o = nn.Linear(HEADS * HEAD, WIDTH, bias=False)
            self.up = nn.Linear(WIDTH, HIDDEN, bias=False)
            self.down = nn.Linear(HIDDEN, WIDTH, bias=False)
            self.places = nn.Parameter(torch.randn(CONTEXT, WIDTH))
            self.head = nn.Linear(WIDTH, vocabulary)
            for layer in (self.q, self.k, self.v, self.o, self.head):
                layer.weight.data *= 3  # attention that matters, and logits far apart
            self.head.bias.data.fill_(-40.0)  # so that the answers are readable
            self.head.bias.data[printable] = 0.0
            self.register_buffer("k_cache", torch.zeros(1, CONTEXT, KV_HEADS, HEAD))
            self.register_buffer("v_cache", torch.zeros(1, CONTEXT, KV_HEADS, HEAD))

        def forward(self, tokens: torch.Tensor, input_pos: torch.Tensor) -> torch.Tensor:
            position = input_pos[0].item()
            torch._check_is_size(position)
            length = tokens.shape[1]
            torch._check(position + length <= CONTEXT)
            x = self.embedding(tokens) + self.places.narrow(0, position, length)
            q = self.q(x).view(1, length, HEADS, HEAD)
            k = self.k(x).view(1, length, KV_HEADS, HEAD)
            v = self.v(x).view(1, length, KV_HEADS, HEAD)
            y = torch.ops.llama.sdpa_with_kv_cache(
                q, k, v, self.k_cache, self.v_cache, position, length, None, 0.0, True, None
            )
            x = x + self.o(y.reshape(1, length, HEADS * HEAD))
            x = x + self.down(nn.functional.silu(self.up(x)))
            return self.head(x)

    torch.manual_seed(7)
    size = tokenizer.get_vocab_size(with_added_tokens=True)
    printable = [
        i for i in range(size) if len(t := tokenizer.decode([i])) and t.isascii() and t.isprintable()
    ]
    printable.append(tokenizer.token_to_id("<|im_end|>"))
    return TinyLlama(size, printable).eval()


def export(model: Any, tokenizer: Any) -> bytes:
    import torch
    from executorch.exir import to_edge_transform_and_lower

    length = torch.export.Dim("length", min=1, max=MAX_LENGTH)
    example = (torch.zeros(1, MAX_LENGTH, dtype=torch.long), torch.zeros(1, dtype=torch.long))
    with torch.no_grad():
        program = torch.export.export(model, example, dynamic_shapes=({1: length}, None))
    metadata = {
        "get_vocab_size": tokenizer.get_vocab_size(with_added_tokens=True),
        "get_eos_ids": [tokenizer.token_to_id("<|end|>"), tokenizer.token_to_id("<|im_end|>")],
        "get_max_seq_len": MAX_LENGTH,
        "get_max_context_len": CONTEXT,
        "use_kv_cache": True,
    }
    lowered = to_edge_transform_and_lower(
        program, partitioner=[vulkan_partitioner()], constant_methods=metadata
    )
    return bytes(lowered.to_executorch().buffer)


def torch_greedy(model: Any, prompt: Sequence[int], count: int) -> list[int]:
    """The most probable tokens by torch, which reads the whole text again for each of them."""
    import torch

    tokens = list(prompt)
    with torch.no_grad():
        for _ in range(count):
            logits = model(torch.tensor([tokens]), torch.tensor([0]))
            tokens.append(int(logits[0, -1].argmax()))
    return tokens[len(prompt) :]
