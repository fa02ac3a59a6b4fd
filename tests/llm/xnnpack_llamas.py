"""Tiny llamas as ExecuTorch's `export_llm` writes them for XNNPACK: kinds of KV caches and of weights.

    python -m tests.llm.xnnpack_llamas [NAME...]

writes `programs/NAME.pte` beside this file. An export takes minutes, so the files are a part of the
repository. They are used as they are, like any file from somewhere.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).with_name("programs")
PARAMS = {
    "dim": 32,
    "n_layers": 2,
    "n_heads": 8,
    "n_kv_heads": 4,
    "vocab_size": 128,
    "multiple_of": 32,
    "hidden_dim": 64,
    "norm_eps": 1e-5,
    "rope_theta": 10000.0,
}
CONTEXT = 32
FOUR_BITS = {
    "quantization.qmode": "8da4w",
    "quantization.group_size": 32,
    "quantization.embedding_quantize": "4,32",
}

# What is different from the plain options of `main`, by name.
VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "four_bits": FOUR_BITS,
    "int8_cache": {**FOUR_BITS, "model.quantize_kv_cache": True},
    "index_put": {"model.use_sdpa_with_kv_cache": False},
    "ring": {"model.local_global_attention": [0, 16], "export.max_seq_length": 16},
    "sink": {"model.use_attention_sink": "4,16"},
    "channelwise": {
        "quantization.pt2e_quantize": "xnnpack_dynamic_qc4",
        "quantization.embedding_quantize": "2,32",
    },
    "float16": {"model.dtype_override": "fp16"},
}


def path(name: str) -> Path:
    return FOLDER / f"{name}.pte"


def main(names: list[str]) -> None:
    import torch
    from executorch.examples.models.llama.llama_transformer import construct_transformer
    from executorch.examples.models.llama.model_args import ModelArgs

    torch.manual_seed(0)
    model = construct_transformer(ModelArgs(**PARAMS))  # type: ignore[arg-type]
    weights = {name: t for name, t in model.state_dict().items() if name.endswith("weight")}
    for tensor in weights.values():  # far from the defaults: norms of 1 and small embeddings hide mistakes
        matrix = tensor.dim() == 2
        tensor.copy_(torch.randn_like(tensor) / (tensor.shape[-1] ** 0.5 if matrix else 5) + (not matrix))
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        Path("params.json").write_text(json.dumps(PARAMS))
        torch.save(weights, "weights.pth")
        for name in names or VARIANTS:
            export(name)


def export(name: str) -> None:
    from executorch.examples.models.llama.export_llama_lib import export_llama
    from executorch.extension.llm.export.config import llm_config

    config = llm_config.LlmConfig()
    options = {
        "base.model_class": llm_config.ModelType.llama3,
        "base.params": "params.json",
        "base.checkpoint": "weights.pth",
        "base.metadata": '{"get_bos_id": 1, "get_eos_ids": [2]}',
        "model.use_kv_cache": True,
        "model.use_sdpa_with_kv_cache": True,
        "export.max_seq_length": CONTEXT,
        "export.max_context_length": CONTEXT,
        "export.output_name": str(path(name)),
        "backend.xnnpack.enabled": True,
        "backend.xnnpack.extended_ops": True,
        **VARIANTS[name],
    }
    kinds = {
        "model.dtype_override": llm_config.DtypeOverride,
        "quantization.pt2e_quantize": llm_config.Pt2eQuantize,
    }
    for key, value in options.items():
        part, field = key.split(".", 1)
        owner: Any = getattr(config, part)
        *between, last = field.split(".")
        for each in between:
            owner = getattr(owner, each)
        setattr(owner, last, kinds[key](value) if key in kinds else value)
    export_llama(config)


if __name__ == "__main__":
    main(sys.argv[1:])
