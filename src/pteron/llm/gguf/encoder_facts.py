"""The EncoderConfig of a GGUF file, from its facts."""

from __future__ import annotations

from pteron.errors import UnsupportedError
from pteron.llm.architectures.config import Rotary
from pteron.llm.architectures.encoders import (
    EncoderArchitecture,
    EncoderConfig,
    Pooling,
    check_encoder_config,
)
from pteron.llm.architectures.rotary import frequencies, rotary
from pteron.llm.gguf.source import GgufFile


def encoder_config_from_gguf(file: GgufFile, family: EncoderArchitecture) -> EncoderConfig:
    name = family.name
    width = file.require(f"{name}.embedding_length", int)
    heads = file.require(f"{name}.attention.head_count", int)
    context = file.require(f"{name}.context_length", int)
    config = EncoderConfig(
        architecture=family,
        name=file.get("general.name", str, name),
        layers=file.require(f"{name}.block_count", int),
        width=width,
        hidden=file.require(f"{name}.feed_forward_length", int),
        heads=heads,
        vocabulary=file.shape("token_embd.weight")[0],
        context=context,
        longest=context,
        epsilon=file.require(f"{name}.attention.layer_norm_epsilon", float),
        rotary=_rotary(file, family, width // max(heads, 1)),
        activation=family.activation,
        pooling=_pooling(file, family),
        normalize=True,  # as llama.cpp does: GGUF has no fact for it
    )
    return check_encoder_config(config, file.name)


def _rotary(file: GgufFile, family: EncoderArchitecture, size: int) -> Rotary | None:
    if not family.is_rotary:
        return None
    return rotary(frequencies(file.get(f"{family.name}.rope.freq_base", float, 10000.0), size))


def _pooling(file: GgufFile, family: EncoderArchitecture) -> Pooling:
    number = file.get(f"{family.name}.pooling_type", int, int(Pooling.MEAN))
    if number not in tuple(Pooling):
        known = ", ".join(f"{int(kind)} ({kind.name.lower()})" for kind in Pooling)
        raise UnsupportedError(f"{file.name}: the pooling type {number} is not supported; these are: {known}")
    return Pooling(number)
