"""Random programs agree with ExecuTorch's runtime and with torch. `make differential` tries more."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pteron.compiler.ops import find
from tests.differential.draw import program
from tests.differential.explanations import explanation
from tests.differential.kernels import all_kernels
from tests.differential.record import Record
from tests.differential.references import References
from tests.differential.search import Search

CORPUS = sorted((Path(__file__).parent / "corpus").glob("*.json"))
FIRST, COUNT = 5_000_000, 240
EXPORTED = range(7_000_000, 7_000_500, 41)  # every 41st begins with another kernel


@pytest.fixture(scope="module")
def search(device: object) -> Iterator[Search]:
    with References() as references:
        search = Search(references)
        search.open()
        yield search
        search.close()


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.stem)
def test_what_was_found(search: Search, path: Path) -> None:
    """Every failure that the search has found is right by now, or has an explanation."""
    found = search.outcome(Record.from_json(path.read_text("utf-8"))).findings
    assert not [finding for finding in found if explanation(finding) is None]


def test_random_programs(search: Search) -> None:
    summary = search.run(range(FIRST, FIRST + COUNT))
    text = summary.text(len(all_kernels()))
    print(text)
    assert not summary.unexplained, text
    assert summary.programs > 0.9 * COUNT
    assert not set(all_kernels()) - set(summary.reached)


def test_exported_programs(search: Search) -> None:
    """Through torch.export, with no partitioner, with Vulkan, with XNNPACK, and by `pteron.export`."""
    summary = search.run_exported(EXPORTED)
    text = summary.text(len(all_kernels()))
    assert not summary.unexplained, text
    assert summary.programs > 3, text


def test_a_program_is_its_number() -> None:
    assert program(17)[0].to_json() == program(17)[0].to_json() != program(18)[0].to_json()
    record = program(17)[0]
    assert Record.from_json(record.to_json()) == record


def test_a_wrong_kernel_is_found_and_shrunk(
    device: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`neg` computes `abs`. The search finds it, and keeps a program of one step with one element."""
    right, wrong = find("aten.neg.default"), find("aten.abs.default")
    assert right is not None and wrong is not None
    monkeypatch.setattr(right.rule, "describe", wrong.rule.describe)  # type: ignore[attr-defined]
    kernels = all_kernels()
    first = kernels.index("aten::neg.out")
    with References() as references:
        search = Search(references, tmp_path)
        search.run(range(first, first + 8 * len(kernels), len(kernels)))  # eight programs that begin with it
        search.close()
    path = min(tmp_path.glob("differs-neg.out-*.json"))
    record = Record.from_json(path.read_text("utf-8"))
    (step,), (source,) = record.steps, record.sources.values()
    assert step.kernel == "aten::neg.out"
    assert set(source.bound) <= {1}
