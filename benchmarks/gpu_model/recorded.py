"""What a program dispatches, as `record` writes it down and other processes read it."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeAlias

from benchmarks.gpu_model.tree import Tree


@dataclass(frozen=True)
class Dispatch:
    """One dispatch of a call.

    Attributes:
        key: The key of its shader text.
        kernel: The name of the kernel: its file in `ops/wgsl`.
        node: The number of the node, in program order.
        op: The operator.
        route: The implementation of the operator.
        grid: The number of workgroups in each dimension.
        uniforms: The bytes of uniform bindings, by their number, in hexadecimal digits.
        sizes: The bytes of storage bindings, by their number.
        far: Bindings that come from memory: weights and KV caches. All others were written by the
            dispatch before.
        flops, nbytes: What the whole node needs. It may have several dispatches.
    """

    key: str
    kernel: str
    node: int
    op: str
    route: str
    grid: tuple[int, int, int]
    uniforms: dict[str, str]
    sizes: dict[str, int]
    far: tuple[int, ...]
    flops: int
    nbytes: int

    @property
    def groups(self) -> int:
        x, y, z = self.grid
        return x * y * z


# A shader text: its key, kernel, routes, kinds of bindings, whether only GPUs with many registers use it, and
# the text.
Text: TypeAlias = dict[str, Any]


@dataclass(frozen=True)
class Recorded:
    """The texts of a program, and its dispatches at some live points, in order."""

    texts: dict[str, Text]
    points: dict[str, list[Dispatch]]

    @classmethod
    def read(cls, path: Path) -> Recorded:
        found = json.loads(path.read_text("utf-8"))
        return cls(
            {text["key"]: text for text in found["texts"]},
            {name: [_dispatch(d) for d in dispatches] for name, dispatches in found["points"].items()},
        )

    def write(self, path: Path) -> None:
        points = {name: [asdict(d) for d in dispatches] for name, dispatches in self.points.items()}
        path.write_text(json.dumps({"texts": list(self.texts.values()), "points": points}), "utf-8")

    def merged(self, other: Recorded) -> Recorded:
        return Recorded({**self.texts, **other.texts}, {**self.points, **other.points})


def _dispatch(found: dict[str, Any]) -> Dispatch:
    return Dispatch(**{**found, "grid": tuple(found["grid"]), "far": tuple(found["far"])})


def text_key(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def record(tree: Tree, program: str, options: Sequence[str] = ()) -> Recorded:
    """Record a program with the Pteron of a checkout."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "recorded.json"
        command = [sys.executable, "-m", "benchmarks.gpu_model.record", program, str(out), *options]
        done = subprocess.run(command, env=tree.environment(os.environ), cwd=tree.tool)
        if done.returncode:
            raise SystemExit(done.returncode)
        return Recorded.read(out)
