"""Pteron in Ray Data: the rows of a file, an actor that is killed, and a bad row."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

pytest.importorskip("ray")

import ray.data

import pteron.llm
from pteron.data import FileJob, MapOptions
from pteron.engine.devices.opening import Device
from pteron.errors import InputError
from pteron.ray import Predictor, map_file_on_ray
from tests.cluster.conftest import COUNT, MODEL, NUMBERS
from tests.llm import tiny_models
from tests.support.cli import pteron_cli

pytestmark = pytest.mark.usefixtures("ray_cluster")
OPTIONS = MapOptions(columns={"input0": "number"})


class KilledOnce(Predictor):
    """Kills its process at the third batch, as the kernel does when memory runs out. Once in all."""

    def __init__(self, model: str, **options: Any) -> None:
        super().__init__(model, **options)
        self._calls = 0

    def __call__(self, batch: Any) -> Any:
        self._calls += 1
        if self._calls == 3:
            try:
                Path(os.environ["KILLED_ONCE"]).touch(exist_ok=False)
            except FileExistsError:
                pass
            else:
                os.kill(os.getpid(), signal.SIGKILL)
        return super().__call__(batch)


def check(path: Path, vectors: Any) -> None:
    made = pyarrow.parquet.read_table(path).to_pydict()
    assert made["id"] == list(range(COUNT))
    assert made["number"] == NUMBERS
    np.testing.assert_array_equal(np.array(made["output0"], np.float32), vectors)


def test_map_batches(vectors: Any) -> None:
    """As users of Ray write it: batches are dictionaries of arrays."""
    rows = ray.data.from_items([{"id": n, "number": number} for n, number in enumerate(NUMBERS)])
    made = rows.map_batches(
        Predictor,
        fn_constructor_args=(str(MODEL),),
        fn_constructor_kwargs={"columns": {"input0": "number"}},
        batch_size=100,
        compute=ray.data.ActorPoolStrategy(size=1),
    ).take_all()
    made.sort(key=lambda row: row["id"])
    assert [row["id"] for row in made] == list(range(COUNT))
    np.testing.assert_array_equal(np.stack([row["output0"] for row in made]), vectors)


def test_the_command(source: Path, tmp_path: Path, vectors: Any) -> None:
    output = tmp_path / "out.parquet"
    pteron_cli("map", MODEL, source, output, "-c", "input0=number", "--ray", "--actors", 2)
    check(output, vectors)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in.parquet", "out.parquet"]


def test_an_array(source: Path, tmp_path: Path, vectors: Any) -> None:
    """It has only the results. A wrong column is refused before anything runs."""
    pteron_cli("map", MODEL, source, tmp_path / "out.npy", "-c", "input0=number", "--ray")
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), vectors)
    job = FileJob(source, tmp_path / "new.npy", MapOptions(columns={"input0": "numbers"}), "column")
    with pytest.raises(InputError, match="there is no column 'numbers'; the columns are id, number"):
        map_file_on_ray(MODEL, job)


def test_a_language_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: Device) -> None:
    """Two actors convert the model and answer. The answers are those of one prompt at a time."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    chat = tiny_models.write_gguf(tmp_path / "chat.gguf", tiny_models.LLAMA)
    prompts = [f"{'the cat ' * (n % 3)}{n}" for n in range(20)]
    pyarrow.parquet.write_table(pa.table({"id": range(20), "question": prompts}), tmp_path / "in.parquet")
    options = ("--prompt-column", "question", "-n", 4, "--ray", "--actors", 2)
    pteron_cli("map", chat, tmp_path / "in.parquet", tmp_path / "out.parquet", *options)
    made = pyarrow.parquet.read_table(tmp_path / "out.parquet").to_pydict()
    with pteron.llm.load(chat, device=device) as model:
        alone = [model.generate(prompt, max_new_tokens=4, temperature=0) for prompt in prompts]
    assert made["id"] == list(range(20)) and made["question"] == prompts
    assert made["answer"] == [answer.text for answer in alone]
    assert made["finish_reason"] == [answer.finish_reason for answer in alone]


def test_a_killed_actor_loses_and_doubles_nothing(
    source: Path, tmp_path: Path, vectors: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = tmp_path / "killed"
    ray.shutdown()  # the actors get the environment of the process that starts them
    monkeypatch.setenv("KILLED_ONCE", str(mark))
    ray.init(num_cpus=2, include_dashboard=False, object_store_memory=200 << 20, log_to_driver=False)
    job = FileJob(source, tmp_path / "out", OPTIONS)
    map_file_on_ray(MODEL, job, actors=1, predictor=KilledOnce, batch_rows=50)
    assert mark.exists(), "the actor was killed"
    made = pyarrow.parquet.read_table(tmp_path / "out").to_pydict()
    assert sorted(made["id"]) == list(range(COUNT))
    order = np.argsort(made["id"])
    np.testing.assert_array_equal(np.array(made["output0"], np.float32)[order], vectors)


@pytest.mark.parametrize("on_error", ["skip", "column"])
def test_a_bad_row_does_not_stop_the_job(on_error: Any, tmp_path: Path, vectors: Any) -> None:
    numbers = list(NUMBERS)
    numbers[250] = 10**6
    source = tmp_path / "in.parquet"
    pyarrow.parquet.write_table(pa.table({"id": range(COUNT), "number": numbers}), source)
    map_file_on_ray(MODEL, FileJob(source, tmp_path / "out.parquet", OPTIONS, on_error))
    made = pyarrow.parquet.read_table(tmp_path / "out.parquet").to_pydict()
    good = [n for n in range(COUNT) if n != 250]
    if on_error == "skip":
        assert made["id"] == good
        np.testing.assert_array_equal(np.array(made["output0"], np.float32), vectors[good])
    else:
        assert made["id"] == list(range(COUNT))
        assert [n for n, error in enumerate(made["error"]) if error] == [250]
        assert made["output0"][250] is None


def test_an_output_with_parts_is_refused(source: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "x.parquet").touch()
    with pytest.raises(InputError, match="is not empty: start again with --restart"):
        map_file_on_ray(MODEL, FileJob(source, tmp_path / "out", OPTIONS))
