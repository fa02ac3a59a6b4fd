"""Small models that are run in pages, recorded with torch's results."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.dynamic_shape.recording import write

MODELS = [
    "mlp",
    "conv net, batched",
    *(pytest.param(name, marks=pytest.mark.slow) for name in ("lstm", "transformer encoder", "bert", "gpt")),
]


def record_model(name: str, folder: Path) -> None:
    import torch

    from tests.models import zoo
    from tests.support.calls import eager
    from tests.support.export import export

    model = zoo.MODELS[name]
    torch.manual_seed(0)
    module = model.make().eval()
    program = export(module, model.inputs(model.sizes[0]), model.dynamic_shapes)
    calls = eager(module, map(model.inputs, (*model.sizes, *reversed(model.sizes))))
    write(folder, program, calls, 1e-4)
