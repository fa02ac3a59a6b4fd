"""`make lines`: the lines of code of each package, and its largest file. No blank lines, no comments."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[1]
KINDS = {".py": "#", ".wgsl": "//", ".js": "//", ".css": "/*", ".html": "<!--"}


def code_lines(path: Path) -> int:
    lines = (line.strip() for line in path.read_text("utf-8").splitlines())
    return sum(bool(line) and not line.startswith(KINDS[path.suffix]) for line in lines)


def files(folder: Path) -> list[Path]:
    found = (path for path in folder.rglob("*") if path.suffix in KINDS)
    return [path for path in found if not {"vendor", "node_modules"} & set(path.parts)]


def main() -> None:
    package = ROOT / "src" / "pteron"
    folders = [path for path in sorted(package.iterdir()) if path.is_dir() and files(path)]
    rows = []
    for folder in [*folders, ROOT / "tests", ROOT / "benchmarks", ROOT / "scripts"]:
        counts = {path: code_lines(path) for path in files(folder)}
        largest = max(counts, key=lambda path: counts[path])
        rows.append((folder.relative_to(ROOT), len(counts), sum(counts.values()), largest, counts[largest]))
    print(f"{'folder':26} {'files':>5} {'lines':>7}  largest file")
    for name, number, total, largest, most in rows:
        print(f"{name!s:26} {number:5} {total:7}  {largest.relative_to(ROOT / name)} ({most})")
    own = sum(total for name, _, total, _, _ in rows if name.parts[0] == "src")
    print(f"{'src/pteron':26} {'':5} {own:7}")


if __name__ == "__main__":
    main()
