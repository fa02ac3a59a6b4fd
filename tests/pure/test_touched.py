"""`make quick` runs the tests that a change touches: by imports and names of operators, the nearest first."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests import quick
from tests.support.touched import read_sources, touched_tests

OPS = "src/pteron/compiler/ops"
SOURCES = {
    "src/pteron/__init__.py": "from pteron.api.loading import load\nfrom pteron.errors import PteronError",
    "src/pteron/errors.py": "",
    "src/pteron/api/loading.py": "def load():\n    from pteron.engine import devices",
    "src/pteron/engine/devices.py": "",
    f"{OPS}/rolls.py": '@op("aten.roll.default")\ndef roll(): return Dispatch("shift")',
    f"{OPS}/wgsl/shift.wgsl": "//#include places",
    f"{OPS}/wgsl/lib/places.wgsl": "",
    "tests/conftest.py": "",
    "tests/support/calls.py": "import pteron\npteron.load",
    "tests/gpu_only/test_calls.py": "from tests.support.calls import call",
    "tests/gpu_only/test_load.py": "from pteron.api import loading",
    "tests/ops/test_rolls.py": 'check("roll.default")',
    "tests/ops/test_other.py": 'check("aten.rolling.default", "other")',
}


@pytest.mark.parametrize(
    ("changed", "tests"),
    [
        ("docs/faq.md", []),
        ("src/pteron/__init__.py", []),
        ("tests/ops/test_other.py", ["ops/test_other"]),
        ("src/pteron/api/loading.py", ["gpu_only/test_load", "gpu_only/test_calls"]),
        ("src/pteron/engine/devices.py", ["gpu_only/test_load", "gpu_only/test_calls"]),
        (f"{OPS}/rolls.py", ["ops/test_rolls"]),
        (f"{OPS}/wgsl/lib/places.wgsl", ["ops/test_rolls"]),
        (
            "tests/conftest.py",
            ["gpu_only/test_calls", "gpu_only/test_load", "ops/test_other", "ops/test_rolls"],
        ),
    ],
)
def test_tests_are_chosen_by_what_they_need(changed: str, tests: list[str]) -> None:
    found = touched_tests([changed], SOURCES)
    assert sorted(found) == sorted(f"tests/{name}.py" for name in tests)
    if "src" in changed:
        assert found == [f"tests/{name}.py" for name in tests]


def test_a_change_of_this_project_touches_the_tests_that_a_reader_would_name() -> None:
    sources = read_sources()
    rolls = touched_tests(["src/pteron/compiler/ops/rolls.py"], sources)
    assert "tests/ops/test_portable.py" in rolls and len(rolls) < 10
    tuning = touched_tests(["src/pteron/engine/measured/tuning.py"], sources)
    assert "tests/programs/test_tune.py" in tuning[:3]


@pytest.mark.parametrize(
    ("test", "until", "is_run"),
    [
        ("tests/ops/test_a.py::b", 0, False),
        ("tests/ops/test_a.py::b", 1e12, True),
        ("tests/pure/a.py", 0, True),
    ],
)
def test_other_than_pure_tests_do_not_begin_when_time_is_up(test: str, until: float, is_run: bool) -> None:
    item: Any = SimpleNamespace(nodeid=test, config=SimpleNamespace(stash={quick.UNTIL: until}))
    if is_run:
        quick.pytest_runtest_setup(item)
    else:
        with pytest.raises(pytest.skip.Exception, match="no time left"):
            quick.pytest_runtest_setup(item)
