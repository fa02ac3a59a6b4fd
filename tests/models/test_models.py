"""Whole models compared with torch, with and without a delegate, at several live shapes of one program."""

from __future__ import annotations

import pytest
import torch

from pteron.engine.devices.opening import Device
from tests.models.zoo import MODELS, Model
from tests.support.programs import check_export

CASES = [
    pytest.param(model, partitioner, id=f"{name}-{'delegated' if partitioner else 'alone'}")
    for name, model in MODELS.items()
    for partitioner in (True, False)
]


@pytest.mark.parametrize(("model", "partitioner"), CASES)
def test_model_equals_torch_at_every_live_shape(model: Model, partitioner: bool, device: Device) -> None:
    torch.manual_seed(0)
    module = model.make().eval()
    # Once in the order given, and once back: a shape must not depend on what came before it.
    sizes = (*model.sizes, *reversed(model.sizes))
    check_export(
        device,
        module,
        model.inputs,
        sizes,
        model.dynamic_shapes,
        rtol=1e-4,
        atol=1e-4,
        partitioner=partitioner,
    )
