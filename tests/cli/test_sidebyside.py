"""Work side by side in a command: its results, and what an interrupt does at any moment."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading

import pytest

from kubexm_exec.cli.sidebyside import side_by_side
from kubexm_exec.control import Cancel

LATE = 300.0


def test_the_results_come_in_the_order_of_the_items() -> None:
    last = threading.Event()

    def work(number: int) -> int:
        if number == 4:
            last.set()
        assert last.wait(LATE)
        return number * number

    before = signal.getsignal(signal.SIGINT)
    assert list(side_by_side(work, range(5), 5, Cancel())) == [0, 1, 4, 9, 16]
    assert list(side_by_side(work, [], 5, Cancel())) == []
    assert signal.getsignal(signal.SIGINT) is before


def test_no_more_are_worked_on_at_once_than_asked_for() -> None:
    both = threading.Barrier(2, timeout=LATE)
    inside: list[int] = []
    most: list[int] = []

    def work(number: int) -> None:
        inside.append(number)
        both.wait()
        most.append(len(inside))
        both.wait()
        inside.remove(number)
        both.wait()

    list(side_by_side(work, range(6), 2, Cancel()))
    assert set(most) == {2}


def test_what_goes_wrong_is_raised() -> None:
    results = side_by_side(int, ["1", "two", "3"], 2, Cancel())
    assert next(results) == 1
    with pytest.raises(ValueError, match="two"):
        next(results)


def run(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=LATE)


def test_an_interrupt_at_any_moment_ends_all_threads() -> None:
    program = """
import os, random, signal, threading
from kubexm_exec.cli.sidebyside import side_by_side
from kubexm_exec.connectors.base import Cancel
signal.signal(signal.SIGALRM, lambda number, frame: os.kill(os.getpid(), signal.SIGINT))
for number in range(100):
    cancel = Cancel()
    results = side_by_side(lambda item: cancel.wait(None), range(100), 20, cancel)
    try:
        # The first moment in which an interrupt is its own to handle is the first item's.
        signal.setitimer(signal.ITIMER_REAL, random.uniform(0.002, 0.01))
        next(results)
    except KeyboardInterrupt:
        pass
    else:
        raise AssertionError("no interrupt was raised")
    assert threading.active_count() == 1, threading.enumerate()
"""
    done = run(program)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_second_interrupt_ends_the_program_at_once() -> None:
    program = """
import os, signal, threading
from kubexm_exec.cli.sidebyside import side_by_side
from kubexm_exec.connectors.base import Cancel
cancel = Cancel()
def deaf(item):
    os.kill(os.getpid(), signal.SIGINT)
    cancel.wait(None)
    os.kill(os.getpid(), signal.SIGINT)
    threading.Event().wait()
list(side_by_side(deaf, [1], 1, cancel))
"""
    assert run(program).returncode == 130
