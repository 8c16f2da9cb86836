from __future__ import annotations

import io
import json
import logging

import pytest

from kubexm_exec.logs import NAME, configure, get_logger
from kubexm_exec.secrets import Redactor


def test_line_for_people_has_time_level_message_and_what_is_bound() -> None:
    stream = io.StringIO()
    log = get_logger(run="01J", node="etcd/start/unit", host="node1")
    configure("info", False, stream)
    log.info("took %s tries", 3, path="/a b", message="m", name="n")
    log.debug("not shown")
    time, rest = stream.getvalue().split("  ", 1)
    assert len(time) == 8
    assert rest == (
        'info       took 3 tries  run=01J  node=etcd/start/unit  host=node1  path="/a b"  message=m  name=n\n'
    )


def test_line_for_machines_is_one_json_object() -> None:
    stream = io.StringIO()
    configure("debug", True, stream)
    get_logger(run="01J", host="node1").debug("hello", size=3, message="m", odd=float("nan"), half="\udcff")
    found = json.loads(stream.getvalue())
    assert found.pop("time").endswith("Z")
    assert found == {
        "level": "debug",
        "message": "hello",
        "message_": "m",
        "run": "01J",
        "host": "node1",
        "size": 3,
        "odd": None,
        "half": "\ufffd",
    }


@pytest.mark.parametrize("as_json", [False, True])
def test_secrets_are_masked_in_messages_values_and_tracebacks(as_json: bool) -> None:
    stream = io.StringIO()
    redactor = Redactor()
    configure("info", as_json, stream, mask=redactor.mask)
    redactor.add("hunter22")
    log = get_logger(password="hunter22")
    try:
        raise ValueError("hunter22 is wrong")
    except ValueError:
        log.exception("with hunter22", more=["hunter22"])
    text = stream.getvalue()
    assert "hunter22" not in text
    assert text.count("***") >= 4
    assert "ValueError" in text


def test_each_line_is_one_write_also_with_a_traceback() -> None:
    class Writes(io.StringIO):
        calls = 0

        def write(self, text: str) -> int:
            self.calls += 1
            return super().write(text)

    stream = Writes()
    configure("info", False, stream)
    try:
        raise KeyError("x")
    except KeyError:
        get_logger().exception("broke\nin two lines")
    assert stream.calls == 1
    assert "    Traceback (most recent call last):\n" in stream.getvalue()


def test_second_configuration_replaces_the_first() -> None:
    first, second = io.StringIO(), io.StringIO()
    log = get_logger()
    configure("info", False, first)
    configure("info", False, second)
    log.warning("where")
    assert first.getvalue() == ""
    assert second.getvalue().count("\n") == 1


def test_root_logger_of_an_embedding_program_is_left_alone() -> None:
    root = logging.getLogger()
    before = (list(root.handlers), root.level)
    configure("debug", False, io.StringIO())
    get_logger().debug("for us only")
    assert (list(root.handlers), root.level) == before


def test_without_configuration_lines_reach_the_embedding_program(caplog: pytest.LogCaptureFixture) -> None:
    get_logger(host="node1").warning("careful")
    assert "careful" in caplog.text
    assert "node1" in caplog.text


def test_lines_of_the_standard_library_come_out_the_same_way() -> None:
    stream = io.StringIO()
    configure("info", False, stream)
    logging.getLogger(f"{NAME}.part").info("from %s", "elsewhere")
    assert stream.getvalue().endswith("  info       from elsewhere\n")


def test_log_line_that_cannot_be_written_is_no_failure_of_the_run() -> None:
    stream = io.StringIO()
    stream.close()
    configure("info", False, stream)
    get_logger().warning("nobody hears it")
    narrow = io.TextIOWrapper(raw := io.BytesIO(), encoding="ascii")
    configure("info", False, narrow)
    get_logger().warning("節")
    assert b"\\u7bc0" in raw.getvalue()


def test_message_cannot_steer_the_terminal() -> None:
    stream = io.StringIO()
    configure("info", False, stream)
    get_logger(bad="\x1b[2J").warning("\x1b[31mred\x07")
    assert stream.getvalue().replace("\n", "").isprintable()
