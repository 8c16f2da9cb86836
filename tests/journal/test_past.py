"""A past run as a result: statuses of nodes, times without the pauses between sessions, what sessions have left."""

from __future__ import annotations

import pytest

from kubexm_exec.engine.entries import End, Entry, Retry, Session, Start, Undoing, Undone, Work
from kubexm_exec.engine.history import RunHistory, SessionHistory
from kubexm_exec.journal.results import of_all_sessions, without_pauses
from kubexm_exec.model.result import GraphExecutionResult, HostResult, NodeResult, Status


def result(*times: tuple[float, float]) -> GraphExecutionResult:
    node = NodeResult(node_name="m/t/s", step_name="command", start_time=times[0][0], end_time=times[-1][1])
    for number, (start, end) in enumerate(times):
        node.host_results[f"h{number}"] = HostResult(
            host_name=f"h{number}", status=Status.SUCCESS, start_time=start, end_time=end
        )
    return GraphExecutionResult(
        graph_name="g", start_time=times[0][0], end_time=times[-1][1], node_results={"m/t/s": node}
    )


def times(of: GraphExecutionResult) -> list[tuple[float | None, float | None]]:
    return [(each.start_time, each.end_time) for each in of.node_results["m/t/s"].host_results.values()]


def session(begun: float, ended: float | None, last: float) -> SessionHistory:
    return SessionHistory("run", "somebody", begun, last, ended)


def test_times_of_one_session_stay_as_they_are() -> None:
    told = result((1.0, 2.0), (2.0, 5.0))
    assert without_pauses(told, [session(0.0, 6.0, 6.0)]) is told


def test_pause_between_two_sessions_is_left_out() -> None:
    shown = without_pauses(result((1.0, 2.0), (101.0, 105.0)), [session(0.0, 3.0, 3.0), session(100.0, 106.0, 106.0)])
    assert times(shown) == [(1.0, 2.0), (4.0, 8.0)]
    assert (shown.start_time, shown.end_time) == (1.0, 8.0)


def test_what_was_running_when_a_session_broke_off_does_not_count_the_pause() -> None:
    shown = without_pauses(result((2.0, 103.0)), [session(0.0, None, 4.0), session(100.0, 104.0, 104.0)])
    assert times(shown) == [(2.0, 7.0)]


def test_several_pauses_add_up() -> None:
    sessions = [session(0.0, 1.0, 1.0), session(11.0, 12.0, 12.0), session(22.0, 23.0, 23.0)]
    assert times(without_pauses(result((0.0, 1.0), (11.0, 12.0), (22.0, 23.0)), sessions)) == [
        (0.0, 1.0),
        (1.0, 2.0),
        (2.0, 3.0),
    ]


def test_last_session_is_shown_with_the_time_of_all() -> None:
    told = result((101.0, 105.0))
    shown = of_all_sessions(told, [session(0.0, 3.0, 3.0), session(100.0, None, 100.0)])
    assert (shown.start_time, shown.end_time) == (0.0, 8.0)
    assert of_all_sessions(told, []) is told


def test_session_was_there_at_least_until_the_last_thing_it_told() -> None:
    history = RunHistory()
    history.add(Session("run", "somebody", time=10.0))
    history.add(Start("m/t/s", "h", 1, 12.0, ""))
    history.add(Retry("m/t/s", "h", 1, "no", time=15.0))
    assert history.sessions[0].last == 15.0
    assert history.sessions[0].ended is None


STARTS = Start("m/t/s", "h", 1, 1.0, "")
UNDOING = Undoing("m/t/s", "h")


def ends(status: Status = Status.SUCCESS, *, unknown: bool = False) -> End:
    return End("m/t/s", HostResult(host_name="h", status=status, unknown=unknown, start_time=1.0))


def retries(unsure: str = "") -> Retry:
    return Retry("m/t/s", "h", 1, "no", unsure=unsure)


@pytest.mark.parametrize(
    ("entries", "left"),
    [
        ([(1, STARTS), (1, ends())], {}),
        ([(1, STARTS), (1, ends(Status.FAILED))], {}),
        ([(1, STARTS)], {"h": [(1, "m/t/s")]}),
        ([(1, STARTS), (1, ends(Status.FAILED, unknown=True))], {"h": [(1, "m/t/s")]}),
        ([(1, STARTS), (1, retries()), (1, STARTS), (1, ends())], {}),
        ([(1, STARTS), (1, retries("lost"))], {"h": [(1, "m/t/s")]}),
        # A later session may have ended it, and may just as well never have got to the host.
        (
            [(1, STARTS), (2, STARTS), (2, ends(Status.FAILED, unknown=True))],
            {"h": [(1, "m/t/s"), (2, "m/t/s")]},
        ),
        ([(1, STARTS), (2, STARTS), (2, ends())], {"h": [(1, "m/t/s")]}),
        ([(1, STARTS), (1, ends()), (2, UNDOING)], {"h": [(2, "m/t/s")]}),
        ([(1, STARTS), (1, ends()), (2, UNDOING), (2, Undone("m/t/s", "h", "undone"))], {}),
        ([(2, UNDOING), (2, Undone("m/t/s", "h", "undoFailed"))], {"h": [(2, "m/t/s")]}),
    ],
)
def test_what_a_session_may_have_left_at_work_on_a_host_is_known(
    entries: list[tuple[int, Entry]], left: dict[str, list[tuple[int, str]]]
) -> None:
    history = RunHistory()
    for history.epoch, entry in entries:
        history.add(entry)
    assert history.left() == left


LOOKS = Start("m/t/s", "h", 1, 1.0, "", tells=True)
WORKS = Work("m/t/s", "h", ("restart",))


@pytest.mark.parametrize(
    ("entries", "in_doubt"),
    [
        ([LOOKS], False),
        ([LOOKS, WORKS], True),
        # Sessions that were killed while they looked at what the first one had begun.
        ([LOOKS, WORKS, LOOKS], True),
        ([LOOKS, WORKS, LOOKS, LOOKS], True),
        ([LOOKS, WORKS, retries("lost"), LOOKS], True),
        ([STARTS, LOOKS], True),
        ([LOOKS, WORKS, ends(), LOOKS], False),
        ([LOOKS, LOOKS], False),
        # The same of an undo that was cut short.
        ([LOOKS, WORKS, ends(), UNDOING, LOOKS], True),
        ([LOOKS, WORKS, ends(), UNDOING, LOOKS, LOOKS], True),
        ([LOOKS, WORKS, ends(), UNDOING, LOOKS, ends(), LOOKS], False),
        ([LOOKS, WORKS, ends(), UNDOING, Undone("m/t/s", "h", "undone"), LOOKS], False),
    ],
)
def test_work_that_was_cut_short_stays_in_doubt_until_an_attempt_ends(entries: list[Entry], *, in_doubt: bool) -> None:
    history = RunHistory()
    for entry in entries:
        history.add(entry)
    action = history.of("m/t/s", "h")
    assert (action.begun and not action.looking) is in_doubt
