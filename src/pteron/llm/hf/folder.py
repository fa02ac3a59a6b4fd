"""A model in a Hugging Face folder."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from pteron.errors import FormatError, UnsupportedError
from pteron.llm.architectures.architecture import Architecture
from pteron.llm.architectures.checkpoint import Checkpoint, EncoderCheckpoint
from pteron.llm.architectures.config import Config
from pteron.llm.architectures.encoders import ENCODERS, EncoderArchitecture
from pteron.llm.architectures.families import ARCHITECTURES
from pteron.llm.hf.decoder_config import read_decoder_config
from pteron.llm.hf.encoder_config import first_position, is_listed_embedder, read_encoder_config
from pteron.llm.hf.folder_tensors import FolderTensors, Naming
from pteron.llm.hf.folder_vocabulary import read_folder_vocabulary
from pteron.llm.hf.safetensors import read_tensors
from pteron.llm.hf.settings import Settings, folder_name

# The parts of encoders that embeddings do not need: those that guess words, and those that sort texts.
SORTING = re.compile(r"(^|\.)(classifier|pre_classifier|qa_outputs|score)\.")
HEADS = re.compile(rf"{SORTING.pattern}|(^|\.)(pooler|cls|lm_head|vocab_\w+)\.")

# The parts of a decoder that see images.
SIGHT = re.compile(r"^(model\.)?(vision_tower|multi_modal_projector)\.")


def open_folder(folder: Path) -> Checkpoint | EncoderCheckpoint:
    settings = Settings.of_folder(folder)
    kind = settings.require(str, "model_type")
    for family in ARCHITECTURES.values():
        if kind in family.model_types:
            return _decoder(folder, settings, family)
    for encoder in ENCODERS:
        if kind in encoder.model_types:
            return _encoder(folder, settings, encoder)
    types = [family.model_types for family in ARCHITECTURES.values()] + [e.model_types for e in ENCODERS]
    known = ", ".join(each for some in types for each in some)
    raise UnsupportedError(f"{settings.source}: the model type {kind!r} is not known; these are: {known}")


def _decoder(folder: Path, settings: Settings, family: Architecture) -> Checkpoint:
    settings = settings.part("text_config") if "text_config" in settings.entries else settings
    naming = Naming(family.hf_names, family.hf_norm_offset, family.hf_transposed, SIGHT)
    tensors = FolderTensors(str(folder), read_tensors(folder), naming)
    if settings.get(bool, "tie_word_embeddings", default="output.weight" not in tensors):
        tensors.drop("output.weight")
    elif "output.weight" not in tensors:
        raise FormatError(f"{folder}: the output head is not tied to the embedding, but lm_head is missing")
    config = read_decoder_config(settings, family, folder_name(folder), tensors)
    if family.hf_grouped_qkv:
        _divide_groups(tensors, config)
    return Checkpoint(config, tensors, read_folder_vocabulary(folder, settings))


def _divide_groups(tensors: FolderTensors, config: Config) -> None:
    """Present rows that are stored by groups as queries, keys and values."""
    shared = config.heads // config.kv_heads
    rows = np.arange(config.queries + 2 * config.keys).reshape(config.kv_heads, shared + 2, config.head_size)
    parts = {"attn_q": rows[:, :shared], "attn_k": rows[:, shared], "attn_v": rows[:, shared + 1]}
    for name in tensors.tensor_names:
        if name.startswith("blk.") and ".attn_qkv." in name:
            tensors.expect(name, (rows.size, *tensors.shape(name)[1:]))
            tensors.divide(name, {name.replace("attn_qkv", part): r.reshape(-1) for part, r in parts.items()})


def _refuse_sorters(folder: Path, names: Iterable[str]) -> None:
    """A model that was trained to score texts, such as a reranker, has no useful vectors."""
    head = next((name for name in names if SORTING.search(name)), None)
    if head is not None:
        raise UnsupportedError(
            f"{folder}: the model has a classification head ({head}): it scores texts, as rerankers and "
            "classifiers do, and is no embedder. To use its encoder as one, save that alone: transformers' "
            "AutoModel.from_pretrained(...).save_pretrained(...)"
        )


def _encoder(folder: Path, settings: Settings, family: EncoderArchitecture) -> EncoderCheckpoint:
    naming, stored = Naming(family.hf_names, unused=HEADS), read_tensors(folder)
    if not is_listed_embedder(folder):
        _refuse_sorters(folder, stored)
    tensors = FolderTensors(str(folder), stored, naming)
    vocabulary = tensors.shape("token_embd.weight")[0]
    config = read_encoder_config(folder, settings, family, vocabulary)
    if family.padding_first:
        table = "position_embd.weight"
        tensors.divide(table, {table: np.arange(first_position(settings), tensors.shape(table)[0])})
    return EncoderCheckpoint(config, tensors, read_folder_vocabulary(folder, settings))
