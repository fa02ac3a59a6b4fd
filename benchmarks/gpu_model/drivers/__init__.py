"""Makes Mesa's drivers offer a GPU that is not there, and writes down what their compilers say.

AMD: `RADV_FORCE_FAMILY` makes RADV offer a device without hardware, which compiles as the real one. Intel:
ANV needs an answer from the kernel; `fake_i915.c` gives it. `capture_layer.c` is a Vulkan layer that writes
down what the compiler says, and gives AMD's device the memory that wgpu needs to open it.

NVIDIA: `fake_nouveau.c` answers for the kernel. Mesa's NVK is in a newer Debian, which `scripts/nvk.sh` puts
into a folder. Python then runs with the libraries of that folder.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

from benchmarks.gpu_model.gpus import INTEL, NVIDIA

HERE = Path(__file__).resolve().parent
SOURCES = (HERE / "capture_layer.c", HERE / "fake_i915.c", HERE / "fake_nouveau.c")
NVK_ROOT = Path(os.environ.get("NVK_ROOT", "/opt/nvk-root"))  # of scripts/nvk.sh
NVK_LIBRARIES = NVK_ROOT / "usr" / "lib" / "x86_64-linux-gnu"
LAYER = "VK_LAYER_PTERON_capture"
MANIFESTS = ("/usr/share/vulkan/icd.d", "/usr/local/share/vulkan/icd.d", "/etc/vulkan/icd.d")
HEADERS = ("/usr/include/vulkan/vk_layer.h", "/usr/include/libdrm/i915_drm.h")


def manifest_of(family: str) -> Path | None:
    """The file that names Mesa's driver. Every upgrade of Mesa writes it again."""
    if family in NVIDIA:
        return next(iter((NVK_ROOT / "usr" / "share" / "vulkan" / "icd.d").glob("nouveau_icd*.json")), None)
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
    script = "nvk.sh" if any(family in NVIDIA for family in families) else "gpu_model.sh"
    return f"not found: {', '.join(parts)}; install them with `bash scripts/{script}`"


def python(family: str) -> list[str]:
    """The command that runs Python so that it can load the driver."""
    if family not in NVIDIA:
        return [sys.executable]
    shim = _library("fake_nouveau", f"-I{NVK_ROOT}/usr/include/libdrm", "-ldl", "-lpthread")
    loader = [str(NVK_LIBRARIES / "ld-linux-x86-64.so.2"), "--library-path", str(NVK_LIBRARIES)]
    return [*loader, "--preload", str(shim), "--argv0", sys.executable, os.path.realpath(sys.executable)]


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
    if family in NVIDIA:
        driver = {"file_format_version": "1.0.1", "ICD": {"api_version": "1.4.0"}}
        driver["ICD"]["library_path"] = str(NVK_LIBRARIES / "libvulkan_nouveau.so")
        chosen = _build_folder() / "nouveau_icd.json"
        chosen.write_text(json.dumps(driver), "utf-8")
        # Mesa has not tested all of these generations enough, by its own judgement.
        asked = {"FAKE_NVIDIA_CHIP": family, "NVK_I_WANT_A_BROKEN_VULKAN_DRIVER": "1"}
        return {**found, **asked, "VK_ICD_FILENAMES": str(chosen), "VK_DRIVER_FILES": str(chosen)}
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
