from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kubexm_exec.console import make_console
from kubexm_exec.console.jsonl import json_line
from kubexm_exec.model.events import Event
from tests.console.scenario import failed_run
from tests.console.script import RUN, START

ANY = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(), max_size=20)
    | st.binary(max_size=9),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=20,
)


def refuse(constant: str) -> Any:
    raise AssertionError(f"{constant} is not JSON")


def test_every_event_is_one_line_with_its_fields() -> None:
    run = failed_run()
    stream = io.StringIO()
    console = make_console("json", run.graph, stream, color=None, verbose=0)
    for event in run.events:
        console(event)
    console.close(None)
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert len(lines) == len(run.events)
    assert lines[0] == {
        "event": "run.started",
        "time": "2023-11-14T22:13:20.000Z",
        "run": RUN,
        "graph": "create-etcd",
        "executor": "concurrent",
        "runMode": "act",
        "forks": 50,
        "hosts": 3,
        "nodes": 9,
        "actions": 23,
    }
    assert all(line["run"] == RUN for line in lines)


@given(st.dictionaries(st.text(max_size=8), ANY, max_size=5))
def test_whatever_the_data_the_line_is_strict_ascii_json(data: dict[str, Any]) -> None:
    line = json_line(data)
    assert line.isascii()
    assert line.count("\n") == 1
    read = json.loads(line, parse_constant=refuse)
    assert len(read) <= len(data)
    # Lone surrogates would not survive this.
    json.dumps(read, ensure_ascii=False).encode("utf-8")


def test_what_json_does_not_have_becomes_something_it_has() -> None:
    data = {"nan": float("nan"), "inf": [float("-inf")], "half": "a\udcffb", "smile": "\U0001f600", "set": {1}}
    odd: dict[Any, Any] = {"path": Path("/x"), "bytes": b"\xff!", 3: 4}
    assert json.loads(json_line(data | odd)) == {
        "nan": None,
        "inf": [None],
        "half": "a\ufffdb",
        "smile": "\U0001f600",
        "set": [1],
        "path": "/x",
        "bytes": "\ufffd!",
        "3": 4,
    }


def test_each_line_is_flushed() -> None:
    class Stream(io.StringIO):
        flushed = 0

        def flush(self) -> None:
            self.flushed += 1

    stream = Stream()
    console = make_console("json", failed_run().graph, stream, color=None, verbose=0)
    console(Event("log", RUN, START))
    assert stream.flushed == 1
