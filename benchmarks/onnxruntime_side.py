"""The side of onnxruntime, on its WebGPU provider: models of one node. No fallback to the CPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from benchmarks import models
from benchmarks.rows import EPSILON, GROUP, HEADS, KV_HEADS, Array, Row, Unsupported

PROVIDER = "WebGpuExecutionProvider"
MICROSOFT = "com.microsoft"


class Side:
    def facts(self) -> dict[str, str]:
        if PROVIDER not in onnxruntime.get_available_providers():
            raise Unsupported("this onnxruntime has no WebGPU provider")
        return {"version": f"onnxruntime-webgpu {onnxruntime.__version__}", "adapter": "its default"}

    def prepare(self, row: Row, data: dict[str, Array]) -> Callable[[int | None], Array]:
        match row.kind:
            case "linear":
                node = helper.make_node("MatMul", ["x", "w"], ["y"])
                return _rows(node, data["x"], {"w": np.ascontiguousarray(data["w"].T)}, row.sizes["n"])
            case "linear_q4":
                n, k = row.sizes["n"], row.sizes["k"]
                # Level 4 allows 8-bit activations. These are its fastest kernels for many rows.
                options = {"K": k, "N": n, "bits": 4, "block_size": GROUP, "accuracy_level": 4}
                node = helper.make_node("MatMulNBits", ["x", "w", "s"], ["y"], domain=MICROSOFT, **options)
                weights = data["w"].reshape(n, k // GROUP, GROUP // 2)
                return _rows(node, data["x"], {"w": weights, "s": data["scales"].reshape(-1)}, n)
            case "rms_norm":
                node = helper.make_node(
                    "SimplifiedLayerNormalization", ["x", "w"], ["y"], axis=-1, epsilon=EPSILON
                )
                return _rows(node, data["x"], {"w": data["w"]}, row.sizes["k"])
            case "attention":
                return _attention(data)
            case "model":
                session = _open(str(models.folder(row.name) / "model.onnx"))
                return lambda live: session.run(["y"], {"x": data["x"]})[0]
        raise Unsupported("building the whole model for it is not part of this benchmark")


def _session(
    node: Any,
    inputs: dict[str, Sequence[int | str]],
    outputs: dict[str, Sequence[int | str]],
    constants: dict[str, Array],
) -> onnxruntime.InferenceSession:
    def values(shapes: dict[str, Sequence[int | str]]) -> list[Any]:
        return [helper.make_tensor_value_info(name, TensorProto.FLOAT, s) for name, s in shapes.items()]

    weights = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph([node], "one node", values(inputs), values(outputs), weights)
    versions = [helper.make_opsetid("", 21), helper.make_opsetid(MICROSOFT, 1)]
    model = helper.make_model(graph, opset_imports=versions, ir_version=10)
    return _open(model.SerializeToString())


def _open(model: bytes | str) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    return onnxruntime.InferenceSession(model, options, providers=[PROVIDER])


def _rows(node: Any, x: Array, constants: dict[str, Array], width: int) -> Callable[[int | None], Array]:
    """A model of one input with any number of rows."""
    session = _session(node, {"x": ["rows", x.shape[1]]}, {"y": ["rows", width]}, constants)
    return lambda live: session.run(["y"], {"x": x if live is None else x[:live]})[0]


def _attention(data: dict[str, Array]) -> Callable[[int | None], Array]:
    """GroupQueryAttention. The past is a constant, so it stays on the GPU. Only `y` is read back."""
    _, length, heads, width = data["q"].shape
    past = data["past_k"].shape[1]
    total = past + length
    constants = {"last": np.array([total - 1], np.int32), "total": np.array([total], np.int32)}
    if past:
        constants |= {n: np.ascontiguousarray(data[n].transpose(0, 2, 1, 3)) for n in ("past_k", "past_v")}
    node = helper.make_node(
        "GroupQueryAttention",
        ["q", "k", "v", *(["past_k", "past_v"] if past else ["", ""]), "last", "total"],
        ["y", "present_k", "present_v"],
        domain=MICROSOFT,
        num_heads=HEADS,
        kv_num_heads=KV_HEADS,
    )
    feed = {name: data[name].reshape(1, length, -1) for name in "qkv"}
    present = [1, KV_HEADS, total, width]
    outputs = {"y": [1, length, heads * width], "present_k": present, "present_v": present}
    session = _session(node, {name: list(x.shape) for name, x in feed.items()}, outputs, constants)
    return lambda live: session.run(["y"], feed)[0]
