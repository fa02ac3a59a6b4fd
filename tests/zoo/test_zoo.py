"""Small models of the zoo, one mode each, for `make test-all`. `make zoo` tries all models in every mode."""

from __future__ import annotations

import pytest

from pteron.devices import Device
from tests.zoo.exporter import MODES
from tests.zoo.table import LEAN, table
from tests.zoo.trial import try_model


@pytest.mark.slow
@pytest.mark.parametrize(("name", "mode"), LEAN.items())
def test_the_model_equals_torch(name: str, mode: str, device: Device) -> None:
    result = try_model(table()[name], MODES[mode], device)
    assert (result.exported, result.loaded, result.right) == (True, True, True)


def test_the_table_is_large() -> None:
    assert len(table()) >= 150
