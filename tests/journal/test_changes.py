"""A change counts for what depends on it until that has succeeded, however often the run is killed or resumed."""

from __future__ import annotations

import signal
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.journal.forker import Forker

EXAMPLES = max(8, settings.default.max_examples // 8) if settings.default else 8
HOSTS = ("h1", "h2", "h3")
# A file (it is written even if that fails), and what must follow when it changes: a step of the task, one that is told
# of it by another step, a later task elsewhere, a hook. Each takes the file over into one of its own, and fails while
# there is a file "bad.NAME.HOST". Only the file can be undone, and no two that are made are the same.
SPEC = """apiVersion: kubexm.io/v1
kind: Pipeline
metadata: {{name: changes}}
maxFailures: {bear}
failurePolicy: {policy}
inventory: {{defaults: {{connector: local}}, hosts: [{{name: "h[1:3]"}}]}}
modules:
  - name: m
    hooks:
      post:
        - name: hook
          type: command
          when: steps['t/conf'].hosts['h3'].changed
          with: &follow
            shell: 'test ! -e "$F/bad.$N.$H" && cp "$F/conf.$H" "$F/$N.$H"'
            unless: 'cmp -s "$F/conf.$H" "$F/$N.$H"'
            env: {{F: {folder}, N: hook, H: h3, V: "{follow}"}}
    tasks:
      - name: t
        {batch}
        strategy: {strategy}
        steps:
          - name: conf
            type: command
            retry: {{attempts: 2, delay: 0s}}
            with:
              shell: 'echo "$C $$" >"$F/conf.$H"; test ! -e "$F/bad.conf.$H"'
              unless: 'test "$C" = "$(cut -d " " -f 1 "$F/conf.$H")"'
              undo: {{shell: 'rm -f "$F/conf.$H"; test ! -e "$F/bad.undo.$H"'}}
              env: {{F: {folder}, H: "{{{{ host.name }}}}", C: "{conf}"}}
          - name: tell
            type: message
            with: {{text: told}}
            outputs: {{changed: "{{{{ steps.conf.changed }}}}"}}
          - name: restart
            type: command
            when: steps.conf.changed
            with: {{<<: *follow, env: {{F: {folder}, N: restart, H: "{{{{ host.name }}}}", V: "{follow}"}}}}
          - name: reload
            type: command
            when: steps.tell.outputs.changed
            with: {{<<: *follow, env: {{F: {folder}, N: reload, H: "{{{{ host.name }}}}"}}}}
      - name: u
        runOn: h1
        steps:
          - name: later
            type: command
            when: steps['t/conf'].hosts['h2'].changed
            with: {{<<: *follow, env: {{F: {folder}, N: later, H: h2}}}}
"""


@pytest.fixture(scope="module")
def forker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forker]:
    made = Forker(tmp_path_factory.mktemp("forker"))
    yield made
    made.close()


class Site:
    """One run in its folder, with the spec as it is now."""

    def __init__(
        self, forker: Forker, folder: Path, *, batch: int = 0, strategy: str = "free", bear: str = "0",
        policy: str = "continue",
    ) -> None:  # fmt: skip
        self._forker = forker
        self.folder = folder
        self.written = {
            "folder": str(folder), "batch": f"batch: {batch}" if batch else "", "strategy": strategy, "bear": bear,
            "policy": policy, "conf": "one", "follow": "one",
        }  # fmt: skip
        self.begun = False

    def session(self, *options: str, die_at: int = 0, changed: Mapping[str, str] | None = None) -> int:
        """Run it, or go on with it; the exit code."""
        self.written |= changed or {}
        (self.folder / "spec.yaml").write_text(SPEC.format(**self.written))
        words = (
            ["kubexm", "runs", "resume", "last", *([] if "--hosts" in options else ["--accept-changes"]), *options]
            if self.begun
            else ["kubexm-run", "spec.yaml"]
        )
        code = self._forker.program(self.folder, *words, "--output", "plain", die_at=f"any:{die_at}" if die_at else "")
        self.begun = self.begun or "run  " in self.said or code >= 0
        assert code in (0, 1, 130, -signal.SIGKILL), self.said
        return code

    def roll_back(self, *, die_at: int = 0) -> int:
        """Take it back, as far as that goes; the exit code, 2 if there is nothing to undo."""
        words = ["kubexm", "runs", "rollback", "last", "--yes", "--output", "plain"]
        code = self._forker.program(self.folder, *words, die_at=f"any:{die_at}" if die_at else "")
        assert code in (0, 1, 2, -signal.SIGKILL), self.said
        return code

    @property
    def said(self) -> str:
        return (self.folder / "said").read_text()

    def fail(self, *names: str) -> None:
        """Let these fail from now on, and no others."""
        for path in self.folder.glob("bad.*"):
            path.unlink()
        for name in names:
            (self.folder / f"bad.{name}").touch()

    def followed(self) -> dict[str, str]:
        """What does not have the file as it is now, though it should."""
        wanted = [*(f"{name}.{host}" for name in ("restart", "reload") for host in HOSTS), "later.h2", "hook.h3"]
        found = {name: self._read(name) for name in wanted}
        return {name: text for name, text in found.items() if text != self._read(f"conf.{name.partition('.')[2]}")}

    def _read(self, name: str) -> str:
        path = self.folder / name
        return path.read_text() if path.exists() else "-"


@pytest.mark.parametrize("batch", [0, 1, 2])
@pytest.mark.parametrize("again", [{"follow": "two"}, {"strategy": "linear"}, {}])
def test_what_failed_is_done_after_a_change_of_an_earlier_session_whatever_is_run_again(
    forker: Forker, tmp_path: Path, batch: int, again: dict[str, str]
) -> None:
    site = Site(forker, tmp_path, batch=batch)
    site.fail("restart.h1", "restart.h2")
    assert site.session() == 1
    site.fail()
    assert site.session(*([] if again else ["--from", "m/t/conf"]), changed=again) == 0, site.said
    assert site.followed() == {}


def test_what_has_succeeded_after_a_change_does_not_follow_it_again(forker: Forker, tmp_path: Path) -> None:
    site = Site(forker, tmp_path)
    site.fail("reload.h1")
    assert site.session() == 1
    site.fail()
    (tmp_path / "restart.h1").unlink()
    assert site.session("--from", "m/t/conf") == 0
    # reload has not succeeded before, and what it hears of the change comes by another step.
    assert site.followed() == {"restart.h1": "-"}


@pytest.mark.parametrize("batch", [0, 1])
@pytest.mark.parametrize("again", [[], ["--from", "m/u"], ["--hosts", "h1"]])
def test_what_depends_on_what_was_undone_is_done_again(
    forker: Forker, tmp_path: Path, batch: int, again: list[str]
) -> None:
    site = Site(forker, tmp_path, batch=batch)
    site.fail("later.h2")
    assert site.session() == 1
    site.fail()
    assert site.roll_back() == 0
    site.session(*again)
    assert site.session() == 0, site.said
    assert site.followed() == {}, site.said


@pytest.mark.parametrize("broken", ["", "undo.h1", "undo.h3"])
def test_what_depends_on_what_the_policy_undid_is_done_again(forker: Forker, tmp_path: Path, broken: str) -> None:
    site = Site(forker, tmp_path, policy="rollback")
    site.fail("later.h2", broken or "nothing")
    assert site.session() == 1
    assert not list(tmp_path.glob("conf.*"))
    site.fail()
    assert site.session() == 0, site.said
    assert site.followed() == {}, site.said


def test_what_depends_on_what_was_undone_is_done_again_whenever_the_undo_or_the_resume_was_killed(
    forker: Forker, tmp_path: Path
) -> None:
    for undo, resume in [(2, 0), (4, 0), (5, 0), (6, 0), (0, 4), (0, 9), (0, 14)]:
        folder = tmp_path / f"{undo}.{resume}"
        folder.mkdir()
        site = Site(forker, folder)
        assert site.session() == 0, site.said
        site.roll_back(die_at=undo)
        if resume:
            site.session(die_at=resume)
            site.roll_back()
        for _ in range(2):
            code = site.session()
        assert code == 0, site.said
        assert site.followed() == {}, (undo, resume, site.said)


def test_what_was_undone_is_done_again_for_a_change_that_stands(forker: Forker, tmp_path: Path) -> None:
    (tmp_path / "spec.yaml").write_text(
        """apiVersion: kubexm.io/v1
kind: Pipeline
metadata: {name: stands}
modules:
  - name: m
    tasks:
      - name: t
        steps:
          - {name: make, type: command, with: {shell: touch made, unless: test -e made}}
          - {name: conf, type: file, when: steps.make.changed, with: {path: FOLDER/conf, content: x}}
""".replace("FOLDER", str(tmp_path))
    )
    for words in (
        ["kubexm-run", "spec.yaml"],
        ["kubexm", "runs", "resume", "last", "--from", "m/t/make"],  # nothing to do: its change is an earlier one
        ["kubexm", "runs", "rollback", "last", "--yes"],
        ["kubexm", "runs", "resume", "last"],
    ):
        assert forker.program(tmp_path, *words, "--output", "plain") == 0, (tmp_path / "said").read_text()
    assert (tmp_path / "conf").exists(), (tmp_path / "said").read_text()


def test_a_change_by_a_try_that_failed_counts(forker: Forker, tmp_path: Path) -> None:
    spec = """apiVersion: kubexm.io/v1
kind: Pipeline
metadata: {name: tries}
modules:
  - name: m
    tasks:
      - name: t
        steps:
          - name: make
            type: command
            retry: {attempts: ATTEMPTS, delay: 0s}
            with: {shell: 'touch made; test -e good || { touch good; exit 1; }', unless: test -e made}
          - {name: after, type: command, when: steps.make.changed, with: {shell: touch after}}
"""
    for attempts in (2, 1):
        folder = tmp_path / str(attempts)
        folder.mkdir()
        (folder / "spec.yaml").write_text(spec.replace("ATTEMPTS", str(attempts)))
        code = forker.program(folder, "kubexm-run", "spec.yaml", "--output", "plain")
        assert code == attempts % 2, (folder / "said").read_text()
        if code:
            assert forker.program(folder, "kubexm", "runs", "resume", "last", "--output", "plain") == 0
        assert (folder / "after").exists(), (folder / "said").read_text()


@settings(max_examples=EXAMPLES)
@given(seed=st.integers(0, 2**32))
def test_every_change_is_followed_in_the_end_whatever_was_killed_failed_changed_undone_or_run_again(
    forker: Forker, seed: int
) -> None:
    dice = Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        site = Site(
            forker, Path(folder), batch=dice.randrange(3), strategy=dice.choice(["free", "linear"]),
            bear=dice.choice(["0", "1", "100%"]), policy=dice.choice(["continue", "continue", "rollback"]),
        )  # fmt: skip
        for _ in range(dice.randint(2, 3)):
            names = [
                f"{name}.{host}" for name in ("conf", "restart", "reload", "later", "hook", "undo") for host in HOSTS
            ]
            site.fail(*dice.sample(names, dice.randint(1, 5)))
            changed = dice.choice([{}, {"follow": str(dice.random())}, {"conf": str(dice.random())}])
            begin = (
                ["--from", dice.choice(["m/t/conf", "m/t/restart", "m/u", "m/t/tell"])] if dice.random() < 0.3 else []
            )
            site.session(*(begin if site.begun else []), die_at=dice.choice([0, dice.randint(1, 30)]), changed=changed)
            if site.begun and dice.random() < 0.4:
                site.roll_back(die_at=dice.choice([0, dice.randint(1, 10)]))
        site.fail()
        for _ in range(2):
            code = site.session()
        assert code == 0, site.said
        assert site.followed() == {}, site.said
