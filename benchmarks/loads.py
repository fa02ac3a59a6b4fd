"""The cost of loading SmolLM2: with an empty shader cache, and again with what the first load left in it.

Each load is a new process. Mesa's cache is in a temporary folder. Other drivers keep their caches elsewhere:
there, the first load may be warm. Python's compiled modules are there before the first load, as after an
installation.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

ROW = "SmolLM2-135M, load and first token"
ROOT = Path(__file__).parent.parent


def measure_loads(model: Path | None, output: Path, console: Console) -> list[str]:
    """Print a table, and append the results to the file. Returns notes."""
    if model is None:
        return [f"{ROW}: SmolLM2 is not installed: see scripts/bench_peers.sh"]
    table = Table(ROW, "CPU s", "wall s", "peak memory", "of it on the GPU", box=None, header_style="dim")
    with tempfile.TemporaryDirectory() as cache, output.open("a", encoding="utf-8") as file:
        _compile_modules(cache)
        for name in ("cold", "warm"):
            try:
                found = _load(model, cache)
            except subprocess.CalledProcessError as error:
                return [f"{ROW}, {name}: {error.stderr.strip().splitlines()[-1]}"]
            table.add_row(
                f"{name} shader cache",
                f"{found['cpu_s']:.1f}",
                f"{found['wall_s']:.1f}",
                f"{found['peak_mb']:,.0f} MB",
                f"{found['gpu_mb']:,.0f} MB",
            )
            now = datetime.now(UTC).isoformat(timespec="seconds")
            line = {"time": now, "row": f"{ROW}, {name}", "side": "pteron", **found}
            file.write(json.dumps(line) + "\n")
    console.print(table, "")
    return []


def _compile_modules(cache: str) -> None:
    imported = (
        "import pteron.llm.decoder, pteron.engine.devices.wgpu.wgpu_device, pteron.api.segmented_method"
    )
    subprocess.run([sys.executable, "-c", imported], check=True, cwd=ROOT, env=_environment(cache))


def _environment(cache: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return kept | {"MESA_SHADER_CACHE_DIR": cache, "PYTHONPYCACHEPREFIX": f"{cache}/modules"}


def _load(model: Path, cache: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.load_once", str(model)],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
        env=_environment(cache),
    )
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer
