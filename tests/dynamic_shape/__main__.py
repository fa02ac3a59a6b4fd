"""Write the table's programs to a folder, or replay what a folder holds."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from pteron.engine.devices.opening import Device, open_device
from tests.dynamic_shape.recording import CALLS, Recording, record
from tests.dynamic_shape.replay import replay
from tests.dynamic_shape.table import CASES


def export(root: Path) -> int:
    for case in CASES:
        folder = root / case.name
        folder.mkdir(parents=True, exist_ok=True)
        record(case, folder)
        print(f"{case.name}: {len(case.live)} calls")
    return 0


def run(root: Path, device: Device) -> int:
    failed = 0
    for index in sorted(root.glob(f"*/{CALLS}")):
        recording = Recording(index.parent)
        try:
            replay(recording, device)
            print(f"{index.parent.name}: passed")
        except Exception as error:
            failed += 1
            print(f"{index.parent.name}: FAILED\n{type(error).__name__}: {error}")
    print(f"{failed} failed" if failed else "all passed")
    return min(failed, 1)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.dynamic_shape", description=__doc__)
    parser.add_argument("command", choices=["export", "run"])
    parser.add_argument("folder", type=Path)
    arguments = parser.parse_args()
    return export(arguments.folder) if arguments.command == "export" else run(arguments.folder, open_device())


if __name__ == "__main__":
    sys.exit(main())
