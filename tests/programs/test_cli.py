"""The command line on programs that are exported for it."""

import pytest
import torch
from executorch.exir import to_edge_transform_and_lower

from tests.support.cli import answer, pteron_cli


def test_run_takes_integers_for_symints(exported, tmp_path):
    class Shift(torch.nn.Module):
        def forward(self, x, n: int):
            return torch.relu(x) * 2 + n

    data = exported(
        "cli_shift",
        lambda: (Shift(), (torch.ones(4), 3), ({0: torch.export.Dim("n", max=9)}, torch.export.Dim.AUTO)),
    )
    (tmp_path / "shift.pte").write_bytes(data)
    told = answer("run", tmp_path / "shift.pte", "--ones", "--shape", "5", "--input", "input1=7")
    assert told["inputs"][1]["source"] == "given"
    assert (told["outputs"][0]["min"], told["outputs"][0]["max"]) == (9, 9)


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    """A program that stores its settings as methods, as exporters of language models do."""

    class Rows(torch.nn.Module):
        def forward(self, x):
            return x * 2, x.shape[0]

    rows = torch.export.Dim("rows", min=2, max=8)
    program = torch.export.export(Rows(), (torch.ones(4, 3),), dynamic_shapes=({0: rows},))
    edge = to_edge_transform_and_lower(
        program, constant_methods={"get_vocab_size": 32000, "get_eos_ids": [1, 2]}
    )
    path = tmp_path_factory.mktemp("settings") / "settings.pte"
    path.write_bytes(edge.to_executorch().buffer)
    return path


def test_settings_stored_as_methods(settings):
    text = pteron_cli("inspect", settings).stdout
    assert "get_vocab_size  32000" in text and "get_eos_ids     1, 2" in text
    assert [o["mean"] for o in answer("run", settings, "--method", "get_eos_ids")["outputs"]] == [1, 2]


def test_outputs_that_are_integers(settings):
    told = answer("run", settings, "--shape", "5,3", "--ones")
    assert [(o["shape"], o["mean"]) for o in told["outputs"]] == [([5, 3], 2), ([], 5)]
