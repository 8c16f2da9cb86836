"""Notifications in the journal: written with the change, served by success alone, by whichever run comes next."""

from __future__ import annotations

import contextlib
import itertools
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubexm_exec.engine import entries
from kubexm_exec.engine.notifications import Notification
from kubexm_exec.journal.errors import FencedError
from kubexm_exec.journal.owner import Owner
from kubexm_exec.journal.store import Store
from kubexm_exec.model.result import HostResult, SkipReason, Status
from tests.journal.forker import Forker

FIRST, SECOND = "01AAAAAAAAAAAAAAAAAAAAAAAA", "01BBBBBBBBBBBBBBBBBBBBBBBB"


class Book:
    """The journal of a target with two runs."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._seq = {FIRST: 0, SECOND: 0}
        for run in self._seq:
            store.begin(run, name="n", target="t", spec=f"{run}.yaml", executor="e", holder=Owner.me(), made_from={})

    def write(self, *several: entries.Entry, run: str = FIRST) -> None:
        self._seq[run] += 1
        self.store.append(run, 1, self._seq[run], several)

    def due(self) -> list[tuple[str, str, str, str, bool]]:
        return [(each.handler, each.host, each.node, each.run[2], each.sure) for each in self.store.notifications("t")]


@pytest.fixture
def book(url: str) -> Iterator[Book]:
    with contextlib.closing(Store(url)) as store:
        yield Book(store)


def end(node: str = "conf", host: str = "h1", status: Status = Status.SUCCESS, **more: object) -> entries.End:
    result = HostResult(host_name=host, status=status, end_time=1.0)
    result.changed = more.pop("changed", False) is True
    if status is Status.SKIPPED:
        result.reason = SkipReason.PRECHECK
    return entries.End(node, result, **more)  # type: ignore[arg-type]


def change(node: str = "conf", host: str = "h1") -> entries.End:
    return end(node, host, changed=True, notifies=("restart",))


def served(*by: str, host: str = "h1") -> entries.End:
    return end("restart", host, handler="restart", served=by)


def test_change_makes_its_handlers_due_on_its_host(book: Book) -> None:
    book.write(end(changed=True, notifies=("restart", "tell")), end("other", changed=True))
    assert book.due() == [("restart", "h1", "conf", "A", True), ("tell", "h1", "conf", "A", True)]
    [first, _] = book.store.notifications("t")
    assert first == Notification("restart", "h1", "conf", FIRST, 1.0, spec=f"{FIRST}.yaml")
    assert book.store.notifications("another target") == []


def test_success_of_the_handler_serves_what_it_was_started_for(book: Book) -> None:
    book.write(change(), change("env"), change(host="h2"))
    book.write(served("conf"))
    assert book.due() == [("restart", "h1", "env", "A", True), ("restart", "h2", "conf", "A", True)]


def test_another_run_of_the_target_serves_it(book: Book) -> None:
    book.write(change())
    book.write(change(), run=SECOND)
    book.write(served("conf"), run=SECOND)
    assert book.due() == []


def test_change_that_was_interrupted_is_possibly_due(book: Book) -> None:
    book.write(entries.Work("conf", "h1", ("restart",)))
    assert book.due() == [("restart", "h1", "conf", "A", False)]
    failed = end(status=Status.FAILED, notifies=("restart",), worked=True)
    book.write(failed)
    assert book.due() == [("restart", "h1", "conf", "A", False)], "something may have been changed before it failed"


def test_same_run_finds_out_whether_it_is_due(book: Book) -> None:
    for last, due in ((end(notifies=("restart",)), []), (change(), [("restart", "h1", "conf", "A", True)])):
        book.write(entries.Work("conf", "h1", ("restart",)))
        book.write(last)
        assert book.due() == due


def test_another_run_that_finds_it_done_makes_it_due(book: Book) -> None:
    book.write(entries.Work("conf", "h1", ("restart",)))
    book.write(end(status=Status.SKIPPED, notifies=("restart",)), run=SECOND)
    assert book.due() == [("restart", "h1", "conf", "A", True)]


def test_change_is_not_doubted_by_a_later_attempt(book: Book) -> None:
    book.write(change())
    book.write(entries.Work("conf", "h1", ("restart",)))
    assert book.due() == [("restart", "h1", "conf", "A", True)]


@pytest.mark.parametrize(
    ("state", "left"), [("undone", False), ("nothing", False), ("undoFailed", True), ("leftAlone", True)]
)
def test_undone_change_needs_no_handler(book: Book, state: str, left: bool) -> None:
    book.write(change(), change("env"))
    book.write(change(), run=SECOND)
    book.write(entries.Undone("conf", "h1", state), run=SECOND)
    still = [("restart", "h1", "conf", "B", True)] if left else []
    others = [("restart", "h1", "conf", "A", True), ("restart", "h1", "env", "A", True)]
    assert sorted(book.due()) == sorted(others + still), "only what that run changed is back as it was"


def test_run_that_was_taken_over_notifies_nobody(book: Book) -> None:
    book.store.take_on(FIRST, 1, Owner.me())
    with pytest.raises(FencedError):
        book.write(change())
    assert book.due() == []


def test_what_is_confirmed_as_done_when_a_run_goes_on_notifies(book: Book) -> None:
    book.store.take_on(FIRST, 1, Owner.me(), opening=[change()])
    assert book.due() == [("restart", "h1", "conf", "A", True)]


def test_notification_outlives_its_run(book: Book) -> None:
    book.write(change())
    with book.store.writing() as door:
        door.do("run.remove", run=FIRST)
    assert book.due() == [("restart", "h1", "conf", "A", True)]


# Whole runs

SPEC = """
apiVersion: kubexm.io/v1
kind: Pipeline
metadata: {name: site}
params: {version: {default: "1"}}
inventory: {hosts: [{name: "n[1:2]", connector: local}]}
modules:
  - name: web
    maxFailures: FAILURES
    handlers:
      - {name: reload, type: command, with: {shell: 'cd "$D"; test ! -e bad.reload.$N && echo reload >>log.$N', env: &env {D: FOLDER, N: "{{ host.name }}"}}}
    tasks:
      - name: app
        batch: BATCH
        handlers:
          - {name: restart, type: command, with: {shell: 'cd "$D"; test ! -e bad.restart.$N && echo restart >>log.$N', env: *env}}
        steps:
          - name: conf
            type: command
            notify: [restart, reload]
            with:
              shell: 'cd "$D"; echo conf >>log.$N; echo "$V" >conf.$N'
              unless: 'test "$(cat FOLDER/conf.{{ host.name }})" = {{ params.version }}'
              env: &more {D: FOLDER, N: "{{ host.name }}", V: "{{ params.version }}"}
          FLUSH
          - name: more
            type: command
            notify: restart
            with:
              shell: 'cd "$D"; echo more >>log.$N; echo "$V" >more.$N'
              unless: 'test "$(cat FOLDER/more.{{ host.name }})" = {{ params.version }}'
              env: *more
          - {name: check, type: command, with: {shell: 'test ! -e FOLDER/bad.check.{{ host.name }}', readOnly: true}}
"""  # noqa: E501
NOTIFIES = {"restart": ("conf", "more"), "reload": ("conf",)}


class Site:
    """A folder that stands for two hosts, with a log each: changes and successful handlers, in order."""

    def __init__(
        self, folder: Path, forker: Forker, *, batch: str = "2", flush: bool = False, failures: int = 2
    ) -> None:
        self.folder = folder
        self._forker = forker
        self.kills = 0
        text = SPEC.replace("FOLDER", str(folder)).replace("BATCH", batch).replace("FAILURES", str(failures))
        text = text.replace("FLUSH", "- {name: now, flush: true}" if flush else "")
        (folder / "spec.yaml").write_text(text)

    def run(self, version: str = "1", die_at: str = "", *more: str) -> int:
        return self._do("kubexm-run", "spec.yaml", "-e", f"version={version}", *more, die_at=die_at)

    def resume(self, die_at: str = "") -> int:
        return self._do("kubexm", "runs", "resume", "last", die_at=die_at)

    def _do(self, *words: str, die_at: str) -> int:
        code = self._forker.program(self.folder, *words, "--output", "plain", die_at=die_at)
        assert code in (0, 1, 2, -signal.SIGKILL), self.said()
        assert "Traceback" not in self.said()
        self.kills += code == -signal.SIGKILL
        return code

    def said(self) -> str:
        return (self.folder / "said").read_text()

    def bad(self, *names: str) -> None:
        for path in self.folder.glob("bad.*"):
            path.unlink()
        for name in names:
            (self.folder / f"bad.{name}").touch()

    def log(self, host: str) -> list[str]:
        path = self.folder / f"log.{host}"
        return path.read_text().split() if path.exists() else []

    def due(self) -> set[tuple[str, str]]:
        path = self.folder / "state" / "journal.db"
        if not path.exists():
            return set()
        with contextlib.closing(Store(str(path))) as store:
            return {
                (each.handler.rpartition("/")[2], each.host)
                for each in store.notifications(str(self.folder / "spec.yaml"))
            }

    def check(self) -> None:
        """Each handler has run well after the last change that notifies it, once unless a kill hid that, or is due."""
        due = self.due()
        for host, (handler, sources) in itertools.product(("n1", "n2"), NOTIFIES.items()):
            log = self.log(host)
            changed = max((number for number, word in enumerate(log) if word in sources), default=-1)
            after = log[changed + 1 :].count(handler) if changed >= 0 else 0
            if changed >= 0 and (handler, host) not in due:
                assert after >= 1, f"{handler} was forgotten on {host}: {log}\n{self.said()}"
            assert after <= 1 + self.kills, f"{handler} ran again on {host}: {log}\n{self.said()}"
            idle = spurious(log, handler, sources)
            assert idle <= self.kills, f"{handler} ran {idle} times for nothing on {host}: {log}"


def spurious(log: list[str], handler: str, sources: tuple[str, ...]) -> int:
    """How often a handler ran although nothing had changed since it ran before."""
    found, fresh = 0, False
    for word in log:
        if word in sources:
            fresh = True
        elif word == handler:
            found += not fresh
            fresh = False
    return found


@pytest.fixture(scope="module")
def forker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forker]:
    made = Forker(tmp_path_factory.mktemp("forker"))
    yield made
    made.close()


def test_each_change_is_followed_by_its_handlers_once(forker: Forker, tmp_path: Path) -> None:
    site = Site(tmp_path, forker)
    assert site.run("1") == site.run("1") == site.run("2") == 0
    assert site.log("n1") == ["conf", "more", "restart", "reload", "conf", "more", "restart", "reload"]
    assert site.due() == set()


def test_flush_serves_in_the_middle(forker: Forker, tmp_path: Path) -> None:
    site = Site(tmp_path, forker, flush=True)
    assert site.run() == 0
    assert site.log("n1") == ["conf", "restart", "reload", "more", "restart"]


def test_failed_host_is_served_by_a_resume_or_by_the_next_run(forker: Forker, tmp_path: Path) -> None:
    for number, again in enumerate(("resume", "run")):
        folder = tmp_path / str(number)
        folder.mkdir()
        site = Site(folder, forker, failures=1)
        site.bad("check.n1")
        site.run()
        assert site.log("n1") == ["conf", "more"]
        assert site.log("n2") == ["conf", "more", "restart", "reload"]
        assert site.due() == {("restart", "n1"), ("reload", "n1")}
        assert "due  web/" in site.said()
        site.bad()
        assert (site.resume() if again == "resume" else site.run()) == 0
        assert site.log("n1") == ["conf", "more", "restart", "reload"]
        assert site.log("n2") == ["conf", "more", "restart", "reload"]
        assert site.due() == set()


def test_resume_serves_only_those_handlers_of_a_change_that_were_not_served(forker: Forker, tmp_path: Path) -> None:
    site = Site(tmp_path, forker, failures=0)
    site.bad("check.n1")
    site.run()
    assert site.log("n2") == ["conf", "more", "restart"]
    assert ("reload", "n2") in site.due()
    site.bad()
    assert site.resume() == 0
    assert site.log("n2") == ["conf", "more", "restart", "reload"]
    assert site.due() == set()


def test_failed_handler_stays_due_until_it_succeeds(forker: Forker, tmp_path: Path) -> None:
    site = Site(tmp_path, forker)
    site.bad("restart.n1")
    for again in (site.run, site.resume, site.run):
        again()
        assert site.due() == {("restart", "n1"), ("reload", "n1")}
    site.bad()
    assert site.run() == 0
    assert "due since run" in site.said()
    assert site.log("n1") == ["conf", "more", "restart", "reload"]


def test_host_outside_the_limit_stays_due(forker: Forker, tmp_path: Path) -> None:
    site = Site(tmp_path, forker)
    site.bad("check.n1", "check.n2")
    site.run()
    site.bad()
    assert site.run("1", "", "--limit", "n2") == 0
    assert site.due() == {("restart", "n1"), ("reload", "n1")}
    assert "lost-handler" not in site.said()
    assert site.run() == 0
    assert site.due() == set()


def test_killed_at_every_write_nothing_is_forgotten(forker: Forker, tmp_path: Path) -> None:
    """Then resumed, or started anew: each handler comes after the change, and what is done stays done."""
    for write in itertools.count(1):
        folder = tmp_path / str(write)
        folder.mkdir()
        site = Site(folder, forker, flush=write // 2 % 2 == 0)
        if site.run(die_at=f"any:{write}") == 0:
            assert write > 20, "it had hardly anything to write"
            break
        if write % 2:
            site.resume()
        # The outcome of a handler that was interrupted is unknown to a resume; the next run simply runs it.
        assert site.run() == 0, site.said()
        assert site.due() == set()
        site.check()


move = st.tuples(
    st.sampled_from(["run", "run", "resume"]),
    st.sampled_from(["1", "2", "3"]),
    st.one_of(st.just(0), st.integers(1, 60)),
    st.sets(st.sampled_from(["check.n1", "check.n2", "restart.n1", "reload.n2"]), max_size=2),
)


@settings(max_examples=max(8, settings.default.max_examples // 6) if settings.default else 8)
@given(
    moves=st.lists(move, min_size=1, max_size=4),
    batch=st.sampled_from(["2", "1"]),
    flush=st.booleans(),
    failures=st.integers(0, 2),
)
def test_whatever_happens_each_handler_comes_once_after_the_last_change(
    moves: list[tuple[str, str, int, set[str]]],
    batch: str,
    flush: bool,
    failures: int,
    forker: Forker,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Batches, failures, kills, resumes and new runs, in any order; in the end a run in which nothing goes wrong."""
    site = Site(
        Path(tempfile.mkdtemp(dir=tmp_path_factory.getbasetemp())), forker, batch=batch, flush=flush, failures=failures
    )
    version = "1"
    for number, (what, wanted, kill, bad) in enumerate(moves):
        site.bad(*bad)
        die_at = f"any:{kill}" if kill else ""
        if what == "resume" and number:
            site.resume(die_at)
        else:
            version = wanted
            site.run(version, die_at)
        site.check()
    site.bad()
    assert site.run(version) == 0, site.said()
    assert site.due() == set()
    site.check()
