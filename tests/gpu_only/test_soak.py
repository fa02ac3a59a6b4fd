"""`pteron doctor --soak`: right kernels pass; changed bits and memory that is not freed are found."""

from __future__ import annotations

from typing import Any

import pytest

from pteron.engine.devices.opening import Device
from pteron.tools.verify import selftest, soak
from pteron.tools.verify.catalogue import cases
from pteron.tools.verify.soak import Bits, SoakReport
from tests.support.cli import answer

FEW = [case for case in cases() if case.op in ("aten.glu.default", "aten.cumsum.default")][:3]


def two_rounds(device: Device, monkeypatch: pytest.MonkeyPatch) -> SoakReport:
    """A soak that ends after two rounds, however long they take."""
    seconds = iter([0.0, *[1.0] * (2 * len(FEW)), *[1000.0] * 9])
    monkeypatch.setattr(soak.time, "monotonic", lambda: next(seconds))
    return soak.soak(device, 2, FEW)


def test_right_kernels_pass(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    report = two_rounds(device, monkeypatch)
    assert report and report.rounds == 2 and report.grown_mib is not None
    assert report.results >= 2 * selftest.CALLS_PER_SIZE * sum(len(case.sizes) for case in FEW)
    assert "all are right, with the same bits each time" in str(report)


def test_changed_bits_are_found() -> None:
    import numpy as np

    bits = Bits()
    zero, negative = np.zeros(3, np.float32), -np.zeros(3, np.float32)
    check = bits.changed(FEW[0])
    assert check("a route", 3, [zero]) is None
    assert check("a route", 3, [zero.copy()]) is None
    assert check("another", 3, [negative]) is None
    assert check("a route", 3, [negative]) == "other bits than at the first time"  # -0.0 is right, too
    assert bits.changed(FEW[1])("a route", 3, [negative]) is None


def test_memory_that_is_not_freed_is_found(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[Any] = []
    healthy = soak.run_case

    def leaking(*given: Any) -> Any:
        kept.append(device.storage(4096, "forgotten"))
        yield from healthy(*given)

    monkeypatch.setattr(soak, "run_case", leaking)
    report = two_rounds(device, monkeypatch)
    for buffer in kept:
        device.free(buffer)
    assert not report
    assert "4,096 bytes on the GPU were not freed" in report.findings[0]


def test_the_command() -> None:
    (told,) = answer("doctor", "--soak", 0, "--device", 0)["soaks"]
    assert told["ok"] and told["results"] == 0
