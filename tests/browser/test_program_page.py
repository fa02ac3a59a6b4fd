"""Calls of a frozen program: errors, states and the cache. And the page of a program."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from pteron.web.program_files import write_program
from pteron.web.site import write_site
from tests.browser.frozen import write_page
from tests.support import DATA
from tests.support.browser import opened, serving

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def page(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    folder = tmp_path_factory.mktemp("calls")
    write_page(folder)
    write_program(DATA / "dyn_rms.pte", folder / "rms", variants=["gpu"])
    write_program(DATA / "emb_dyn.pte", folder / "embedding", variants=["gpu"], shard_nbytes=64)
    write_program(DATA / "emb_dyn.pte", folder / "damaged", variants=["gpu"])
    (shard,) = (folder / "damaged").glob("weights-*")
    shard.write_bytes(shard.read_bytes()[:-4])
    write_program(DATA / "emb_dyn.pte", folder / "cut", variants=["gpu"])
    (plan,) = (folder / "cut").glob("plan-*")
    plan.write_bytes(plan.read_bytes()[:-40])
    with serving(folder) as url, opened(browser, url) as page:
        yield page


RUN = """async ([folder, inputs]) => {
  const { load } = await import("./runtime/pteron.js");
  window.programs ??= {};
  try {
    const program = window.programs[folder] ??= await load(folder + "/model.json");
    const made = {};
    for (const [name, value] of Object.entries(inputs)) {
      made[name] = value?.kind ? {data: new globalThis[value.kind](value.data), shape: value.shape} : value;
    }
    const outputs = await program.run(made);
    return {shapes: Object.values(outputs).map((output) => output.shape)};
  } catch (error) { return {error: error.name, message: error.message}; }
}"""


def floats(*shape: int, kind: str = "Float32Array") -> dict[str, Any]:
    count = 1
    for size in shape:
        count *= size
    return {"kind": kind, "data": [1] * count, "shape": list(shape)}


RMS = [
    (floats(1, 3, 64), "expected 4 dimensions (at most (1, 1, 128, 64)), got shape (1, 3, 64)"),
    (
        floats(1, 1, 129, 64),
        "dimension 2 is 129, but the program was exported for at most 128: split the input",
    ),
    (floats(1, 1, 7, 63), "dimension 3 is 63, but the program runs only at 64"),
    (floats(1, 1, 7, 64, kind="Float64Array"), "expected dtype float32, got a Float64Array"),
    ({**floats(1, 1, 7, 64), "data": [1, 2]}, "shape (1, 1, 7, 64) has 448 elements, but data has 2"),
    (5, "expected {data, shape}, got number"),
]


def test_a_refused_call_names_the_input_and_changes_nothing(page: Any) -> None:
    for given, message in RMS:
        result = page.evaluate(RUN, ["rms", {"input0": given}])
        assert result["error"] == "InputError"
        assert result["message"].startswith(f"input0: {message}")
        assert page.evaluate(RUN, ["rms", {"input0": floats(1, 1, 7, 64)}]) == {"shapes": [[1, 1, 7, 64]]}
    result = page.evaluate(RUN, ["rms", {"x": floats(1, 1, 7, 64)}])
    assert result["message"] == "method 'forward' takes 1 inputs (input0: float32[1, 1, 128, 64]), got x"


def test_an_index_out_of_range_is_refused(page: Any) -> None:
    result = page.evaluate(RUN, ["embedding", {"input0": {"data": [0, 10**6], "shape": [2]}}])
    assert result["error"] == "InputError"
    assert result["message"].startswith("input0: element [1] is 1000000, but")
    assert "must lie in 0.." in result["message"]
    big = page.evaluate(RUN, ["embedding", {"input0": {"data": [2**40], "shape": [1]}}])
    assert big["message"] == "input0: element [0] is 1099511627776, which does not fit the GPU's int32"


def test_damaged_files_are_reported(page: Any) -> None:
    for folder, words in (("damaged", "bytes, got"), ("cut", "is damaged")):
        result = page.evaluate(RUN, [folder, {}])
        assert result["error"] == "FormatError"
        assert words in result["message"]
        kept = page.evaluate("caches.open('pteron').then(c => c.keys()).then(k => k.map(r => r.url))")
        assert not [url for url in kept if f"/{folder}/" in url and url.endswith(".bin") and "weights" in url]
    assert page.evaluate(RUN, ["nowhere", {}])["error"] == "FormatError"


def test_a_browser_without_webgpu(browser: Any, tmp_path: Path) -> None:
    write_page(tmp_path)
    write_program(DATA / "dyn_rms.pte", tmp_path / "rms", variants=["gpu"])
    with serving(tmp_path) as url, opened(browser, url) as page:
        page.evaluate("Object.defineProperty(navigator, 'gpu', {value: undefined})")
        result = page.evaluate(RUN, ["rms", {}])
    assert result["error"] == "DeviceError"
    assert result["message"].startswith("this browser has no WebGPU")


STATES = """async () => {
  const { load } = await import("./runtime/pteron.js");
  const [program, other] = [await load("rms/model.json"), await load("rms/model.json")];
  const input0 = {data: new Float32Array(64).fill(1), shape: [1, 1, 1, 64]};
  const run = (state) => program.run({input0}, {state}).then(({output0}) => output0.data[0], String);
  const state = program.newState(), first = await run(state), foreign = await run(other.newState());
  state.close();
  const found = {first, foreign, closed: await run(state), again: await run(program.newState())};
  program.close();
  other.close();
  return found;
}"""


def test_a_state_is_used_only_with_its_program(page: Any) -> None:
    found = page.evaluate(STATES)
    message = "InputError: the state is closed, or belongs to another program"
    assert found["foreign"].startswith(message) and found["closed"].startswith(message)
    assert found["again"] == found["first"]


CLOSED = """async () => {
  const { load } = await import("./runtime/pteron.js");
  const program = await load("rms/model.json");
  program.close();
  return program.run({}).catch((error) => error.message);
}"""


def test_a_closed_program(page: Any) -> None:
    assert page.evaluate(CLOSED) == "the program is closed"


LOST = """async () => {
  const { load } = await import("./runtime/pteron.js");
  const request = GPUAdapter.prototype.requestDevice, map = GPUBuffer.prototype.mapAsync;
  let device;
  GPUAdapter.prototype.requestDevice = async function (...args) {
    return device = await request.apply(this, args);
  };
  const input0 = {data: new Float32Array(448).fill(1), shape: [1, 1, 7, 64]};
  const run = (program) => program.run({input0}).then(({output0}) => [...output0.data], String);
  const program = await load("rms/model.json"), before = await run(program);
  GPUBuffer.prototype.mapAsync = function (...args) {
    const mapped = map.apply(this, args);
    device.destroy();
    return mapped;
  };
  const during = await run(program);
  GPUBuffer.prototype.mapAsync = map;
  const later = await run(program), again = await load("rms/model.json"), after = await run(again);
  GPUAdapter.prototype.requestDevice = request;
  again.close();
  return {before, during, later, after};
}"""


def test_a_lost_device_is_reported_and_the_next_load_works(page: Any) -> None:
    """The device is destroyed while a call reads its result."""
    result = page.evaluate(LOST)
    for text in (result["during"], result["later"]):
        assert text.startswith("DeviceLost: call: the GPU was lost: ")
        assert text.endswith(": load the program again")
    assert result["after"] == result["before"]


def test_the_page_of_a_program(browser: Any, tmp_path: Path) -> None:
    site = tmp_path / "site"
    write_site(DATA / "sdpa_dyn.pte", site, name="attention", chat=False, variants=["gpu"])
    with ExitStack() as server, opened(browser, server.enter_context(serving(site))) as page:
        page.locator("#run:not([disabled])").wait_for()
        assert page.title() == "attention"
        page.get_by_label("n", exact=True).fill("7")  # the size of three inputs
        shapes = page.locator("[id^=shape-]").all_inner_texts()
        assert ["[1, 7, " in shape for shape in shapes] == [True, True, True, False, False]
        page.get_by_role("button", name="Run").click()
        page.locator("#outputs canvas").first.wait_for()
        assert "[1, 7, " in page.locator("#outputs").inner_text()
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        page.evaluate("navigator.serviceWorker.ready.then(() => 1)")
        server.close()  # the second visit needs no network
        page.reload()
        page.locator("#run:not([disabled])").wait_for()
