"""Makes Mesa's drivers offer a GPU that is not there, and writes down what their compilers say.

AMD: `RADV_FORCE_FAMILY` makes RADV offer a device without hardware, which compiles as the real one. Intel:
ANV needs an answer from the kernel; `fake_i915.c` gives it. `capture_layer.c` is a Vulkan layer that writes
down what the compiler says, and gives AMD's device the memory that wgpu needs to open it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from benchmarks.gpu_model.gpus import INTEL

HERE = Path(__file__).resolve().parent
SOURCES = (HERE / "capture_layer.c", HERE / "fake_i915.c")
LAYER = "VK_LAYER_PTERON_capture"
MANIFESTS = ("/usr/share/vulkan/icd.d", "/usr/local/share/vulkan/icd.d", "/etc/vulkan/icd.d")
HEADERS = ("/usr/include/vulkan/vk_layer.h", "/usr/include/libdrm/i915_drm.h")


def manifest_of(family: str) -> Path | None:
    """The file that names Mesa's driver. Every upgrade of Mesa writes it again."""
    name = "intel" if family in INTEL else "radeon"
    found = [path for folder in MANIFESTS for path in sorted(Path(folder).glob(f"{name}_icd*.json"))]
    return found[0] if found else None


def missing(families: tuple[str, ...] = ("navi31", "tgl")) -> str | None:
    """What this machine lacks, as a sentence, or None."""
    parts = [header for header in HEADERS if not Path(header).exists()]
    parts += [f"Mesa's Vulkan driver for {family}" for family in families if manifest_of(family) is None]
    if shutil.which(os.environ.get("CC", "cc")) is None:
        parts.append("a C compiler")
    if not parts:
        return None
    return f"not found: {', '.join(parts)}; install them with `bash scripts/gpu_model.sh`"


def environment(family: str, capture: Path) -> dict[str, str]:
    """The variables of a process in which wgpu finds this GPU, and whose kernels are written down in a
    folder.
    """
    manifest = manifest_of(family)
    if manifest is None:
        raise SystemExit(missing((family,)))
    found = {
        **os.environ,
        "GPU_MODEL_CAPTURE": str(capture),
        "VK_LAYER_PATH": str(_layer_folder()),
        "VK_INSTANCE_LAYERS": LAYER,
        "VK_ICD_FILENAMES": str(manifest),
        "VK_DRIVER_FILES": str(manifest),
        "MESA_SHADER_CACHE_DISABLE": "1",
    }
    found.pop("PTERON_DEVICE", None)
    if family in INTEL:
        gpu = INTEL[family]
        library = _library("fake_i915", "-I/usr/include/libdrm", "-ldl")
        return {
            **found,
            "LD_PRELOAD": str(library),
            "FAKE_INTEL_ID": gpu.pci_id,
            "FAKE_INTEL_TOPOLOGY": gpu.topology,
        }
    base, _, lanes = family.partition("@")
    if lanes == "32":
        found["RADV_PERFTEST"] = "cswave32"
    return {**found, "RADV_FORCE_FAMILY": base}


@cache
def _build_folder() -> Path:
    """Libraries are compiled once per process: this takes less than a second."""
    return Path(tempfile.mkdtemp(prefix="pteron-gpu-model-"))


@cache
def _library(name: str, *options: str) -> Path:
    library = _build_folder() / f"lib{name}.so"
    compiler = os.environ.get("CC", "cc")
    command = [compiler, "-O1", "-fPIC", "-shared", str(HERE / f"{name}.c"), "-o", str(library), *options]
    subprocess.run(command, check=True)
    return library


@cache
def _layer_folder() -> Path:
    manifest = {
        "file_format_version": "1.2.0",
        "layer": {
            "name": LAYER,
            "type": "GLOBAL",
            "library_path": str(_library("capture_layer")),
            "api_version": "1.3.0",
            "implementation_version": "1",
            "description": "writes down what the compiler says",
        },
    }
    (_build_folder() / "layer.json").write_text(json.dumps(manifest), "utf-8")
    return _build_folder()
