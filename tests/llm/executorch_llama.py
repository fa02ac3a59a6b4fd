"""ExecuTorch's own llama export, as its users run it, on a tiny model; and torch's answers beside it.

    python -m tests.llm.executorch_llama FOLDER

A process of its own, as importing that exporter sets up logging for everyone.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import numpy as np

PARAMS = {
    "dim": 64,
    "n_layers": 2,
    "n_heads": 4,
    "n_kv_heads": 2,
    "vocab_size": 128,
    "hidden_dim": 96,
    "norm_eps": 1e-5,
    "rope_theta": 10000.0,
}
MAX_LENGTH, CONTEXT = 32, 64
OPTIONS = "--vulkan -qmode 4w -G 32 -E 4,32 -kv --use_sdpa_with_kv_cache"
PIECES = (13, 1, 1, 5, 1, 31, 1)  # of the text, as it is fed in


def text() -> np.ndarray:
    return np.random.default_rng(3).integers(0, PARAMS["vocab_size"], (1, sum(PIECES)))


def main(folder: Path) -> None:
    """Writes model.pte, and logits.npy: the last token's after each piece."""
    import torch
    from executorch.examples.models.llama import export_llama_lib
    from executorch.examples.models.llama.llama_transformer import construct_transformer
    from executorch.examples.models.llama.model_args import ModelArgs
    from executorch.extension.llm.export.config.llm_config import LlmConfig

    from tests.support.export import remember_rope_patterns

    torch.manual_seed(0)
    os.chdir(folder)
    Path("params.json").write_text(json.dumps(PARAMS))
    model = construct_transformer(ModelArgs(**PARAMS))
    weights = {name: t for name, t in model.state_dict().items() if name.endswith("weight")}
    for tensor in weights.values():  # far from the defaults: norms of 1 and small embeddings hide mistakes
        tensor.copy_(
            torch.randn_like(tensor) / tensor.shape[1] ** 0.5
            if tensor.dim() == 2
            else 1 + torch.randn_like(tensor) / 5
        )
    weights["tok_embeddings.weight"].mul_(24)
    torch.save(weights, "checkpoint.pth")
    command = f"--checkpoint checkpoint.pth --params params.json {OPTIONS} --output_name model.pte "
    command += f"--max_seq_length {MAX_LENGTH} --max_context_length {CONTEXT}"
    arguments = export_llama_lib.build_args_parser().parse_args(command.split())
    remember_rope_patterns()
    export_llama_lib.export_llama(arguments)

    eager = export_llama_lib._prepare_for_llama_export(LlmConfig.from_args(arguments)).model.eval()
    tokens, start, logits = torch.tensor(text()), 0, []
    with torch.no_grad():
        for length in PIECES:
            piece = tokens[:, start : start + length]
            logits.append(eager(piece, {"input_pos": torch.tensor([start])})[0].numpy())
            start += length
    np.save("logits.npy", np.stack(logits))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
