"""Every step that works at a path, where another user may write too: it goes through none of that user's links."""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import os
import re
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct
from pydantic import ValidationError

from kubexm_exec.model.graph import GraphHost
from kubexm_exec.model.result import ForecastState
from kubexm_exec.plugins import step_registry
from kubexm_exec.runner.files.probe import look
from kubexm_exec.step import StepFailed
from kubexm_exec.testing import StepTest, snapshot
from tests.lab.sshd import SSHD, ssh_host
from tests.resources.server import Web, serve
from tests.steps import trees

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="only root has something to lose to another user"),
    pytest.mark.xdist_group("planted-links"),
]

MALLORY = 54321
REFUSED = re.compile(r".* is a link to .*, in a folder that (user|group) \S+ may write|.*that everybody may write")


KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIB5SCsiJuABdSKHiJqlFBX8Y2oWq0Jp3+LNfbbJVhXw2"
OTHER_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGXHTBWmhhh7trv5lY9JT8a4AGgDSmWamtRJkbCMWPLS"


class Kind(Struct, frozen=True):
    """How a step is tried at a path. What ``name`` stands for is in the folder that is worked in."""

    step: str
    more: Mapping[str, Any] = {}
    name: str = "x"
    given: str | None = "old\n"
    """What is at the path before; None: nothing."""
    replaces: bool = False
    """Whether a link in the place of the thing itself is replaced, not followed, so that it needs no refusal."""
    changes: bool = True
    """Whether it changes anything there."""
    folder: bool = False
    """Whether it works at a folder: then it is the link at the end that is refused."""
    follows: bool = True
    """Whether it follows any link at all."""
    asks: bool = False
    """Whether it only asks, and thus always runs and never has anything to undo."""

    @property
    def due(self) -> ForecastState:
        """What it forecasts where it has something to do."""
        return ForecastState.SATISFIED if self.asks else ForecastState.CHANGE


KINDS = {
    "file": Kind("file", {"content": "new\n"}, replaces=True),
    "file that is new": Kind("file", {"content": "new\n"}, name="new", given=None, replaces=True),
    "file of another mode": Kind("file", {"mode": "0600", "owner": 7, "group": 8}, replaces=True),
    "file that is large": Kind("copy", {"src": "large"}, replaces=True),
    "file that goes": Kind("file", {"state": "absent"}, replaces=True),
    "template": Kind("template", {"src": "source"}, replaces=True),
    "copy": Kind("copy", {"src": "source"}, replaces=True),
    "copy of a folder": Kind("copy", {"src": "folder"}, name="d", folder=True),
    "sync": Kind("sync", {"src": "folder", "delete": True}, name="d", folder=True),
    "fetch": Kind("fetch", {"to": "fetched"}, changes=False),
    "directory": Kind("directory", {"mode": "0711", "owner": 7}, name="d", folder=True),
    "directory that is new": Kind("directory", {"mode": "0711"}, name="newd", given=None, folder=True),
    "directory that goes": Kind("directory", {"state": "absent", "recursive": True}, name="d", replaces=True),
    "symlink": Kind("symlink", {"target": "elsewhere", "force": True}, replaces=True),
    "line-in-file": Kind("line-in-file", {"line": "new"}),
    "block-in-file": Kind("block-in-file", {"content": "new"}),
    "line-in-file with a backup": Kind("line-in-file", {"line": "new", "backup": True, "validate": ["true", "%s"]}),
    "file with a backup": Kind("file", {"content": "new\n", "backup": True, "validate": ["true", "%s"]}, replaces=True),
    "set-value": Kind("set-value", {"values": {"new": 1}, "format": "ini"}),
    "stat": Kind("stat", {"sha256": True}, replaces=True, changes=False, asks=True),
    "stat that follows": Kind("stat", {"sha256": True, "followLinks": True}, changes=False, asks=True),
    "archive": Kind("archive", {"localSrc": "x.tar"}, name="d", folder=True),
    "archive that is packed": Kind("archive", {"action": "pack", "src": "$PACKED"}, name="x.tar", replaces=True),
    "download": Kind("download", {"url": "$WEB", "sha256": "$SHA"}, replaces=True),
    "download by the host": Kind("download", {"url": "$WEB", "sha256": "$SHA", "fetchOn": "host"}, replaces=True),
    "git": Kind("git", {"repo": "$REPO"}, name="checkout", given=None, folder=True),
    "authorized-key": Kind("authorized-key", {"user": "root", "keys": KEY}, follows=False),
    "certificate": Kind("certificate", {"kind": "ca", "subject": {"commonName": "x"}}, replaces=True),
}  # fmt: skip
ELSEWHERE = {
    "they work in folders of the system, which only root may write": {
        "ca-certificate", "cron", "firewall-port", "group", "host-entry", "hostname", "kernel-module", "package",
        "reboot", "repository", "service", "sysctl", "systemd-unit", "timer",
    },
    "they need a whole machine; what they do at a path is tried below": {"mount", "swap", "user"},
    "they change no file by themselves": {
        "assert", "command", "fragment", "gate", "http", "message", "ready", "script", "set", "wait",
    },
    "they ask a server by its client": {"container-image", "etcd-member", "helm", "kube-apply", "kube-node"},
}  # fmt: skip
FOLLOWING = {name: kind for name, kind in KINDS.items() if kind.follows}
SHARED = {"theirs": (0o755, MALLORY, MALLORY), "of a group": (0o775, 0, MALLORY), "sticky": (0o1777, 0, 0)}


class Ground:
    """A folder of another user's, and what root has beside it."""

    def __init__(self, base: Path, mode: int = 0o755, uid: int = MALLORY, gid: int = MALLORY) -> None:
        self.local = base / "local"
        large = {"content": "0123456789\n", "times": 800_000}
        trees.make(self.local, {"source": "new\n", "large": large, "folder/a": "new\n", "folder/sub/b": "new\n"})
        self.victim = base / "victim"
        # What is root's, under the names that a step would look for.
        trees.make(
            self.victim, {"x": {"content": "old\n", "mode": "0640"}, "token": {"content": "t\n", "mode": "0600"}}
        )
        trees.make(self.victim, {"d/a": "old\n", "d/sub/b": "old\n", "d/keep": "kept\n"})
        (self.local / "x.tar").write_bytes(trees.archive("tar", {"a": "new\n", "sub/b": "new\n"}))
        self.theirs = base / "theirs"
        self.theirs.mkdir()
        os.chown(self.theirs, uid, gid)
        self.theirs.chmod(mode)

    def make_repository(self) -> None:
        """A repository with one commit."""
        repo = self.local / "repo.git"
        if not repo.exists():
            git = ["git", "-c", "user.name=x", "-c", "user.email=x@example.com", "-C", str(repo)]
            repo.mkdir()
            (repo / "file").write_text("new\n")
            for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "x"]):
                subprocess.run([*git, *words], check=True)

    def plant(self, name: str, target: Path) -> Path:
        """A link that the other user has made."""
        link = self.theirs / name
        link.symlink_to(target)
        os.lchown(link, MALLORY, MALLORY)
        return link

    def folder(self, name: str = "way", given: Mapping[str, Any] | None = None) -> Path:
        """A folder there, with what steps work on in it."""
        folder = self.theirs / name
        trees.make(folder, {"x": "old\n", "d/a": "old\n", "d/sub/b": "old\n"} if given is None else given)
        return folder

    def lost(self) -> Any:
        """All that is root's."""
        return snapshot(self.victim)


WEB: list[Web] = []
"""The server that downloads come from."""


@pytest.fixture(scope="module", autouse=True)
def web() -> Iterator[None]:
    with serve() as web:
        web.add(b"new\n")
        WEB[:] = [web]
        yield


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GraphHost | None]:
    if SSHD is None:
        yield None
        return
    with ssh_host(tmp_path_factory.mktemp("box")) as host:
        yield host.host()


@pytest.fixture(params=["local", "ssh"])
def host(request: pytest.FixtureRequest, box: GraphHost | None) -> GraphHost | None:
    if request.param == "ssh" and box is None:
        pytest.skip("no sshd here")
    return box if request.param == "ssh" else None


def world(ground: Ground, kind: Kind, path: Path | str, host: GraphHost | None, **more: Any) -> StepTest:
    stands = {"$PACKED": f"{ground.local}/folder", "$REPO": f"{ground.local}/repo.git"}
    if kind.step == "download":
        stands |= {"$WEB": WEB[0].url(), "$SHA": hashlib.sha256(b"new\n").hexdigest()}
    if kind.step == "git":
        ground.make_repository()
    more = {key: stands.get(str(value), value) for key, value in {**kind.more, "path": str(path), **more}.items()}
    return StepTest(ground.local, kind.step, more, host=host)


def refused(call: Callable[[], object], link: Path, kind: Kind) -> None:
    with pytest.raises(StepFailed) as caught:
        call()
    if not kind.follows:
        assert caught.value.message.endswith(f"{link} is a link")
        return
    assert REFUSED.match(caught.value.message), caught.value.message
    assert str(link) in caught.value.message
    assert "follow: true" in caught.value.hint


@pytest.mark.parametrize("shared", SHARED)
@pytest.mark.parametrize("kind", KINDS.values(), ids=list(KINDS))
def test_a_link_on_the_way_is_refused_by_precheck_and_run(
    kind: Kind, shared: str, host: GraphHost | None, tmp_path: Path
) -> None:
    ground = Ground(tmp_path, *SHARED[shared])
    link = ground.plant("way", ground.victim)
    before = ground.lost()
    step = world(ground, kind, link / kind.name, host)
    if not kind.asks:
        refused(step.forecast, link, kind)
    refused(step.run, link, kind)
    assert ground.lost() == before
    step.close()


@pytest.mark.parametrize("kind", KINDS.values(), ids=list(KINDS))
def test_a_link_at_the_end_is_refused_or_replaced_but_not_followed(
    kind: Kind, host: GraphHost | None, tmp_path: Path
) -> None:
    ground = Ground(tmp_path)
    link = ground.plant(kind.name, ground.victim / kind.name)
    before = ground.lost()
    step = world(ground, kind, link, host)
    if kind.replaces:
        with contextlib.suppress(StepFailed):
            step.run()
            if not kind.asks:
                step.rollback()
    else:
        with pytest.raises(StepFailed):
            step.run()
    assert ground.lost() == before
    step.close()


@pytest.mark.parametrize("kind", FOLLOWING.values(), ids=list(FOLLOWING))
def test_a_link_is_followed_where_the_spec_says_so(kind: Kind, host: GraphHost | None, tmp_path: Path) -> None:
    ground = Ground(tmp_path)
    link = ground.plant("way", ground.victim)
    before = ground.lost()
    step = world(ground, kind, link / kind.name, host, follow=True)
    assert step.forecast().state is kind.due
    step.run()
    assert (ground.lost() != before) is kind.changes
    assert step.forecast().state is ForecastState.SATISFIED
    if not kind.asks:
        step.rollback()
    assert ground.lost() == before
    step.close()


@pytest.mark.parametrize("kind", FOLLOWING.values(), ids=list(FOLLOWING))
def test_a_link_of_roots_own_is_followed_and_a_folder_of_others_worked_in(
    kind: Kind, host: GraphHost | None, tmp_path: Path
) -> None:
    ground = Ground(tmp_path)
    folder = ground.folder()
    link = tmp_path / "ours"
    link.symlink_to(folder)
    before = snapshot(ground.theirs)
    step = world(ground, kind, link / kind.name, host)
    assert step.forecast().state is kind.due
    step.run()
    assert step.forecast().state is ForecastState.SATISFIED
    assert not list(ground.theirs.rglob(".kx*")), "nothing is left behind"
    if not kind.asks:
        step.rollback()
    assert snapshot(ground.theirs) == before
    step.close()


@pytest.mark.parametrize("kind", KINDS.values(), ids=list(KINDS))
def test_an_undo_goes_through_no_link_that_was_put_in_its_way(
    kind: Kind, host: GraphHost | None, tmp_path: Path
) -> None:
    ground = Ground(tmp_path)
    way = ground.folder()
    step = world(ground, kind, way / kind.name, host)
    step.run()
    if kind.name.startswith("new") or kind.step == "git":
        # What the undo would remove.
        trees.make(ground.victim, {f"{kind.name}/" if kind.folder else kind.name: "new\n"})
    way.rename(ground.theirs / "was")
    ground.plant("way", ground.victim)
    before = ground.lost()
    if not kind.asks:
        with contextlib.suppress(StepFailed):
            step.rollback()
    assert ground.lost() == before
    step.close()


SECRET = "of-root-alone"
ATTRIBUTES: Mapping[str, Mapping[str, Any]] = {
    "as it is": {},
    "mode": {"mode": "0666"},
    "owner": {"owner": MALLORY},
    "both": {"mode": "0666", "owner": MALLORY, "group": MALLORY},
}


@pytest.mark.parametrize("same", [False, True], ids=["other content", "same content"])
@pytest.mark.parametrize("kind", KINDS.values(), ids=list(KINDS))
def test_what_has_another_name_is_not_given_away_where_others_may_make_names(
    kind: Kind, same: bool, host: GraphHost | None, tmp_path: Path
) -> None:
    takes = step_registry().load(kind.step).params_model.model_fields
    for number, (named, more) in enumerate(ATTRIBUTES.items()):
        if not more.keys() <= takes.keys():
            continue
        ground = Ground(tmp_path / str(number))
        text = {"authorized-key": f"{KEY}\n"}.get(kind.step, "new\n") if same else f"{SECRET}\n"
        for name in ("x", "x.tar", "d/a", "d/sub/b"):
            mine, planted = ground.victim / name, ground.theirs / name
            mine.write_text(text)
            mine.chmod(0o600)
            planted.parent.mkdir(parents=True, exist_ok=True)
            os.chown(planted.parent, MALLORY, MALLORY)
            planted.hardlink_to(mine)
        before = ground.lost()
        user = {"user": "daemon"} if kind.step == "authorized-key" else {}
        work = world(ground, kind, ground.theirs / kind.name, host, **more, **user)
        # Not every way of a step takes a mode or an owner.
        with contextlib.suppress(StepFailed, ValidationError):
            work.run()
        given = [path for path in ground.theirs.rglob("*") if path.is_file() and SECRET in path.read_text("latin-1")]
        assert {path.name: path.stat() for path in given if path.stat().st_uid or path.stat().st_mode & 0o077} == {}, (
            named
        )
        if work.undo is not None:
            with contextlib.suppress(StepFailed):
                work.rollback()
        assert ground.lost() == before, named
        work.close()


IN_PLACE: Mapping[str, Mapping[str, Any]] = {
    "file": {"mode": "0666", "owner": MALLORY},
    "line-in-file": {"line": "old", "mode": "0666", "owner": MALLORY},
    "line-in-file, changed": {"line": "new", "mode": "0666", "owner": MALLORY},
    "block-in-file, changed": {"content": "new", "owner": MALLORY},
    "set-value, changed": {"values": {"new": 1}, "format": "ini", "owner": MALLORY},
    "copy": {"src": "same", "mode": "0666", "owner": MALLORY},
    "authorized-key": {"user": "root", "keys": KEY},
    "authorized-key, changed": {"user": "daemon", "keys": OTHER_KEY},
}


@pytest.mark.parametrize("named", IN_PLACE)
def test_a_file_with_another_name_is_refused_with_the_reason(
    named: str, host: GraphHost | None, tmp_path: Path
) -> None:
    ground = Ground(tmp_path)
    step = named.partition(",")[0]
    content = f"{KEY}\n" if step == "authorized-key" else "old\n"
    (ground.victim / "x").write_text(content)
    (ground.local / "same").write_text(content)
    path = ground.theirs / "x"
    path.hardlink_to(ground.victim / "x")
    before = ground.lost()
    work = StepTest(ground.local, step, {**IN_PLACE[named], "path": str(path)}, host=host)
    with pytest.raises(
        StepFailed, match=r"has 2 names \(hard links\), and user \S+ may make such names there"
    ) as caught:
        work.run()
    assert "remove it, or close its folder to others" in caught.value.hint
    assert ground.lost() == before
    # Whoever replaces the file, leaves the other name alone.
    StepTest(ground.local, "file", {"path": str(path), "content": "new\n", "mode": "0666"}, host=host).run()
    assert ground.lost() == before
    work.close()


FILLED = {
    "everybody, sticky": (0o1777, 0, 0),
    "everybody": (0o777, 0, 0),
    "a group": (0o2775, 0, MALLORY),
    "a group, sticky": (0o1770, 0, MALLORY),
    "another user": (0o755, MALLORY + 1, MALLORY + 1),
}


@pytest.mark.parametrize("shared", FILLED)
def test_a_file_that_somebody_has_put_where_others_may_is_not_filled(
    shared: str, host: GraphHost | None, tmp_path: Path
) -> None:
    ground = Ground(tmp_path, *FILLED[shared])
    path = ground.theirs / "token"
    path.touch()
    os.chown(path, MALLORY, MALLORY)
    fills = StepTest(ground.local, "file", {"path": str(path), "content": "secret", "mode": "0600"}, host=host)
    with pytest.raises(StepFailed, match=r"write .*/token: it is a file of user"):
        fills.run()
    # A check says so, too.
    with pytest.raises(StepFailed, match=r"write .*/token: it is a file of user"):
        fills.forecast()
    assert path.read_text() == ""
    StepTest(ground.local, "file", {"path": str(path), "content": "x", "mode": "0600", "owner": 0}, host=host).run()
    assert (path.stat().st_uid, path.read_text()) == (0, "x")
    # The same of many files at once.
    os.chown(path, MALLORY, MALLORY)
    trees.make(ground.local, {"many/token": "secret", **{f"many/{number}": "x" for number in range(5)}})
    many = {"src": "many", "path": str(ground.theirs)}
    with pytest.raises(StepFailed, match="it belongs to user"):
        StepTest(ground.local, "sync", many, host=host).run()
    assert path.read_text() == "x"
    StepTest(ground.local, "sync", {**many, "owner": 0}, host=host).run()
    assert (path.stat().st_uid, path.read_text()) == (0, "secret")


class Swapping:
    """Another user who puts a link in the place of a folder and takes it away again, as fast as possible."""

    def __init__(self, one: Path, other: Path) -> None:
        self._paths = [os.fsencode(one), os.fsencode(other)]
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.times = 0

    def _run(self) -> None:
        exchange = ctypes.CDLL(None, use_errno=True).renameat2
        while not self._stop.is_set():
            if exchange(-100, self._paths[0], -100, self._paths[1], 2) == 0:
                self.times += 1
            # Each of the two is there for about as long as a step takes for one of its moves.
            self._stop.wait(0.0005)

    def __enter__(self) -> Swapping:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


QUICK = {name: kind for name, kind in KINDS.items() if name not in ("file that is large", "download", "git")}


@pytest.mark.parametrize("kind", QUICK.values(), ids=list(QUICK))
def test_a_link_that_comes_between_the_look_and_the_work_is_not_followed(
    kind: Kind, host: GraphHost | None, tmp_path: Path
) -> None:
    ground = Ground(tmp_path)
    way = ground.folder()
    ground.plant("link", ground.victim)
    before = ground.lost()
    with Swapping(way, ground.theirs / "link") as swapping:
        step = world(ground, kind, way / kind.name, host)
        for _ in range(5):
            with contextlib.suppress(StepFailed):
                step.run()
            if step.undo is not None:
                with contextlib.suppress(StepFailed):
                    step.rollback()
        step.close()
    assert swapping.times > 10
    assert ground.lost() == before


TOOLS = ("cat", "chmod", "chown", "dd", "find", "git", "ln", "mv", "sha256sum", "sync", "tar")
STEAL = """#!/bin/sh
tool=${{0##*/}} PATH={path}
find {theirs} -name '.kx-*' ! -user {uid} -prune 2>/dev/null | while read -r s; do
  mv -T "$s" "{base}/away.$$" && mkdir "$s" && echo "$s" >>{base}/stolen || continue
  ln -s {victim}/d "$s/t"; ln -s {victim}/d "$s/d"; ln -s {victim}/x "$s/x"; ln -s {victim}/d "$s/checkout"
  chown -hR {uid} "$s"
  mv -T "{base}/away.$$" "${{s%/*}}/away.$$"
done
case $tool/$* in {breaks}) exit 1 ;; esac
exec "$tool" "$@"
"""


@pytest.mark.parametrize("breaks", ["none", "mv/*|git/fetch*"], ids=["works", "breaks"])
@pytest.mark.parametrize("kind", KINDS.values(), ids=list(KINDS))
def test_a_folder_in_place_of_one_that_a_step_works_in_for_a_while_is_not_used(
    kind: Kind, breaks: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ground = Ground(tmp_path)
    way = ground.folder()
    step = world(ground, kind, way / kind.name, None)
    before = ground.lost()
    bin = tmp_path / "bin"
    bin.mkdir()
    path, uid = os.environ["PATH"], MALLORY
    text = STEAL.format(path=path, theirs=ground.theirs, base=tmp_path, victim=ground.victim, uid=uid, breaks=breaks)
    for tool in TOOLS:
        (bin / tool).write_text(text)
        (bin / tool).chmod(0o755)
    monkeypatch.setenv("PATH", f"{bin}:{path}")
    with contextlib.suppress(StepFailed):
        step.run()
    if step.undo is not None:
        with contextlib.suppress(StepFailed):
            step.rollback()
    assert ground.lost() == before
    if kind.step in ("sync", "archive") or (kind.step == "git" and breaks != "none"):
        assert (tmp_path / "stolen").exists()
    step.close()


def test_a_checkout_that_fails_takes_nothing_away_from_a_folder_in_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ground = Ground(tmp_path)
    way = ground.folder()
    (way / "checkout").mkdir()
    trees.make(ground.victim, {"checkout/.git/config": "root's\n"})
    ground.plant("link", ground.victim)
    step = world(ground, KINDS["git"], way / "checkout", None)
    before = ground.lost()
    git, path = tmp_path / "bin/git", os.environ["PATH"]
    git.parent.mkdir()
    swap = f"mv -T {way} {ground.theirs}/was; mv -T {ground.theirs}/link {way}; exit 1"
    git.write_text(f'#!/bin/sh\nPATH={path}\ncase $1 in fetch) {swap} ;; esac\nexec git "$@"\n')
    git.chmod(0o755)
    monkeypatch.setenv("PATH", f"{git.parent}:{path}")
    with pytest.raises(StepFailed):
        step.run()
    assert way.is_symlink()
    assert ground.lost() == before
    assert not (ground.theirs / "was/checkout/.git").exists(), "what it made itself is gone"
    step.close()


def test_every_step_type_is_tried_or_works_at_no_path_of_the_spec() -> None:
    ours = {info.name for info in step_registry().infos() if info.value.startswith("kubexm_steps.")}
    named = {kind.step for kind in KINDS.values()} | set().union(*ELSEWHERE.values())
    assert named == ours


@pytest.mark.parametrize("ask", ["mounts", "swap", "files of the system"])
def test_what_looks_at_a_path_refuses_a_link_on_the_way(ask: str, host: GraphHost | None, tmp_path: Path) -> None:
    ground = Ground(tmp_path)
    link = ground.plant("way", ground.victim)
    step = world(ground, KINDS["file"], ground.theirs / "x", host)
    _, ctx, _ = step._make()
    asks: dict[str, Callable[[], object]] = {
        "mounts": lambda: ctx.runner.mounts.look(f"{link}/d"),
        "swap": lambda: ctx.runner.swap.look(f"{link}/x"),
        "files of the system": lambda: look(ctx.runner._session, [f"{link}/x"]),
    }
    refused(asks[ask], link, KINDS["file"])
    ctx.close()
    step.close()


def test_a_home_is_made_through_no_link(host: GraphHost | None, tmp_path: Path) -> None:
    ground = Ground(tmp_path)
    link = ground.plant("way", ground.victim)
    before = ground.lost()
    step = world(ground, KINDS["file"], ground.theirs / "x", host)
    _, ctx, _ = step._make()
    with pytest.raises(StepFailed, match=f"{link} is a link to"):
        ctx.runner.users.make_home(f"{link}/home", MALLORY, MALLORY)
    assert ground.lost() == before
    ctx.runner.users.make_home(f"{ground.theirs}/home", MALLORY, MALLORY)
    assert (ground.theirs / "home").stat().st_uid == MALLORY
    assert not list(ground.theirs.glob(".kx*"))
    ctx.close()
    step.close()
