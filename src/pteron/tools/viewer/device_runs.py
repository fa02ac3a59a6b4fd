"""What needs a device: profiles, and the real values of every tensor."""

from __future__ import annotations

import io
import threading
import zipfile
from collections.abc import Mapping
from typing import Any

import numpy as np

from pteron.api.method import Method
from pteron.api.profiling.profile import profile
from pteron.api.program import Program
from pteron.compiler.ir.values import Port, SymInt, Tensor, ValueId
from pteron.engine.call import Call
from pteron.errors import InputError
from pteron.tools.verify.samples import random_arrays
from pteron.tools.verify.walk import walk
from pteron.tools.viewer.scene import Scene
from pteron.tools.viewer.tensor_views import slice_view, statistics

# The values of a run are kept for the page up to this many bytes. Statistics are kept for all.
KEPT_NBYTES = 512 << 20

Array = np.ndarray[Any, Any]


class DeviceRuns:
    """Runs one method on a device."""

    def __init__(self, program: Program, scene: Scene) -> None:
        self._program = program
        self._scene = scene
        self._lock = threading.Lock()
        self._arrays: dict[ValueId, Array] = {}
        self._missed: set[ValueId] = set()

    @property
    def method(self) -> Method:
        return self._program.method(self._scene.graph.name)

    def profile_json(
        self, sizes: Mapping[str, int], given: Mapping[str, Array], repeat: int
    ) -> dict[str, Any]:
        """The time of every node, in seconds; None without timestamps."""
        with self._lock:
            found = profile(self.method, self._inputs(sizes, given), repeat=repeat)
        return {
            "device": found.adapter,
            "sizes": dict(sizes),
            "calls": found.calls,
            "wall": found.host.wall,
            "cpu": found.cpu_seconds,
            "gpu": found.gpu_seconds,
            "nodes": [
                {
                    "index": n.index,
                    "route": n.route,
                    "seconds": n.seconds,
                    "flops": n.cost.flops,
                    "nbytes": n.cost.nbytes,
                }
                for n in found.nodes
            ],
        }

    def run_json(self, sizes: Mapping[str, int], given: Mapping[str, Array]) -> dict[str, Any]:
        """Run one call node by node, and keep every tensor. Returns statistics by value."""
        with self._lock:
            method = self.method
            self._arrays, self._missed = {}, set()
            inputs = self._inputs(sizes, given)
            found: dict[int, dict[str, Any]] = {}
            for port, value in zip(self._scene.graph.inputs, inputs, strict=True):
                if isinstance(port.value, Tensor):
                    found[port.value.id] = self._keep(port.value, np.asarray(value))
            bad: int | None = None
            method.reset()
            for run in walk(method, inputs):
                for tensor, array in zip(run.results, run.made, strict=True):
                    facts = found[tensor.id] = self._keep(tensor, array)
                    if bad is None and facts["nan"] + facts["infinite"]:
                        bad = run.node.index
            with method.prepare(*inputs) as call:
                self._add_aliases(call, found)
            method.reset()
            return {"device": method.device.name, "values": found, "first_not_finite": bad}

    def tensor_json(self, value: int, axes: list[int] | None, at: list[int] | None) -> dict[str, Any]:
        """Statistics and a slice of a tensor of the last run."""
        with self._lock:
            tensor = self._scene.tensor(value)
            if tensor.id in self._missed:
                raise InputError(
                    f"{tensor.name} was not kept: a run keeps {KEPT_NBYTES >> 20} MiB. Choose smaller sizes"
                )
            if tensor.id not in self._arrays:
                raise InputError(f"{tensor.name} has no values yet: run the method first")
            array = self._arrays[tensor.id]
            return {"statistics": statistics(array), "slice": slice_view(array, axes, at)}

    def _keep(self, tensor: Tensor, array: Array) -> dict[str, Any]:
        kept = sum(other.nbytes for other in self._arrays.values())
        if kept + array.nbytes <= KEPT_NBYTES:
            self._arrays[tensor.id] = array
        else:
            self._missed.add(tensor.id)
        return statistics(array)

    def _add_aliases(self, call: Call, found: dict[int, dict[str, Any]]) -> None:
        """Views run no kernel: they have the elements of their source in another shape."""
        layout = self._scene.live.layout
        for tensor in self._scene.graph.tensors():
            owner = layout.storage[tensor.id]
            if tensor.id not in found and owner in self._arrays:
                shape = call.shape(tensor)
                if self._arrays[owner].size == int(np.prod(shape)):
                    self._arrays[tensor.id] = self._arrays[owner].reshape(shape)
                    found[tensor.id] = found[owner]

    # -- inputs --------------------------------------------------------------------------------------

    def _inputs(self, sizes: Mapping[str, int], given: Mapping[str, Array]) -> list[Any]:
        """The given arrays, and random ones at these sizes. Integers are those of the controls."""
        scene, method = self._scene, self.method
        unknown = given.keys() - {port.name for port in scene.graph.inputs}
        if unknown:
            names = ", ".join(port.name for port in scene.graph.inputs)
            raise InputError(f"there is no input {sorted(unknown)[0]!r}; the inputs are: {names}")
        shapes, integers = scene.input_shapes(sizes), scene.integers(sizes)
        draw = random_arrays(method, seed=0)
        inputs: list[Any] = []
        for port, info in zip(scene.graph.inputs, method.inputs, strict=True):
            if port.name in given:
                inputs.append(given[port.name])
            elif isinstance(port.value, Tensor):
                array = draw(info, shapes[port.value.id])
                inputs.append(self._with_integers(port, array, integers))
            elif isinstance(port.value, SymInt):
                inputs.append(integers.get(port.value.id, 0))
            else:
                inputs.append(info.fixed)
        return inputs

    def _with_integers(self, port: Port, array: Array, integers: Mapping[ValueId, int]) -> Array:
        """The array of an input, with the chosen integers in the elements that the program reads as such."""
        for element in self._scene.graph.elements:
            if element.source is not port.value:
                continue
            if element.dim == -1:
                array.reshape(-1)[element.index] = integers[element.symint.id]
            else:
                place = [0] * array.ndim
                place[element.dim] = element.index
                array[tuple(place)] = integers[element.symint.id]
        return array


def read_arrays(data: bytes, name: str) -> dict[str, Array]:
    """The arrays of a `.npz` file by name, or the array of a `.npy` file under the name of an input."""
    try:
        loaded = np.load(io.BytesIO(data), allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return {name: loaded}
        with loaded:
            return {key: loaded[key] for key in loaded.files}
    except (ValueError, EOFError, OSError, zipfile.BadZipFile) as error:
        raise InputError(f"this is not a readable .npy or .npz file: {error}") from None
