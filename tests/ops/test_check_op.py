"""`make check-op` finds what is missing and what is wrong, and says where."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pteron.compiler.ops import registered
from pteron.engine.devices.opening import Device
from pteron.tools.verify.catalogue import CATALOGUE
from tests.check_op import Check, main

NAME = "aten.neg.default"


def test_an_operator_that_does_not_exist(capsys: pytest.CaptureFixture[str]) -> None:
    assert main("aten.nothing.default") == 1
    assert "docs/adding-an-operator.md" in capsys.readouterr().out


def test_an_operator_without_an_entry(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delitem(CATALOGUE, NAME)
    assert main(NAME) == 1
    assert f"{NAME} has no entry: add one to src/pteron/tools/verify/catalogue" in capsys.readouterr().out


def test_what_does_not_agree(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    (entry,) = CATALOGUE[NAME]
    assert not list(Check(NAME, registered()[NAME], device).naga())
    monkeypatch.setitem(CATALOGUE, NAME, [replace(entry, reference=np.abs, dtypes=entry.dtypes[:1])])
    check = Check(NAME, registered()[NAME], device)
    assert any(NAME in problem for problem in check.naga())
    assert list(check.table()) == ["docs/operators.md is not current: run `make docs`"]
    assert not list(check.catalogue())
