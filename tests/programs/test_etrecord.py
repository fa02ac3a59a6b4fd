"""`pteron.export(..., etrecord=...)`, and ExecuTorch's Inspector on a run by Pteron."""

from __future__ import annotations

from pathlib import Path

import torch
from executorch.devtools import Inspector, parse_etrecord
from torch import nn

import pteron
from pteron.runtime import Runtime


def test_the_inspector_joins_a_record_with_a_dump(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 4)).eval()
    x = torch.randn(3, 8)
    pteron.export(model, (x,), tmp_path / "model.pte", etrecord=tmp_path / "model.etrecord")
    record = parse_etrecord(str(tmp_path / "model.etrecord"))
    assert record.edge_dialect_program is not None and record._debug_handle_map

    program = Runtime.get().load_program(tmp_path / "model.pte", enable_etdump=True, debug_buffer_size=4096)
    outputs = program.load_method("forward").execute([x])
    torch.testing.assert_close(outputs[0], model(x))
    program.write_etdump_result_to_file(str(tmp_path / "dump"), str(tmp_path / "data"))
    inspector = Inspector(
        etdump_path=str(tmp_path / "dump"),
        etrecord=str(tmp_path / "model.etrecord"),
        debug_buffer_path=str(tmp_path / "data"),
    )
    names = {event.name for block in inspector.event_blocks for event in block.events}
    assert {"Method::execute", "DELEGATE_CALL"} <= names
    gaps = inspector.calculate_numeric_gap("L1")
    assert len(gaps) == 1 and gaps["gap"][0][0] < 1e-4


def test_the_inspector_compares_every_kernel(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.Softmax(-1), nn.Linear(8, 4), nn.Sigmoid()).eval()
    x = torch.randn(3, 8)
    record, path = tmp_path / "model.etrecord", tmp_path / "model.pte"
    pteron.export(model, (x,), path, partition=False, etrecord=record)
    program = Runtime.get().load_program(path, enable_etdump=True, debug_buffer_size=1 << 16)
    outputs = program.load_method("forward").execute([x])
    torch.testing.assert_close(outputs[0], model(x))
    program.write_etdump_result_to_file(str(tmp_path / "dump"), str(tmp_path / "data"))
    inspector = Inspector(
        etdump_path=str(tmp_path / "dump"), etrecord=str(record), debug_buffer_path=str(tmp_path / "data")
    )
    gaps = inspector.calculate_numeric_gap("L1")
    names = " ".join(map(str, gaps["runtime_ops"]))
    assert "_softmax" in names and "sigmoid" in names and "addmm" in names, names
    assert all(gap[0] < 1e-4 for gap in gaps["gap"])
