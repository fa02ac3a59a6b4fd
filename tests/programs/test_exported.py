"""Programs from `pteron.export` give the results of torch."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import pteron
from pteron.engine.devices.opening import Device
from tests.support.calls import check_file, eager
from tests.torch_only.export_cases import CASES, LONGEST, exported, reference, write_factory


@pytest.mark.parametrize("name", CASES)
def test_numbers_are_those_of_torch(name: str, device: Device) -> None:
    module, make = reference(name), CASES[name][1]
    torch.manual_seed(2)
    calls = eager(module, map(make, (LONGEST, 1, 7, 16, 2)))
    check_file(device, exported(name).buffer, calls, rtol=1e-4, atol=2e-5)


def test_from_the_command_line(tmp_path: Path, device: Device) -> None:
    factory = write_factory(tmp_path)
    out = factory.parent / "out.pte"
    command = [sys.executable, "-m", "pteron", "export", f"{factory}:make", str(out), "--quantize", "4bit"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=os.environ)
    assert (done.returncode, done.stderr) == (0, "")
    assert "2 delegated, 0 not" in done.stdout and "can run" in done.stdout
    with pteron.load(out, device=device) as program:
        assert program(np.ones((3, 32), np.float32)).shape == (3, 32)
