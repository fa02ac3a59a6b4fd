"""A dozen small models of the zoo, one mode each. `make zoo` tries all of them in every mode."""

from __future__ import annotations

import pytest

from pteron.devices import Device
from tests.zoo.exporter import MODES, Mode
from tests.zoo.table import LEAN, table
from tests.zoo.trial import try_model

# In turn, so that every way of exporting is seen.
CASES = list(zip(LEAN, (list(MODES.values()) * len(LEAN))[: len(LEAN)], strict=True))


@pytest.mark.parametrize(("name", "mode"), CASES, ids=[f"{name}, {mode}" for name, mode in CASES])
def test_the_model_equals_torch(name: str, mode: Mode, device: Device) -> None:
    result = try_model(table()[name], mode, device)
    assert (result.exported, result.loaded, result.right) == (True, True, True)


def test_the_table_is_large() -> None:
    assert len(table()) >= 150
