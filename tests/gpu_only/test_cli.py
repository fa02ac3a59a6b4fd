"""The command line, as users and scripts see it."""

import json
import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

import pteron
from pteron.cli.doctor import Checkup, advice, mesa_version
from pteron.cli.terminal import nbytes, shape
from pteron.engine.devices.wgpu.adapters import Adapter
from pteron.engine.measured.target import target_of
from pteron.tools.inspect.inspect import inspect_method, open_file
from tests.support import DATA
from tests.support.cli import answer, pteron_cli

RMS, EMBEDDING, ATTENTION = (str(DATA / f"{name}.pte") for name in ("dyn_rms", "emb_dyn", "sdpa_dyn"))
NO_DRIVER = {"VK_DRIVER_FILES": "/nonexistent", "VK_ICD_FILENAMES": "/nonexistent"}


def in_a_process(*arguments, **environment):
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ | environment,
    )


# -- run ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def rms(device):
    with pteron.load(RMS, device=device) as program:
        yield program


def test_run_gives_the_results_of_the_library(tmp_path, rms):
    x = np.random.default_rng(1).standard_normal((1, 1, 7, 64)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    pteron_cli("run", RMS, "--input", tmp_path / "x.npy", "--output", tmp_path / "y.npy")
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), rms(x))


def test_run_prints_shapes_summary_and_costs(tmp_path):
    told = answer(
        "run", RMS, "--shape", "1,1,7,64", "--random", "--repeat", 3, "--output", tmp_path / "y.npz"
    )
    (x,), (y,) = told["inputs"], told["outputs"]
    assert (x["name"], x["source"], x["shape"]) == ("input0", "random", [1, 1, 7, 64])
    assert (y["name"], y["dtype"], y["shape"], y["not_finite"]) == ("output0", "float32", [1, 1, 7, 64], 0)
    saved = np.load(tmp_path / "y.npz")["output0"]
    assert (y["min"], y["max"]) == (saved.min(), saved.max())
    assert y["mean"] == pytest.approx(saved.mean(dtype=np.float64))
    assert len(told["seconds"]) == 3 and told["load_seconds"] > 0
    assert (told["allocations_since_load"], told["compilations_since_load"]) == (0, 0)
    assert told["saved"] == [str(tmp_path / "y.npz")]


def test_run_without_shapes_takes_the_largest():
    told = answer("run", ATTENTION)
    assert [x["shape"] for x in told["inputs"]] == [[1, 64, 8, 16]] + [[1, 64, 2, 16]] * 4
    assert all(x["max"] == 0 for x in told["inputs"])


def test_run_takes_shapes_in_order_or_by_name():
    shapes = ["-s", "input2=1,5,2,16", "-s", "1,5,8,16", "-s", "1,5,2,16"]
    told = answer("run", ATTENTION, *shapes, "--ones")
    assert [x["shape"][1] for x in told["inputs"]] == [5, 5, 5, 64, 64]
    assert told["outputs"][2]["shape"] == [1, 5, 8, 16]
    assert told["outputs"][2]["mean"] == pytest.approx(1)  # attention over ones


def test_run_random_is_seeded_and_stays_within_the_table(tmp_path):
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        pteron_cli("run", EMBEDDING, "--random", "--seed", seed, "--output", tmp_path / f"{name}.npy")
    a, b, c = (np.load(tmp_path / f"{name}.npy") for name in "abc")
    assert np.array_equal(a, b) and not np.array_equal(a, c)
    assert len(np.unique(a, axis=0)) > 4  # not one row over and over


def test_run_fills_a_tensor_with_a_number(tmp_path):
    told = answer("run", EMBEDDING, "--input", 5, "--shape", "3", "--output", tmp_path)
    assert told["inputs"][0]["source"] == "all 5"
    rows = np.load(tmp_path / "output0.npy")
    assert rows.shape == (3, 64) and (rows == rows[0]).all()


def test_run_reads_several_inputs_from_one_archive(tmp_path):
    arrays = {f"input{n}": np.full((1, 64, 2, 16), n, np.float32) for n in (4, 1, 2, 3)}
    np.savez(tmp_path / "inputs.npz", **arrays)
    told = answer("run", ATTENTION, "--input", tmp_path / "inputs.npz")
    assert [x["mean"] for x in told["inputs"]] == [0, 1, 2, 3, 4]


def test_run_refuses_files_that_are_no_arrays(tmp_path):
    np.savez(tmp_path / "two.npz", a=np.ones(3), b=np.ones(2))
    np.savez(tmp_path / "none.npz")
    (tmp_path / "cut.npz").write_bytes((tmp_path / "two.npz").read_bytes()[:100])
    (tmp_path / "empty.npy").touch()
    for name, message in (
        ("empty.npy", "No data left in file"),
        ("none.npz", "it contains no arrays"),
        ("cut.npz", "not a zip file"),
        ("two.npz#c", "contains a, b: choose one"),
    ):
        refused = pteron_cli("run", RMS, "--input", tmp_path / name, code=2)
        assert message in " ".join(refused.stderr.replace("│", "").split()), name


def test_run_for_people():
    text = pteron_cli("run", RMS, "--shape", "1,1,7,64", "--random", "--repeat", "2").stdout
    for part in ("(1, 1, 7, 64)", "min", "max", "mean", "best", "0 allocations, 0 compilations"):
        assert part in text


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["nope.pte"], 1, "nope.pte: No such file or directory"),
        ([__file__], 1, "not a .pte program"),
        ([RMS, "--shape", "1,1,129,64"], 1, "at most 128"),
        ([RMS, "--input", "nope.npy"], 1, "nope.npy: No such file"),
        ([RMS, "--device", "no such GPU"], 1, "no GPU adapter matches"),
        ([RMS, "--input", RMS], 2, "neither a number nor"),
        ([RMS, "--method", "backward"], 2, "the methods are forward"),
        ([RMS, "--shape", "a,b"], 2, "is not a shape"),
        ([RMS, "--shape", "x=1,2"], 2, "no such input"),
        ([RMS, "--shape", "1", "--shape", "2"], 2, "only 1 can take one"),
        ([RMS, "--random", "--ones"], 2, "cannot be used together"),
        ([RMS, "--repeat", "0"], 2, "repeat"),
        ([ATTENTION, "--output", "y.npy"], 2, "3 outputs"),
        ([], 2, "Missing argument"),
    ],
)
def test_run_refuses_with_a_message(arguments, code, message):
    result = pteron_cli("run", *arguments, code=code)
    assert message in " ".join(result.stderr.replace("│", " ").split())
    assert "Traceback" not in result.stderr and not result.stdout


def test_a_traceback_on_request():
    result = pteron_cli("run", "nope.pte", code=1, env={"PTERON_TRACEBACK": "1"})
    assert isinstance(result.exception, FileNotFoundError)
    result = pteron_cli("--traceback", "run", RMS, "--shape", "1,1,129,64", code=1)
    assert isinstance(result.exception, pteron.InputError)


# -- inspect --------------------------------------------------------------------------------------


def test_inspect_as_json():
    told = answer("inspect", RMS, "--live", "7")
    assert told["nbytes"] == Path(RMS).stat().st_size
    (method,) = told["methods"]
    assert method["runs"] and method["inputs"][0]["dynamic_dims"] == [2]
    assert method["nodes"][0]["outputs"] == {"v1": [1, 1, 7, 64]}
    assert method["nodes"][0]["dispatches"][0]["params"]["rows"] == 7
    assert answer("inspect", RMS)["methods"][0]["nodes"] == []


def test_inspect_for_people():
    text = pteron_cli("inspect", ATTENTION, "--live", "5").stdout
    for part in (
        "(1, n ≤ 64, 8, 16)",
        "VulkanBackend",
        "sdpa_with_kv_cache.default",
        "aten::copy_",
        "attention",
    ):
        assert part in text
    assert "(1, 5, 8, 16)" in text


def test_inspect_shows_the_kernels_of_a_device():
    with closing(pteron.open_device()) as device, open_file(ATTENTION) as file:
        wanted = inspect_method(file, "forward", size=5, target=target_of(device)).nodes
        (method,) = answer("inspect", ATTENTION, "--live", "5", "--device", device.name)["methods"]
    assert [node["route"] for node in method["nodes"]] == [node.route for node in wanted]


def test_inspect_takes_whole_shapes():
    live = [f"--live=input{n}=1,3,{heads},16" for n, heads in enumerate((8, 2, 2))]
    nodes = answer("inspect", ATTENTION, *live)["methods"][0]["nodes"]
    assert nodes[0]["outputs"] == {"delegate 0.s6": 3}


def test_inspect_shows_a_file_that_cannot_run(tmp_path):
    path = tmp_path / "strange.pte"
    path.write_bytes(Path(RMS).read_bytes().replace(b"et_vk.rms_norm.default", b"et_vk.rms_morn.default"))
    text = pteron_cli("inspect", path).stdout
    assert "cannot run" in text and "unsupported" in text and "et_vk.rms_morn.default" in text
    assert answer("inspect", path)["methods"][0]["runs"] is False
    assert "et_vk.rms_morn.default" in pteron_cli("run", path, code=1).stderr


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["nope.pte"], 1, "No such file"),
        ([RMS, "--live", "200"], 1, "from 1 to 128"),
        ([RMS, "--live", "1,1,7,64"], 2, "name the input"),
        ([RMS, "--live", "many"], 2, "is not a shape"),
        ([RMS, "--method", "backward"], 2, "the methods are forward"),
    ],
)
def test_inspect_refuses_with_a_message(arguments, code, message):
    assert message in " ".join(pteron_cli("inspect", *arguments, code=code).stderr.replace("│", " ").split())


def test_inspect_needs_no_adapter():
    result = in_a_process("-m", "pteron", "inspect", RMS, "--live", "7", **NO_DRIVER)
    assert result.returncode == 0 and "rms_norm" in result.stdout, result.stderr


def test_a_row_is_one_line_in_a_pipe():
    """Nothing is wrapped or cut, however long the cells are."""
    lines = pteron_cli("inspect", ATTENTION, "--live", "5").stdout.splitlines()
    start = next(n for n, line in enumerate(lines) if line.startswith("Nodes at this live shape"))
    nodes = answer("inspect", ATTENTION, "--live", "5")["methods"][0]["nodes"]
    rows = [(node, dispatch) for node in nodes for dispatch in node["dispatches"] or [None]]
    shown = lines[start + 2 :]  # after the title and the header
    assert len(shown) == len(rows) and max(map(len, shown)) > 100
    for line, (_, dispatch) in zip(shown, rows, strict=True):
        assert dispatch is None or all(f"{name}=" in line for name in dispatch["params"])


# -- devices and doctor ---------------------------------------------------------------------------


def test_devices_are_listed():
    found = pteron.adapters()
    assert [d["name"] for d in answer("devices")] == [adapter.name for adapter in found]
    assert len(pteron_cli("devices").stdout.splitlines()) == len(found)
    assert pteron_cli("devices", "--quiet").stdout == ""


def test_doctor_runs_a_kernel_on_every_adapter():
    told = answer("doctor")
    assert told["ok"] and all(adapter["works"] for adapter in told["adapters"])
    assert told["versions"]["pteron"] == pteron.__version__
    assert told["adapters"][0]["limits"]["max-storage-buffer-binding-size"] >= 128 << 20
    text = pteron_cli("doctor").stdout
    assert "This machine can run programs" in text and told["adapters"][0]["driver"] in text


def test_without_an_adapter_all_commands_give_advice():
    quiet = in_a_process("-m", "pteron", "devices", "--quiet", **NO_DRIVER)
    assert (quiet.returncode, quiet.stdout, quiet.stderr) == (1, "", "")
    for arguments in (["devices"], ["run", RMS]):
        result = in_a_process("-m", "pteron", *arguments, **NO_DRIVER)
        assert result.returncode == 1 and "mesa-vulkan-drivers" in result.stderr, arguments
        assert result.stderr.startswith("error: ") and "Traceback" not in result.stderr
    result = in_a_process("-m", "pteron", "doctor", "--json", **NO_DRIVER)
    told = json.loads(result.stdout)
    assert result.returncode == 1 and not told["ok"] and "mesa-vulkan-drivers" in told["advice"][0]


def adapter(kind="CPU", driver="Mesa 25.0.7-2 (LLVM 15.0.6)", name="llvmpipe"):
    return Adapter(0, name, kind, "Vulkan", driver, frozenset(), {}, None)


def test_doctor_advises_a_newer_software_driver():
    old = adapter(driver="Mesa 22.3.6 (LLVM 15.0.6)")
    assert any("bookworm-backports" in tip and "22.3.6" in tip for tip in advice([Checkup(old, None)]))
    for good in (adapter(), adapter(kind="DiscreteGPU", driver="Mesa 22.3.6")):
        assert not any("backports" in tip for tip in advice([Checkup(good, None)]))


def test_doctor_reports_opengl_only_adapters():
    assert "Some GPU has only an OpenGL driver" in next(advice([], ["Some GPU"]))
    assert "no GPU adapter was found" in next(advice([]))


def test_doctor_names_the_driver_of_an_adapter_that_fails():
    tip = next(advice([Checkup(adapter(kind="DiscreteGPU", driver="v 1.0", name="Some GPU"), "device lost")]))
    assert "Some GPU" in tip and "v 1.0" in tip


def test_mesa_version():
    assert mesa_version("4.5 (Core Profile) Mesa 25.0.7-2~bpo12+1") == (25, 0, 7)
    assert mesa_version("NVIDIA 550.54") is None


# -- the whole ------------------------------------------------------------------------------------


def test_version():
    assert pteron_cli("--version").stdout == f"pteron {pteron.__version__}\n"


def test_help_imports_no_large_package():
    script = """
import sys
from pteron.cli import main
sys.argv = ["pteron", "--help"]
try:
    main()
except SystemExit as end:
    assert end.code == 0
heavy = {"numpy", "wgpu", "flatbuffers", "torch"} & sys.modules.keys()
assert not heavy, heavy
"""
    result = in_a_process("-c", script)
    assert result.returncode == 0 and "inspect" in result.stdout, result.stderr


def test_a_terminal_without_unicode_works():
    result = in_a_process("-m", "pteron", "inspect", RMS, PYTHONIOENCODING="ascii")
    assert result.returncode == 0 and "(1, 1, n ? 128, 64)" in result.stdout, result.stderr


def test_the_installed_command_is_the_module():
    result = in_a_process("-m", "pteron", "run", RMS, "--shape", "1,1,3,64", "--json")
    assert json.loads(result.stdout)["outputs"][0]["shape"] == [1, 1, 3, 64], result.stderr


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (3 << 20, "3.0 MiB"), (5 << 40, "5120.0 GiB")],
)
def test_byte_counts_have_units(count, text):
    assert nbytes(count) == text


def test_shapes_mark_dynamic_dimensions():
    assert (shape((1, 64, 8), (1,)), shape(())) == ("(1, ≤64, 8)", "()")
