"""Whether ExecuTorch's own runtime can run a file. It ends the process of a file that it cannot run.

`python -m tests.zoo.refused FILE` runs a file in this process.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch

ROOT = Path(__file__).parents[2]


def executorch_refuses(program: bytes, inputs: Sequence[torch.Tensor]) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "call.pt"
        torch.save((program, list(inputs)), path)
        command = [sys.executable, "-m", __name__, str(path)]
        return subprocess.run(command, cwd=ROOT, capture_output=True, check=False).returncode != 0


def main() -> None:
    import executorch.kernels.quantized  # noqa: F401  registers kernels
    from executorch.runtime import Runtime

    program, inputs = torch.load(sys.argv[1], weights_only=True)
    method = Runtime.get().load_program(program).load_method("forward")
    assert method is not None
    method.execute(inputs)


if __name__ == "__main__":
    main()
