"""The side of ncnn, on Vulkan with 32-bit floats: networks of one layer, written as text, and models."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import ncnn
import numpy as np

from benchmarks import models
from benchmarks.rows import EPSILON, Array, Row, Unsupported

MAGIC = "7767517"
RAW = bytes(4)  # before weights: 32-bit floats follow


class Side:
    def facts(self) -> dict[str, str]:
        if not ncnn.get_gpu_count():
            raise Unsupported("ncnn finds no Vulkan device")
        return {
            "version": f"ncnn {metadata.version('ncnn')}",
            "adapter": ncnn.get_gpu_info(ncnn.get_default_gpu_index()).device_name(),
        }

    def prepare(self, row: Row, data: dict[str, Array]) -> Callable[[int | None], Array]:
        match row.kind:
            case "linear":
                n, k = data["w"].shape
                layer = f"Gemm layer 1 1 x y 3=1 5=1 6=1 8={n} 9={k} 10=-1"
                return _network(layer, RAW + data["w"].tobytes(), data["x"])
            case "rms_norm":
                layer = f"RMSNorm layer 1 1 x y 0={row.sizes['k']} 1={EPSILON} 2=1"
                return _network(layer, data["w"].tobytes(), data["x"])
            case "linear_q4":
                raise Unsupported("no layer with 4-bit weights on Vulkan")
            case "attention":
                raise Unsupported("no layer with a cache and causal masking on Vulkan")
            case "model":
                return _model(models.folder(row.name), data["x"])
        raise Unsupported("building the whole model for it is not part of this benchmark")


def _network(layer: str, weights: bytes, x: Array) -> Callable[[int | None], Array]:
    net = _empty_network()
    with tempfile.TemporaryDirectory() as folder:
        text, binary = Path(folder, "net.param"), Path(folder, "net.bin")
        text.write_text(f"{MAGIC}\n2 2\nInput x 0 1 x\n{layer}\n")
        binary.write_bytes(weights)
        if net.load_param(str(text)) or net.load_model(str(binary)):
            raise Unsupported(f"ncnn does not load {layer}")
    if not all(found.support_vulkan for found in net.layers()):
        raise Unsupported(f"no Vulkan kernel for {layer.split()[0]}")

    return lambda live: _run(net, "x", x if live is None else x[:live], "y")


def _model(folder: Path, x: Array) -> Callable[[int | None], Array]:
    """A whole model, converted by pnnx. Layers without a Vulkan kernel run on the CPU."""
    net = _empty_network()
    if net.load_param(str(folder / "model.ncnn.param")) or net.load_model(str(folder / "model.ncnn.bin")):
        raise Unsupported("ncnn does not load the converted model")
    batch = np.ascontiguousarray(x[0] if x.dtype == np.float32 else x[0].astype(np.int32))
    return lambda live: _run(net, "in0", batch, "out0")


def _empty_network() -> ncnn.Net:
    net = ncnn.Net()
    net.opt.use_vulkan_compute = True
    net.opt.use_fp16_packed = net.opt.use_fp16_storage = net.opt.use_fp16_arithmetic = False
    return net


def _run(net: ncnn.Net, given: str, x: Array, wanted: str) -> Array:
    with net.create_extractor() as extractor:
        extractor.input(given, ncnn.Mat(x))
        status, result = extractor.extract(wanted)
        if status:
            raise RuntimeError(f"ncnn answers {status}")
        return np.array(result)
