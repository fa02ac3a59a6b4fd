"""Stock ExecuTorch reads the `.pte` and `.ptd` files that Pteron writes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from executorch.exir._serialize import _program as stock
from executorch.exir._serialize._cord import Cord
from executorch.extension.flat_tensor.serialize.serialize import FlatTensorSerializer
from executorch.runtime import Runtime

from pteron.pte import DataFile, schema, write_ptd, write_pte
from tests.pure.pte.pte_samples import FIXTURES
from tests.pure.pte.test_ptd import DATA as NAMED
from tests.pure.pte.test_ptd import LAYOUTS
from tests.pure.pte.test_write_pte import addition, rewritten
from tests.support import DATA


@pytest.mark.parametrize("name", FIXTURES)
def test_stock_deserialiser_reads_our_files(name: str, tmp_path: Path) -> None:
    rewritten(DATA / name, tmp_path / "copy.pte")
    ours = stock.deserialize_pte_binary((tmp_path / "copy.pte").read_bytes())
    theirs = stock.deserialize_pte_binary((DATA / name).read_bytes())
    assert ours.program.execution_plan == theirs.program.execution_plan
    assert ours.program.backend_delegate_data == theirs.program.backend_delegate_data
    assert ours.program.constant_buffer == theirs.program.constant_buffer


def test_stock_runtime_loads_our_files(tmp_path: Path) -> None:
    rewritten(DATA / "dyn_rms.pte", tmp_path / "copy.pte")
    assert Runtime.get().load_program(tmp_path / "copy.pte").method_names == {"forward"}


def test_stock_runtime_runs_our_files(tmp_path: Path) -> None:
    program = replace(addition(), constant_segment=schema.SubsegmentOffsets(0, (0,)))
    write_pte(tmp_path / "add.pte", program, (b"",))
    method = Runtime.get().load_program(tmp_path / "add.pte").load_method("forward")
    x, y = torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([[10.0, 20.0], [30.0, 40.0]])
    (result,) = method.execute([x, y])
    assert torch.equal(result, x + y)


def test_ptd_files_are_exchanged_with_stock_executorch(tmp_path: Path) -> None:
    write_ptd(tmp_path / "model.ptd", NAMED, LAYOUTS)
    serializer = FlatTensorSerializer()
    payload = serializer.deserialize(Cord((tmp_path / "model.ptd").read_bytes()))
    assert {key: payload.buffers[entry.buffer_index] for key, entry in payload.named_data.items()} == NAMED
    file = DataFile(bytes(serializer.serialize(payload)))
    assert {key: bytes(region) for key, region in file.items()} == NAMED
    assert file.layouts == LAYOUTS
