"""What a llama-family model is: its sizes, and which of the family's variations it has."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TypeVar

from pteron.errors import FormatError, UnsupportedError
from pteron.llm.gguf.source import GgufFile

T = TypeVar("T")

# Architecture: whether its files store q and k for rotation of neighbouring pairs (2i, 2i+1) instead of
# halves (i, i + D/2).
PAIRED_ROTATION = {"llama": True, "qwen2": False, "qwen3": False}


@dataclass(frozen=True, slots=True)
class Config:
    architecture: str
    name: str
    layers: int
    width: int
    hidden: int
    heads: int
    kv_heads: int
    head_size: int
    vocabulary: int
    epsilon: float
    rotary_base: float
    rotary_slowdown: float  # positions are divided by this
    context: int  # the positions that the model was trained for

    @property
    def paired_rotation(self) -> bool:
        return PAIRED_ROTATION[self.architecture]


def read_config(file: GgufFile) -> Config:
    architecture = file.require("general.architecture", str)
    if architecture not in PAIRED_ROTATION:
        known = ", ".join(PAIRED_ROTATION)
        raise UnsupportedError(
            f"{file.name}: the architecture {architecture!r} is not known; these are: {known}"
        )

    def fact(key: str, kind: type[T], default: T | None = None) -> T:
        key = f"{architecture}.{key}"
        return file.require(key, kind) if default is None else file.get(key, kind, default)

    if fact("expert_count", int, 0):
        raise UnsupportedError(f"{file.name}: mixtures of experts are not supported")
    width, heads = fact("embedding_length", int), fact("attention.head_count", int)
    config = Config(
        architecture=architecture,
        name=file.get("general.name", str, architecture),
        layers=fact("block_count", int),
        width=width,
        hidden=fact("feed_forward_length", int),
        heads=heads,
        kv_heads=fact("attention.head_count_kv", int, heads),
        head_size=fact("attention.key_length", int, width // max(heads, 1)),
        vocabulary=file.shape("token_embd.weight")[0],
        epsilon=fact("attention.layer_norm_rms_epsilon", float),
        rotary_base=fact("rope.freq_base", float, 10000.0),
        rotary_slowdown=_rotary_slowdown(file, architecture),
        context=fact("context_length", int),
    )
    _check(config, file)
    return config


def _rotary_slowdown(file: GgufFile, architecture: str) -> float:
    kind = file.get(f"{architecture}.rope.scaling.type", str, "none")
    if kind == "none":
        return 1.0
    if kind == "linear":
        return file.require(f"{architecture}.rope.scaling.factor", float)
    raise UnsupportedError(f"{file.name}: the rotary scaling {kind!r} is not supported; 'linear' is")


def _check(config: Config, file: GgufFile) -> None:
    sizes = (
        config.layers,
        config.width,
        config.hidden,
        config.heads,
        config.kv_heads,
        config.head_size,
        config.context,
    )
    numbers = (config.epsilon, config.rotary_base, config.rotary_slowdown)
    if min(sizes) < 1 or config.heads % config.kv_heads or not all(0 < n < inf for n in numbers):
        raise FormatError(f"{file.name}: its sizes do not fit together: {config}")
    prefix = config.architecture
    if file.get(f"{prefix}.attention.value_length", int, config.head_size) != config.head_size:
        raise UnsupportedError(f"{file.name}: keys and values of different sizes are not supported")
    rotated = file.get(f"{prefix}.rope.dimension_count", int, config.head_size)
    if rotated != config.head_size:
        raise UnsupportedError(
            f"{file.name}: only {rotated} of {config.head_size} elements of a head are rotated"
        )
