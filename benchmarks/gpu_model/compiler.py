"""What the compilers of GPUs make of shader texts. Results are kept in Pteron's cache folder."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.gpu_model import drivers
from benchmarks.gpu_model.gpus import NVIDIA
from benchmarks.gpu_model.tree import Tree, cache_folder

# What wgpu adds to kernels (WGPUShaderRuntimeChecks). `project`: as Pteron asks for each kernel.
CHECKS = {"project": None, "none": 0, "bounds": 1, "loops": 2, "all": 3}


@dataclass(frozen=True, eq=False)
class Compiled:
    """A compiled kernel."""

    family: str
    folder: Path
    number: int
    lanes: int  # of a wave
    statistics: dict[str, int]

    def text(self, name: str) -> str:
        return (self.folder / f"{self.number}.{name}.txt").read_text("utf-8", "replace")

    @cached_property
    def assembly(self) -> str:
        return self.text("Assembly")

    @cached_property
    def nir(self) -> str:
        return self.text("NIR_shader" if self.is_nvidia else "NIR_Shader(s)")

    @property
    def is_nvidia(self) -> bool:
        return self.family in NVIDIA

    @cached_property
    def workgroup(self) -> tuple[int, int, int]:
        match = re.search(r"workgroup_size: (\d+), (\d+), (\d+)", self.nir)
        assert match is not None
        return int(match[1]), int(match[2]), int(match[3])

    @property
    def waves_per_group(self) -> int:
        x, y, z = self.workgroup
        return -(-x * y * z // self.lanes)

    # -- in the same words for all compilers

    @property
    def spills(self) -> int:
        given = self.statistics
        if self.is_nvidia:
            return given["Spills to memory"]
        return given.get("Spill Count", given.get("Spilled VGPRs", 0) + given.get("Spilled SGPRs", 0))

    @property
    def scratch(self) -> int:
        """Bytes of memory per lane for arrays and spills."""
        names = ("Scratch Memory Size", "Scratch size", "SLM size")
        return next((self.statistics[name] for name in names if name in self.statistics), 0)

    @property
    def registers(self) -> int:
        """Vector registers, of 256 (AMD, NVIDIA) or of 128 (Intel)."""
        names = ("Max live registers", "VGPRs", "Number of GPRs")
        return next((self.statistics[name] for name in names if name in self.statistics), 0)

    @property
    def workgroup_memory(self) -> int:
        if self.is_nvidia:
            found = re.search(r"shared_size: (\d+)", self.nir)
            return int(found[1]) if found else 0
        return self.statistics.get("Workgroup Memory Size", self.statistics.get("LDS size", 0))

    @property
    def occupancy(self) -> int:
        """The waves that can be kept, in sixteenths of the most. AMD's driver counts a long wave as two."""
        if self.is_nvidia:
            x, y, z = self.workgroup
            return NVIDIA[self.family].occupancy(self.registers, self.workgroup_memory, x * y * z)
        return self.statistics.get("Subgroups per SIMD", 0) * 32 // self.lanes


def compile_texts(
    tree: Tree, texts: Iterable[dict[str, Any]], family: str, checks: str
) -> dict[str, Compiled | str]:
    """By the key of a text: the compiled kernel, or what the compiler complains about."""
    folder = cache_folder() / "compiled" / f"{family}-{checks}-{_made_by(tree, family)}"
    folder.mkdir(parents=True, exist_ok=True)
    found = _read(folder, family)
    new = [item for item in texts if item["key"] not in found]
    if new:
        run = Path(tempfile.mkdtemp(dir=folder))
        (run / "texts.json").write_text(json.dumps(new), "utf-8")
        command = [
            *drivers.python(family),
            "-m",
            "benchmarks.gpu_model.compile_texts",
            str(run / "texts.json"),
            checks,
        ]
        done = subprocess.run(
            command,
            env=tree.environment(drivers.environment(family, run)),
            cwd=tree.tool,
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise SystemExit(f"cannot compile for {family}:\n{done.stderr}")
        found = _read(folder, family)
    return found


def _read(folder: Path, family: str) -> dict[str, Compiled | str]:
    """All that was compiled before. A run that was interrupted has no `compiled.json`."""
    found: dict[str, Compiled | str] = {}
    for finished in folder.glob("*/compiled.json"):
        made = json.loads(finished.read_text("utf-8"))
        lines = (
            (finished.parent / "pipelines.jsonl").read_text("utf-8").splitlines() if made["kernels"] else []
        )
        for key, one in made["kernels"].items():
            if "error" in one:
                found[key] = one["error"]
                continue
            line = json.loads(lines[one["number"]])
            found[key] = Compiled(family, finished.parent, one["number"], line["lanes"], line["statistics"])
    return found


@cache
def _made_by(tree: Tree, family: str) -> str:
    """What a compiled kernel depends on, beside its text: Pteron's way to compile, wgpu, Mesa, the layer."""
    digest = hashlib.sha256(version("wgpu").encode())
    manifest = drivers.manifest_of(family)
    if manifest is None:
        raise SystemExit(drivers.missing((family,)))
    digest.update(f"{manifest} {manifest.stat().st_mtime_ns}".encode())
    devices = tree.source / "pteron" / "engine" / "devices"
    for path in (*sorted(devices.glob("*.py")), *sorted((devices / "wgpu").glob("*.py")), *drivers.SOURCES):
        digest.update(path.read_bytes())
    digest.update((tree.tool / "benchmarks" / "gpu_model" / "compile_texts.py").read_bytes())
    return digest.hexdigest()[:12]
