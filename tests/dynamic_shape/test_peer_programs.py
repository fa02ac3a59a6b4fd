"""The dynamic-shape programs of ExecuTorch's WebGPU backend, at the sizes and in the order of its tests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import pteron
from pteron.engine.devices.opening import Device
from pteron.errors import UnsupportedError
from tests.conftest import Once
from tests.dynamic_shape.peer import PEERS, Peer, export_group
from tests.support.calls import Call, check_calls, check_file
from tests.support.compare import ELEMENTWISE, EXACT

Folder = Callable[[str], Path]

CASES = [
    pytest.param(peer, id=f"{peer}-{'-'.join(map(str, peer.order))}", marks=[pytest.mark.slow] * peer.slow)
    for peer in PEERS
]


@pytest.fixture(scope="session")
def folder(once: Once) -> Folder:
    return lambda group: once(f"peer/{group}", export_group(group))


@pytest.mark.parametrize("peer", CASES)
def test_replayed_on_one_loaded_program(peer: Peer, device: Device, folder: Folder) -> None:
    where = folder(peer.group)
    calls = (Call(*peer.call(where, label), f"at {label}") for label in peer.order)
    check_file(device, where / f"{peer.name}.pte", calls, peer.tolerance)


@pytest.mark.conformance
@pytest.mark.parametrize("peer", [p for p in PEERS if not p.slow], ids=str)
def test_each_size_on_a_fresh_program(peer: Peer, device: Device, folder: Folder) -> None:
    where = folder(peer.group)
    for label in dict.fromkeys(peer.order):
        call = Call(*peer.call(where, label), f"at {label}")
        check_file(device, where / f"{peer.name}.pte", [call], peer.tolerance)


@pytest.mark.parametrize("name", ["dyn_expand_copy", "dyn_expand_copy_inferred"])
def test_expand_of_a_dynamic_size_is_not_rejected(name: str, device: Device, folder: Folder) -> None:
    rows = (np.linspace(-1, 1, size, dtype=np.float32).reshape(1, size) for size in (8, 3, 1, 8))
    calls = (Call([x], [np.broadcast_to(x, (4, x.size))]) for x in rows)
    check_file(device, folder("expand") / f"{name}.pte", calls, EXACT)


@pytest.mark.slow
def test_a_cache_with_too_few_heads_is_rejected_at_load(device: Device, folder: Folder) -> None:
    with pytest.raises(
        UnsupportedError, match=r"sdpa_with_kv_cache\.default .*8, 64\) do not fit a cache .*7, 64\)"
    ):
        pteron.load(folder("k16") / "sdpa_k16_bad_cache_heads.pte", device=device)


@pytest.mark.slow
def test_projections_with_a_decode_route_agree_row_by_row(device: Device, folder: Folder) -> None:
    """The backend checks only the shapes of this program. Here, one row must give the first row of many."""
    with pteron.load(folder("routes") / "qkv_bk64_routes.pte", device=device) as program:
        method = program.method()
        x = np.fromfile(folder("routes") / "qkv_bk64_routes.S128.input.bin", "<f4").reshape(128, 2048)
        outputs = method(x)
        assert [y.shape for y in outputs] == [(128, 2048), (128, 512), (128, 512)]
        calls = (Call([x[:rows]], [y[:rows] for y in outputs]) for rows in (1, 128, 1))
        check_calls(method, calls, ELEMENTWISE)


@pytest.mark.slow
def test_gelu_with_a_grid_of_two_dimensions(device: Device, folder: Folder) -> None:
    import torch

    most = 4 * 64 * 65535 + 1
    x = np.random.default_rng(0).standard_normal(most, dtype=np.float32)
    expected = torch.nn.functional.gelu(torch.from_numpy(x)).numpy()
    calls = (Call([x[:size]], [expected[:size]]) for size in (most, most - 1, most))
    check_file(device, folder("gelu") / "dyn_gelu_2d.pte", calls, ELEMENTWISE)
