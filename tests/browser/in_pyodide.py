"""Runs inside Pyodide: replays recordings there, without numpy. See `pyodide_page.py`."""

import base64
import json

from pyodide.http import pyfetch

import pteron

TYPES = {"f2": "float16", "f4": "float32", "f8": "float64", "b1": "bool", "i1": "int8", "u1": "uint8"}
TYPES |= {"i2": "int16", "i4": "int32", "i8": "int64"}


async def read(folder, entry):
    """An integer, or an array in a file: see `tests/dynamic_shape/recording.py`."""
    if isinstance(entry, int):
        return entry
    data = await (await pyfetch(f"{folder}/{entry['file']}")).bytes()
    return pteron.HostArray(data, TYPES[entry["dtype"][1:]], entry["shape"])


def as_json(output):
    if isinstance(output, int):
        return output
    return {"dtype": output.dtype, "shape": output.shape, "data": base64.b64encode(output.data).decode()}


def poison(method):
    """Fill all activations with NaN, as the tests on other machines do."""
    for buffer in method._method._executor.activations:
        method._method.device.write(buffer, 0, b"\xff" * buffer.size)


async def replay(folder):
    """The outputs of all calls of a recording, and what was allocated and compiled after the load."""
    calls = json.loads(await (await pyfetch(f"{folder}/calls.json")).string())["calls"]
    async with await pteron.load_async(f"{folder}/program.pte") as program:
        method = await program.method()
        method.reset()  # makes the default state
        device = program.device
        made = device.allocations, device.compilations
        outputs = []
        for call in calls:
            inputs = [await read(folder, entry) for entry in call["inputs"]]
            poison(method)
            outputs.append([as_json(output) for output in await method.execute(inputs)])
        return json.dumps(
            {"outputs": outputs, "made": [device.allocations - made[0], device.compilations - made[1]]}
        )
