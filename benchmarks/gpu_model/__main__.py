"""Predict what Pteron's kernels cost on real GPUs, on a machine that has none of them.

    python -m benchmarks.gpu_model                          SmolLM2 on navi31 and navi21
    python -m benchmarks.gpu_model --program model.pte --shape input0=1x3x224x224
    python -m benchmarks.gpu_model --program cases:Convolution --family navi31
    python -m benchmarks.gpu_model --against main           compare with another commit
    python -m benchmarks.gpu_model --family tgl,dg2,navi31 --static
    python -m benchmarks.gpu_model --self-test --only attention
    python -m benchmarks.gpu_model --page                   measure all programs, and write
    docs/performance.md

1. `record`: the program is loaded on Pteron's recording device, as if it were a GPU. This gives all shader
   texts, and the dispatches at some live points.
2. `compiler`: wgpu compiles the texts with Mesa's drivers, on devices without hardware (`drivers`).
3. `measure`: an emulator runs the machine code of some workgroups of every dispatch, with the real
   parameters.
4. `prediction`: a simple model of a published GPU turns the counts into times.
"""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from benchmarks.gpu_model import drivers, page, self_test, tables
from benchmarks.gpu_model.compiler import CHECKS
from benchmarks.gpu_model.gpus import Gpu
from benchmarks.gpu_model.programs import TITLES
from benchmarks.gpu_model.recorded import Dispatch, record
from benchmarks.gpu_model.report import Family, examine
from benchmarks.gpu_model.tree import HERE, Tree, checkout

EXAMPLES = ", ".join(TITLES)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu_model",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--program", default="smollm2", help=f"a .pte or .gguf file, cases:FAMILY, or one of: {EXAMPLES}")
    add("--points", help="live points of a language model: name:tokens@position,...")
    add("--shape", action="append", default=[], help="of an input of a .pte program: input0=1x3x224x224")
    add("--precision", help="what kernels may round operands to: float16 or int8")
    add(
        "--family",
        default="navi31,navi21",
        help="navi31, navi21 (@32: waves of 32 lanes); no times: skl, tgl, dg2, mtl, tu102, ga102, gb202",
    )
    add("--against", metavar="REV", help="a commit, or a file of --json: print what has changed since")
    add("--only", default="", help="only dispatches whose kernel, route or operator contains this")
    add("--static", action="store_true", help="only what the compilers say about all kernels")
    add(
        "--checks", default="project", choices=CHECKS, help="run-time checks of wgpu; default: as Pteron asks"
    )
    add("--latency-scale", type=float, default=1.0, help="all assumed latencies times this")
    add("--launch", type=float, help="microseconds that a dispatch costs beside its kernel; default: 3")
    add("--json", type=Path, help="write all numbers to this file")
    add("--show", help="print the assembly of kernels with this name")
    add("--self-test", action="store_true", help="compare the emulator's results with a software adapter's")
    add("--groups", type=int, default=4, help="the workgroups of a dispatch that the self test emulates")
    add("--page", action="store_true", help="measure all programs, and write docs/performance.md")
    given = parser.parse_args()
    if Path(given.program).exists():
        given.program = str(Path(given.program).resolve())
    return given


def examine_all(given: argparse.Namespace, tree: Tree) -> dict[str, Family]:
    recorded = record(tree, given.program, _record_options(given))

    def wanted(d: Dispatch) -> bool:
        return not given.static and given.only in f"{d.kernel} {d.route} {d.op}"

    def adjust(gpu: Gpu) -> Gpu:
        launch = gpu.launch if given.launch is None else given.launch * 1e-6
        return replace(gpu, nanoseconds=gpu.nanoseconds.times(given.latency_scale), launch=launch)

    return {
        family: examine(recorded, tree, family, checks=given.checks, wanted=wanted, adjust=adjust)
        for family in given.family.split(",")
    }


def _record_options(given: argparse.Namespace) -> list[str]:
    points = ["--points", given.points] if given.points else []
    precision = ["--precision", given.precision] if given.precision else []
    return [*points, *precision, *(f"--shape={shape}" for shape in given.shape)]


def earlier(given: argparse.Namespace) -> dict[str, Family]:
    """The numbers to compare with."""
    if Path(given.against).is_file():
        stored = json.loads(Path(given.against).read_text("utf-8"))
        return {family: Family.from_json(found) for family, found in stored.items()}
    with ExitStack() as stack:
        return examine_all(given, stack.enter_context(checkout(given.against)))


def main() -> None:
    given = arguments()
    if lacking := drivers.missing(tuple(given.family.split(","))):
        sys.exit(lacking)
    if given.page:
        page.make()
        return
    if given.self_test:
        recorded = record(HERE, given.program, _record_options(given))
        sys.exit(self_test.run(recorded, HERE, given.family.split(","), given.only, given.groups))
    before = earlier(given) if given.against else {}
    found = examine_all(given, HERE)
    for family, now in found.items():
        if given.static:
            print(tables.kernels(family, now))
        for name, point in now.points.items():
            print(tables.point(family, name, point, now.kernels))
        if old := before.get(family):
            for name in old.points.keys() & now.points.keys():
                print(tables.changes(family, name, old.points[name], now.points[name]))
            print(tables.lost(old, now))
        if given.show:
            _show(given, family)
    if given.json:
        stored = {family: now.as_json() for family, now in found.items()}
        given.json.write_text(json.dumps(stored, indent=1), "utf-8")


def _show(given: argparse.Namespace, family: str) -> None:
    from benchmarks.gpu_model.compiler import Compiled, compile_texts

    recorded = record(HERE, given.program, _record_options(given))
    compiled = compile_texts(HERE, recorded.texts.values(), family, given.checks)
    for key, text in recorded.texts.items():
        if given.show == text["kernel"] and isinstance(made := compiled[key], Compiled):
            print(f"\n#### {text['kernel']} ({', '.join(text['routes'])}) on {family}\n\n{made.assembly}")


if __name__ == "__main__":
    main()
