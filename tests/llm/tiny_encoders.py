"""Tiny random encoders of transformers, written as GGUF files and as Hugging Face folders."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch

from pteron.llm.architectures.encoders import ENCODERS
from tests.llm.blocks import Kind
from tests.zoo import libraries

WORDS = ["the", "cat", "sat", "dog", "ran", "hello", "world", "un", "like", "ly", "a", "b", "c"]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
VOCABULARY = [*SPECIAL, *WORDS, *(f"##{word}" for word in WORDS), "!", ","]
LENGTH = 40  # tokens
SIZES = {
    "vocab_size": len(VOCABULARY),
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 96,
    "max_position_embeddings": LENGTH,
}
TEXTS = [
    "the cat sat",
    "Hello, world! unlikely",
    "a",
    " ".join(["the dog ran"] * 11),
    "",
    "un like the cat, the dog sat!",
]


def model(kind: str, dtype: torch.dtype = torch.float32) -> Any:
    """A `transformers` model of the model type `kind`, with numbers that a given dtype has."""
    libraries.load()
    import transformers

    torch.manual_seed(3)
    extra = {"roberta": {"pad_token_id": 1}, "distilbert": {"hidden_dim": SIZES["intermediate_size"]}}
    config = transformers.AutoConfig.for_model(kind, **SIZES, **extra.get(kind, {}))
    made = transformers.AutoModel.from_config(config)
    for parameter in made.parameters():  # biases begin as zeros and norms as ones, which hides mistakes
        parameter.data += 0.1 * torch.randn_like(parameter)
        parameter.data = parameter.data.to(dtype).float()
    return made.float().eval()


def tokenizer() -> Any:
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    ids = {text: number for number, text in enumerate(VOCABULARY)}
    made = Tokenizer(models.WordPiece(ids, unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer()
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[(text, ids[text]) for text in ("[CLS]", "[SEP]")]
    )
    made.add_special_tokens(SPECIAL)
    return made


def expected(model: Any, texts: list[str], pooling: str = "mean", normalize: bool = True) -> Any:
    """The vectors by torch, text by text."""
    vectors = []
    for text in texts:
        with torch.no_grad():
            rows = model(input_ids=torch.tensor([tokenizer().encode(text).ids])).last_hidden_state[0]
        vector = {"mean": rows.mean(0), "cls": rows[0], "last": rows[-1]}[pooling]
        vectors.append(torch.nn.functional.normalize(vector, dim=0) if normalize else vector)
    return torch.stack(vectors).numpy()


# -- a folder ----------------------------------------------------------------------------------------


def write_folder(
    folder: Path, model: Any, pooling: str = "mean", normalize: bool = True, limit: int | None = None
) -> Path:
    """As sentence-transformers writes it."""
    model.save_pretrained(folder)
    tokenizer().save(str(folder / "tokenizer.json"))
    kinds = ["Transformer", "Pooling", *(["Normalize"] if normalize else [])]
    paths = ["", "1_Pooling", "2_Normalize"]
    modules = [
        {"idx": n, "name": str(n), "path": paths[n], "type": f"sentence_transformers.models.{kind}"}
        for n, kind in enumerate(kinds)
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    modes = {"pooling_mode_mean_tokens": pooling == "mean", "pooling_mode_cls_token": pooling == "cls"}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(modes))
    if limit:
        (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": limit}))
    return folder


# -- a GGUF file -------------------------------------------------------------------------------------


def write_gguf(
    path: Path, model: Any, pooling: gguf.PoolingType = gguf.PoolingType.MEAN, format: str = "F32"
) -> Path:
    """A file whose matrices have a format. Those of the model given are first rounded to it."""
    round_matrices(model, format)
    kind = {"bert": "bert", "nomic_bert": "nomic-bert"}[model.config.model_type]
    out = gguf.GGUFWriter(path, kind)
    out.add_name(f"tiny {kind}")
    out.add_block_count(SIZES["num_hidden_layers"])
    out.add_context_length(LENGTH)
    out.add_embedding_length(SIZES["hidden_size"])
    out.add_feed_forward_length(SIZES["intermediate_size"])
    out.add_head_count(SIZES["num_attention_heads"])
    out.add_layer_norm_eps(model.config.layer_norm_eps)
    out.add_causal_attention(False)
    out.add_pooling_type(pooling)
    if kind == "nomic-bert":
        out.add_rope_freq_base(1000.0)
    out.add_tokenizer_model("bert")
    out.add_token_list([stored_as(text) for text in VOCABULARY])
    out.add_token_types([3] * len(SPECIAL) + [1] * (len(VOCABULARY) - len(SPECIAL)))
    for role, number in {"pad": 0, "unk": 1, "bos": 2, "sep": 3, "mask": 4}.items():
        getattr(out, f"add_{role}_token_id")(number)
    for name, tensor in stored(model).items():
        is_matrix = tensor.ndim == 2 and name.startswith(("blk.", "token_embd"))
        as_format = Kind[format if is_matrix else "F32"]
        out.add_tensor(name, gguf.quantize(tensor, as_format), raw_dtype=as_format)
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()
    return path


def round_matrices(model: Any, format: str) -> None:
    """Give all matrices of a model values that the format has."""
    for matrix in (parameter.data for parameter in model.parameters() if parameter.dim() == 2):
        rounded = gguf.dequantize(gguf.quantize(matrix.numpy(), Kind[format]), Kind[format])
        matrix.copy_(torch.tensor(rounded))


def stored_as(text: str) -> str:
    """llama.cpp's spelling: words have the mark of a space before them, and what follows has none."""
    if text in SPECIAL:
        return text
    return text[2:] if text.startswith("##") else f"▁{text}"


def stored(model: Any) -> dict[str, np.ndarray[Any, Any]]:
    """The tensors under GGUF's names."""
    modules = next(family.hf_names for family in ENCODERS if model.config.model_type in family.model_types)
    made = {}
    for name, tensor in model.state_dict().items():
        module, _, parameter = name.rpartition(".")
        number = next((part for part in module.split(".") if part.isdigit()), "-")
        ours = modules.get(module.replace(f".{number}.", ".{n}."))
        if ours is not None:
            made[f"{ours.replace('{n}', number)}.{parameter}"] = tensor.numpy()
    for n in range(SIZES["num_hidden_layers"]):
        if model.config.model_type == "nomic_bert":  # as llama.cpp stores it
            parts = [made.pop(f"blk.{n}.attn_{part}.weight") for part in "qkv"]
            made[f"blk.{n}.attn_qkv.weight"] = np.concatenate(parts)
    return made
