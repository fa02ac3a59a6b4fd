"""From a GGUF file to a `.pte` program, without torch."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from pteron.errors import InputError
from pteron.llm.architectures.config import Config
from pteron.llm.architectures.layout import check_groups, check_tensors
from pteron.llm.gguf.assemble import Blob, Fact, assemble
from pteron.llm.gguf.calibrate import TEXT, input_importance
from pteron.llm.gguf.checkpoint import Checkpoint, open_gguf
from pteron.llm.gguf.exact import ExactWeights
from pteron.llm.gguf.graph_operators import build_graph
from pteron.llm.gguf.stock import StockWeights
from pteron.llm.gguf.vocabulary import Vocabulary
from pteron.llm.gguf.weights import Weights
from pteron.pte import write_pte

CALIBRATION_TOKENS = 512

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
    gguf_path: str | PathLike[str],
    pte_path: str | PathLike[str],
    *,
    max_seq_len: int = 128,
    max_context: int = 2048,
    stock: bool = False,
    group_size: int = 32,
    progress: Progress | None = None,
) -> Conversion:
    """Convert a llama-family model (llama, mistral, qwen2, qwen3) from GGUF to a `.pte` program.

    max_seq_len: the most tokens that one call takes.
    max_context: the positions that the KV caches hold; no more than the model was trained for are kept.
    stock: use only operators that stock ExecuTorch knows. Weights are then rounded to 4 bits, in groups of
        `group_size`; otherwise they are those of the file.
    progress: called with the share that is done and what is being done.

    The file appears whole or not at all. Tokenizer and chat template are inside it.
    """
    report = progress or (lambda share, what: None)
    report(0, "reading")
    if Path(pte_path).exists() and Path(pte_path).samefile(gguf_path):
        raise InputError(f"{pte_path} is the file to convert: give the program another name")
    _check_options(max_seq_len, max_context, group_size)
    checkpoint = open_gguf(Path(gguf_path))
    config, tensors, vocabulary = checkpoint.config, checkpoint.tensors, checkpoint.vocabulary
    max_context = min(max_context, config.context)
    max_seq_len = min(max_seq_len, max_context)
    check_tensors(tensors, config)
    parameters = sum(tensors.size(name) for name in tensors.tensor_names)
    weights: Weights
    if stock:
        check_groups(tensors, config, group_size)
        weights = _stock_weights(checkpoint, group_size, report)
    else:
        weights = ExactWeights(tensors, _share_of(parameters, 0, "converting", report))

    graph, builder = build_graph(config, weights, max_seq_len, max_context)
    report(WRITING_AT, "writing")
    facts = _facts(config, vocabulary, max_seq_len, max_context)
    named = {**builder.data, **_companions(config, vocabulary, weights.description)}
    write_pte(pte_path, *assemble(graph, facts, named))
    report(1, "done")
    return Conversion(
        path=Path(pte_path),
        name=config.name,
        architecture=config.architecture.name,
        quantization=weights.description,
        rounding=weights.rounding,
        parameters=parameters,
        max_seq_len=max_seq_len,
        max_context=max_context,
        nbytes=Path(pte_path).stat().st_size,
    )


CALIBRATION_SHARE, WRITING_AT = 0.3, 0.98


def _stock_weights(checkpoint: Checkpoint, group_size: int, report: Progress) -> Weights:
    config, tensors = checkpoint.config, checkpoint.tensors
    layers = len(config.layers)
    importance = input_importance(
        config,
        tensors,
        _calibration_tokens(checkpoint.vocabulary, config),
        lambda layer: report(CALIBRATION_SHARE * (layer + 1) / layers, "calibrating"),
    )
    parameters = sum(tensors.size(name) for name in tensors.tensor_names)
    heard = _share_of(parameters, CALIBRATION_SHARE, "quantising", report)
    return StockWeights(tensors, layers, group_size, importance, heard)


def _share_of(parameters: int, begin: float, what: str, report: Progress) -> Callable[[int], None]:
    """What hears the sizes of matrices that are done, and reports the share of all that they are."""
    done = 0

    def on_matrix(size: int) -> None:
        nonlocal done
        done += size
        report(begin + (WRITING_AT - begin) * min(done / parameters, 1), what)

    return on_matrix


def _check_options(max_seq_len: int, max_context: int, group_size: int) -> None:
    if max_seq_len < 1 or max_context < 1:
        raise InputError(f"max_seq_len ({max_seq_len}) and max_context ({max_context}) must be positive")
    if group_size < 8 or group_size % 8:
        raise InputError(f"group_size must be a multiple of 8, not {group_size}")


def _calibration_tokens(vocabulary: Vocabulary, config: Config) -> list[int]:
    """The text that the model is calibrated with, no longer than what it was trained for."""
    tokens = vocabulary.tokenizer.encode(TEXT.read_text(encoding="utf-8")).ids
    return [token for token in tokens if token < config.vocabulary][: min(CALIBRATION_TOKENS, config.context)]


def _facts(config: Config, vocabulary: Vocabulary, max_seq_len: int, max_context: int) -> dict[str, Fact]:
    """The constant methods, under ExecuTorch's names."""
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
    return facts


def _companions(config: Config, vocabulary: Vocabulary, quantization: str) -> dict[str, Blob]:
    """What belongs to the model besides its program, by the names under which `pteron.llm` looks for it."""
    special = {
        "bos_token": vocabulary.text(vocabulary.bos),
        "eos_token": vocabulary.text(next(iter(vocabulary.eos), None)),
        "pad_token": vocabulary.text(vocabulary.padding),
    }
    model = {
        "name": config.name,
        "architecture": config.architecture.name,
        "quantization": quantization,
        "add_bos_token": vocabulary.add_bos,
        **special,
    }
    texts = {
        "pteron.model.json": json.dumps(model, ensure_ascii=False),
        "pteron.tokenizer.json": vocabulary.tokenizer.to_str(),
        "tokenizer_config.json": json.dumps(special, ensure_ascii=False),
    }
    if vocabulary.chat_template is not None:
        texts["pteron.chat_template"] = vocabulary.chat_template
    return {name: text.encode() for name, text in texts.items()}
