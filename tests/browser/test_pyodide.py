"""The engine in Pyodide, in a real browser: results compared with torch, errors, states, and inspection."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.browser.pyodide_page import PyodidePage, pyodide
from tests.browser.small_models import MODELS, record_model
from tests.conftest import Once, Recorded
from tests.dynamic_shape.recording import Recording
from tests.dynamic_shape.table import CASES, Case
from tests.support import DATA
from tests.support.compare import disagreements

__all__ = ["pyodide"]

pytestmark = pytest.mark.browser

# One loaded program for the tests of calls that are refused.
RMS = """
import pteron
from array import array

def ones(rows):
    return pteron.HostArray(array("f", [1.0]) * (64 * rows), shape=(1, 1, rows, 64))

async def tried(function):
    return function()

async def raised(awaitable):
    try:
        await awaitable
    except pteron.PteronError as error:
        return f"{type(error).__name__}: {error}"
    return "nothing was raised"

if "rms" not in globals():
    rms = await (await pteron.load_async("data/dyn_rms.pte")).method()
"""


@pytest.fixture(scope="module")
def rms(pyodide: PyodidePage) -> PyodidePage:
    """The page with the files of `tests/data`, and a program that is loaded as `rms`."""
    (pyodide.site / "data").symlink_to(DATA)
    pyodide.run(RMS)
    return pyodide


def check(page: PyodidePage, recording: Recording) -> None:
    outputs = page.replay(recording.folder)
    assert len(outputs) == len(recording.calls)
    for number, (got, call) in enumerate(zip(outputs, recording.calls, strict=True)):
        for problem in disagreements(got, call.outputs, recording.tolerance):
            raise AssertionError(f"call {number}, {problem}")


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_table_equals_torch_at_every_live_shape(
    case: Case, pyodide: PyodidePage, recorded: Recorded
) -> None:
    check(pyodide, recorded(case.name))


@pytest.mark.parametrize("name", MODELS)
def test_a_model_equals_torch_at_every_live_shape(name: str, pyodide: PyodidePage, once: Once) -> None:
    check(pyodide, Recording(once(f"pages/{name}", lambda folder: record_model(name, folder))))


def test_a_wrong_result_is_detected(pyodide: PyodidePage, recorded: Recorded, tmp_path: Path) -> None:
    good = recorded("residual").folder
    bad = Path(shutil.copytree(good, tmp_path / "wrong"))
    last = bad / "call2.input0.bin"
    last.write_bytes(last.read_bytes()[:-4] + bytes(4))
    with pytest.raises(AssertionError, match="call 2, output 0"):
        check(pyodide, Recording(bad))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            "rms(ones(129))",
            "InputError: input0: dimension 2 is 129, but the program was exported for at most 128",
        ),
        ("rms(pteron.HostArray([1.0, 2.0]))", "InputError: input0: expected 4 dimensions"),
        (
            "rms(pteron.HostArray([[[[1] * 64]]]))",
            'InputError: input0: expected dtype float32, got int64: pass pteron.HostArray(values, "float32"',
        ),
        ("rms(object())", "InputError: input0: expected an array, got object"),
        ("tried(pteron.adapters)", "DeviceError: a browser does not list its GPUs"),
        ("rms()", "InputError: method 'forward' takes 1 inputs"),
        ("pteron.load_async(b'no program at all')", "FormatError: <bytes>: not a .pte program"),
        ("pteron.load_async('index.html')", "FormatError: index.html: not a .pte program; it looks like"),
        (
            "pteron.load_async('data/dyn_rms.pte', device='NVIDIA')",
            "InputError: device is 'NVIDIA': in a browser",
        ),
    ],
)
def test_errors_are_those_of_other_machines(rms: PyodidePage, call: str, message: str) -> None:
    assert rms.run(f"await raised({call})").startswith(message)
    assert rms.run("(await rms(ones(3))).shape == (1, 1, 3, 64)"), "the next good call works"


@contextmanager
def requested_ranges(page: PyodidePage, plan_nbytes: int, block_nbytes: int) -> Iterator[list[range]]:
    """The ranges of bytes that are requested meanwhile, with other sizes than usual."""
    found: list[range] = []

    def note(request: Any) -> None:
        if asked := re.fullmatch(r"bytes=(\d+)-(\d+)", request.headers.get("range", "")):
            found.append(range(int(asked[1]), int(asked[2]) + 1))

    names = "fetching.PLAN_NBYTES, fetching.BLOCK_NBYTES"
    page.page.on("request", note)
    page.run(f"from pteron.api import fetching\nusual = {names}\n{names} = {plan_nbytes}, {block_nbytes}")
    yield found
    page.run(f"{names} = usual")
    page.page.remove_listener("request", note)


@pytest.mark.parametrize("name", ["linear", "cached_attention"])
def test_weights_are_streamed_in_blocks(name: str, pyodide: PyodidePage, recorded: Recorded) -> None:
    """Blocks of an odd size cut every constant, and begin at any byte."""
    recording = recorded(name)
    with requested_ranges(pyodide, 100, 1001) as ranges:
        check(pyodide, recording)
    size = (recording.folder / "program.pte").stat().st_size
    assert len(ranges) > 5 and sum(map(len, ranges)) < 1.2 * size, "no byte is fetched again and again"


def test_a_program_whose_weights_were_streamed_is_loaded_again(rms: PyodidePage) -> None:
    code = """
program = await pteron.load_async("data/emb_dyn.pte")
x = pteron.HostArray([1, 0, 3], "int64")
before = (await program(x)).tolist()
program.device._gpu.device.destroy()
await program.device._gpu.device.lost
await program.reload()
after = (await program(x)).tolist()
program.close()
before == after"""
    with requested_ranges(rms, 100, 60) as ranges:
        assert rms.run(code) is True
    weights = [part.start for part in ranges if len(part) == 60]
    assert len(weights) > 40 and set(Counter(weights).values()) == {2}, "each block is fetched twice"


def test_a_server_without_ranges_sends_the_whole_file(rms: PyodidePage) -> None:
    code = """
async with await pteron.load_async("data/dyn_rms.pte?whole") as program:
    same = (await program(ones(5))).tolist() == (await rms(ones(5))).tolist()
f"{same} {type(program._program._origin.args[0]).__name__}" """
    assert rms.run(code) == "True JavaScriptFile"


def test_a_file_that_changes_while_it_is_loaded_is_an_error(rms: PyodidePage) -> None:
    changing = rms.site / "changing.pte"
    changing.write_bytes((DATA / "emb_dyn.pte").read_bytes())
    code = """
try:
    await program.method()
except OSError as error:
    text = str(error)
program.close()
text"""
    with requested_ranges(rms, 100, 1001):
        rms.run('program = await pteron.load_async("changing.pte", methods=())\n""')
        changing.write_bytes(changing.read_bytes() + b"more")
        assert rms.run(code).endswith("but the file has changed: load it again")


def test_a_missing_file_is_an_os_error(rms: PyodidePage) -> None:
    code = """
try:
    await pteron.load_async("nowhere.pte")
except OSError as error:
    text = str(error)
text"""
    assert rms.run(code).startswith("nowhere.pte: the server answered 404")


def test_a_kernel_that_does_not_compile_is_reported_with_its_line(rms: PyodidePage) -> None:
    code = """
device = await pteron.open_device_async()
device.pipeline("@compute @workgroup_size(1)\\nfn main() { let x: u32 = 1.5; }", "broken", [])
text = await raised(device.settle())
again = await raised(device.settle())
device.close()
text + "; " + again"""
    text = rms.run(code)
    assert text.startswith("DeviceError: load: kernel broken: line 2: ")
    assert text.endswith("; nothing was raised"), "an error is raised once"


def test_subgroups_are_enabled_for_kernels_that_use_them(rms: PyodidePage) -> None:
    code = """
text = "@group(0) @binding(0) var<storage, read_write> x: array<u32>;"
text += "@compute @workgroup_size(4) fn main() { x[0] = subgroupAdd(1u); }"
device = await pteron.open_device_async()
device.pipeline(text, "sum", ["read_write"])
text = await raised(device.settle())
device.close()
text"""
    assert rms.run(code) == "nothing was raised"


def test_a_lost_device_is_reported_and_the_program_can_be_loaded_again(rms: PyodidePage) -> None:
    code = """
program = await pteron.load_async("data/dyn_rms.pte")
before = (await program(ones(2))).tolist()
program.device._gpu.device.destroy()
await program.device._gpu.device.lost
text = await raised(program(ones(2)))
await program.reload()
after = (await program(ones(2))).tolist()
program.close()
f"{text}; {before == after}" """
    text = rms.run(code)
    assert text.startswith("DeviceLost: call: the GPU was lost: ") and text.endswith("; True")


def test_typed_arrays_of_javascript_go_in_and_out(rms: PyodidePage) -> None:
    code = """
import js
typed = js.Float32Array.new(128)
typed.fill(1)
y = (await rms(pteron.HostArray(typed, shape=(1, 1, 2, 64)))).to_js()
f"{y.constructor.name} {y.length} {y.to_py().tolist() == list((await rms(ones(2))).flat)}" """
    assert rms.run(code) == "Float32Array 128 True"


def test_results_can_stay_on_the_gpu(rms: PyodidePage) -> None:
    code = """
kept = await rms(ones(5), keep_on_gpu=True)
twice, direct = await rms(kept), await rms(await rms(ones(5)))
(await kept.read_async()).tolist() == (await rms(ones(5))).tolist() and twice.tolist() == direct.tolist()"""
    assert rms.run(code) is True


def test_many_calls_at_once_take_turns(rms: PyodidePage) -> None:
    code = """
import asyncio
sizes = [3, 128, 1, 7, 64, 2]
results = await asyncio.gather(*(rms(ones(size)) for size in sizes))
[result.shape[2] for result in results] == sizes"""
    assert rms.run(code) is True


def test_a_cancelled_call_does_not_disturb_the_next(rms: PyodidePage) -> None:
    code = """
expected = (await rms(ones(4))).tolist()
for _ in range(3):
    task = asyncio.ensure_future(rms(ones(128)))
    await asyncio.sleep(0)
    task.cancel()
(await rms(ones(4))).tolist() == expected"""
    assert rms.run("import asyncio\n" + code) is True


def test_calls_without_await_work_where_python_can_stop(rms: PyodidePage) -> None:
    code = """
with pteron.load(await (await pyfetch("data/dyn_rms.pte")).bytes()) as program:
    shape = program(ones(9)).shape
shape == (1, 1, 9, 64)"""
    assert rms.run("from pyodide.http import pyfetch\n" + code) is True


def test_calls_without_await_say_what_to_do_elsewhere(rms: PyodidePage) -> None:
    code = """
try:
    pteron.open_device()
except pteron.DeviceError as error:
    text = str(error)
text"""
    assert rms.run_without_jspi(code).startswith(
        "Python cannot wait for the GPU here: use `await pteron.load_async(...)` and `await program(x)`"
    )


def test_each_state_has_its_own_cache(pyodide: PyodidePage, recorded: Recorded) -> None:
    recording = recorded("cached_attention")
    check(pyodide, recording)
    code = f"""
import json, pteron
from in_pyodide import pyfetch, read
folder = {recording.folder.name!r}
calls = json.loads(await (await pyfetch(f"{{folder}}/calls.json")).string())["calls"]
first, second = [[await read(folder, entry) for entry in call["inputs"]] for call in calls[:2]]
async with await pteron.load_async(f"{{folder}}/program.pte") as program:
    method = await program.method()
    one, other = method.new_state(), method.new_state()
    await method(*first, state=one)
    expected = (await method(*second, state=one)).tolist()
    different = (await method(*second, state=other)).tolist()
    other.copy_from(one)
    copied = (await method(*second, state=other)).tolist()
f"{{different != expected}} {{copied == expected}}" """
    assert pyodide.run(code) == "True True"


def test_a_file_is_inspected_at_a_live_shape(rms: PyodidePage) -> None:
    code = """
from pteron.tools.inspect.inspect import inspect_method, open_file
data = await (await pyfetch("data/dyn_rms.pte")).bytes()
with open_file(data) as file:
    info = inspect_method(file, "forward", {"input0": (1, 1, 7, 64)})
await rms(ones(7))
f"{info.inputs[0].dynamic_dims} {len(info.nodes)} {rms.live_shapes['output0']}" """
    assert rms.run("from pyodide.http import pyfetch\n" + code) == "(2,) 1 (1, 1, 7, 64)"
    assert "rms_norm" in rms.run("rms.why_static('input0', 3)")


def test_neither_numpy_nor_wgpu_is_needed(rms: PyodidePage) -> None:
    found: Any = rms.run("import sys\n' '.join(sorted({'numpy', 'wgpu'} & sys.modules.keys()))")
    assert found == ""
