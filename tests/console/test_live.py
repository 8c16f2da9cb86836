from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed: no terminal to draw on")

PLAY = Path(__file__).with_name("play.py")
PATIENCE = 30.0


class Terminal:
    """A real terminal of a given size in which something runs."""

    def __init__(self, width: int, height: int, folder: Path) -> None:
        self.name = f"kubexm-test-{uuid.uuid4().hex[:8]}"
        self.flag = folder / self.name
        self.width, self.height = width, height

    def tmux(self, *words: str) -> str:
        command = ["tmux", "-L", self.name, "-f", os.devnull, *words]
        done = subprocess.run(command, capture_output=True, timeout=PATIENCE)
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode()

    def run(self, *words: str, env: str = "") -> None:
        # The shell stays when the program has ended, so that what is left on the screen can be looked at.
        line = f"{env} TERM=tmux-256color CI= {shlex.join(words)}; echo ended with $?; exec sleep 600"
        self.tmux("new-session", "-d", "-x", str(self.width), "-y", str(self.height), line)

    def play(self, scenario: str, share: float, *more: str, env: str = "") -> None:
        """Play a run up to a share of its events, and hold there."""
        self.run(sys.executable, str(PLAY), scenario, str(share), str(self.flag), *more, env=env)

    def go_on(self) -> list[str]:
        """Let the run come to its end; gives what is on the screen then."""
        self.flag.touch()
        return self.until(has("ended with"))

    def resize(self, width: int, height: int) -> None:
        self.tmux("resize-window", "-x", str(width), "-y", str(height))

    def screen(self, *, colours: bool = False) -> list[str]:
        return self.tmux("capture-pane", "-p", *(["-e"] if colours else [])).split("\n")[:-1]

    def history(self) -> str:
        return self.tmux("capture-pane", "-p", "-J", "-S", "-")

    def cursor_is_visible(self) -> bool:
        return self.tmux("display-message", "-p", "#{cursor_flag}").strip() == "1"

    def until(self, holds: Callable[[list[str]], object], colours: bool = False) -> list[str]:
        """The screen as soon as that holds for it."""
        end = time.monotonic() + PATIENCE
        while True:
            screen = self.screen(colours=colours)
            if holds(screen):
                return screen
            assert time.monotonic() < end, "\n".join(screen)
            time.sleep(0.05)


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Callable[[int, int], Terminal]]:
    made: list[Terminal] = []

    def make(width: int, height: int) -> Terminal:
        made.append(Terminal(width, height, tmp_path))
        return made[-1]

    yield make
    for each in made:
        each.tmux("kill-server")


Make = Callable[[int, int], Terminal]


def has(text: str) -> Callable[[list[str]], bool]:
    return lambda screen: any(text in line for line in screen)


def has_line(pattern: str) -> Callable[[list[str]], bool]:
    return lambda screen: any(re.fullmatch(pattern, line) for line in screen)


def test_tree_shows_what_runs_what_waits_and_what_failed(terminal: Make) -> None:
    view = terminal(110, 30)
    view.play("failed_run", 0.74)
    screen = view.until(has("✘ configure"))
    assert screen[0][10:].startswith("FAILED     etcd/configure/env")
    assert screen[2].startswith("kubexm  create-etcd  run 01JC8ZK3M4…  3 hosts  9 nodes  forks 50   ")
    text = "\n".join(screen)
    assert "✔ prepare         3/3 hosts  3 changed  3 unchanged" in text
    assert "  ✔ certificates  3/3 hosts  3 changed" in text
    assert "  ✘ configure     3/3 hosts  node2: open /etc/etcd.env: permission denied" in text
    assert "node3: download  etcd-3.5.16 (12.1/18.4 MB)" in text
    assert "○ health          waiting for etcd" in text
    assert not view.cursor_is_visible()


def test_tree_makes_room_for_the_summary_and_the_failure_stays(terminal: Make) -> None:
    view = terminal(110, 50)
    view.play("failed_run", 0.74)
    view.until(has("kubexm  create-etcd"))
    screen = view.go_on()
    text = "\n".join(screen)
    assert "kubexm  create-etcd" not in text
    assert "  FAILED     etcd/configure/env" in screen[0]
    assert screen[2:4] == ["", "FAILED  etcd/configure/env on node2 (attempt 3 of 3, 4.7s)"]
    assert "✘ Failed  create-etcd: 23 actions on 3 hosts" in text
    assert view.cursor_is_visible()


@pytest.mark.parametrize(("width", "height"), [(80, 24), (60, 10), (40, 5), (20, 3), (200, 60)])
def test_tree_of_a_large_run_fits_any_terminal(terminal: Make, width: int, height: int) -> None:
    view = terminal(width, height)
    view.play("large_run", 0.99)
    screen = view.until(lambda lines: has("kubexm  large")(lines) and has("module08")(lines))
    assert sum("kubexm  large" in line for line in screen) == 1
    # A tree that is too tall would have left old headers in the lines that scrolled away.
    assert view.history().count("kubexm  large") == 1


def test_tree_is_drawn_anew_when_the_terminal_changes_its_size(terminal: Make) -> None:
    view = terminal(100, 30)
    view.play("failed_run", 0.74)
    view.until(has("✘ configure"))
    for width, height in ((60, 30), (100, 12), (45, 20), (120, 40)):
        view.resize(width, height)
        # Name and clock in one line again: it was drawn for this width.
        screen = view.until(has_line(rf"kubexm(?=.{{{width - 6}}}$).*\d\d:\d\d:\d\d"))
        assert sum(line.startswith("kubexm") for line in screen) == 1, "\n".join(screen)
        assert sum("○ health" in line for line in screen) == 1
        assert sum("  FAILED     etcd/configure/env" in line for line in screen) == 1


def test_interrupted_run_leaves_its_last_tree_and_a_visible_cursor(terminal: Make) -> None:
    view = terminal(100, 30)
    view.play("failed_run", 0.2)
    view.until(has("sysctl"))
    view.tmux("send-keys", "C-c")
    screen = view.until(has("ended with 130"))
    assert sum(line.startswith("kubexm") for line in screen) == 1
    assert view.cursor_is_visible()


def test_lines_are_wrapped_again_after_the_end(terminal: Make) -> None:
    view = terminal(60, 30)
    view.play("failed_run", 0.74)
    view.until(has("kubexm"))
    view.go_on()
    assert "after the fix; completed work is not repeated\n" in view.history()


def test_message_is_shown_above_the_tree(terminal: Make) -> None:
    view = terminal(110, 50)
    view.play("good_run", 0.95)
    view.until(has("kubexm"))
    screen = view.go_on()
    assert "  message    health/members/say      node1  3 members" in screen[0]
    assert "  message    health/members/say      node1  all well" in screen[1]
    assert has("✔ Success  create-etcd")(screen)


def test_output_of_steps_scrolls_by_when_it_is_asked_for(terminal: Make) -> None:
    quiet, loud = terminal(110, 50), terminal(110, 50)
    quiet.play("failed_run", 0.5)
    loud.play("failed_run", 0.5, "live", "1")
    for view in (quiet, loud):
        view.until(has("kubexm"))
    assert not has("| 200 OK")(quiet.go_on())
    assert has("  out        etcd/install/download   node1  | 200 OK")(loud.go_on())


def test_colours_can_be_refused(terminal: Make) -> None:
    plain, coloured = terminal(100, 24), terminal(100, 24)
    plain.play("large_run", 0.99, env="NO_COLOR=1")
    coloured.play("large_run", 0.99)
    # tmux puts a reset of the colour before everything else.
    assert "\x1b[" not in "".join(plain.until(has("module08"), colours=True)).replace("\x1b[39m", "")
    assert "\x1b[" in "".join(coloured.until(has("module08"), colours=True))


def test_terminal_without_unicode_gets_a_tree_of_ascii(terminal: Make) -> None:
    view = terminal(100, 24)
    view.play("large_run", 0.99, env="PYTHONIOENCODING=ascii")
    screen = view.until(has("+ 7 modules done"))
    assert has(". + ")(screen)
    assert "".join(screen).isascii()


def test_question_has_the_terminal_to_itself(terminal: Make) -> None:
    view = terminal(100, 24)
    script = """if True:
        import sys, time
        from kubexm_exec.console import make_console
        from tests.console.scenario import failed_run
        run = failed_run()
        console = make_console("live", run.graph, sys.stdout, color=None, verbose=0)
        for event in run.events[:8]:
            console(event)
        time.sleep(0.3)
        with console.suspended():
            answer = input("really? ")
            time.sleep(0.3)
        console.output.write(f"answer {answer}\\n")
        time.sleep(0.3)
        input()
        console.close(None)
    """
    view.run(sys.executable, "-c", script, env=f"PYTHONPATH={PLAY.parents[2]}")
    screen = view.until(has("really?"))
    assert not has("kubexm")(screen)
    assert view.cursor_is_visible()
    view.tmux("send-keys", "yes", "Enter")
    screen = view.until(lambda lines: has("answer yes")(lines) and has("kubexm  create-etcd")(lines))
    assert screen[0] == "really? yes"
    assert screen[1] == "answer yes"
    assert screen[2].startswith("kubexm  create-etcd")
