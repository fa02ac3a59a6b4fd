"""Bundled programs: a `.bpte` file is its program, with tests that `verify` runs."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.export import Dim

import pteron
from pteron.pte import bundled
from pteron.pte.bytesource import ByteSource
from tests.support.cli import pteron_cli

MODULE = torch.nn.Sequential(torch.nn.Linear(6, 4), torch.nn.Tanh()).eval()


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from executorch.devtools import BundledProgram
    from executorch.devtools.bundled_program.config import MethodTestCase, MethodTestSuite
    from executorch.devtools.bundled_program.serialize import serialize_from_bundled_program_to_flatbuffer
    from executorch.exir import to_edge_transform_and_lower

    shapes = ({0: Dim("rows", max=5)},)
    program = torch.export.export(MODULE, (torch.zeros(5, 6),), dynamic_shapes=shapes)
    made = to_edge_transform_and_lower(program).to_executorch()
    inputs = [torch.randn(rows, 6) for rows in (5, 2)]
    cases = [MethodTestCase(inputs=(x,), expected_outputs=[MODULE(x).detach()]) for x in inputs]
    path = tmp_path_factory.mktemp("bundled") / "model.bpte"
    bundle = BundledProgram(made, [MethodTestSuite("forward", cases)])
    path.write_bytes(serialize_from_bundled_program_to_flatbuffer(bundle))
    return path


def test_it_is_its_program(path: Path) -> None:
    x = torch.randn(3, 6)
    with pteron.load(path) as program:
        torch.testing.assert_close(program(x), MODULE(x).detach())
    assert pteron.check(path)
    assert "output0" in pteron_cli("run", path, "--random").stdout


def test_verify_runs_its_tests(path: Path, tmp_path: Path) -> None:
    report = pteron.verify(path)
    tests = [result for result in report.results if "of test" in result.op]
    assert report.ok and [result.reads for result in tests] == [((5, 6),), ((2, 6),)]

    bundle = bundled.read_bundle(ByteSource(path))
    (suite,) = bundle.method_test_suites
    good, bad = suite.test_cases
    (value,) = bad.expected_outputs
    wrong = np.frombuffer(value.value.data, np.float32).copy()
    wrong[3] += 0.1
    value = bundled.TestValue(replace(value.value, data=memoryview(wrong.tobytes())))
    suite = replace(suite, test_cases=(good, replace(bad, expected_outputs=(value,))))
    changed = tmp_path / "wrong.bpte"
    changed.write_bytes(bundled.write_bundle(replace(bundle, method_test_suites=(suite,))))
    told = pteron_cli("verify", changed, code=1).stdout
    assert "output output0 of test 1" in told and "1 result wrong" in told


def test_damaged_bundles_are_refused(path: Path) -> None:
    data = path.read_bytes()
    rng = random.Random(0)
    for _ in range(300):
        damaged = bytearray(data[: rng.randrange(8, len(data))] if rng.random() < 0.3 else data)
        for _ in range(rng.randrange(1, 4)):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        try:
            pteron.check(bytes(damaged))
        except pteron.PteronError:
            continue
