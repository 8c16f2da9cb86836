"""What is at the paths of later steps, asked for together with the first of them: one question for many steps."""

from __future__ import annotations

import itertools
import math
import posixpath
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Final

from kubexm_exec.connectors.thirdparty import Loads
from kubexm_exec.engine.attempt import Attempt
from kubexm_exec.model.errors import StepFailed
from kubexm_exec.model.graph import ExecutionGraph, ExecutionNode, NodeID
from kubexm_exec.plugins import RegistryError
from kubexm_exec.runner.files.filestate import FileState
from kubexm_exec.runner.session import Ask
from kubexm_exec.values.evaluate import Evaluator
from kubexm_exec.values.expressions import UnknownValueError, is_dynamic

_FIRST_SPAN: Final = 16
_WIDEST: Final = 64
"""Later steps whose files are looked at together with one."""
_FAR: Final = 200
"""How many later steps are looked through for those."""
_MOST_BYTES: Final = 12 << 10
"""Of paths, so that all of them go into one command."""
_GOOD_FOR: Final = 1.0
"""Seconds: others may change a host too, and a step should not know much less of that than if it looked itself."""


class Prefetch:
    """What the prechecks of a run may know of files that an earlier precheck has seen.

    All of it is forgotten as soon as a step of the run is at work, on whatever host, so that nobody is told of files as
    they were before something was done; a step that only replaces one file leaves what was seen on other machines, and
    of the other files in its folder (a tenth of the work of a first run of templates). Actions go to work without a
    lock: each value of ``_turn`` is given once.
    """

    def __init__(self, graph: ExecutionGraph, steps: Loads, evaluator: Evaluator) -> None:
        self._graph = graph
        self._steps = steps
        self._evaluator = evaluator
        self._numbers = itertools.count(1)
        self._turn = 0
        self._at_work: set[Attempt] = set()
        self._sights: dict[str, Sight] = {}
        self._replaced: dict[tuple[str, int | None], _Replaced] = {}

    def begin(self, attempt: Attempt, replaces: str = "") -> None:
        """A step is at work from now on, and only replaces that file if there is one.

        No context manager, which would be a twentieth of an action that does nothing. If the step never ends, all look
        for themselves.
        """
        if replaces:
            self._on_machine(attempt.place).note(attempt, replaces)
        else:
            self._at_work.add(attempt)
            self._turn = next(self._numbers)

    def end(self, attempt: Attempt, replaces: str = "") -> None:
        """The step has ended."""
        if replaces:
            self._on_machine(attempt.place).note(attempt, replaces, time.monotonic())
        else:
            self._at_work.discard(attempt)
            self._turn = next(self._numbers)

    def of(self, attempt: Attempt, looking: Callable[[], bool]) -> Ahead:
        """For one attempt, which may use it while ``looking`` says so."""
        sight = self._sights.get(attempt.host)
        if sight is None:
            sight = self._sights.setdefault(attempt.host, Sight(self._on_machine(attempt.host)))
        return Ahead(self, attempt, looking, sight)

    def _on_machine(self, host: str) -> _Replaced:
        return self._replaced.setdefault(self._graph.hosts[host].machine, _Replaced())

    def turn(self) -> int:
        """Changes whenever a step begins or ends to work; 0 while one is at work."""
        turn = self._turn
        return 0 if self._at_work else turn or -1

    def after(self, node: NodeID, host: str) -> Iterator[str]:
        """The paths that later steps of the host will ask about first, as far as they are known now."""
        steps, places = self._looks
        at = places.get(node)
        if at is None:
            return
        for later, hosts, keys in itertools.islice(steps, at + 1, at + 1 + _FAR):
            if host in hosts:
                for key in keys:
                    if path := self._path(later, key, host):
                        yield path

    @cached_property
    def _looks(self) -> tuple[list[tuple[ExecutionNode, frozenset[str], frozenset[str]]], dict[NodeID, int]]:
        """The steps that look at files, in the order of the graph, and where each of them is in it."""
        from kubexm_exec.compile.types import marks_of

        steps: list[tuple[ExecutionNode, frozenset[str], frozenset[str]]] = []
        shared: dict[tuple[str, ...], frozenset[str]] = {}
        for node in list(self._graph.steps()):
            if node.when is not None or node.guards or node.become is not None or node.places:
                continue  # it may never be asked for anything, or another user may see something else, or elsewhere
            try:
                keys = marks_of(self._steps.load(node.step_name).params_model).inspected
            except RegistryError:
                continue  # it says so itself
            if keys:
                steps.append((node, shared.setdefault(node.hosts, frozenset(node.hosts)), keys))
        return steps, {node.id: number for number, (node, _, _) in enumerate(steps)}

    def _path(self, node: ExecutionNode, key: str, host: str) -> str:
        path = node.with_.get(key)
        if isinstance(path, str) and is_dynamic(path):
            try:
                context = self._evaluator.context(node, host, facts=_NotNow())
                path = self._evaluator.expressions.render(path, context)
            except Exception:  # noqa: BLE001  whatever it is, the step itself will say it
                return ""
        return path if isinstance(path, str) and path.startswith("/") and "\0" not in path else ""


class _NotNow(Mapping[str, Any]):
    """Facts that nobody asks the host for only to look ahead."""

    def __getitem__(self, name: str) -> Any:
        raise UnknownValueError(f"facts.{name}", "it is not asked for yet")

    def __iter__(self) -> Iterator[str]:
        raise UnknownValueError("facts", "they are not asked for yet")

    def __len__(self) -> int:
        raise UnknownValueError("facts", "they are not asked for yet")


class _Replaced:
    """The files that steps have replaced on a machine a moment ago, or replace now."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._files: dict[Attempt, tuple[str, float]] = {}

    def note(self, attempt: Attempt, path: str, ended: float = math.inf) -> None:
        """An attempt replaces a file, or has done so."""
        since = time.monotonic() - _GOOD_FOR
        with self._lock:
            self._files = {each: file for each, file in self._files.items() if file[1] > since}
            self._files[attempt] = path, ended

    def spares(self, path: str, at: float) -> bool:
        """Whether what was seen there then is still so: through a link, one in another folder may be the same file."""
        folder = posixpath.dirname(path)
        with self._lock:
            return all(
                ended < at or (posixpath.dirname(file) == folder and file.casefold() != path.casefold())
                for file, ended in self._files.values()
            )


class Sight:
    """What was seen on one host."""

    def __init__(self, replaced: _Replaced) -> None:
        self._replaced = replaced
        self._lock = threading.Lock()
        self._turn = 0
        self._seen: dict[str, tuple[float, FileState]] = {}
        self._span = _FIRST_SPAN
        self._asking: set[str] = set()

    def known(self, paths: Sequence[str], turn: int) -> list[FileState] | None:
        """What was seen at the paths in this turn, a moment ago, if that was all of them."""
        since = time.monotonic() - _GOOD_FOR
        with self._lock:
            if self._turn != turn:
                # Nobody asked for what was seen the last time, or only the first of them.
                self._span //= 4 if self._turn else 1
                self._turn, self._seen = turn, {}
                return None
            found = [self._seen.get(path, (0.0, None)) for path in paths]
            fresh = [(at, state) for at, state in found if state is not None and at > since]
            states = [state for at, state in fresh if self._replaced.spares(state.path, at)]
            if len(states) == len(paths):
                return states
            if len(states) < len(fresh):
                self._span //= 4
            elif self._seen:
                self._span = min(_WIDEST, max(4, 2 * self._span))
            return None

    def ask_for(self, paths: Sequence[str], later: Iterable[str]) -> list[str]:
        """Which paths of later steps are to be asked for together with these; nobody else asks for them meanwhile."""
        room = _MOST_BYTES
        found: dict[str, None] = {}
        with self._lock:
            for path in itertools.islice(later, self._span):
                if path not in found and path not in paths and path not in self._asking:
                    room -= len(path.encode("utf-8", "surrogateescape")) + 1
                    if room < 0:
                        break
                    found[path] = None
            return self._take(found)

    def _take(self, paths: Iterable[str]) -> list[str]:
        self._asking.update(paths)
        return list(paths)

    def answered(self, more: Sequence[str], states: Sequence[FileState], turn: int, began: float) -> None:
        """What was asked for has been seen; without states, that did not work."""
        with self._lock:
            self._asking.difference_update(more)
            if not states:
                self._span = 0
            elif self._turn == turn:
                for state in states:
                    if state.kind != "file" or state.sha256:
                        self._seen[state.path] = began, state


class Ahead:
    """One attempt's view of it."""

    def __init__(self, prefetch: Prefetch, attempt: Attempt, looking: Callable[[], bool], sight: Sight) -> None:
        self._prefetch = prefetch
        self._attempt = attempt
        self._looking = looking
        self._sight = sight

    def inspect(self, paths: Sequence[str], ask: Ask, *, digest: bool) -> list[FileState]:
        """The states of the paths, which may have been seen before."""
        turn = self._prefetch.turn() if self._looking() else 0
        if not turn:
            return ask(paths, digest=digest)
        sight, attempt = self._sight, self._attempt
        states = sight.known(paths, turn)
        if states is not None:
            return states
        began = time.monotonic()
        more = sight.ask_for(paths, self._prefetch.after(attempt.node.id, attempt.host))
        states = []
        try:
            states = ask(paths, digest=digest, more=more)
        except StepFailed:
            if not more:
                raise
        finally:
            sight.answered(more, states, turn, began)
        # It may have been because of a path that is not ours; whose it is will say so.
        return states[: len(paths)] or ask(paths, digest=digest)
