"""The EncoderConfig of a folder: config.json, and what sentence-transformers adds to it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

from pteron.errors import FormatError, UnsupportedError
from pteron.llm.architectures.architecture import Activation
from pteron.llm.architectures.config import Rotary
from pteron.llm.architectures.encoders import (
    EncoderArchitecture,
    EncoderConfig,
    Pooling,
    check_encoder_config,
)
from pteron.llm.hf.decoder_config import ACTIVATIONS
from pteron.llm.hf.rope_parameters import read_rotary
from pteron.llm.hf.safetensors import read_json
from pteron.llm.hf.settings import Settings, folder_name

# The entries of 1_Pooling/config.json.
POOLINGS = {
    "pooling_mode_mean_tokens": Pooling.MEAN,
    "pooling_mode_cls_token": Pooling.CLS,
    "pooling_mode_lasttoken": Pooling.LAST,
}


def read_encoder_config(
    folder: Path, settings: Settings, family: EncoderArchitecture, vocabulary: int
) -> EncoderConfig:
    width = settings.require(int, "hidden_size", "dim", "n_embd")
    heads = settings.require(int, "num_attention_heads", "n_heads", "n_head")
    context = settings.require(int, "max_position_embeddings", "n_positions")
    if family.padding_first:
        context -= first_position(settings)
    modules = _modules(folder)
    config = EncoderConfig(
        architecture=family,
        name=folder_name(folder),
        layers=settings.require(int, "num_hidden_layers", "n_layers", "n_layer"),
        width=width,
        hidden=settings.require(int, "intermediate_size", "hidden_dim", "n_inner"),
        heads=heads,
        vocabulary=vocabulary,
        context=context,
        longest=_longest(folder, context),
        epsilon=settings.get(float, "layer_norm_eps", "layer_norm_epsilon", default=1e-12),
        rotary=_rotary(settings, family, width // max(heads, 1), context),
        activation=_activation(settings, family),
        pooling=_pooling(folder, modules),
        normalize="Normalize" in modules,
    )
    return check_encoder_config(config, settings.source)


def is_listed_embedder(folder: Path) -> bool:
    """Whether sentence-transformers says that the vectors of tokens become one vector."""
    return "Pooling" in _modules(folder)


def first_position(settings: Settings) -> int:
    """The row of the table of positions for a text's first token, in families that keep rows free."""
    return settings.get(int, "pad_token_id", default=1) + 1


def _rotary(settings: Settings, family: EncoderArchitecture, size: int, context: int) -> Rotary | None:
    if not family.is_rotary:
        return None
    parameters = settings.part("rope_parameters")
    base = settings.get(float, "rotary_emb_base", "rope_theta", default=1000.0)
    return read_rotary(parameters, parameters.get(float, "rope_theta", default=base), size, context)


def _activation(settings: Settings, family: EncoderArchitecture) -> Activation:
    stated = settings.find(str, "hidden_act", "activation", "activation_function")
    if stated is None or stated == "swiglu":  # which says that the MLP is gated, too
        return family.activation
    if stated not in ACTIVATIONS:
        raise UnsupportedError(f"{settings.source}: the activation {stated!r} is not supported")
    return cast(Activation, ACTIVATIONS[stated])


# -- sentence-transformers ---------------------------------------------------------------------------


def _modules(folder: Path) -> dict[str, str]:
    """The steps that make an embedding, and their folders. Without a list of them: the encoder alone."""
    path = folder / "modules.json"
    if not path.is_file():
        return {}
    try:
        listed: Any = json.loads(path.read_text("utf-8"))
        found = {str(each["type"]).rpartition(".")[2]: str(each["path"]) for each in listed}
    except (ValueError, KeyError, TypeError) as error:
        raise FormatError(f"{path}: not a list of modules: {error}") from None
    if unknown := set(found) - {"Transformer", "Pooling", "Normalize"}:
        raise UnsupportedError(f"{path}: the module {sorted(unknown)[0]!r} is not supported")
    return found


def _longest(folder: Path, context: int) -> int:
    path = folder / "sentence_bert_config.json"
    stated = Settings(read_json(path), str(path)).find(int, "max_seq_length") if path.is_file() else None
    return min(context, stated or context)


def _pooling(folder: Path, modules: dict[str, str]) -> Pooling:
    """As sentence-transformers has it, whose default is the mean."""
    if "Pooling" not in modules:
        return Pooling.MEAN
    path = folder / Path(modules["Pooling"]).name / "config.json"
    settings = Settings(read_json(path), str(path))
    modes = {name: value for name, value in settings.entries.items() if name.startswith("pooling_mode_")}
    chosen = [name for name, value in modes.items() if value is True]
    if len(chosen) != 1 or chosen[0] not in POOLINGS:
        raise UnsupportedError(
            f"{path}: the pooling {', '.join(chosen) or 'none'} is not supported; one of these is: "
            f"{', '.join(POOLINGS)}"
        )
    return POOLINGS[chosen[0]]
