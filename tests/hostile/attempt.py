"""One hostile file in a process of its own, with limits of time and memory.

python -m tests.hostile.attempt check model.pte
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
CPU_SECONDS = 40
ADDRESS_SPACE = 3 << 30


@dataclass(frozen=True)
class Answer:
    """How an attempt ended: the error's class and message, or nothing."""

    error: str | None
    message: str
    is_ours: bool


def attempt(action: str, path: Path) -> Answer:
    """Do something with a file in a child process."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    command = [sys.executable, "-m", "tests.hostile.attempt", action, str(path)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        return Answer("died", f"exit status {done.returncode}: {done.stderr[-500:]}", False)
    return Answer(**json.loads(done.stdout))


def main(action: str, path: Path) -> None:
    import pteron
    from pteron.errors import PteronError
    from pteron.pte.file import ProgramFile
    from pteron.tools.inspect.inspect import inspect_methods

    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    answer = Answer(None, "", True)
    try:
        if action == "check":
            answer = Answer(None, str(pteron.check(path)), True)
        elif action == "inspect":
            with ProgramFile.open(path) as file:
                found = inspect_methods(file, file.method_names)
            answer = Answer(None, "\n".join(problem for method in found for problem in method.problems), True)
        else:
            pteron.convert(path, path.with_suffix(".pte"))
    except Exception as error:  # the caller looks at it
        answer = Answer(type(error).__name__, str(error), isinstance(error, PteronError))
    print(json.dumps(answer.__dict__))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
