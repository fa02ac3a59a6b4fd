"""The tests of ExecuTorch's Python runtime, with its import changed; and its Inspector on Pteron's ETDump."""

from __future__ import annotations

import unittest
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from executorch.devtools import Inspector

from pteron.runtime import Runtime, RuntimeFailure
from tests.support import DATA

FILES = ("test_runtime.py", "test_runtime_etdump_gen.py")


def suite_of(file: str) -> unittest.TestSuite:
    """The tests in a file of the wheel, with `pteron.runtime` instead of `executorch.runtime`."""
    found = find_spec("executorch.runtime")
    assert found is not None and found.origin is not None
    path = Path(found.origin).parent / "test" / file
    text = path.read_text("utf-8")
    assert "from executorch.runtime import" in text
    names: dict[str, Any] = {"__name__": file}
    exec(
        compile(text.replace("from executorch.runtime import", "from pteron.runtime import"), path, "exec"),
        names,
    )
    classes = [x for x in names.values() if isinstance(x, type) and issubclass(x, unittest.TestCase)]
    return unittest.TestSuite(map(unittest.defaultTestLoader.loadTestsFromTestCase, classes))


@pytest.mark.parametrize("file", FILES)
def test_executorchs_own_tests(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    suite = suite_of(file)
    assert suite.countTestCases() >= 2
    result = unittest.TestResult()
    suite.run(result)
    capsys.readouterr()  # they print the program
    assert not result.errors + result.failures, result.errors + result.failures
    assert not result.skipped


@pytest.fixture
def dumped(tmp_path: Path) -> tuple[Path, Path, list[Any]]:
    """Two calls of a delegated program, recorded: the files, and the last outputs."""
    program = Runtime.get().load_program(DATA / "dyn_rms.pte", enable_etdump=True, debug_buffer_size=10**6)
    method = program.load_method("forward")
    x = np.ones((1, 1, 8, 64), np.float32)
    method.execute([x])
    outputs = method.execute([x])
    paths = tmp_path / "run.etdp", tmp_path / "run.bin"
    program.write_etdump_result_to_file(*map(str, paths))
    return *paths, outputs


def test_the_inspector_reads_it(dumped: tuple[Path, Path, list[Any]]) -> None:
    etdump, data, (output,) = dumped
    inspector = Inspector(etdump_path=str(etdump), debug_buffer_path=str(data))
    (block,) = inspector.event_blocks
    assert block.name == "Execute"
    events = {event.name: event for event in block.events}
    whole, call = events["Method::execute"], events["DELEGATE_CALL"]
    (node,) = (event for event in block.events if event.is_delegated_op)
    assert "et_vk.rms_norm.default" in node.name
    assert len(node.perf_data.raw) == 2  # one per call
    assert 0 < node.perf_data.avg == pytest.approx(call.perf_data.avg) and whole.perf_data.avg > 0
    np.testing.assert_array_equal(block.run_output[0], output)


def test_without_recording_there_is_no_etdump(tmp_path: Path) -> None:
    program = Runtime.get().load_program(DATA / "dyn_rms.pte")
    with pytest.raises(RuntimeFailure, match="enable_etdump=True"):
        program.write_etdump_result_to_file(str(tmp_path / "a"), str(tmp_path / "b"))
