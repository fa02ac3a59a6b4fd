"""`pteron.export`: the same numbers as torch, a module left as it was, and a true report."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim
from torch.nn.functional import scaled_dot_product_attention
from typer.testing import CliRunner

import pteron
from pteron.cli.app import app
from pteron.devices import Device
from pteron.errors import InputError
from pteron.exporting import Export
from pteron.extras import MissingExtra

WIDTH, LONGEST = 64, 24
LENGTH = Dim("length", min=1, max=LONGEST)


class Mlp(nn.Module):
    """One layer that can be quantised, one whose outputs and one whose inputs do not divide evenly."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(WIDTH, 90)
        self.down = nn.Linear(90, WIDTH)
        self.head = nn.Linear(WIDTH, 12)
        self.dropout = nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.dropout(self.down(nn.functional.gelu(self.up(x)))))


class Attention(nn.Module):
    """Attention in every way that torch takes it."""

    def __init__(self) -> None:
        super().__init__()
        self.q = nn.Linear(WIDTH, WIDTH)
        self.kv = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor, added: Tensor, shown: Tensor) -> tuple[Tensor, ...]:
        q = self.q(x).unflatten(-1, (4, 16)).transpose(1, 2)
        k, v = self.kv(x).unflatten(-1, (4, 16)).transpose(1, 2).chunk(2, dim=1)
        full = {"enable_gqa": True}
        return (
            scaled_dot_product_attention(q, q, q),
            scaled_dot_product_attention(q, k, v, is_causal=True, **full),
            scaled_dot_product_attention(q, k, v, attn_mask=added, scale=0.3, **full),
            scaled_dot_product_attention(q, k, v, attn_mask=shown, **full),
        )


class Language(nn.Module):
    """An embedding that is also the head."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(52, WIDTH)
        self.head = nn.Linear(WIDTH, 52, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(torch.tanh(self.embedding(tokens)))


class Leftovers(nn.Module):
    """`any` has no place in the delegate."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = self.linear(x)
        return y, (y > 2).any(-1)


class OddHeads(nn.Module):
    """Heads of 6 elements, which the delegate's attention does not take."""

    def forward(self, x: Tensor) -> Tensor:
        return scaled_dot_product_attention(x, x, x, is_causal=True)


def masks(length: int) -> tuple[Tensor, Tensor]:
    """One that is added and one that is not, each with a row that hides everything."""
    added = torch.randn(length, length).masked_fill(torch.rand(length, length) < 0.3, -torch.inf)
    shown = torch.rand(2, 1, length, length) < 0.7
    added[length // 2], shown[:, :, length // 3] = -torch.inf, False
    return added, shown


def tokens(length: int) -> tuple[Tensor]:
    return (torch.randint(0, 52, (1, length)),)


def rows(length: int) -> tuple[Tensor]:
    return (torch.randn(2, length, WIDTH),)


def rows_and_masks(length: int) -> tuple[Tensor, ...]:
    return (*rows(length), *masks(length))


def heads(length: int) -> tuple[Tensor]:
    return (torch.randn(1, 2, length, 6),)


DYNAMIC = ({1: LENGTH},)
CASES: dict[str, tuple[type[nn.Module], Callable[[int], tuple[Tensor, ...]], Any, dict[str, Any]]] = {
    "mlp": (Mlp, rows, DYNAMIC, {}),
    "mlp, 4 bits": (Mlp, rows, DYNAMIC, {"quantize": "4bit"}),
    "mlp, not delegated": (Mlp, rows, DYNAMIC, {"partition": False}),
    "attention": (
        Attention,
        rows_and_masks,
        ({1: LENGTH}, {0: LENGTH, 1: LENGTH}, {2: LENGTH, 3: LENGTH}),
        {"quantize": "4bit", "group_size": 16},
    ),
    "language, 4 bits": (Language, tokens, DYNAMIC, {"quantize": "4bit"}),
    "leftovers": (Leftovers, rows, DYNAMIC, {}),
    "odd heads": (OddHeads, heads, ({2: LENGTH},), {}),
}


def module_of(name: str) -> nn.Module:
    torch.manual_seed(0)
    return CASES[name][0]()


def example_of(name: str) -> tuple[Tensor, ...]:
    torch.manual_seed(1)
    return CASES[name][1](LONGEST)


def exported(name: str, path: Path | None = None) -> Export:
    _, _, dynamic_shapes, options = CASES[name]
    return pteron.export(module_of(name), example_of(name), path, dynamic_shapes=dynamic_shapes, **options)


@pytest.fixture(scope="module")
def exports() -> Callable[[str], Export]:
    """Every program is exported once."""
    made: dict[str, Export] = {}

    def export(name: str) -> Export:
        if name not in made:
            made[name] = exported(name)
        return made[name]

    return export


def reference(name: str) -> nn.Module:
    """The module as torch runs it, quantised by torchao where the program is."""
    module, options = module_of(name).eval(), CASES[name][3]
    if "quantize" in options:
        from torchao.quantization.granularity import PerGroup
        from torchao.quantization.quant_api import IntxWeightOnlyConfig, quantize_

        def divides(part: nn.Module, _: str) -> bool:
            if not isinstance(part, (nn.Linear, nn.Embedding)):
                return False
            return part.weight.shape[0] % 4 == 0 and part.weight.shape[1] % size == 0

        size = options.get("group_size", 32)
        config = IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=PerGroup(size))
        quantize_(module, config, divides)
    return module


@pytest.mark.parametrize("name", CASES)
def test_numbers_are_those_of_torch(name: str, exports: Callable[[str], Export], device: Device) -> None:
    module, make = reference(name), CASES[name][1]
    torch.manual_seed(2)
    with pteron.load(exports(name).buffer, device=device) as program:
        for length in (LONGEST, 1, 7, 16, 2):
            inputs = make(length)
            with torch.no_grad():
                expected = module(*inputs)
            actual = program(*inputs)
            for got, want in zip(
                actual if isinstance(actual, tuple) else [actual],
                expected if isinstance(expected, tuple) else [expected],
                strict=True,
            ):
                np.testing.assert_allclose(got, want.numpy(), rtol=1e-4, atol=2e-5, err_msg=f"{length}")


def test_attention_stays_in_one_delegate(exports: Callable[[str], Export]) -> None:
    report = exports("attention").report
    assert (report.delegates, report.outside) == (1, ())
    assert {o.name: o.count for o in report.delegated}["et_vk.sdpa.default"] == 4
    assert {o.name: o.count for o in report.delegated}["et_vk.linear_q4gsw.default"] == 2


def test_attention_that_does_not_fit_is_taken_apart(exports: Callable[[str], Export]) -> None:
    report = exports("odd heads").report
    assert report.runs and report.delegates > 1
    assert "aten::any.out" in [o.name for o in report.outside]


def test_the_report_names_what_is_left_outside_and_why(exports: Callable[[str], Export]) -> None:
    report = exports("leftovers").report
    (left,) = report.outside
    assert (left.name, left.count, left.reasons) == ("aten::any.out", 1, ("no operator implementation",))
    assert report.runs
    assert "1× aten::any.out  (no operator implementation)" in str(report)
    assert "All 7 operators of forward can run." in str(report)


def test_nothing_is_delegated_without_partition(exports: Callable[[str], Export]) -> None:
    report = exports("mlp, not delegated").report
    assert (report.delegates, report.delegated) == (0, ())
    assert report.outside and report.runs


def test_layers_that_cannot_be_quantised_are_named(exports: Callable[[str], Export]) -> None:
    report = exports("mlp, 4 bits").report
    assert report.unquantized == (
        "up: 90 outputs do not divide into blocks of 4",
        "down: rows of 90 weights do not divide into groups of 32",
    )
    assert "up: 90 outputs" in str(report)
    assert len(exports("mlp, 4 bits").buffer) < len(exports("mlp").buffer)


def test_a_weight_that_two_layers_share_is_stored_once(exports: Callable[[str], Export]) -> None:
    module = Language()
    del module.head
    module.head = nn.Linear(WIDTH, 52, bias=False)  # of its own
    apart = pteron.export(module, tokens(LONGEST), dynamic_shapes=DYNAMIC, quantize="4bit")
    assert apart.report.nbytes - exports("language, 4 bits").report.nbytes > 0.9 * 52 * WIDTH / 2


def test_the_module_is_unchanged_and_the_file_complete(tmp_path: Path) -> None:
    module = module_of("mlp").train()
    before = {name: t.clone() for name, t in module.state_dict().items()}
    path = tmp_path / "mlp.pte"
    made = pteron.export(
        module,
        rows(LONGEST),
        path,
        quantize="4bit",
        constant_methods={"get_max_seq_len": LONGEST},
    )
    assert path.read_bytes() == made.buffer
    assert [p.name for p in tmp_path.iterdir()] == ["mlp.pte"]
    assert module.training and module.dropout.training
    assert type(module.head.weight) is nn.Parameter and module.head.weight.requires_grad
    after = module.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert "get_max_seq_len" in pteron.check(path).methods


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"quantize": "8bit"}, "'4bit' or None, not '8bit'"),
        ({"quantize": "4bit", "partition": False}, "needs partition=True"),
        ({"quantize": "4bit", "group_size": 6}, "multiple of 4, not 6"),
        ({"example_inputs": torch.zeros(1, WIDTH)}, r"write \(x,\)"),
    ],
)
def test_what_cannot_be_meant_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        pteron.export(Mlp(), **{"example_inputs": rows(1), **options})


def test_torch_errors_come_through() -> None:
    with pytest.raises(RuntimeError, match="must have same reduction dim"):
        pteron.export(Mlp(), (torch.zeros(2, WIDTH + 1),))


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [n for n in sys.modules if n.startswith("pteron.exporting.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr("pteron.exporting.lowering", raising=False)
    monkeypatch.setitem(sys.modules, "executorch.exir", None)
    with pytest.raises(MissingExtra, match=r"pip install 'pteron\[export\]'"):
        pteron.export(Mlp(), rows(1))


# -- the command line -----------------------------------------------------------------------------

FACTORY = """
import torch
from neighbour import WIDTH

def make():
    module = torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU())
    return module, (torch.zeros(4, WIDTH),), ({0: torch.export.Dim("n", min=1, max=4)},)

def wrong():
    return 7
"""


@pytest.fixture
def factory(tmp_path: Path) -> Path:
    (tmp_path / "neighbour.py").write_text("WIDTH = 32")
    (tmp_path / "json.py").write_text(FACTORY)  # a name that is taken
    return tmp_path / "json.py"


def test_from_the_command_line(factory: Path, device: Device) -> None:
    out = factory.parent / "out.pte"
    command = [sys.executable, "-m", "pteron", "export", f"{factory}:make", str(out), "--quantize", "4bit"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=os.environ)
    assert (done.returncode, done.stderr) == (0, "")
    assert "2 delegated, 0 not" in done.stdout and "can run" in done.stdout
    with pteron.load(out, device=device) as program:
        assert program(np.ones((3, 32), np.float32)).shape == (3, 32)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("{path}:nothing", "has no function 'nothing'"),
        ("{path}:wrong", "must return (module, example_inputs)"),
        ("{path}", "write path/to/file.py:name"),
        ("{path}.py:make", "there is no file"),
        ("no_such_package.models:make", "there is no module"),
    ],
)
def test_a_wrong_name_is_explained(factory: Path, name: str, message: str) -> None:
    arguments = ["export", name.format(path=factory), str(factory.parent / "out.pte")]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.replace("│", "").split())
    assert not (factory.parent / "out.pte").exists()
