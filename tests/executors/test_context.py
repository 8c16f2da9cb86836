"""What a step may use: caches, files, templates, expressions, questions, facts, output."""

from __future__ import annotations

import io
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kubexm_exec.connectors.base import Command
from kubexm_exec.connectors.local.connector import LocalConnector
from kubexm_exec.connectors.pool import ConnectorPool
from kubexm_exec.control import Cancel, Deadline
from kubexm_exec.engine.output import OutputLines
from kubexm_exec.engine.runtime import BlobStore
from kubexm_exec.model.errors import ConnectorError
from kubexm_exec.model.events import ACTION_PROGRESS
from kubexm_exec.model.graph import GraphHost, Scope
from kubexm_exec.model.result import FailureKind, Status
from kubexm_exec.runner.facts import parse
from kubexm_exec.secrets import Redactor
from kubexm_exec.step import Forecast, Params, Result, Step, StepContext
from kubexm_exec.values.templates import TemplateFinder
from tests.executors.kit import Bench, Plugins, Ran, graph, node


def _with_context(use: Callable[[StepContext], Any], *, bench: Bench | None = None, **more: Any) -> Ran:
    """Run a step that does this with its context; its text is the message."""

    class Use(Step[Params]):
        def run(self, ctx: StepContext, forecast: Forecast) -> Result:
            return Result(message=str(use(ctx)))

    bench = bench or Bench()
    bench.steps["use"] = Use
    of = graph(node("a", "use", **more.pop("node", {})), **more)
    return bench.run(of)


def test_context_says_who_and_where_it_is() -> None:
    ran = _with_context(lambda ctx: (ctx.host.name, ctx.host.address, ctx.node, ctx.run_id, ctx.attempt, ctx.sensitive))
    assert ran.host("a").message == str(("h1", "127.0.0.1", "m/t/a", "run-1", 1, False))


def test_hosts_are_connected_to_side_by_side() -> None:
    both = threading.Barrier(2)

    class Slow(LocalConnector):
        def open(self, deadline: Deadline) -> None:
            both.wait(10)

    bench = Bench(connectors={"local": Slow})
    ran = _with_context(lambda ctx: ctx.runner.run(["echo", "here"]).out, bench=bench, node={"hosts": ("h1", "h2")})
    assert [ran.host("a", host).message for host in ("h1", "h2")] == ["here\n", "here\n"]


def test_caches_are_shared_within_their_scope_only() -> None:
    class Count(Step[Params]):
        def run(self, ctx: StepContext, forecast: Forecast) -> Result:
            seen = []
            for scope in ("run", "module", "task", "host"):
                cache = ctx.cache(scope)
                cache["n"] = cache.get("n", 0) + 1
                seen.append(cache["n"])
            return Result(message=str(seen))

    ran = Bench(steps={"count": Count}, forks=1).run(
        graph(node("a", "count", hosts=["h1", "h2"]), node("b", "count", after=["a"]))
    )
    assert ran.host("a", "h1").message == "[1, 1, 1, 1]"
    assert ran.host("a", "h2").message == "[2, 2, 2, 1]"
    assert ran.host("b").message == "[3, 3, 3, 2]"


def test_local_path_starts_at_the_spec_and_absolute_stays(tmp_path: Path) -> None:
    ran = _with_context(lambda ctx: [str(ctx.local_path("x/y")), str(ctx.local_path("/abs"))], base=tmp_path)
    assert ran.host("a").message == str([str(tmp_path / "x/y"), "/abs"])


def test_expression_sees_the_nodes_names_and_those_that_the_step_gives() -> None:
    ran = _with_context(
        lambda ctx: [ctx.evaluate("vars.n + 1"), ctx.evaluate("code == 3 and host.name == 'h1'", {"code": 3})],
        scope=Scope("s", vars={"n": 2}),
    )
    assert ran.host("a").message == "[3, True]"


def test_template_of_the_spec_wins_over_later_folders_and_sees_all_names(tmp_path: Path) -> None:
    spec, extra = tmp_path / "spec", tmp_path / "extra"
    (spec / "templates" / "etc").mkdir(parents=True)
    extra.mkdir()
    (spec / "templates" / "etc" / "a.j2").write_text(
        "{% include 'part.j2' %} {{ who }} on {{ host.name }} {{ vars.n }}\n"
    )
    (spec / "part.j2").write_text("mine")
    (extra / "part.j2").write_text("other")
    (extra / "only.j2").write_text("extra")
    bench = Bench(templates=TemplateFinder([extra]))
    ran = _with_context(
        lambda ctx: ctx.render_template("etc/a.j2", {"who": "I"}) + ctx.render_template("only.j2"),
        bench=bench,
        scope=Scope("s", vars={"n": 2}, base=str(spec)),
    )
    assert ran.host("a").message == "mine I on h1 2\nextra"


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.j2", "x\n{{ nope }}\n", "template a.j2:2: 'nope' is undefined"),
        ("a.j2", "x\n{% if %}\n", "template a.j2:2: Expected an expression"),
        ("a.j2", "{{ vars.n.__class__.__mro__ }}", "template a.j2:1: access to attribute '__class__'"),
        ("a.j2", "{% include 'gone.j2' %}", "there is no template 'gone.j2' (wanted by a.j2)"),
        ("b.j2", "", "there is no template 'b.j2'"),
        ("../a.j2", "", "must stay inside"),
        ("/etc/passwd", "", "must stay inside"),
    ],
)
def test_mistake_in_a_template_is_said_with_its_place(tmp_path: Path, name: str, content: str, words: str) -> None:
    (tmp_path / "a.j2").write_text(content)
    ran = _with_context(lambda ctx: ctx.render_template(name), scope=Scope("s", vars={"n": 1}, base=str(tmp_path)))
    assert ran.host("a").status is Status.FAILED
    assert words in ran.host("a").message


def test_names_of_templates_do_not_climb_out(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "out.j2").touch()
    (tmp_path / "in" / "a.j2").touch()
    finder = TemplateFinder([tmp_path / "in"])
    assert finder.find("a.j2") == tmp_path / "in" / "a.j2"
    assert finder.find("../out.j2") is None
    assert finder.find(str(tmp_path / "out.j2")) is None
    assert finder.find("") is None
    assert finder.names() == ["a.j2"]


def test_folders_of_the_environment_come_before_the_shipped_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBEXM_TEMPLATES", f"{tmp_path}/x{os.pathsep}{tmp_path}/y")
    folders = TemplateFinder.for_spec(tmp_path, ["/given"]).folders
    assert [str(each) for each in folders[:5]] == [
        str(tmp_path / "templates"),
        str(tmp_path),
        "/given",
        str(tmp_path / "x"),
        str(tmp_path / "y"),
    ]


@pytest.mark.parametrize(
    ("typed", "default", "answer"),
    [("y\n", None, True), ("No\n", None, False), ("\n", True, True), ("what\nyes\n", None, True), ("", False, False)],
)
def test_answer_to_a_question_is_read_from_the_input(typed: str, default: bool | None, answer: bool) -> None:
    bench = Bench(input=io.StringIO(typed))
    ran = _with_context(lambda ctx: ctx.ask("Go on?", default=default), bench=bench)
    assert ran.host("a").message == str(answer)
    assert "m/t/a on h1: Go on? [" in ran.output


def test_question_without_anybody_takes_the_default_or_fails_with_a_hint() -> None:
    assert _with_context(lambda ctx: ctx.ask("Go on?", default=True)).host("a").message == "True"
    done = _with_context(lambda ctx: ctx.ask("Go on?")).host("a")
    assert done.message == "there is nobody to ask: Go on?"
    assert "default" in done.hint


def test_question_that_nobody_answers_in_time_takes_the_default() -> None:
    reader, writer = os.pipe()
    with os.fdopen(reader) as stream:
        ran = _with_context(lambda ctx: ctx.ask("Go on?", timeout=0.1, default=False), bench=Bench(input=stream))
    os.close(writer)
    assert ran.host("a").message == "False"


def test_questions_of_several_steps_are_asked_one_after_another() -> None:
    class Ask(Step[Params]):
        def run(self, ctx: StepContext, forecast: Forecast) -> Result:
            return Result(message=str(ctx.ask("Go on?")))

    reader, writer = os.pipe()
    os.write(writer, b"y\nn\ny\n")
    hosts = ["h1", "h2", "h3"]
    with os.fdopen(reader) as stream:
        ran = Bench(steps={"ask": Ask}, input=stream).run(graph(node("a", "ask", hosts=hosts)))
    os.close(writer)
    assert sorted(ran.host("a", host).message for host in hosts) == ["False", "True", "True"]
    assert all(f"on {host}: Go on? [y/n] " in ran.output for host in hosts)


def test_progress_is_told_but_not_more_often_than_anybody_can_read() -> None:
    def download(ctx: StepContext) -> None:
        for done in range(10_001):
            ctx.progress("download", done, 10_000)

    told = _with_context(download).of(ACTION_PROGRESS)
    assert len(told) < 100
    assert told[-1].data == {"message": "download", "done": 10_000, "total": 10_000}


def test_facts_are_gathered_once_a_host_and_only_if_used() -> None:
    commands: list[str] = []

    class Counting(LocalConnector):
        def run(self, command: Command, **more: Any) -> Any:
            commands.append(command.display())
            return super().run(command, **more)

    class Use(Step[Params]):
        def run(self, ctx: StepContext, forecast: Forecast) -> Result:
            return Result(message=f"{ctx.facts['os']['family']} {ctx.facts['cpus']}")

    hosts = [f"h{number}" for number in range(3)]
    bench = Bench(steps={"use": Use}, connectors={"local": Counting})
    ran = bench.run(
        graph(
            node("a", "use", hosts=hosts),
            node("b", hosts=hosts, after=["a"], with_={"value": "{{ facts.architecture }}"}),
            node("c", hosts=["h9"]),
            per_host=5,
        )
    )
    assert len(commands) == 3
    assert ran.host("a").message.endswith(f" {os.cpu_count()}")
    assert ran.host("b").outputs["value"] in ("amd64", "arm64", os.uname().machine)


def test_facts_of_well_known_systems() -> None:
    ubuntu = parse(
        "distribution=ubuntu\nlike=debian\nversion=24.04\ncodename=noble\nmachine=aarch64\ncpus=4\nmemory=2097152"
    )
    assert ubuntu["os"] == {"family": "debian", "distribution": "ubuntu", "version": "24.04", "codename": "noble"}
    assert (ubuntu["architecture"], ubuntu["cpus"], ubuntu["memoryMb"]) == ("arm64", 4, 2048)
    assert parse("distribution=rocky\nlike=rhel centos fedora")["os"]["family"] == "redhat"
    assert parse("system=FreeBSD\nmachine=riscv64")["os"]["family"] == "freebsd"
    assert parse("")["cpus"] == 0


class _Flaky(LocalConnector):
    opened = 0

    def open(self, deadline: Deadline) -> None:
        type(self).opened += 1
        if type(self).opened == 1:
            raise ConnectorError("connection refused")
        super().open(deadline)


def test_connection_that_fails_is_unreachable_and_opened_anew_at_the_next_attempt() -> None:
    flaky = type("Flaky", (_Flaky,), {"opened": 0})
    bench = Bench(connectors={"local": flaky})
    ran = _with_context(lambda ctx: ctx.runner.run(["echo", "hi"]).out, bench=bench, node={"attempts": 2})
    assert (ran.host("a").status, ran.host("a").attempts) == (Status.SUCCESS, 2)
    assert ran.of("action.retry")[0].data["kind"] == FailureKind.UNREACHABLE.value


def test_connector_is_opened_once_a_host_by_one_opener_and_closed_at_the_end() -> None:
    log: list[str] = []
    all_want_it = threading.Event()

    class Logged(LocalConnector):
        def open(self, deadline: Deadline) -> None:
            log.append("open")
            all_want_it.wait(30)
            super().open(deadline)

        def close(self) -> None:
            log.append("close")
            super().close()

    pool = ConnectorPool({"h1": GraphHost("h1", connector="x")}, Plugins({"x": Logged}), lambda reference: reference)
    found: list[object] = []
    threads = [threading.Thread(target=lambda: found.append(pool.get("h1", Deadline()))) for _ in range(8)]
    for thread in threads:
        thread.start()
    all_want_it.set()
    for thread in threads:
        thread.join()
    assert log == ["open"]
    assert len({id(each) for each in found}) == 1
    assert pool.close() == []
    assert log == ["open", "close"]
    with pytest.raises(ConnectorError):
        pool.get("h1", Deadline())


def test_bytes_that_are_kept_come_back_and_leave_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import tempfile

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    store = BlobStore()
    small, large = b"x", os.urandom(200_000)
    tokens = [store.put(small), store.put(large), store.put(large)]
    assert [store.get(token) for token in tokens] == [small, large, large]
    folder = next(tmp_path.iterdir())
    assert folder.stat().st_mode & 0o777 == 0o700
    with pytest.raises(KeyError):
        store.get("../../etc/passwd")
    store.close()
    assert list(tmp_path.iterdir()) == []


def test_secret_cut_in_pieces_by_the_output_is_masked() -> None:
    redactor = Redactor()
    redactor.add("correct-horse")
    told: list[str] = []
    lines = OutputLines(lambda stream, text: told.append(text), redactor, None)
    for piece in (b"the pass", b"word is cor", b"rect-ho", b"rse, said he\nend"):
        lines("stdout", piece)
    lines.close()
    assert "".join(told) == "the password is ***, said he\nend"
    assert all(text.endswith("\n") for text in told[:-1])


def test_character_cut_in_pieces_by_the_output_stays_whole() -> None:
    told: list[str] = []
    lines = OutputLines(lambda stream, text: told.append(text), Redactor(), None)
    for byte in "grün\n".encode() + b"\xff\n":
        lines("stdout", bytes([byte]))
    lines.close()
    assert "".join(told) == "grün\n\ufffd\n"
    assert lines.tail("stdout") == "grün\n\ufffd\n"


def test_very_long_line_is_sent_in_pieces_and_only_its_end_is_kept() -> None:
    told: list[str] = []
    lines = OutputLines(lambda stream, text: told.append(text), Redactor(), lambda seconds, what: None)
    for _ in range(300):
        lines("stdout", b"x" * 1000)
    lines.close()
    assert len("".join(told)) == 300_000
    assert len(lines.tail("stdout")) == 64 << 10


def test_cancel_wakes_a_step_that_sleeps() -> None:
    token = Cancel()
    assert not token.is_set()

    def sleep(ctx: StepContext) -> None:
        runtimes[0].cancel.set()
        ctx.sleep(600)

    runtimes: list[Any] = []
    bench = Bench(on_event=lambda event, runtime: runtimes.append(runtime))
    assert _with_context(sleep, bench=bench).host("a").status is Status.CANCELLED
