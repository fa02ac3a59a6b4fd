"""`pteron bench` and `make bench`: the rows they promise, measured on what they say."""

import json
import re
import sys

import numpy as np
import pytest
from benchmarks import compare, rows
from benchmarks.compare import Missing, Process
from benchmarks.rows import ROWS, Row, Unsupported
from benchmarks.worker import Worker
from typer.testing import CliRunner

from pteron.cli.bench import parallel_table
from pteron.cli.bench_runner import Row as BenchRow
from pteron.cli.bench_runner import Runner
from pteron.cli.commands import app
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


def test_invalid_lengths_are_refused(model):
    assert "do not fit the context of" in bench(model, "-p", 100000, code=2).stderr
    assert "write lengths separated by commas" in bench(model, "-p", "many", code=2).stderr


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


def test_a_prompt_is_read_in_the_largest_chunks_after_the_depth():
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
    row = BenchRow("tg", 10, 0, 1, [1.0, 2.0], [3.0, 3.0])
    told = row.as_json()
    assert (told["avg_ts"], told["avg_ns"], told["cpu_ms_per_token"]) == (7.5, 1_500_000_000, 300)


class Segments(Recorder):
    """The same, for several conversations in a call."""

    parallel = 3

    def logits_many(self, segments):
        self.calls.append([(segment.position, len(segment.tokens)) for segment in segments])


def test_conversations_at_once_share_calls_and_counts_take_turns():
    decoder = Segments()
    rows = Runner(decoder, depth=9).measure_many([1, 4], 2, repetitions=2)
    filled, one = [(0, 8), (8, 1)], [(9, 1), (10, 1)]
    four = [[(9, 1)] * 3, [(9, 1)], [(10, 1)] * 3, [(10, 1)]]
    assert decoder.calls == [*filled * 4, *(one + four) * 3]  # filled, warmed up, measured twice
    assert [(row.tokens, len(row.seconds), len(row.cpu_seconds)) for row in rows] == [(2, 2, 2), (8, 2, 2)]


def test_parallel_has_a_row_per_count(model):
    rows = json.loads(bench(model, "--parallel", "1,2", "-n", 3, "-r", 2, "--json").stdout)
    assert [(row["n_parallel"], row["n_gen"]) for row in rows] == [(1, 3), (2, 3)]
    assert rows[1]["samples_ts"][0] == pytest.approx(2 * 3e9 / rows[1]["samples_ns"][0], rel=1e-6)
    assert "write lengths separated by commas" in bench(model, "--parallel", "x", code=2).stderr
    assert "one length" in bench(model, "--parallel", "2", "-n", "1,2", code=2).stderr


def test_parallel_is_a_table_with_ratios():
    rows = [BenchRow("tg", 10, 0, 1, [1.0], [2.0]), BenchRow("tg", 10, 0, 2, [1.0], [2.5])]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in parallel_table(rows)]
    assert cells[3] == ["2", "20.00", "8.00", "1.60"]


# -- make bench -----------------------------------------------------------------------------------

NORM = next(row for row in ROWS if row.name == "rms_norm 128×2048")
FIRST = next(row for row in ROWS if row.first_calls)


@pytest.fixture(scope="module")
def ours():
    side = Process("pteron", {})
    yield side
    side.close()


def test_a_process_answers_with_the_times_of_whole_calls(ours):
    assert "pteron" in ours.ask(do="facts")["version"]
    assert ours.ask(do="prepare", row=NORM.name) == {}  # its result is numpy's
    times = ours.ask(do="run", calls=3, live=7)
    assert len(times["cpu_ms"]) == len(times["wall_ms"]) == 3 and min(times["wall_ms"]) > 0
    with pytest.raises(Missing, match="unknown command"):
        ours.ask(do="dance")


@pytest.mark.parametrize("row", [r for r in ROWS if r.kind != "llm"], ids=lambda r: r.name)
def test_pteron_gives_the_result_of_numpy(ours, row):
    assert ours.ask(do="prepare", row=row.name) == {}


class Wrong:
    """A side whose results are off, or that cannot do a row at all."""

    def facts(self):
        return {}

    def prepare(self, row, data):
        if row.kind != "rms_norm":
            raise Unsupported("cannot")
        return lambda live: 1.1 * rows.expected(row, data)


def test_a_wrong_result_is_named():
    worker = Worker(Wrong())
    assert worker.answer({"do": "prepare", "row": NORM.name}) == {
        "note": "its result is 10.0% away from numpy's"
    }
    with pytest.raises(Unsupported):
        worker.answer({"do": "prepare", "row": FIRST.name})


class Scripted:
    """A side that takes the times it is told."""

    def __init__(self, name, *times, refuses=""):
        self.name, self.times, self.refuses, self.asked = name, list(times), refuses, []

    def ask(self, **command):
        self.asked.append(command["do"])
        if command["do"] == "prepare":
            if self.refuses:
                raise Missing(self.refuses)
            return {}
        ms = self.times.pop(0)
        return {"cpu_ms": ms, "wall_ms": [2 * t for t in ms]}


FACTS = {name: {"version": "1", "adapter": "a"} for name in ("pteron", "fast", "none")}


def test_medians_ratios_and_what_is_missing():
    sides = [
        Scripted("pteron", [4.0], [8.0], [5.0]),
        Scripted("fast", [2.0], [2.5], [99.0]),
        Scripted("none", refuses="no such kernel"),
    ]
    row = Row("a row", "linear", {})
    found = compare.measure(row, sides, rounds=3, seconds=0)
    assert compare.cells(row, found) == ["a row", "5.00 (10.0)", "2.50 (5.00)", "0.50×", "", ""]
    lines = list(compare.record(row, found, FACTS))
    assert [line["cpu_ratio_to_pteron"] for line in lines] == [1.0, 0.5, None]
    assert lines[2]["missing"] == "no such kernel" and lines[0]["version"] == "1"
    assert lines[0]["cpu_ms"] == 5 and lines[0]["calls"] == 3
    json.dumps(lines)


def test_the_worst_first_call_counts():
    """The one that differs the most from later calls at its own shape, not the one that takes the longest."""
    row = Row("first", "linear", {}, first_calls=(3, 5))
    known = [1.0] * 5
    side = Scripted("pteron", known, [9.0, 7.0, 8.0, 9.0], known, [6.0, 2.0, 2.0, 3.0])
    found = compare.measure(row, [side], 3, 0)
    assert (found["pteron"].cpu, found["pteron"].steady) == (6.0, 2.0)
    assert compare.cells(row, found)[1] == "6.00 (12.0), then 2.00"


def test_missing_sides_are_reported(tmp_path, monkeypatch, capsys):
    nowhere = tmp_path / "python"
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\necho no library >&2\nexit 1\n")
    broken.chmod(0o755)
    commands = compare.COMMANDS | {"onnxruntime": [str(nowhere)], "ncnn": [str(broken)]}
    monkeypatch.setattr(compare, "COMMANDS", commands)
    out = tmp_path / "bench.jsonl"
    arguments = ["bench", "--only", "rms_norm 1", "--rounds", "1", "--seconds", "0", "--output", str(out)]
    monkeypatch.setattr(sys, "argv", arguments)
    compare.main()
    told = capsys.readouterr().out
    assert "onnxruntime: " in told and "is not there" in told
    assert "ncnn: its process has ended: no library" in told
    assert [json.loads(line)["row"] for line in out.read_text().splitlines()] == [
        "rms_norm 1×2048",
        "rms_norm 128×2048",
    ]


def test_attention_in_numpy_equals_torch():
    import torch

    row = Row("", "attention", {"s": 3, "past": 4})
    data = rows.arrays(row)
    q, k, v, past_k, past_v = (torch.from_numpy(data[n]).transpose(1, 2) for n in data)
    k, v = torch.cat([past_k, k], 2), torch.cat([past_v, v], 2)
    mask = torch.ones(3, 7, dtype=torch.bool).tril(4)
    wanted = torch.nn.functional.scaled_dot_product_attention(q, k, v, mask, enable_gqa=True)
    np.testing.assert_allclose(rows.expected(row, data), wanted.transpose(1, 2), rtol=1e-4, atol=1e-5)
