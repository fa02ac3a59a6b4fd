"""Export the tiny models with optimum-executorch, or run them through it: by ExecuTorch, or by Pteron.

    python -m tests.optimum.child export FOLDER
    python -m tests.optimum.child run FOLDER executorch|pteron

`run` writes what each model answers to FOLDER/executorch.json or FOLDER/pteron.json. Each runs in a process
of its own, because optimum-executorch imports ExecuTorch's runtime once.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch

from tests.zoo import libraries

libraries.load()  # before transformers

from tests.optimum.models import MODELS, VOCABULARY  # noqa: E402

NEW_TOKENS = 20
CLASSES = {
    "text-generation": "ExecuTorchModelForCausalLM",
    "fill-mask": "ExecuTorchModelForMaskedLM",
    "image-classification": "ExecuTorchModelForImageClassification",
    "automatic-speech-recognition": "ExecuTorchModelForSpeechSeq2Seq",
}


def export(folder: Path) -> None:
    from optimum.exporters.executorch import main_export

    for name, model in MODELS.items():
        model.save(folder / name / "source")
        main_export(
            str(folder / name / "source"), model.task, "xnnpack", folder / name, config=None, **model.options
        )


def answers(model: Any, task: str) -> list[Any]:
    """Tokens that a model generates for several prompts, or its numbers for several inputs."""
    generator = torch.Generator().manual_seed(1)

    def tokens(count: int) -> torch.Tensor:
        return torch.randint(3, VOCABULARY, (1, count), generator=generator)

    match task:
        case "text-generation":
            lengths = (7, 1, 4)  # no longer than the window of gemma3, to which its export is limited
            return [
                model.generate(tokens(length)[0].tolist(), max_seq_len=length + NEW_TOKENS)
                for length in lengths
            ]
        case "fill-mask":
            length = model.model.method_meta("forward").input_tensor_meta(0).sizes()[1]
            ids = tokens(length)
            masks = (torch.ones_like(ids), torch.arange(length)[None] < length // 2)
            return [model.forward(ids, mask.long()).tolist() for mask in masks]
        case "image-classification":
            return [
                model.forward(torch.randn(1, 3, 32, 32, generator=generator)).flatten().tolist()
                for _ in range(2)
            ]
        case "automatic-speech-recognition":
            features = torch.randn(1, 80, 3000, generator=generator)
            return [model.generate(features, max_seq_len=NEW_TOKENS)]
    raise ValueError(task)


def run(folder: Path, runtime: str) -> None:
    if runtime == "pteron":
        import pteron.runtime

        pteron.runtime.install()
    import optimum.executorch

    found = {}
    for name, model in MODELS.items():
        try:
            loaded = getattr(optimum.executorch, CLASSES[model.task]).from_pretrained(folder / name)
            found[name] = answers(loaded, model.task)
        except Exception as error:
            found[name] = f"{type(error).__name__}: {error}"
    (folder / f"{runtime}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    what, where, *rest = sys.argv[1:]
    export(Path(where)) if what == "export" else run(Path(where), *rest)
