"""`pteron bench`: the rows it promises, measured on what it says."""

import json
import re

import pytest
from typer.testing import CliRunner

from pteron.cli.app import app
from pteron.cli.bench import Row, Runner
from tests.llm import tiny_llama


@pytest.fixture(scope="module")
def model(once):
    return once("tiny_llama", tiny_llama.make) / "model.pte"


def bench(model, *arguments, code=0):
    result = CliRunner().invoke(app, ["bench", str(model), *map(str, arguments)])
    assert result.exit_code == code, (result.stdout, result.stderr, result.exception)
    return result


def test_json_has_a_row_per_test(model):
    rows = json.loads(bench(model, "-p", "8,20", "-n", 4, "-r", 3, "-o", "json").stdout)
    assert [(row["n_prompt"], row["n_gen"]) for row in rows] == [(8, 0), (20, 0), (0, 4)]
    for row in rows:
        tokens = row["n_prompt"] + row["n_gen"]
        assert len(row["samples_ns"]) == len(row["samples_ts"]) == 3
        for ns, rate in zip(row["samples_ns"], row["samples_ts"], strict=True):
            assert rate == pytest.approx(1e9 * tokens / ns, rel=1e-6)
        assert row["avg_ns"] == pytest.approx(sum(row["samples_ns"]) / 3, abs=2)
        assert row["cpu_ms_per_token"] > 0
        assert row["model_size"] == model.stat().st_size
        assert row["pteron_version"] and row["gpu_info"] and row["driver"] and row["test_time"]


def test_markdown_is_a_table(model):
    lines = bench(model, "-p", 4, "-n", 2, "-r", 2, "--n-depth", 5).stdout.splitlines()
    header, rule, pp, tg = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines[:4])
    assert header == ["model", "size", "backend", "test", "t/s", "cpu ms/token"]
    assert all(re.fullmatch("-+:?", cell) for cell in rule)
    assert (pp[0], pp[3], tg[3]) == ("model.pte", "pp4 @ d5", "tg2 @ d5")
    assert re.fullmatch(r"[\d.]+ ± [\d.]+", pp[4])
    assert len({len(line) for line in lines[:4]}) == 1


def test_zero_leaves_a_test_out(model):
    rows = json.loads(bench(model, "-p", 0, "-n", 2, "-r", 1, "-o", "json").stdout)
    assert [row["n_gen"] for row in rows] == [2] and rows[0]["stddev_ts"] == 0
    assert "nothing to measure" in bench(model, "-p", 0, "-n", 0, code=2).stderr


def test_what_does_not_fit_or_makes_no_sense_is_refused(model):
    assert "do not fit the context of" in bench(model, "-p", 100000, code=2).stderr
    assert "write lengths with commas" in bench(model, "-p", "many", code=2).stderr


class Recorder:
    """A decoder that only notes what it is asked."""

    max_length, vocab_size = 8, 50

    def __init__(self):
        self.calls = []

    def new_state(self):
        return self

    def close(self):
        pass

    def logits(self, tokens, position, state):
        assert all(0 <= token < self.vocab_size for token in tokens)
        self.calls.append((position, len(tokens)))


def test_a_prompt_is_read_in_the_largest_pieces_after_what_the_context_holds():
    decoder = Recorder()
    row = Runner(decoder, depth=10).measure("pp", 20, repetitions=2)
    once = [(10, 8), (18, 8), (26, 4)]
    assert decoder.calls == [(0, 8), (8, 2), *once, *once, *once]  # filled, warmed up, measured twice
    assert len(row.seconds) == 2


def test_tokens_are_written_one_by_one():
    decoder = Recorder()
    Runner(decoder, depth=3).measure("tg", 4, repetitions=1)
    once = [(3, 1), (4, 1), (5, 1), (6, 1)]
    assert decoder.calls == [(0, 3), *once, *once]


def test_rates_are_tokens_per_second():
    row = Row("tg", 10, 0, seconds=[1.0, 2.0], cpu_seconds=[3.0, 3.0])
    told = row.as_json()
    assert (told["avg_ts"], told["avg_ns"], told["cpu_ms_per_token"]) == (7.5, 1_500_000_000, 300)
