"""Ctrl-C at any time of a call: KeyboardInterrupt is raised, and the next calls give right results.

A trace function raises KeyboardInterrupt at each line in turn. Real signals are sent at random times.
"""

import random
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import pteron
from pteron.api.method import Method
from pteron.compiler.ir.dtypes import DType
from pteron.compiler.plan.sweep import plan
from pteron.engine import record_ahead
from pteron.engine.arrays.numpy_arrays import convert_constant
from pteron.engine.weight_store import WeightStore
from tests.support import DATA
from tests.support.faults import InterruptAt, each_line, lock_is_free
from tests.support.memory import poison
from tests.support.sketch import Sketch

LONG, SHORT = 128, 5


@pytest.fixture(scope="module")
def method(device):
    with pteron.load(DATA / "dyn_rms.pte", device=device) as program:
        yield program.method()


def inputs_at(method, size):
    generator = np.random.default_rng(size)
    return [generator.standard_normal(info.shape_at(size)).astype(info.dtype) for info in method.inputs]


def test_after_an_interrupt_at_any_line_the_next_result_is_right(method):
    given = {size: inputs_at(method, size) for size in (LONG, SHORT)}
    wanted = {size: method(*inputs) for size, inputs in given.items()}
    count = 0
    # The first call afterwards is once at the shape that was interrupted, and once at the other one.
    for order in ((LONG, SHORT), (SHORT, LONG)):
        for _ in each_line(lambda: (method(*given[LONG]), method(*given[SHORT]))):
            for size in order:
                poison(method)  # else what an earlier call wrote would pass for a result
                np.testing.assert_array_equal(method(*given[size]), wanted[size])
            count += 1
    assert count > 600, "hardly any line was interrupted: the trace does not see the code"
    assert lock_is_free(method.device)


def test_after_an_interrupt_of_repeated_calls_the_next_result_is_right(method, monkeypatch):
    """The commands of repeated calls are recorded ahead."""
    monkeypatch.setattr(record_ahead, "WORTH_RECORDING", 1)
    given, others = inputs_at(method, LONG), inputs_at(method, LONG)
    others[0] = others[0] + 1
    wanted = [method(*given), method(*others)]
    for _ in each_line(lambda: (method(*given), method(*others))):
        for inputs, expected in zip((given, others, given), (*wanted, wanted[0]), strict=True):
            poison(method)
            np.testing.assert_array_equal(method(*inputs), expected)
    assert lock_is_free(method.device)


def test_after_an_interrupt_at_a_new_shape_the_next_result_is_right(device):
    """A call at a new shape also plans and packs parameters."""
    with pteron.load(DATA / "dyn_rms.pte", device=device) as program:
        method = program.method()
        sizes = iter(range(1, LONG))
        size = next(sizes)
        reference = {}
        for number in range(1, 10_000, 7):
            given = inputs_at(method, size)
            try:
                with InterruptAt(number):
                    method(*given)
            except KeyboardInterrupt:
                with pteron.load(DATA / "dyn_rms.pte", device=device) as fresh:
                    reference[size] = fresh.method()(*given)
                np.testing.assert_array_equal(method(*given), reference[size])
                size = next(sizes)
            else:
                break
        assert len(reference) > 20


def sizes_that_differ(method):
    given, others = inputs_at(method, SHORT), inputs_at(method, SHORT + 2)
    return [given[0], *others[1:]], [given, others, inputs_at(method, 64)]


def index_out_of_range(method):
    """It is refused only after all shapes have changed."""
    good = [[np.arange(size) % 9] for size in (SHORT, SHORT + 2, 16)]
    return [np.full(SHORT, 10**6)], good


@pytest.mark.parametrize(
    ("name", "make", "step"),
    # Most lines of the first explain the error. They are the same ones for each size that is tried.
    [("sdpa_dyn.pte", sizes_that_differ, 5), ("emb_dyn.pte", index_out_of_range, 1)],
)
def test_after_an_interrupt_of_a_refused_call_the_next_result_is_right(device, name, make, step):
    with pteron.load(DATA / name, device=device) as program:
        method = program.method()
        refused, good = make(method)
        wanted = [method.execute(inputs) for inputs in good]
        shapes = method.live_shapes
        for inputs, expected in zip(good, wanted, strict=True):
            for line in each_line(lambda: method(*refused), pteron.InputError, every=step):
                assert line < 50 or method.live_shapes == shapes
                poison(method)
                for one, other in zip(method.execute(inputs), expected, strict=True):
                    np.testing.assert_array_equal(one, other)
                method.execute(good[-1])
        assert lock_is_free(device)


def test_interrupted_calls_whose_errors_are_kept_do_not_keep_staging_buffers(method):
    """The traceback of an error keeps the interrupted call alive, as a notebook or a log may."""
    given = inputs_at(method, SHORT)
    wanted, kept = method(*given), []
    for number in range(1, 10_000):
        try:
            with InterruptAt(number):
                method(*given)
        except KeyboardInterrupt as error:
            kept.append(error)
            np.testing.assert_array_equal(method(*given), wanted)
        else:
            break
    assert len(kept) > 100


def test_an_interrupted_call_changes_its_state_completely_or_not_at_all(device):
    """State that accumulates: a counter of calls, from which random numbers are drawn."""
    s = Sketch()
    counter = s.constant(2, dtype=DType.int32)
    drawn = s.add("aten.rand.default", (64,), counter, shape=(64,))
    s.graph.states = [counter]
    graph = s.finish(drawn)
    method = Method(plan(graph, device.route_features), device, WeightStore(device, convert_constant))
    state, backup = method.new_state(), method.new_state()
    first, second = method(state=state), method(state=state)
    outcomes = []
    for number in each_line(lambda: method(state=state)):
        if number == 1:
            state.reset()  # the call without an interrupt has counted, too
        backup.copy_from(state)
        following = method(state=backup)
        state.reset()
        outcomes.append(np.array_equal(following, first))
        assert outcomes[-1] or np.array_equal(following, second)
    assert min(outcomes[1:].count(True), outcomes[1:].count(False)) > 9, "before and after the submit"
    method.close()


def test_an_interrupted_result_can_be_read_again(method):
    long = inputs_at(method, LONG)
    wanted = method(*long)
    pending = None

    def call():
        nonlocal pending
        pending = method.submit(*long)
        sys.settrace(None)  # only reading is interrupted here

    number = 0
    while True:
        number += 1
        call()
        try:
            with InterruptAt(number):
                pending.result()
        except KeyboardInterrupt:
            np.testing.assert_array_equal(pending.result()[0], wanted)
        else:
            break
    assert number > 10


SIGNALS = """
import os, random, signal, sys, threading, time
import numpy as np
import pteron

random.seed(1)
program = pteron.load(sys.argv[1])
method = program.method()
def inputs(size):
    draw = np.random.default_rng(size).standard_normal
    return [draw(info.shape_at(size)).astype(info.dtype) for info in method.inputs]
calls = {size: inputs(size) for size in (128, 5, 64, 1)}
wanted = {size: method(*given) for size, given in calls.items()}
running, in_call = True, False
def interrupt(*_):
    # Like Python's own handler, but only during a call: the code around it has no handler.
    global in_call
    if in_call:
        in_call = False
        raise KeyboardInterrupt
signal.signal(signal.SIGINT, interrupt)
def shoot():
    while running:
        time.sleep(random.uniform(0.0002, 0.004))
        os.kill(os.getpid(), signal.SIGINT)
interrupted = done = 0
thread = threading.Thread(target=shoot, daemon=True)
thread.start()
while interrupted < int(sys.argv[2]):
    size = random.choice(list(calls))
    try:
        in_call = True
        got = method(*calls[size])
        in_call = False
    except KeyboardInterrupt:
        interrupted += 1
        continue
    assert np.array_equal(got, wanted[size]), f"wrong at {size}"
    done += 1
running = False
thread.join()
for size, given in calls.items():
    assert np.array_equal(method(*given), wanted[size])
program.close()
print("interrupted", interrupted, "done", done)
"""


def test_real_signals_at_random_times():
    """In a separate process, because a fault would abort it."""
    ran = subprocess.run(
        [sys.executable, "-c", SIGNALS, str(DATA / "dyn_rms.pte"), "300"],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    assert "interrupted 300" in ran.stdout
    assert "Exception ignored" not in ran.stderr, "an interrupt was swallowed inside a callback"


def test_closing_while_threads_are_in_calls(device):
    """Threads that call a program while it is closed get their result, or a PteronError."""
    for _ in range(15):
        program = pteron.load(DATA / "dyn_rms.pte", device=device)
        method = program.method()
        given = inputs_at(method, LONG)
        wanted = method(*given)
        failures, finished = [], []

        def work(method=method, given=given, wanted=wanted, failures=failures, finished=finished):
            try:
                while True:
                    if not np.array_equal(method(*given), wanted):
                        failures.append("wrong")
            except pteron.PteronError as error:
                finished.append(str(error))
            except BaseException as error:
                failures.append(repr(error))

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        time.sleep(random.uniform(0, 0.02))
        program.close()
        for thread in threads:
            thread.join(timeout=60)
        assert not failures and len(finished) == 4
        assert all("closed" in text for text in finished)
