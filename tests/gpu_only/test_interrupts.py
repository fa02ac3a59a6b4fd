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
from pteron.gpu import record_ahead
from pteron.verifying.walk import poison
from tests.support import DATA
from tests.support.faults import InterruptAt, each_line, lock_is_free

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
signal.signal(signal.SIGINT, signal.default_int_handler)
running = True
def shoot():
    while running:
        time.sleep(random.uniform(0.0002, 0.004))
        os.kill(os.getpid(), signal.SIGINT)
interrupted = done = 0
thread = threading.Thread(target=shoot, daemon=True)
thread.start()
while interrupted < int(sys.argv[2]):
    try:
        size = random.choice(list(calls))
        got = method(*calls[size])
        assert np.array_equal(got, wanted[size]), f"wrong at {size}"
        done += 1
    except KeyboardInterrupt:
        interrupted += 1
while running:
    try:
        running = False
        thread.join()
    except KeyboardInterrupt:
        running = True
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
