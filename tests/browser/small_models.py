"""Small models that are run in pages, recorded with torch's results."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.dynamic_shape.recording import write

MODELS = [
    "mlp",
    "conv net",
    *(pytest.param(name, marks=pytest.mark.slow) for name in ("torch/LSTM", "torch/TransformerEncoder")),
]


def record_model(name: str, folder: Path) -> None:
    import torch

    from tests.browser.networks import NETWORKS
    from tests.support.calls import eager
    from tests.support.export import export
    from tests.zoo.table import table

    model = NETWORKS.get(name) or table()[name]
    module = model.build()
    torch.manual_seed(0)
    program = export(module, model.inputs(model.largest), model.dynamic_shapes())
    calls = eager(module, map(model.inputs, (*model.sizes, *reversed(model.sizes))))
    write(folder, program, calls, 1e-4)
