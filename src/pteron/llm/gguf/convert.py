"""From a model as its makers published it to a `.pte` program, without torch."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from pteron.errors import InputError
from pteron.llm.architectures.checkpoint import Checkpoint, EncoderCheckpoint
from pteron.llm.architectures.config import Config
from pteron.llm.architectures.layout import check_groups
from pteron.llm.architectures.model_vocabulary import Vocabulary
from pteron.llm.gguf.assemble import Blob, Fact, assemble
from pteron.llm.gguf.calibrate import TEXT, input_importance
from pteron.llm.gguf.encoder_graph import build_encoder
from pteron.llm.gguf.exact import ExactWeights
from pteron.llm.gguf.graph_operators import build_graph
from pteron.llm.gguf.rounded import BITS, RoundedWeights, Rounding
from pteron.llm.gguf.stock import StockWeights, check_stock_operators
from pteron.llm.gguf.weights import Weights
from pteron.llm.sources import open_checkpoint
from pteron.notebook_bar import NotebookBar
from pteron.pte import write_pte
from pteron.pte.vulkan import VkGraph

CALIBRATION_TOKENS = 512
MOST_TEXTS, MOST_TOKENS = 32, 8192  # of a call of an embedder, unless a batch is given

# Called with the share of the work that is done, from 0 to 1, and what is being done.
Progress = Callable[[float, str], None]


@dataclass(frozen=True, slots=True)
class Conversion:
    """What was made."""

    path: Path
    name: str
    architecture: str
    quantization: str  # how the weights are stored
    rounding: float  # how much they differ from the file's: the root mean square, as a share of theirs
    parameters: int
    max_seq_len: int
    max_context: int
    nbytes: int


def convert(
    source: str | PathLike[str],
    pte_path: str | PathLike[str],
    *,
    max_seq_len: int = 128,
    max_context: int = 2048,
    batch: int | None = None,
    quantize: Rounding | None = None,
    stock: bool = False,
    group_size: int = 32,
    progress: Progress | None = None,
) -> Conversion:
    """Convert a language model or an embedder to a `.pte` program. torch is not needed.

    The file is written completely or not at all. It contains the tokenizer and the chat template.

    Args:
        source: A GGUF file, or a Hugging Face folder (`config.json`, safetensors, `tokenizer.json`).
        pte_path: The file to write.
        max_seq_len: The most tokens that one call takes. An embedder takes a text in one call: see
            max_context.
        max_context: The most tokens of a text. It is limited to what the model was trained for.
        batch: The most texts in one call of an embedder. The memory of a call grows with it. By default as
            many as have 8192 tokens, at most 32.
        quantize: Round weights that are floats in the source to `"8bit"` or `"4bit"`, with a scale and a
            minimum for every 32 weights. By default all weights are those of the source.
        stock: Use only operators that stock ExecuTorch knows. Weights are then rounded to 4 bits, in groups
            of `group_size`, by a different method.
        group_size: The number of weights that share a scale, with `stock`.
        progress: A function that is called with the finished share (0 to 1) and the name of the current step.
            Default: a bar in notebooks.

    Returns:
        What was written: path, name, family, size.

    Raises:
        UnsupportedError: The family of the model is not supported.
        FormatError: The source is damaged.
    """
    report = progress or NotebookBar(f"converting {Path(source).name}").share
    report(0, "reading")
    if Path(pte_path).exists() and Path(pte_path).samefile(source):
        raise InputError(f"{pte_path} is the file to convert: give the program another name")
    _check_options(max_seq_len, max_context, batch, quantize, stock, group_size)
    checkpoint = open_checkpoint(Path(source))
    config, tensors = checkpoint.config, checkpoint.tensors
    weights = _weights(checkpoint, quantize, group_size if stock else None, report)
    if isinstance(checkpoint, EncoderCheckpoint):
        made = _encoder(checkpoint, weights, min(max_context, checkpoint.config.longest), batch)
    else:
        made = _decoder(checkpoint, weights, max_seq_len, min(max_context, config.context))
    report(WRITING_AT, "writing")
    description = {**_description(checkpoint, weights.description), **made.description}
    named = {**made.data, **_companions(checkpoint.vocabulary, description)}
    write_pte(pte_path, *assemble(made.graph, made.facts, named))
    report(1, "done")
    return Conversion(
        path=Path(pte_path),
        name=config.name,
        architecture=config.architecture.name,
        quantization=weights.description,
        rounding=weights.rounding,
        parameters=sum(tensors.size(name) for name in tensors.tensor_names),
        max_seq_len=made.max_seq_len,
        max_context=made.max_context,
        nbytes=Path(pte_path).stat().st_size,
    )


@dataclass(frozen=True, slots=True)
class _Made:
    """The parts of a program."""

    graph: VkGraph
    data: Mapping[str, Blob]
    facts: dict[str, Fact]  # the constant methods, under ExecuTorch's names
    description: dict[str, object]
    max_seq_len: int
    max_context: int


def _decoder(checkpoint: Checkpoint, weights: Weights, max_seq_len: int, max_context: int) -> _Made:
    config, vocabulary = checkpoint.config, checkpoint.vocabulary
    max_seq_len = min(max_seq_len, max_context)
    graph, builder = build_graph(config, weights, max_seq_len, max_context)
    facts: dict[str, Fact] = {
        "get_vocab_size": config.vocabulary,
        "get_max_seq_len": max_seq_len,
        "get_max_context_len": max_context,
        "get_n_layers": len(config.layers),
        "use_kv_cache": True,
        "use_sdpa_with_kv_cache": True,
        "enable_dynamic_shape": True,
        "get_eos_ids": vocabulary.eos,
    }
    if vocabulary.bos is not None:
        facts["get_bos_id"] = vocabulary.bos
    return _Made(graph, builder.data, facts, {}, max_seq_len, max_context)


def _encoder(checkpoint: EncoderCheckpoint, weights: Weights, length: int, batch: int | None) -> _Made:
    config = checkpoint.config
    batch = batch or max(1, min(MOST_TEXTS, MOST_TOKENS // length))
    graph, builder = build_encoder(config, weights, length, batch)
    facts: dict[str, Fact] = {
        "get_vocab_size": config.vocabulary,
        "get_max_seq_len": length,
        "get_n_layers": config.layers,
        "enable_dynamic_shape": True,
    }
    description = {"pooling": config.pooling.name.lower(), "normalize": config.normalize}
    return _Made(graph, builder.data, facts, description, length, length)


CALIBRATION_SHARE, WRITING_AT = 0.3, 0.98


def _weights(
    checkpoint: Checkpoint | EncoderCheckpoint,
    quantize: Rounding | None,
    stock_group: int | None,
    report: Progress,
) -> Weights:
    tensors = checkpoint.tensors
    parameters = sum(tensors.size(name) for name in tensors.tensor_names)
    if quantize is not None:
        return RoundedWeights(tensors, quantize, _share_of(parameters, 0, "quantising", report))
    if stock_group is None:
        return ExactWeights(tensors, _share_of(parameters, 0, "converting", report))
    if isinstance(checkpoint, EncoderCheckpoint):
        raise InputError("embedders cannot be converted for stock ExecuTorch: leave out stock")
    check_stock_operators(checkpoint.config, tensors.name)
    check_groups(tensors, checkpoint.config, stock_group)
    layers = len(checkpoint.config.layers)
    importance = input_importance(
        checkpoint.config,
        tensors,
        _calibration_tokens(checkpoint.vocabulary, checkpoint.config),
        lambda layer: report(CALIBRATION_SHARE * (layer + 1) / layers, "calibrating"),
    )
    heard = _share_of(parameters, CALIBRATION_SHARE, "quantising", report)
    return StockWeights(tensors, layers, stock_group, importance, heard)


def _share_of(parameters: int, begin: float, what: str, report: Progress) -> Callable[[int], None]:
    """What hears the sizes of matrices that are done, and reports the share of all that they are."""
    done = 0

    def on_matrix(size: int) -> None:
        nonlocal done
        done += size
        report(begin + (WRITING_AT - begin) * min(done / parameters, 1), what)

    return on_matrix


def _check_options(
    max_seq_len: int,
    max_context: int,
    batch: int | None,
    quantize: Rounding | None,
    stock: bool,
    group_size: int,
) -> None:
    if max_seq_len < 1 or max_context < 1:
        raise InputError(f"max_seq_len ({max_seq_len}) and max_context ({max_context}) must be positive")
    if batch is not None and batch < 1:
        raise InputError(f"batch must be positive, not {batch}")
    if quantize is not None and quantize not in BITS:
        raise InputError(f"quantize must be one of {', '.join(BITS)}, not {quantize!r}")
    if quantize is not None and stock:
        raise InputError("stock rounds weights by itself: leave out quantize")
    if group_size < 8 or group_size % 8:
        raise InputError(f"group_size must be a multiple of 8, not {group_size}")


def _calibration_tokens(vocabulary: Vocabulary, config: Config) -> list[int]:
    """The text that the model is calibrated with, no longer than what it was trained for."""
    tokens = vocabulary.tokenizer.encode(TEXT.read_text(encoding="utf-8")).ids
    return [token for token in tokens if token < config.vocabulary][: min(CALIBRATION_TOKENS, config.context)]


def _description(checkpoint: Checkpoint | EncoderCheckpoint, quantization: str) -> dict[str, object]:
    config, vocabulary = checkpoint.config, checkpoint.vocabulary
    return {
        "name": config.name,
        "architecture": config.architecture.name,
        "quantization": quantization,
        "add_bos_token": vocabulary.add_bos,
        **_special(vocabulary),
    }


def _special(vocabulary: Vocabulary) -> dict[str, str | None]:
    return {
        "bos_token": vocabulary.text(vocabulary.bos),
        "eos_token": vocabulary.text(next(iter(vocabulary.eos), None)),
        "pad_token": vocabulary.text(vocabulary.padding),
    }


def _companions(vocabulary: Vocabulary, description: Mapping[str, object]) -> dict[str, Blob]:
    """What belongs to the model besides its program, by the names under which `pteron.llm` looks for it."""
    texts = {
        "pteron.model.json": json.dumps(description, ensure_ascii=False),
        "pteron.tokenizer.json": vocabulary.tokenizer.to_str(),
        "tokenizer_config.json": json.dumps(_special(vocabulary), ensure_ascii=False),
    }
    if vocabulary.chat_template is not None:
        texts["pteron.chat_template"] = vocabulary.chat_template
    if vocabulary.tool_template is not None:
        texts["pteron.chat_template.tool_use"] = vocabulary.tool_template
    return {name: text.encode() for name, text in texts.items()}
