"""Routes chosen by measurement: the fastest are stored and used, and all routes give the same result."""

import json
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

import pteron
from pteron.api.profiling.trials import Measured, Trial, best_of, some_sizes
from pteron.cli.commands import app
from pteron.compiler.ir.dispatch import SUBGROUP
from pteron.compiler.plan.routes import LiveShapes, route_key
from pteron.engine.measured import device_cache, tuning
from pteron.engine.measured.tuning import Tuning
from tests.support.calls import Call, check_calls
from tests.support.export import export

ROWS, WIDTH = 16, 64


def make(folder):
    import torch

    torch.manual_seed(0)
    linear = torch.nn.Linear(WIDTH, WIDTH)
    rows = torch.export.Dim("rows", min=1, max=ROWS)
    (folder / "linear.pte").write_bytes(export(linear, (torch.randn(ROWS, WIDTH),), ({0: rows},)))
    x = torch.randn(ROWS, WIDTH)
    np.savez(folder / "expected.npz", x=x.numpy(), y=linear(x).detach().numpy())


@pytest.fixture(scope="module")
def folder(once):
    return once("tuned_linear", make)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """A separate cache for the test."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "pteron" / "tuning.json"


@pytest.fixture
def timestamps(device):
    if device.timer is None:
        pytest.skip("the adapter has no timestamp queries")


def linear_node(method):
    return next(n for n in method.graph.nodes if "linear" in n.name)


def taken(method):
    return method._live.plans[linear_node(method).index].route


def check(method, folder, rows):
    data = np.load(folder / "expected.npz")
    check_calls(method, [Call([data["x"][:rows]], [data["y"][:rows]])], 1e-4, 1e-5)


def written(size):
    """The live shapes of a node that writes so many elements."""
    return LiveShapes((), ((size,),))


# -- choosing -------------------------------------------------------------------------------------


def test_the_route_of_the_nearest_measured_size_is_used():
    choice = Tuning({"k": {64: "few", 4096: "many"}})
    fitting = ["default", "few", "many"]
    assert [choice.prefers("k", written(n), fitting) for n in (0, 64, 500, 530, 10**6)] == [
        "few",
        "few",
        "few",
        "many",
        "many",
    ]
    assert (
        choice.prefers("k", written(64), ["default", "many"]) == "default"
    )  # what does not fit is not taken
    assert choice.prefers("other", written(64), fitting) == "default"
    assert choice.keeps("k", "many") and not choice.keeps("k", "default") and not choice.keeps("other", "few")


def test_only_a_clearly_faster_route_replaces_the_default():
    def best(**seconds):
        return Measured("k", 1, {route: [s] for route, s in seconds.items()}).best

    assert best(default=1.0, other=0.5) == "other"
    assert best(default=1.0, other=0.97) == "default"
    assert best(default=1.0, other=2.0) == "default"


def test_every_route_of_a_trial_gives_the_same_result(device, folder):
    trial = Trial()
    with pteron.load(folder / "linear.pte", device=device, choice=trial) as program:
        method = program.method()
        for rows in (1, 3, ROWS):
            trial.number, trial.most = 0, 1
            seen = []
            while trial.number < trial.most:
                method._live.forget()
                check(method, folder, rows)
                seen.append(taken(method))
                trial.number += 1
            assert len(set(seen)) == len(seen) >= (2 if SUBGROUP in device.route_features else 1)


def test_a_chosen_route_is_compiled_at_load(device, folder):
    with pteron.load(folder / "linear.pte", device=device, choice=Trial()) as program:
        method = program.method()
        key = route_key(linear_node(method))
        slowest = [r.name for r in method._live.routes[linear_node(method).index]][-1]
    with pteron.load(folder / "linear.pte", device=device, choice=Tuning({key: {1: slowest}})) as program:
        method = program.method()
        before = device.compilations, device.allocations
        for rows in (ROWS, 1, 5):
            check(method, folder, rows)
            assert taken(method) == slowest
        assert (device.compilations, device.allocations) == before


def test_without_measurements_only_the_default_routes_are_compiled(device, folder):
    with pteron.load(folder / "linear.pte", device=device) as program:
        method = program.method()
        routes = method._live.routes[linear_node(method).index]
        assert [r.when is None for r in routes] == [False] * (len(routes) - 1) + [True]


# -- the file -------------------------------------------------------------------------------------


def test_measurements_are_stored_by_adapter_driver_and_kernels(device, monkeypatch):
    adapter = device.adapter
    assert tuning.read(adapter) is None
    tuning.write(adapter, {"k": {64: "fast"}})
    tuning.write(adapter, {"other": {8: "slow"}})
    tuning.write(replace(adapter, name="another"), {"k": {64: "theirs"}})
    assert tuning.read(adapter).best == {"k": {64: "fast"}, "other": {8: "slow"}}
    assert tuning.read(replace(adapter, name="another")).best == {"k": {64: "theirs"}}
    assert tuning.read(replace(adapter, driver="newer")) is None
    monkeypatch.setattr(device_cache, "kernel_version", lambda: "newer")
    assert tuning.read(adapter) is None


@pytest.mark.parametrize("damage", ["", "{", "[1, 2]", "null"])
def test_a_damaged_file_is_ignored(device, cache, damage):
    cache.parent.mkdir()
    cache.write_text(damage)
    assert tuning.read(device.adapter) is None
    tuning.write(device.adapter, {"k": {1: "a"}})
    assert tuning.read(device.adapter).best == {"k": {1: "a"}}
    identity = next(iter(json.loads(cache.read_text())))
    for entries in (5, [], {"k": 1}, {"k": {"many": "a"}}):
        cache.write_text(json.dumps({identity: entries}))
        assert tuning.read(device.adapter) is None


def test_a_load_uses_the_measurements(device, folder):
    with pteron.load(folder / "linear.pte", device=device, choice=Trial()) as program:
        node = linear_node(program.method())
        last = program.method()._live.routes[node.index][-1].name
    tuning.write(device.adapter, {route_key(node): {ROWS * WIDTH: last}})
    with pteron.load(folder / "linear.pte", device=device) as program:
        check(program.method(), folder, ROWS)
        assert taken(program.method()) == last


# -- without being asked --------------------------------------------------------------------------


def test_only_the_first_load_measures(device, folder, cache, timestamps, monkeypatch):
    held = device.allocated_nbytes
    with pteron.load(folder / "linear.pte", device=device, tune=True) as program:
        method = program.method()
        key = route_key(linear_node(method))
        assert tuning.read(device.adapter).best[key].keys() == {WIDTH, 4 * WIDTH, ROWS * WIDTH}
        for rows in (3, ROWS, 1):
            check(method, folder, rows)
    assert device.allocated_nbytes == held
    monkeypatch.setattr("pteron.api.profiling.trials._time_routes", None)  # nobody may call it
    with pteron.load(folder / "linear.pte", device=device, tune=True) as program:
        check(program.method(), folder, ROWS)


def test_a_load_measures_on_gpus_only(device, folder, cache, timestamps):
    if device.adapter.is_software:
        pteron.load(folder / "linear.pte", device=device).method()
        assert not cache.exists()
    as_gpu = replace(device.adapter, kind="DiscreteGPU")
    assert not as_gpu.is_software
    with pteron.load(folder / "linear.pte", device=as_gpu) as program:
        program.method()
        assert cache.exists()
    cache.unlink()
    with pteron.load(folder / "linear.pte", device=as_gpu, tune=False) as program:
        program.method()
    assert not cache.exists()


def test_a_program_that_refuses_zeros_is_still_loaded(device, folder, cache, timestamps, monkeypatch):
    def refuse(*_):
        raise pteron.InputError("not zero")

    monkeypatch.setattr("pteron.api.profiling.trials.measure", refuse)
    for _ in range(2):
        with pteron.load(folder / "linear.pte", device=device, tune=True) as program:
            check(program.method(), folder, ROWS)
        monkeypatch.setattr("pteron.api.profiling.trials._time_routes", None)  # it is not tried again


def test_a_cache_that_cannot_be_written_does_not_stop_the_load(device, folder, timestamps, monkeypatch):
    def refuse(*_):
        raise PermissionError

    monkeypatch.setattr(tuning, "write", refuse)
    with pteron.load(folder / "linear.pte", device=device, tune=True) as program:
        check(program.method(), folder, ROWS)


# -- the command ----------------------------------------------------------------------------------


def test_the_command_measures_and_stores(device, folder, cache, timestamps):
    result = CliRunner().invoke(app, ["tune", str(folder / "linear.pte"), "--json", "-n", "2"])
    assert result.exit_code == 0, (result.stdout, result.stderr)
    told = json.loads(result.stdout)
    assert told["saved"] == str(cache)
    choices = told["choices"]
    if SUBGROUP in device.route_features:
        assert [c["size"] for c in choices] == [WIDTH, 4 * WIDTH, ROWS * WIDTH]
    for choice in choices:
        assert len(choice["seconds"]) > 1 and all(s > 0 for s in choice["seconds"].values())
        assert {choice["best"], choice["default"]} <= choice["seconds"].keys()
    remembered = tuning.read(device.adapter)
    assert (remembered.best if remembered else {}) == best_of(
        Measured(c["node"], c["size"], {r: [s] for r, s in c["seconds"].items()}) for c in choices
    )
    shown = CliRunner().invoke(app, ["tune", str(folder / "linear.pte"), "-l", "3"]).stdout
    assert "changed; saved" in shown or "more than one kernel" in shown


def test_the_command_refuses_with_a_message(device, folder, monkeypatch):
    monkeypatch.setattr(type(device), "timer", None)
    result = CliRunner().invoke(app, ["tune", str(folder / "linear.pte")])
    assert result.exit_code == 1 and "no timestamp queries" in result.stderr
    monkeypatch.undo()
    missing = CliRunner().invoke(app, ["tune", str(folder / "linear.pte"), "-m", "nothing"])
    assert missing.exit_code == 2 and "there is no method 'nothing'" in missing.stderr


def test_sizes_are_1_the_maximum_and_their_geometric_mean(device, folder):
    with pteron.load(folder / "linear.pte", device=device) as program:
        assert some_sizes(program.method()) == [1, 4, ROWS]
