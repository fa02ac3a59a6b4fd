"""Frozen programs in a page: run the calls of a recording, and give back what came out."""

from __future__ import annotations

import shutil
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from pteron.web.program_files import write_program
from tests.dynamic_shape.recording import CALLS, Recording

RUNTIME = Path(str(files("pteron.web") / "runtime"))
PAGE = "<!doctype html><title>test</title><link rel=icon href=data:>"

# Counts what a page creates on the GPU, in `window.made`.
COUNT = """
window.made = {buffers: 0, pipelines: 0, groups: 0, modules: 0};
for (const [method, name] of [["createBuffer", "buffers"], ["createComputePipeline", "pipelines"],
    ["createComputePipelineAsync", "pipelines"], ["createBindGroup", "groups"],
    ["createShaderModule", "modules"]]) {
  const create = GPUDevice.prototype[method];
  GPUDevice.prototype[method] = function (...args) { made[name]++; return create.apply(this, args); };
}
"""

# Loads a program, makes the calls of `calls.json` in order, and returns the outputs of each.
REPLAY = """async (folder) => {
  const { load } = await import("./runtime/pteron.js");
  const kinds = {"<f4": Float32Array, "<f8": Float64Array, "<i4": Int32Array, "<i8": BigInt64Array,
    "|b1": Uint8Array, "|u1": Uint8Array, "|i1": Int8Array};
  const bytes = async (file) => (await fetch(folder + file)).arrayBuffer();
  const read = async (entry) => typeof entry === "number" ? entry
    : {data: new kinds[entry.dtype](await bytes(entry.file)), shape: entry.shape};
  const plain = (v) => typeof v === "number" ? v : {data: Array.from(v.data, String), shape: v.shape};
  const { calls } = await (await fetch(folder + "calls.json")).json();
  const program = await load(folder + "model.json");
  const before = JSON.stringify(window.made), outputs = [];
  for (const { inputs } of calls) {
    const given = {};
    for (const [i, entry] of inputs.entries()) given[program.inputs[i].name] = await read(entry);
    outputs.push(Object.values(await program.run(given)).map(plain));
  }
  const same = JSON.stringify(window.made) === before;
  program.close();
  return {outputs, same, variant: program.variant};
}"""


def write_page(folder: Path) -> None:
    """An empty page with the runtime beside it."""
    (folder / "index.html").write_text(PAGE)
    shutil.copytree(RUNTIME, folder / "runtime", dirs_exist_ok=True)


def freeze_recording(recording: Recording, folder: Path, **options: Any) -> None:
    """The frozen program of a recording, with the recorded calls beside it."""
    write_program(recording.program, folder, **options)
    for file in [recording.folder / CALLS, *recording.folder.glob("call*.bin")]:
        shutil.copy(file, folder)


def outputs_of(call: Any, like: Any) -> list[Any]:
    """The outputs of a call as arrays with the dtypes of the expected outputs."""

    def array(value: Any, want: Any) -> Any:
        if not isinstance(value, dict):
            return value
        text = [{"true": 1, "false": 0}.get(item, item) for item in value["data"]]
        return np.array(text, np.float64).astype(np.asarray(want).dtype).reshape(value["shape"])

    return [array(value, want) for value, want in zip(call, like, strict=True)]
