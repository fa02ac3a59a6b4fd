"""Calls of frozen programs in Node.js, on a device that records: they are those of the engine."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from pteron.compiler.ir.dispatch import GPU
from pteron.compiler.ir.sizes import Size
from pteron.compiler.ir.values import Graph, SymInt, Tensor
from pteron.compiler.pipeline import Target, lower
from pteron.compiler.plan.dynamic import find_sizes
from pteron.compiler.plan.method_sizes import given_integers
from pteron.compiler.plan.size_check import SizeCheck
from pteron.compiler.plan.sweep import LiveGraph
from pteron.engine.arrays.numpy_arrays import convert_constant
from pteron.engine.devices.recording import RecordingDevice
from pteron.engine.executor import Executor
from pteron.engine.weight_store import WeightStore
from pteron.errors import InputError
from pteron.pte.file import ProgramFile
from pteron.web.freeze import freeze
from tests.support import DATA
from tests.support.node import run_javascript, write_modules
from tests.support.sketch import Sketch, live

LANGUAGE_MODELS = Path(__file__).parents[1] / "llm" / "programs"

# Makes calls, and answers with the launches and the parameters of each, or with the error.
CALLS = """
import { Program } from "./pteron/program.js";
globalThis.GPUBufferUsage = globalThis.GPUMapMode = globalThis.GPUShaderStage = {};
const plan = { ...given.plan, blockBytes: Uint8Array.from(Buffer.from(given.params, "hex")) };
const uniform = new Uint8Array(plan.buffers[plan.params]);
let own = null, launches = [], label = "";
const pass = {
  setPipeline: (pipeline) => { label = pipeline.label; }, setBindGroup() {}, end() {},
  dispatchWorkgroups: (...grid) => launches.push([label, grid]),
};
const encoder = { clearBuffer() {}, copyBufferToBuffer() {}, finish() {}, beginComputePass: () => pass };
const device = {
  lost: new Promise(() => {}), addEventListener() {}, createCommandEncoder: () => encoder,
  createBuffer: ({ size }) => ({
    size, mapAsync: async () => {}, getMappedRange: (_, n) => new ArrayBuffer(n), unmap() {}, destroy() {},
  }),
  createShaderModule() {}, createPipelineLayout() {}, createBindGroupLayout() {}, createBindGroup() {},
  createComputePipelineAsync: async ({ label }) => ({ label }),
  queue: { submit() {}, writeBuffer(buffer, place, data, from = 0, size = data.length - from) {
    if (data.buffer === own?.buffer) uniform.set(data.subarray(from, from + size), place);
  } },
};
const program = new Program(device, plan, "gpu");
device.queue.writeBuffer = ((before) => function (buffer, place, data, ...rest) {
  own ??= data;  // the first write is that of the parameters
  before(buffer, place, data, ...rest);
})(device.queue.writeBuffer);
program.allocate();
await program.compile(() => {});
program.bind();
const count = (shape) => shape.reduce((n, size) => n * size, 1);
const array = ({ shape, fill }) => ({ shape, data: Array(count(shape)).fill(fill) });
const results = [];
for (const call of given.calls) {
  launches = [];
  const inputs = Object.entries(call).map(([name, value]) => [name, value.shape ? array(value) : value]);
  try {
    const outputs = Object.values(await program.run(Object.fromEntries(inputs)));
    const params = Buffer.from(uniform).toString("hex");
    results.push({ launches, params, outputs: outputs.map((value) => value?.shape ?? value) });
  } catch (error) { results.push({ error: `${error.name}: ${error.message}` }); }
}
answer(results);
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("modules")
    write_modules(folder)
    return folder


class Frozen:
    """A frozen program, and the engine on a device that records, at the same points."""

    def __init__(self, graph: LiveGraph) -> None:
        self.live, self.frozen = graph, freeze(graph)
        self.device = RecordingDevice(graph.features)
        self.executor = Executor(graph, self.device, WeightStore(self.device, convert_constant)).open()
        self.graph = graph.graph
        self.check = SizeCheck(self.graph)

    def call(self, shapes: dict[int, Any], integers: dict[str, int]) -> tuple[Any, Any]:
        """The inputs of a call in JavaScript, and what the engine makes of it."""
        ids = {symint.id: integers[name] for symint, name in given_integers(self.live)}
        inputs: dict[str, Any] = {}
        for port in self.graph.inputs:
            if isinstance(port.value, SymInt):
                inputs[port.name] = integers[port.name]
            elif isinstance(port.value, Tensor):
                fill = next((v for name, v in integers.items() if name.startswith(f"{port.name}[")), 0)
                inputs[port.name] = {"shape": shapes[port.value.id], "fill": fill}
        try:
            self.check.check(shapes)
            self.live.sweep({**shapes, **ids})
        except InputError:
            return inputs, None
        self.executor.refresh()
        launched = [launch for _, launch in self.executor.launched()]
        outputs = [
            self.live.current[p.value.id] for p in self.graph.outputs if isinstance(p.value, (Tensor, SymInt))
        ]
        return inputs, {
            "launches": [[launch.site.kernel.name, list(launch.grid)] for launch in launched],
            "params": {launch.site.slot: launch.params.hex() for launch in launched},
            "integers": {
                slot: self.live.current[i] for i, slot in self.executor.params.integer_slots.items()
            },
            "outputs": [list(o) if isinstance(o, tuple) else o for o in outputs],
        }

    def random_call(self, numbers: random.Random, most: int) -> tuple[Any, Any]:
        """A call at random sizes. Elements of an input that are integers are equal."""
        found = find_sizes(self.live)
        names = {free.name: numbers.choice(free.values) for free in found.together}
        shapes = {
            value: tuple(n.where(names[n.of.name]) if isinstance(n, Size) else n for n in sizes)
            for value, sizes in found.inputs.items()
        }
        shapes |= {
            p.value.id: p.max_shape
            for p in self.graph.inputs
            if isinstance(p.value, Tensor) and p.value.id not in shapes
        }
        position = numbers.randint(0, most)
        return self.call(shapes, {name: position for _, name in given_integers(self.live)})


def compare(frozen: Frozen, calls: list[tuple[Any, Any]], folder: Path) -> None:
    given = {
        "plan": frozen.frozen.header,
        "params": frozen.frozen.params.hex(),
        "calls": [inputs for inputs, _ in calls],
    }
    results = run_javascript(CALLS, folder, json.loads(json.dumps(given)))
    for (inputs, wanted), got in zip(calls, results, strict=True):
        if wanted is None:
            assert got.get("error", "").startswith("InputError"), inputs
            continue
        assert "error" not in got, f"{inputs}: {got['error']}"
        assert got["launches"] == wanted["launches"], inputs
        assert got["outputs"] == wanted["outputs"], inputs
        params = bytes.fromhex(got["params"])
        for slot, block in wanted["params"].items():
            assert params[slot : slot + len(block) // 2].hex() == block, f"{inputs}, slot {slot}"
        for slot, value in wanted["integers"].items():
            if value is not None:
                assert int.from_bytes(params[slot : slot + 4], "little", signed=True) == value, inputs


@pytest.mark.parametrize(
    "file",
    [*sorted(DATA.glob("*.pte")), *(LANGUAGE_MODELS / f"{name}.pte" for name in ("plain", "ring"))],
    ids=lambda path: path.stem,
)
def test_calls_at_random_sizes_are_those_of_the_engine(file: Path, folder: Path) -> None:
    with ProgramFile.open(file) as opened:
        frozen = Frozen(lower(opened, ["forward"]).plan(Target({GPU}))["forward"])
        numbers = random.Random(0)
        compare(frozen, [frozen.random_call(numbers, 24) for _ in range(16)], folder)


def sliced() -> Graph:
    """x[:n], and n: the integer decides a size."""
    s = Sketch()
    x, n = s.input(8, 4), s.integer()
    part = s.add("aten.slice_copy.Tensor", x, 0, 0, n, 1, shape=(8, 4))
    return s.finish(part, s.add("mul", n, 3))


def test_an_integer_may_have_any_value(folder: Path) -> None:
    frozen = Frozen(live(sliced(), features={GPU}))
    x, _ = (port.value.id for port in frozen.graph.inputs)
    calls = [frozen.call({x: (rows, 4)}, {"n1": value}) for rows in (8, 0, 5) for value in (0, 3, 8, 70000)]
    assert all(wanted is not None for _, wanted in calls)
    compare(frozen, calls, folder)


def test_sizes_that_do_not_fit_together_are_refused(folder: Path) -> None:
    with ProgramFile.open(DATA / "sdpa_dyn.pte") as opened:
        frozen = Frozen(lower(opened, ["forward"]).plan(Target({GPU}))["forward"])
        largest = {port.value.id: port.max_shape for port in frozen.graph.inputs}
        queries, keys, values, *_ = largest

        def call(*lengths: int) -> tuple[Any, Any]:
            parts = zip((queries, keys, values), lengths, strict=True)
            return frozen.call({**largest, **{i: (1, n, *largest[i][2:]) for i, n in parts}}, {})

        calls = [call(5, 5, 5), call(5, 4, 5), call(9, 9, 9)]
        assert [wanted is None for _, wanted in calls] == [False, True, False]
        compare(frozen, calls, folder)
