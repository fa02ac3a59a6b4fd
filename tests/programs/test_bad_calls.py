"""A call that does not fit is refused with its reason, and leaves the method exactly as it was."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

import pteron
from pteron.api.method import Method
from pteron.engine.devices.opening import Device
from pteron.errors import InputError
from tests.conftest import Recorded
from tests.dynamic_shape.recording import Recording
from tests.support.calls import Call, check_calls

Opened = Callable[[str], Any]


@pytest.fixture
def opened(device: Device, recorded: Recorded) -> Opened:
    @contextmanager
    def open_case(name: str) -> Iterator[tuple[Method, Recording]]:
        recording = recorded(name)
        with pteron.load(recording.program, device=device) as program:
            yield program.method(), recording

    return open_case


@pytest.fixture(scope="module")
def used(device: Device, recorded: Recorded) -> Iterator[Callable[[str], Method]]:
    """The method of a case, in its initial state. All tests of this file have the same one."""
    with ExitStack() as stack:

        @cache
        def load(name: str) -> Method:
            return stack.enter_context(pteron.load(recorded(name).program, device=device)).method()

        def method(name: str) -> Method:
            load(name).reset()
            return load(name)

        yield method


def zeros(*shape: int) -> Any:
    return np.zeros(shape, np.float32)


class Bad(NamedTuple):
    what: str
    case: str
    change: Callable[..., tuple[Any, ...]]  # from good inputs to bad ones
    message: str  # what the error must say, word for word


BAD_CALLS = [
    Bad(
        "rank",
        "rms_norm",
        lambda x: (x[0],),
        "input0: expected 4 dimensions (at most (1, 1, 128, 64)), got shape (1, 128, 64)",
    ),
    Bad("wide dtype", "rms_norm", lambda x: (x.astype("f8"),), "input0: expected dtype float32, got float64"),
    Bad("int dtype", "rms_norm", lambda x: (x.astype("i4"),), "input0: expected dtype float32, got int32"),
    Bad(
        "float ids", "embedding_q4", lambda i: (i.astype("f4"),), "input0: expected dtype int64, got float32"
    ),
    Bad(
        "above max",
        "rms_norm",
        lambda x: (zeros(1, 1, 129, 64),),
        "input0: dimension 2 is 129, but the program was exported for at most 128",
    ),
    Bad(
        "above max in the second input",
        "cat",
        lambda x, y: (x, zeros(3, 13, 8)),
        "input1: dimension 1 is 13, but the program was exported for at most 12",
    ),
    Bad(
        "static dimension below max",
        "rms_norm",
        lambda x: (x[..., :63],),
        "et_vk.rms_norm.default (node 0): weight has shape (64), but rows have 63 elements",
    ),
    Bad(
        "static program, smaller",
        "rms_norm_static",
        lambda x: (x[:, :, :5],),
        "input0: expected shape (1, 1, 8, 64), got (1, 1, 5, 64): the program was exported for this shape",
    ),
    Bad(
        "static program, larger",
        "rms_norm_static",
        lambda x: (zeros(1, 1, 9, 64),),
        "input0: dimension 2 is 9, but the program was exported for at most 8",
    ),
    Bad(
        "missing input",
        "cat",
        lambda x, y: (x,),
        "method 'forward' takes 2 inputs (input0: float32[3, 9, 8], input1: float32[3, 12, 8]), got 1",
    ),
    Bad("surplus input", "rms_norm", lambda x: (x, x), "method 'forward' takes 1 inputs"),
    Bad("no array", "rms_norm", lambda x: (None,), "input0: expected an array, got NoneType"),
    Bad(
        "a mask", "rms_norm", lambda x: (np.ma.masked_array(x, x > 0),), "would lose its mask: pass x.filled"
    ),
    Bad(
        "id of the row after the last",
        "embedding_q4",
        lambda i: (np.array([3, 64]),),
        "input0: element [1] is 64, but an index into an embedding table of 64 rows must lie in 0..63",
    ),
    Bad(
        "negative id",
        "embedding_q4",
        lambda i: (np.array([-1]),),
        "input0: element [0] is -1, but an index into an embedding table of 64 rows must lie in 0..63",
    ),
    Bad(
        "id beyond int32, which would wrap to a good one",
        "embedding_q4",
        lambda i: (np.array([3, 2**32 + 5]),),
        "input0: element [1] is 4294967301",
    ),
    Bad(
        "id in two dimensions",
        "embedding",
        lambda i: (np.array([[0, 1, 2], [3, 99, 5]]),),
        "input0: element [1, 1] is 99, but an index into an embedding table of 64 rows must lie in 0..63",
    ),
    Bad(
        "operands of different live sizes",
        "where_compare",
        lambda x, y: (x[:, :5], y[:, :4]),
        "(3, 5) and (3, 4)",
    ),
    Bad("inner sizes of a product", "batched_matmul", lambda a, b: (a, b[:, :5]), "aten.bmm.default (node "),
    Bad(
        "integer that is none",
        "size_as_input",
        lambda x, n: (x, 2.5),
        "input1: expected an integer, got float",
    ),
    Bad(
        "boolean as integer", "size_as_input", lambda x, n: (x, True), "input1: expected an integer, got bool"
    ),
    Bad(
        "position at the end of the cache",
        "cached_attention",
        lambda q, k, v, p: (q[:, :1], k[:, :1], v[:, :1], np.array([64])),
        "position 64 plus 1 new tokens does not fit the cache of 64 positions",
    ),
    Bad(
        "tokens that run over the end of the cache",
        "cached_attention",
        lambda q, k, v, p: (q[:, :5], k[:, :5], v[:, :5], np.array([60])),
        "position 60 plus 5 new tokens does not fit the cache of 64 positions",
    ),
    Bad(
        "negative position",
        "cached_attention",
        lambda q, k, v, p: (q[:, :1], k[:, :1], v[:, :1], np.array([-1])),
        "position -1 plus 1 new tokens does not fit the cache of 64 positions",
    ),
    Bad(
        "position beyond int32",
        "cached_attention",
        lambda q, k, v, p: (q[:, :1], k[:, :1], v[:, :1], np.array([2**32])),
        "input3: element [0] is 4294967296",
    ),
    Bad(
        "keys shorter than queries",
        "cached_attention",
        lambda q, k, v, p: (q[:, :5], k[:, :4], v[:, :5], p),
        "sdpa_with_kv_cache.default (node 1): query, key and value must have the same length",
    ),
    Bad(
        "position beyond the frequency table",
        "rope_hf",
        lambda q, k, cos, sin, p: (q[:, :5], k[:, :5], cos, sin, np.array([28])),
        "the frequency table has 32 rows: position 28 plus 5 tokens is beyond its end",
    ),
]


@pytest.mark.parametrize("bad", BAD_CALLS, ids=[f"{b.case}: {b.what}" for b in BAD_CALLS])
def test_is_refused_and_changes_nothing(bad: Bad, used: Callable[[str], Method], recorded: Recorded) -> None:
    method, recording = used(bad.case), recorded(bad.case)

    def refuse(call: Call) -> Call:
        before = method.live_shapes
        with pytest.raises(InputError, match=re.escape(bad.message)):
            method.execute(bad.change(*recording.calls[0].inputs))
        assert method.live_shapes == before
        return call

    # The caches hold what the good calls put there, or the next ones would differ from torch.
    check_calls(method, map(refuse, recording.calls), recording.tolerance)


def test_a_refused_first_call_leaves_a_fresh_method(opened: Opened) -> None:
    with opened("cached_attention") as (method, recording):
        q, k, v, _ = recording.calls[0].inputs
        with pytest.raises(InputError, match="position 60 plus 24 "):
            method(q, k, v, np.array([60]))
        check_calls(method, recording.calls, recording.tolerance)


def test_a_refused_call_does_not_touch_the_cache(opened: Opened) -> None:
    """Refused keys must not be in the cache: the next decode step must see zeros there."""
    with opened("cached_attention") as (method, _):
        q, k, v = (np.ones((1, 5, heads, 16), np.float32) for heads in (8, 2, 2))
        with pytest.raises(InputError):
            method(q, k * 9, v * 9, np.array([60]))
        out = method(q[:, :1], k[:, :1], v[:, :1], np.array([63]))
        # 63 zero keys of weight e^0 and one key of weight e^4, whose value is 1.
        weight = np.exp(4) / (np.exp(4) + 63)
        np.testing.assert_allclose(out, weight, rtol=1e-4)


def test_a_closed_method_says_so(opened: Opened) -> None:
    with opened("rms_norm") as (method, recording):
        pass
    with pytest.raises(pteron.PteronError, match="method 'forward' is closed"):
        method.execute(recording.calls[0].inputs)


def test_a_state_of_another_method_is_refused(opened: Opened) -> None:
    with opened("cached_attention") as (one, recording), opened("cached_attention") as (other, _):
        with pytest.raises(InputError, match="the state belongs to another method"):
            one.execute(recording.calls[0].inputs, state=other.new_state())
        check_calls(one, recording.calls[:1], recording.tolerance)


class Pick(torch.nn.Module):
    def forward(self, x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        return x.index_select(0, index)


def test_an_index_must_be_less_than_the_live_size(device: Device, exported: Callable[..., bytes]) -> None:
    x, index = torch.randn(8, 3), torch.tensor([7, 0])

    def arguments() -> tuple[Any, ...]:
        return Pick(), (x, index), ({0: torch.export.Dim("rows", min=2, max=8)}, None)

    with pteron.load(exported("pick", arguments), device=device) as program:
        np.testing.assert_array_equal(program(x, index), x[index])
        with pytest.raises(InputError, match=r"input1: element \[0\] is 7, but .* must lie in -?\d+\.\.4"):
            program(x[:5], index)
        assert program.method().live_shapes["input0"] == (8, 3), "a refused call changes nothing"
        np.testing.assert_array_equal(program(x[:5], torch.tensor([4, 1])), x[[4, 1]])
