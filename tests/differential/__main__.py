"""`python -m tests.differential`: try more programs, print what was found, write failures into a folder."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.differential.kernels import all_kernels
from tests.differential.record import Record
from tests.differential.references import References
from tests.differential.search import Search


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--start", type=int, help="the first number; default: behind the last run")
    parser.add_argument("--folder", type=Path, default=Path(".differential"))
    parser.add_argument(
        "--exported", action="store_true", help="through torch.export: seconds for each program"
    )
    parser.add_argument("--replay", type=Path, nargs="+", help="try these records instead")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    with References() as references:
        search = Search(references, options.folder)
        if options.replay:
            sys.exit(_replay(search, options.replay))
        position = options.folder / ("next_exported.txt" if options.exported else "next.txt")
        start = options.start
        if start is None:
            start = int(position.read_text()) if position.exists() else 0
        run = search.run_exported if options.exported else search.run
        summary = run(range(start, start + options.count))
        position.write_text(str(start + options.count))
        print(summary.text(len(all_kernels())))
        sys.exit(bool(summary.unexplained))


def _replay(search: Search, paths: list[Path]) -> int:
    search.open()
    failed = 0
    for path in paths:
        findings = search.outcome(Record.from_json(path.read_text("utf-8"))).findings
        failed += bool(findings)
        print(path.name, *[f"\n  {f.kind} {f.kernel}: {f.detail}" for f in findings] or ["agrees"])
    return failed


if __name__ == "__main__":
    main()
