"""Profiling: the time and the work of every kernel. The device is unchanged afterwards."""

import itertools
import json

import numpy as np
import pytest
from typer.testing import CliRunner

import pteron
from pteron.api.profiling.profile import profile, trace
from pteron.cli.commands import app
from pteron.engine.devices.wgpu import timing
from pteron.engine.staging import read_back
from tests.support import DATA

RMS, ATTENTION, EMBEDDING = (DATA / f"{name}.pte" for name in ("dyn_rms", "sdpa_dyn", "emb_dyn"))


def random_inputs(method, length):
    generator = np.random.default_rng(3)
    for info in method.inputs:
        shape = [length if d in info.dynamic_dims else n for d, n in enumerate(info.max_shape)]
        yield generator.standard_normal(shape).astype(info.dtype)


@pytest.fixture(scope="module")
def method(device):
    with pteron.load(ATTENTION, device=device) as program:
        yield program.method()


@pytest.fixture
def timestamps(device):
    if device.timer is None:
        pytest.skip("the adapter has no timestamp queries")


def test_every_kernel_of_the_call_is_timed(method, timestamps):
    inputs = list(random_inputs(method, 5))
    found = profile(method, inputs, repeat=3)
    with method.prepare(*inputs) as call:
        steps = [step for step in call.steps() if step.kernels]
    assert [n.index for n in found.nodes] == [step.node.index for step in steps]
    kernels = [d.kernel for n in found.nodes for d in n.dispatches]
    assert kernels == [kernel for step in steps for kernel in step.kernels]
    assert all(d.seconds > 0 for n in found.nodes for d in n.dispatches)
    assert found.gpu_seconds == pytest.approx(sum(n.seconds for n in found.nodes))
    assert found.gpu_seconds < 60 and found.host.wall > 0 and found.cpu_seconds > 0
    attention = next(n for n in found.nodes if n.op == "sdpa_with_kv_cache.default")
    assert attention.reads[0] == attention.writes[0] == (1, 5, 8, 16)  # live, not the largest


def test_times_belong_to_the_kernels_that_they_are_given_for(method, timestamps, monkeypatch):
    with method.prepare(*random_inputs(method, 5)) as call:
        count = sum(len(step.kernels) for step in call.steps())
    spans = [timing.Span(100.0 * i, 100.0 * i + i + 1) for i in range(count)]  # kernel i takes i + 1 ns
    monkeypatch.setattr(timing.WgpuStopwatch, "read", lambda watch: spans)
    nodes = profile(method, list(random_inputs(method, 5)), repeat=3).nodes
    took = [d.seconds for n in nodes for d in n.dispatches]
    assert took == pytest.approx([1e-9 * (i + 1) for i in range(count)])
    assert [n.seconds for n in nodes] == pytest.approx([sum(d.seconds for d in n.dispatches) for n in nodes])


def test_operators_sum_up_their_nodes(method, timestamps):
    found = profile(method, list(random_inputs(method, 7)), repeat=1)
    by_op = {o.op: o for o in found.by_op()}
    assert sum(o.nodes for o in by_op.values()) == len(found.nodes)
    assert sum(o.seconds for o in by_op.values()) == pytest.approx(found.gpu_seconds)
    assert by_op["pteron.cast"].nodes == 2
    costs = [o.seconds for o in found.by_op()]
    assert costs == sorted(costs, reverse=True)


def test_profiling_does_not_change_a_method(method, device):
    inputs = list(random_inputs(method, 4))
    before = method(*inputs)
    held = device.allocated_nbytes
    profile(method, inputs, repeat=1)
    assert device.timed is None
    assert device.allocated_nbytes == held
    method.reset()
    for one, other in zip(before, method(*inputs), strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_failed_call_removes_the_stopwatch(method, device):
    with pytest.raises(pteron.InputError):
        profile(method, [np.zeros((1, 999, 8, 16), np.float32)] * 5)
    with pytest.raises(ZeroDivisionError), device.timer():
        assert device.timed is not None
        raise ZeroDivisionError
    assert device.timed is None


def test_queries_beyond_one_set(device, timestamps, monkeypatch):
    monkeypatch.setattr(timing, "QUERIES_PER_SET", 32)  # whole multiples of 256 bytes, as a resolve wants
    source = """
@group(0) @binding(0) var<storage, read_write> x: array<u32>;
@compute @workgroup_size(1) fn main() { x[0] = x[0] + 1u; }
"""
    pipeline = device.pipeline(source, "count", ["read_write"])
    buffer = device.storage(16, "count")
    group = device.bind_group(pipeline, [(buffer, 0, 16)], "count")
    with device.timer() as watch:
        for count in (40, 3, 100):
            device.clear([(buffer, 0, 16)])
            device.submit((), [device.command(pipeline, group, (1, 1, 1))] * count, ())
            spans = watch.read()
            with monkeypatch.context() as plain:
                plain.setattr(device, "record", None)
                assert read_back(device, buffer, 16, lambda data: data.cast("I")[0]) == count
            assert len(spans) == count
            assert all(0 < span.begin <= span.end for span in spans)
            begins = [span.begin for span in spans]
            assert begins == sorted(begins) and len(set(begins)) == count
    device.free(buffer)


def test_without_timestamps_only_host_times_are_known(method, monkeypatch):
    monkeypatch.setattr(type(method.device), "timer", None)
    found = profile(method, list(random_inputs(method, 4)), repeat=1)
    assert not found.has_timestamps and found.gpu_seconds is None
    assert all(n.seconds is None for n in found.nodes) and found.host.wall > 0
    assert [e["name"] for e in trace(found)["traceEvents"] if e["ph"] == "X"] == [
        "prepare",
        "encode",
        "wait and read back",
    ]
    result = CliRunner().invoke(app, ["profile", str(RMS)])
    assert "no timestamp queries" in result.stdout and result.exit_code == 0


# -- the command ------------------------------------------------------------------------------------


def told(*arguments):
    result = CliRunner().invoke(app, ["profile", *map(str, arguments), "--json"])
    assert result.exit_code == 0, (result.stdout, result.stderr)
    return json.loads(result.stdout)


def test_the_command_profiles_at_a_live_shape(timestamps):
    small = told(ATTENTION, "--live", 3, "--random", "--repeat", 2)
    assert small["calls"] == 2 and small["timestamps"]
    node = next(n for n in small["nodes"] if n["op"].startswith("sdpa"))
    assert node["reads"][:2] == [[1, 3, 8, 16], [1, 3, 2, 16]]
    assert node["flops"] == 4 * 8 * 16 * (1 + 2 + 3)
    named = told(
        ATTENTION, "--live", 3, "-s", "input0=1,2,8,16", "-s", "input1=1,2,2,16", "-s", "input2=1,2,2,16"
    )
    assert next(n for n in named["nodes"] if n["op"].startswith("sdpa"))["reads"][0] == [1, 2, 8, 16]
    assert small["seconds"]["gpu"] == pytest.approx(sum(n["seconds"] for n in small["nodes"]))


def test_the_command_shows_tables():
    few = CliRunner().invoke(app, ["profile", str(ATTENTION), "--live", "3", "--top", "2"]).stdout
    assert "and 3 more nodes" in few
    by_op = CliRunner().invoke(app, ["profile", str(ATTENTION), "--by", "op"]).stdout
    assert "live shapes" not in by_op and "sdpa_with_kv_cache" in by_op
    by_node = CliRunner().invoke(app, ["profile", str(ATTENTION), "--live", "3", "--by", "node"]).stdout
    assert "live shapes" in by_node and "operator  " not in by_node
    assert "1×3×8×16" in by_node and "GFLOP/s" in by_node


def test_the_trace_is_a_timeline(tmp_path, timestamps):
    out = tmp_path / "trace.json"
    told(ATTENTION, "--trace", out)
    events = json.loads(out.read_text())["traceEvents"]
    slices = [e for e in events if e["ph"] == "X"]
    host, gpu = ([e for e in slices if e["tid"] == thread] for thread in (1, 2))
    assert [e["name"] for e in host] == ["prepare", "encode", "wait and read back"]
    for one, following in itertools.pairwise(host):
        assert one["ts"] + one["dur"] == pytest.approx(following["ts"])
    assert len(gpu) == 7 and all(e["dur"] > 0 for e in gpu)
    assert gpu[0]["ts"] == pytest.approx(host[2]["ts"])
    assert {e["args"]["name"] for e in events if e["name"] == "thread_name"} == {"host", "GPU"}
