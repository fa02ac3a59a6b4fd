"""From a model as its makers published it to a `.pte` program, without torch."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from pteron._util.distinct_files import refuse_inputs
from pteron._util.progress import NotebookBar, Progress
from pteron.errors import InputError
from pteron.llm.architectures.checkpoint import Checkpoint, EncoderCheckpoint
from pteron.llm.architectures.model_vocabulary import Vocabulary
from pteron.llm.architectures.tensors import Tensors
from pteron.llm.gguf.assemble import Blob, Fact, assemble
from pteron.llm.gguf.encoder_graph import build_encoder
from pteron.llm.gguf.exact import ExactWeights
from pteron.llm.gguf.graph_operators import Lengths, build_graph
from pteron.llm.gguf.rounded import BITS, RoundedWeights, Rounding
from pteron.llm.gguf.weights import Weights
from pteron.llm.sources import open_checkpoint
from pteron.pte import write_pte
from pteron.pte.vulkan import VkGraph

DEFAULT_LENGTHS = 128, 2048  # tokens of a call, and of a context
SHARED_CALL = 512  # the most tokens of a call of a program that is kept in the cache, for all devices
MOST_TEXTS, MOST_TOKENS = 32, 8192  # of a call of an embedder, unless a batch is given


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
    max_seq_len: int = DEFAULT_LENGTHS[0],
    max_context: int = DEFAULT_LENGTHS[1],
    batch: int | None = None,
    quantize: Rounding | None = None,
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
        progress: A function that is called with what is being done, the finished share, and 1.0.
            Default: a bar in notebooks.

    Returns:
        What was written: path, name, family, size.

    Raises:
        UnsupportedError: The family of the model is not supported.
        FormatError: The source is damaged.
    """
    refuse_inputs(Path(pte_path), _files(Path(source)))
    _check_options(max_seq_len, max_context, batch, quantize)
    lengths = Lengths(max_seq_len, max_context, max_context, max_context)
    return _convert(Path(source), pte_path, lengths, batch, quantize, progress)


def convert_for_any_context(
    source: Path, pte_path: Path, *, call: int, tables: int, rotary: int, progress: Progress | None
) -> None:
    """Convert a model once for all contexts of up to `tables` tokens. The length is chosen at load."""
    caches = max(call, DEFAULT_LENGTHS[1])
    _convert(source, pte_path, Lengths(call, caches, tables, rotary), None, None, progress)


def _convert(
    source: Path,
    pte_path: str | PathLike[str],
    lengths: Lengths,
    batch: int | None,
    quantize: Rounding | None,
    progress: Progress | None,
) -> Conversion:
    report = progress or NotebookBar(f"converting {source.name}")
    report("reading", 0.0, 1.0)
    checkpoint = open_checkpoint(source)
    config, tensors = checkpoint.config, checkpoint.tensors
    weights = _weights(tensors, quantize, report)
    if isinstance(checkpoint, EncoderCheckpoint):
        longest = checkpoint.config.longest
        made = _encoder(checkpoint, weights, min(max(lengths.caches, lengths.rotary), longest), batch)
    else:
        made = _decoder(checkpoint, weights, lengths.for_model(checkpoint.config))
    report("writing", WRITING_AT, 1.0)
    description = {**_description(checkpoint, weights.description), **made.description}
    named = {**made.data, **_companions(checkpoint.vocabulary, description)}
    write_pte(pte_path, *assemble(made.graph, made.facts, named))
    report("done", 1.0, 1.0)
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


def _files(source: Path) -> list[Path]:
    """The files of a model. A program may be written beside those of a folder."""
    return [path for path in source.rglob("*") if path.is_file()] if source.is_dir() else [source]


@dataclass(frozen=True, slots=True)
class _Made:
    """The parts of a program."""

    graph: VkGraph
    data: Mapping[str, Blob]
    facts: dict[str, Fact]  # the constant methods, under ExecuTorch's names
    description: dict[str, object]
    max_seq_len: int
    max_context: int


def _decoder(checkpoint: Checkpoint, weights: Weights, lengths: Lengths) -> _Made:
    config, vocabulary = checkpoint.config, checkpoint.vocabulary
    graph, builder = build_graph(config, weights, lengths)
    facts: dict[str, Fact] = {
        "get_vocab_size": config.vocabulary,
        "get_max_seq_len": lengths.call,
        "get_max_context_len": lengths.caches,
        "get_n_layers": len(config.layers),
        "use_kv_cache": True,
        "use_sdpa_with_kv_cache": True,
        "enable_dynamic_shape": True,
        "get_eos_ids": vocabulary.eos,
    }
    if vocabulary.bos is not None:
        facts["get_bos_id"] = vocabulary.bos
    description: dict[str, object] = {
        "model_context": config.context,
        "context": lengths.caches,
        "longest_context": lengths.tables,
        "longest_call": lengths.call,
        "kv_elements_per_token": 2 * len(config.layers) * config.keys,
    }
    return _Made(graph, builder.data, facts, description, lengths.call, lengths.caches)


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
    description = {
        "pooling": config.pooling.name.lower(),
        "normalize": config.normalize,
        "model_context": config.longest,
        "context": length,
        "longest_context": length,
    }
    return _Made(graph, builder.data, facts, description, length, length)


WRITING_AT = 0.98  # the share of the work that is done then


def _weights(tensors: Tensors, quantize: Rounding | None, report: Progress) -> Weights:
    if quantize is not None:
        return RoundedWeights(tensors, quantize, _count_matrices(tensors, "quantising", report))
    return ExactWeights(tensors, _count_matrices(tensors, "converting", report))


def _count_matrices(tensors: Tensors, what: str, report: Progress) -> Callable[[int], None]:
    """Return a callback that adds up the sizes of finished matrices and reports the overall progress."""
    parameters = sum(tensors.size(name) for name in tensors.tensor_names)
    done = 0

    def on_matrix(size: int) -> None:
        nonlocal done
        done += size
        report(what, WRITING_AT * min(done / parameters, 1), 1.0)

    return on_matrix


def _check_options(max_seq_len: int, max_context: int, batch: int | None, quantize: Rounding | None) -> None:
    if max_seq_len < 1 or max_context < 1:
        raise InputError(f"max_seq_len ({max_seq_len}) and max_context ({max_context}) must be positive")
    if batch is not None and batch < 1:
        raise InputError(f"batch must be positive, not {batch}")
    if quantize is not None and quantize not in BITS:
        raise InputError(f"quantize must be one of {', '.join(BITS)}, not {quantize!r}")


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
