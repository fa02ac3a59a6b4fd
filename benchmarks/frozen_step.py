"""The host's time for a decode step of a frozen SmolLM2, in JavaScript.

    python -m benchmarks.frozen_step

The GPU of `frozen_step.mjs` only counts, so the time is that of `pteron.js`: checks, parameters, the encode
loop, and the copy of the logits. A browser adds what its own WebGPU needs for each call. Needs Node.js.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from pathlib import Path

from benchmarks import smollm2
from pteron.web.program_files import write_program

STEPS = 500
HERE = Path(__file__).parent


class _Files(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


def measure(program: Path) -> dict[str, object]:
    runtime = Path(str(files("pteron.web"))) / "runtime" / "pteron.js"
    with tempfile.TemporaryDirectory() as folder:
        write_program(program, Path(folder), variants=["gpu"], kv_dtype="f16")
        with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Files, directory=folder)) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            address = f"http://127.0.0.1:{server.server_port}/"
            command = ["node", HERE / "frozen_step.mjs", address, str(STEPS), runtime.as_uri()]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            server.shutdown()
    found: dict[str, object] = json.loads(done.stdout)
    return found


def main() -> None:
    program = smollm2.program(Path(sys.prefix))
    if program is None:
        sys.exit("SmolLM2 is not installed: scripts/setup.sh dev does that")
    found = measure(program)
    print(f"{found['cpu_ms']:.2f} ms of CPU for a step of {found['dispatches']:.0f} dispatches")
    print(f"made after the load: {found['made']}")


if __name__ == "__main__":
    main()
