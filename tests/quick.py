"""`make quick`: the tests that a change touches, the nearest first, until time is up; then all pure tests.

    python -m tests.quick

It says how many test files it leaves out. Tests that there was no time for are skipped.
"""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from tests.support.touched import ROOT, changed_files, read_sources, touched_tests

SECONDS = 75  # for the tests that are not pure
MOST_FILES = 20  # more would hardly begin in this time
OTHER_COMPILER = "tests/pure/test_tint.py"  # a second compiler for all kernels: only if one of them changed


def main() -> int:
    changed = changed_files()
    touched = [path for path in touched_tests(changed, read_sources()) if not path.startswith("tests/pure/")]
    chosen, left_out = touched[:MOST_FILES], touched[MOST_FILES:]
    print("the tests nearest to the change, then tests/pure:", *chosen, sep="\n  ")
    print(f"left out: {len(left_out)} test files that are farther away; `make test` runs them", flush=True)
    workers = ["-n", "2", "--dist", "loadfile", "--no-loadscope-reorder"]  # else the largest files come first
    marked = ["-m", "not slow and not conformance and not own_venv"]
    skipped = [] if any(path.endswith(".wgsl") for path in changed) else [f"--ignore={OTHER_COMPILER}"]
    options = ["-q", *workers, *marked, *skipped, "-p", "tests.quick"]
    return subprocess.run(
        [sys.executable, "-m", "pytest", *options, *chosen, "tests/pure"], cwd=ROOT
    ).returncode


# -- in pytest, as a plugin ------------------------------------------------------------------------


UNTIL = pytest.StashKey[float]()  # when the last test that is not pure may begin


def pytest_collection_finish(session: pytest.Session) -> None:
    session.config.stash[UNTIL] = time.monotonic() + SECONDS


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    is_pure = item.nodeid.startswith("tests/pure/")
    if not is_pure and time.monotonic() > item.config.stash[UNTIL]:
        pytest.skip("no time left: run `make test`")


if __name__ == "__main__":
    sys.exit(main())
