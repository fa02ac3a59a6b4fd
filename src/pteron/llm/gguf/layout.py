"""Which tensors a model must have, which it may have, and their shapes."""

from __future__ import annotations

from collections.abc import Iterator

from pteron.errors import UnsupportedError
from pteron.llm.gguf.config import Config
from pteron.llm.gguf.source import GgufFile


def check_tensors(file: GgufFile, config: Config) -> None:
    """Refuse a file in which a tensor is missing, misshapen, unreadable, or has no place in the model."""
    expected: set[str] = set()
    for name, shape, required in _tensors(config):
        if required or name in file:
            file.expect(name, shape)
            expected.add(name)
    surplus = sorted(set(file.tensor_names) - expected)
    if surplus:
        # It would silently be missing from the converted model.
        raise UnsupportedError(
            f"{file.name}: {len(surplus)} tensors have no known place: {', '.join(surplus[:5])}"
        )


def check_groups(file: GgufFile, config: Config, group_size: int) -> None:
    """Refuse a model whose matrices have rows of other than whole groups."""
    for width in (config.width, config.hidden, config.heads * config.head_size):
        if width % group_size:
            raise UnsupportedError(
                f"{file.name}: rows of {width} weights do not divide into groups of {group_size}"
            )


def _tensors(config: Config) -> Iterator[tuple[str, tuple[int, ...], bool]]:
    """(name, shape, whether it must be there)."""
    yield "token_embd.weight", (config.vocabulary, config.width), True
    yield "output_norm.weight", (config.width,), True
    yield "output.weight", (config.vocabulary, config.width), False
    yield "rope_freqs.weight", (config.head_size // 2,), False
    head_norms = config.architecture == "qwen3"
    for number in range(config.layers):
        block = f"blk.{number}."
        for norm in ("attn_norm", "ffn_norm"):
            yield f"{block}{norm}.weight", (config.width,), True
        for norm in ("attn_q_norm", "attn_k_norm"):
            yield f"{block}{norm}.weight", (config.head_size,), head_norms
        for name, shape in _linears(config).items():
            yield f"{block}{name}.weight", shape, True
            yield f"{block}{name}.bias", shape[:1], False


def _linears(config: Config) -> dict[str, tuple[int, int]]:
    queries, keys = config.heads * config.head_size, config.kv_heads * config.head_size
    return {
        "attn_q": (queries, config.width),
        "attn_k": (keys, config.width),
        "attn_v": (keys, config.width),
        "attn_output": (config.width, queries),
        "ffn_gate": (config.hidden, config.width),
        "ffn_up": (config.hidden, config.width),
        "ffn_down": (config.width, config.hidden),
    }
