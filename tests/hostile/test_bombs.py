"""Small files that ask for endless work are refused soon, and the error names what is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

import pteron
from pteron.engine.devices.opening import Device
from pteron.errors import UnsupportedError
from tests.hostile import bombs
from tests.hostile.attempt import attempt

TOO_LARGE = "make more than 50000 nodes; if you trust the file, raise the limit with max_nodes="
ANSWERS = {
    "nested_loops": TOO_LARGE,
    "empty_loops": TOO_LARGE,
    "many_loops": TOO_LARGE,
    "nested_branches": "inside more than 64 branches and loops",
    "squared_integers": "mul.Scalar (instruction 3): its result does not fit in 64 bits",
    "power": "1000 to the power of 1000000000000000 does not fit in 64 bits",
    "long_chain": "All 8001 operators of forward can run",
    "many_inputs": "All 1 operators of forward can run",
    "long_lists": TOO_LARGE,
    "endless_tensors": "too much work for one dispatch",
    "endless_array": "1152921504606846976 array elements at byte 49 are more than it can hold",
    "endless_strings": "strings at byte 49 are more than it can hold",
    "nested_arrays": "arrays of arrays are not supported",
    "endless_facts": "1152921504606846976 tensors at byte 16 are more than it can hold",
    "shared_weights": "the tensors 't0' and 't1' share bytes",
}


@pytest.mark.parametrize("name", [*bombs.PROGRAMS, *bombs.LANGUAGE_MODELS])
def test_a_bomb_is_answered(name: str, tmp_path: Path) -> None:
    program = name in bombs.PROGRAMS
    path = tmp_path / "bomb.bin"
    path.write_bytes((bombs.PROGRAMS if program else bombs.LANGUAGE_MODELS)[name]())
    answer = attempt("check" if program else "convert", path)
    assert answer.is_ours, answer
    assert ANSWERS[name] in answer.message


@pytest.mark.parametrize("name", ["many_loops", "many_inputs", "long_chain"])
def test_describing_a_bomb_takes_no_longer(name: str, tmp_path: Path) -> None:
    path = tmp_path / "bomb.bin"
    path.write_bytes(bombs.PROGRAMS[name]())
    answer = attempt("inspect", path)
    assert answer.is_ours and answer.error is None, answer


def test_the_limit_is_the_callers(device: Device) -> None:
    data = bombs.encoded(bombs.loops(1, [bombs.STEP], size=100))
    assert pteron.check(data)
    report = pteron.check(data, max_nodes=50)
    assert "more than 50 nodes" in report.findings[0].why
    with pytest.raises(UnsupportedError, match="more than 50 nodes"):
        pteron.load(data, device=device, max_nodes=50)
