"""Every step that works at a path, where another user may write too: it goes through none of that user's links."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from kubexm_exec.graph import GraphHost
from kubexm_exec.result import ForecastState
from kubexm_exec.step import StepFailed
from tests.lab.sshd import SSHD, ssh_host
from tests.steps import trees
from tests.steps.context import World

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="only root has something to lose to another user"),
    pytest.mark.xdist_group("planted-links"),
]

MALLORY = 54321
REFUSED = re.compile(r".* is a link to .*, in a folder that (user|group) \S+ may write|.*that everybody may write")


KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIB5SCsiJuABdSKHiJqlFBX8Y2oWq0Jp3+LNfbbJVhXw2"


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
    "archive": Kind("archive", {"localSrc": "x.tar"}, name="d", folder=True),
    "archive that is packed": Kind("archive", {"action": "pack", "src": "$PACKED"}, name="x.tar", replaces=True),
    "authorized-key": Kind("authorized-key", {"user": "root", "keys": KEY}, follows=False),
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
        return trees.read(self.victim)


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


def world(ground: Ground, kind: Kind, path: Path | str, host: GraphHost | None, **more: Any) -> World:
    more = {**kind.more, "path": str(path), **more}
    if more.get("src") == "$PACKED":
        more["src"] = f"{ground.local}/folder"
    return World(ground.local, kind.step, more, host=host)


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
    assert step.forecast().state is ForecastState.CHANGE
    step.run()
    assert (ground.lost() != before) is kind.changes
    assert step.forecast().state is ForecastState.SATISFIED
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
    before = trees.read(ground.theirs)
    step = world(ground, kind, link / kind.name, host)
    assert step.forecast().state is ForecastState.CHANGE
    step.run()
    assert step.forecast().state is ForecastState.SATISFIED
    assert not list(ground.theirs.rglob(".kx*")), "nothing is left behind"
    step.rollback()
    assert trees.read(ground.theirs) == before
    step.close()
