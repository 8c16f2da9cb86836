"""The scheduler: a pure state machine that says which (node, host) actions may run, and what becomes of the others."""

from __future__ import annotations

from collections import deque
from typing import Final, Literal

from kubexm_exec.model.graph import ExecutionFragment, ExecutionGraph, Hook
from kubexm_exec.model.result import SkipReason, Status
from kubexm_exec.scheduler.aggregate import gone, judge, lets_go, sum_up
from kubexm_exec.scheduler.grafting import Graft
from kubexm_exec.scheduler.limits import MASK
from kubexm_exec.scheduler.setup import Board
from kubexm_exec.scheduler.state import (
    BAD,
    CANCELLED,
    CONDITION,
    DEFERRED,
    DEPENDENCY,
    ENDED,
    FAILED,
    LIMIT,
    ON_FAILURE,
    PENDING,
    RUNNING,
    SUCCESS,
    VIEW,
    WAITING,
    Act,
    Action,
    Gate,
    Node,
)
from kubexm_exec.scheduler.words import EXEMPT, FORCE, STOPS, Outcome, StopReason, Transition, code_of, look_of, name_of

__all__ = ["EXEMPT", "Action", "Outcome", "Scheduler", "StopReason", "Transition"]


_IN_ANY_CASE: Final = (Hook.ON_FAILURE, Hook.ALWAYS)
"""Hooks that run wherever they can."""


class Scheduler:
    """Decides over the actions of one run; the caller runs them and tells how they end.

    An action is decided when everything it waits for has ended. It is then offered by ``ready`` within the limits, or
    skipped. No threads, no clock, no input or output: the same calls always give the same answers.
    """

    def __init__(self, graph: ExecutionGraph, *, forks: int = 50) -> None:
        self._board = Board(graph, forks)
        self._acts = self._board.acts
        self._limits = self._board.limits
        self._stops = STOPS.get(graph.failure_policy)
        self._stopped: StopReason | Literal[""] = ""
        self._unfinished = sum(len(node.at) for node in self._board.nodes.values())
        self._running = 0
        self._deferred = 0
        self._pausing = 0
        self._failed = False
        self._cut_off = False
        self._ended: deque[Act] = deque()
        self._due: deque[Gate] = deque()
        self._moves: list[tuple[str, tuple[str, ...]]] = []
        self._notes: list[tuple[str, str, Status, SkipReason | None, str, str]] = []
        for node in self._board.nodes.values():
            for act in node.at.values():
                if not act.pending:
                    self._decide(act)
            self._due.extend(gate for gate in node.parts if not gate.left)
        self._settle()

    # What the caller asks.

    @property
    def done(self) -> bool:
        """Whether every action and every gate has ended."""
        return not self._unfinished and not self._board.gates

    @property
    def running(self) -> int:
        """How many actions (and pauses) were started and neither finished nor deferred."""
        return self._running + self._pausing

    @property
    def deferred(self) -> int:
        """How many actions wait for their next attempt."""
        return self._deferred

    @property
    def pending(self) -> int:
        """How many actions have not been started, and are not skipped or cancelled."""
        return self._unfinished - self._running - self._deferred

    @property
    def stopped(self) -> StopReason | Literal[""]:
        """Why no new action starts; empty while the run goes on."""
        return self._stopped

    def status(self, node: str, host: str = "") -> Status:
        """The status of an action, or of a node or gate as a whole; ValueError if there is none of that name."""
        if host:
            return VIEW[self._find(Action(node, host)).state][0]
        known = self._board.nodes.get(node)
        if known is None:
            raise ValueError(f"no node {node}")
        if known.final:
            return known.status
        begun = known.pausing or any(act.state >= RUNNING for act in known.at.values())
        return Status.RUNNING if begun else Status.PENDING

    def run_status(self) -> Status:
        """What the run has come to; Pending or Running while it is not done."""
        if not self.done:
            begun = any(act.state >= RUNNING for act in self._board.order)
            return Status.RUNNING if begun else Status.PENDING
        if self._stopped == "cancel":
            return Status.CANCELLED
        if self._failed:
            return Status.FAILED
        return Status.CANCELLED if self._cut_off else Status.SUCCESS

    def drain(self) -> list[Transition]:
        """Every end the scheduler decided since the last call, and every end of a node or gate, in order."""
        notes, self._notes = self._notes, []
        return [Transition(*note) for note in notes]

    def moved(self) -> list[tuple[str, tuple[str, ...]]]:
        """The nodes that run once for which another host was chosen than they have, since the last call."""
        moves, self._moves = self._moves, []
        return moves

    # What the caller does.

    def ready(self) -> list[Action]:
        """What may be started now, all of it together, in graph order; it stays offered until it is started.

        What fragments add comes right behind the node that returned it. A stop takes back what it cancels.
        """
        order = self._board.order
        return [order[key & MASK].action for key in self._limits.offer()]

    def start(self, action: Action) -> None:
        """The action, which was offered, runs."""
        act = self._acts.get(action) or self._find(action)
        offered = self._limits.offered
        if act.key not in offered:
            raise ValueError(f"{name_of(action)} is not offered: {look_of(act)}")
        offered.remove(act.key)
        act.state = RUNNING
        if act.host:
            self._running += 1
        else:
            self._pausing += 1

    def finish(self, action: Action, outcome: Outcome) -> None:
        """The action, which was running, has ended; after a pause the gate opens whatever the outcome."""
        act = self._acts.get(action) or self._find(action)
        if act.state != RUNNING:
            raise ValueError(f"{name_of(action)} does not run: {look_of(act)}")
        if act.host:
            code = code_of(outcome, act.node)
            self._running -= 1
            self._limits.give_back(act.key)
            self._end(act, code)
        else:
            self._pausing -= 1
            self._end_pause(act)
        self._settle()

    def defer(self, action: Action) -> None:
        """The running action waits for its next attempt and holds no limit meanwhile; after a stop it is Cancelled."""
        act = self._find(action)
        if act.state != RUNNING or not act.host:
            raise ValueError(f"{name_of(action)} cannot wait for another attempt: {look_of(act)}")
        self._running -= 1
        self._limits.give_back(act.key)
        if act.node.spec.hook in EXEMPT[self._stopped]:
            act.state = DEFERRED
            self._deferred += 1
        else:
            self._cancel(act)
            self._settle()

    def resume(self, action: Action) -> None:
        """The deferred action wants its next attempt; nothing happens if a stop has cancelled it meanwhile."""
        act = self._find(action)
        if act.state == CANCELLED:
            return
        if act.state != DEFERRED:
            raise ValueError(f"{name_of(action)} does not wait for another attempt: {look_of(act)}")
        self._deferred -= 1
        act.state = WAITING
        self._limits.want(act.key)

    def extend(self, action: Action, fragment: ExecutionFragment) -> None:
        """Add a fragment that the running action has returned; ValueError, and nothing is changed, if it does not fit.

        Whoever waits for the action also waits for the fragment (see ``Graft``). After a stop what is new is Cancelled.
        """
        act = self._find(action)
        if act.state != RUNNING or not act.host:
            raise ValueError(f"{name_of(action)} does not run, so it cannot return a fragment: {look_of(act)}")
        graft = Graft(self._board, act, fragment.nodes)
        graft.apply()
        self._unfinished += len(graft.new)
        for new in graft.new:
            if new.node.spec.hook not in EXEMPT[self._stopped]:
                self._cancel(new)
            elif not new.pending:
                self._decide(new)
        self._due.extend(gate for gate in graft.gates.values() if not gate.left)
        self._settle()

    def stop(self, reason: StopReason) -> None:
        """Start nothing new but the hooks that belong to such an end; what runs may finish. Cancel outdoes the rest."""
        if not self.done:
            self._halt(reason)
            self._settle()

    # The machine. Ends are queued and passed on one by one (_settle), so that long chains need no recursion.

    def _find(self, action: Action) -> Act:
        act = self._acts.get(action)
        if act is None:
            raise ValueError(f"no action {name_of(action)}")
        return act

    def _settle(self) -> None:
        """Pass on every end until nothing follows from them any more; actions before gates."""
        ended, due = self._ended, self._due
        while True:
            if ended:
                act = ended.popleft()
                node, host, loud = act.node, act.host, act.state >= BAD or act.doubt is not None
                node.left -= 1
                if not node.left:
                    self._complete(node)
                for at, on in node.edges:
                    to = at.get(host)
                    if to is not None:
                        if loud or on == ON_FAILURE:
                            to.hear(act, on)
                        to.pending -= 1
                        if not to.pending:
                            self._decide(to)
                if act.edges is not None:
                    for to, on in act.edges:
                        to.hear(act, on)
                        to.pending -= 1
                        if not to.pending:
                            self._decide(to)
                if act.watch is not None:
                    for gate, _ in act.watch:
                        self._count_down(gate)
            elif due:
                self._resolve(due.popleft())
            else:
                return

    def _decide(self, act: Act) -> None:
        """All that the action waits for has ended: offer it or skip it."""
        if act.state != PENDING:
            return
        doubt, skip = act.doubt, act.node.spec.skip
        if doubt is not None and doubt.blame is not None:
            act.blame = doubt.blame
            act.shut = doubt.shut
            self._note(act, LIMIT if doubt.limit else DEPENDENCY, cause=doubt.blame[2])
        elif doubt is not None and doubt.condition:
            self._note(act, CONDITION, message="nothing failed")
        elif skip:
            self._note(act, CONDITION, message=skip)
        else:
            act.state = WAITING
            self._limits.want(act.key)

    def _note(self, act: Act, code: int, cause: str = "", message: str = "") -> None:
        """The scheduler itself ends an action."""
        status, reason = VIEW[code]
        self._notes.append((act.node.id, act.host, status, reason, cause, message))
        self._end(act, code)

    def _end(self, act: Act, code: int) -> None:
        act.state = code
        self._unfinished -= 1
        self._ended.append(act)
        if code < BAD:
            return
        node = act.node
        node.bad.append(act)
        if act.blame is None:
            act.blame = (0, node.rank, node.id)
            act.shut = code in (CANCELLED, LIMIT)
        if code == FAILED:
            node.fails += 1
            policy = node.spec.policy
            # A percentage of a fragment's hosts is not known before the last of them.
            known = node.owner is None or not policy.max_failures.endswith("%")
            if self._stops and known and node.over_budget(node.fails, len(node.at)):
                self._halt(self._stops, node.id)
        elif code == CANCELLED:
            self._cut_off = True

    def _cancel(self, act: Act, cause: str = "") -> None:
        self._note(act, CANCELLED, cause, f"stopped: {self._stopped}")

    def _halt(self, reason: StopReason, cause: str = "") -> None:
        """Cancel what has not been started and is not exempt."""
        if FORCE[reason] <= FORCE[self._stopped]:
            return
        self._stopped = reason
        exempt = EXEMPT[reason]
        waiting, pauses = [], []
        for act in self._board.order:
            if act.state >= ENDED or act.state == RUNNING:
                continue
            if not act.host:
                if act.state == WAITING:
                    self._limits.offered.remove(act.key)
                    pauses.append(act)
            elif act.node.spec.hook in exempt:
                if act.state == WAITING and act.key not in self._limits.offered:
                    waiting.append(act.key)
            else:
                if act.state == DEFERRED:
                    self._deferred -= 1
                self._limits.withdraw(act.key)
                if act.node.spec.once and act.node.host is None:
                    # It will never be chosen: the one that would have been the first is the one that is cancelled.
                    act.node.host = "".join(act.node.spec.hosts)
                if act.aside:
                    self._end(act, CONDITION)
                else:
                    self._cancel(act, cause)
        self._limits.restart(waiting)
        for act in pauses:
            self._end_pause(act)

    def _count_down(self, gate: Gate) -> None:
        gate.left -= 1
        if not gate.left:
            self._due.append(gate)

    def _resolve(self, gate: Gate) -> None:
        """All that the gate waits for has ended: open it (closed ones, too: it is judged), perhaps after a pause."""
        judge(gate)
        node = gate.node
        if node.spec.candidates and not gate.relay:
            self._choose(gate)
        if gate.limit:
            self._failed = True
            if self._stops:
                self._halt(self._stops, gate.blame[2] if gate.blame else "")
        pause = node.pause
        if pause is None or gate.relay or self._stopped or gate.blame is not None or not lets_go(gate):
            self._open(gate)
            return
        node.pausing += (gate,)
        if pause.state not in (WAITING, RUNNING):
            pause.state = WAITING
            self._limits.offered.add(pause.key)

    def _choose(self, gate: Gate) -> None:
        """Take the first host that is still in the run for the nodes that run once; if there is none, nothing runs.

        Hooks that run in every case run then, too: on the first host of all.
        """
        spec, away = gate.node.spec, gone(gate)
        host = next((host for host in spec.candidates if host not in away), "")
        if not host:
            host = spec.candidates[0]
            if gate.blame is None and not gate.unmet and spec.hook not in _IN_ANY_CASE:
                gate.blame = min(away[host] for host in spec.candidates)
                gate.failed = self._failed = True
                if self._stops:
                    self._halt(self._stops, gate.blame[2])
        for node in gate.node.group:
            if node.host is None:
                node.host = host if host in node.at else ""
                hosts = (host,) if node.host else ()
                if hosts != node.spec.hosts:
                    self._moves.append((node.id, hosts))
                for act in node.at.values():
                    if act.aside and act.state == PENDING:
                        self._end(act, CONDITION)

    def _end_pause(self, act: Act) -> None:
        act.state = SUCCESS
        gates, act.node.pausing = act.node.pausing, ()
        for gate in gates:
            self._open(gate)

    def _open(self, gate: Gate) -> None:
        """Tell those who wait for the gate how it was judged."""
        gate.ended = True
        self._board.gates -= 1
        loud = gate.blame is not None or gate.unmet or bool(gate.out)
        for acts, on in gate.targets:
            for act in acts:
                if loud or on == ON_FAILURE:
                    act.hear_gate(gate, on)
                act.pending -= 1
                if not act.pending:
                    self._decide(act)
        for then in gate.then:
            self._count_down(then)
        gate.node.left -= 1
        if not gate.node.left:
            self._complete(gate.node)

    def _complete(self, node: Node) -> None:
        """All actions of the node have ended, unless a fragment adds more."""
        for gate, _ in node.gates:
            self._count_down(gate)
        if node.owner is None and not node.children:
            self._conclude(node)
            return
        if node.owner is not None and not node.owner.final:
            return
        final = [node]
        while final:
            node = final.pop()
            if not node.final and not node.left:
                self._conclude(node)
                final.extend(reversed(node.children))

    def _conclude(self, node: Node) -> None:
        """The node has ended for good."""
        node.final = True
        node.status, reason, cause = sum_up(node)
        if node.status is Status.FAILED and not node.gate:
            self._failed = True
            if self._stops:
                self._halt(self._stops, node.id)
        self._notes.append((node.id, "", node.status, reason, cause, ""))
