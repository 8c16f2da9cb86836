"""The scheduler: a pure state machine that decides which actions may run, and the outcome of those that may not."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, Literal

from kubexm_exec.model.graph import ExecutionFragment, ExecutionGraph, Hook
from kubexm_exec.model.result import Status
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
    IGNORED,
    LIMIT,
    ON_FAILURE,
    PENDING,
    PRECHECK,
    RESCUABLE,
    RESCUED,
    RUNNING,
    SPARED,
    SUCCESS,
    VIEW,
    WAITING,
    Act,
    Action,
    Gate,
    Node,
    Rescue,
)
from kubexm_exec.scheduler.words import EXEMPT, FORCE, STOPS, Outcome, StopReason, Transition, code_of, look_of, name_of

__all__ = ["EXEMPT", "Action", "Outcome", "Scheduler", "StopReason", "Transition"]


_IN_ANY_CASE: Final = (Hook.ON_FAILURE, Hook.ALWAYS)
"""Hooks that run wherever they can."""
NOT_NOTIFIED: Final = "not notified: nothing changed"
"""Why a handler does not run."""
_MOST_NAMES: Final = 4


class Scheduler:
    """Schedules the actions of one run; the caller performs them and reports their outcomes.

    An action is decided when everything it waits for has ended. It is then offered by ``ready`` within the limits, or
    skipped. No threads, no clock, no input or output: the same calls always give the same answers.
    """

    def __init__(
        self,
        graph: ExecutionGraph,
        *,
        forks: int = 50,
        due: Iterable[tuple[str, str, str]] = (),
        late: Mapping[Action, Sequence[tuple[str, str]]] | None = None,
        owed: Iterable[Action] = (),
    ) -> None:
        """``due``: notifications that were not served before: handler, host, and the node that made it.

        ``late``: those that are due where an action stands, as soon as it has ended, also if there is no reason to do
        it again: handlers, each with the node that notified it. Those of its own handler the action serves itself.
        ``owed``: actions that are to run even if nothing begins that they wait for: it did in an earlier session.
        """
        self._board = Board(graph, forks)
        self._acts = self._board.acts
        for action in owed:
            if action in self._acts:
                self._acts[action].owed = True
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
        self._over: list[Rescue] = []
        """Groups that have ended on a host with their rescue."""
        self._needless: list[Act] = []
        """Actions of rescues for which there is no reason so far: the end of a group may be one."""
        self._handled: list[Action] = []
        self._moves: list[tuple[str, tuple[str, ...]]] = []
        self._places: list[tuple[Action, str]] = []
        self._notes: list[Transition] = []
        self._notified: dict[tuple[str, str], set[str]] = {}
        """Notifications that nobody serves yet: by handler and host the nodes that made them."""
        self._serving: dict[Act, set[str]] = {}
        """Those that an action of a handler serves, from when it is decided until it ends."""
        self._late: dict[Action, Sequence[tuple[str, str]]] = dict(late or {})
        for handler, host, source in due:
            self._notify(handler, host, source)
        for node in self._board.nodes.values():
            for act in node.at.values():
                if not act.pending:
                    self._decide(act)
            for gate in node.parts:
                if not gate.left:
                    self._due.append(gate)
        self._settle()

    # Queries.

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
        """The status of the run; Pending or Running until it is done."""
        if not self.done:
            begun = any(act.state >= RUNNING for act in self._board.order)
            return Status.RUNNING if begun else Status.PENDING
        if self._stopped == "cancel":
            return Status.CANCELLED
        if self._failed:
            return Status.FAILED
        return Status.CANCELLED if self._cut_off else Status.SUCCESS

    def drain(self) -> list[Transition]:
        """Outcomes that the scheduler decided since the last call, including those of nodes and gates, in order."""
        notes, self._notes = self._notes, []
        return notes

    def moved(self) -> list[tuple[str, tuple[str, ...]]]:
        """The nodes that run once for which another host was chosen than they have, since the last call."""
        moves, self._moves = self._moves, []
        return moves

    def rescued(self) -> list[Action]:
        """The actions that failed, or were skipped because of that, and whose failure a rescue has handled."""
        handled, self._handled = self._handled, []
        return handled

    def serving(self, action: Action) -> tuple[str, ...]:
        """The nodes whose notifications a running action of a handler serves if it ends well."""
        return tuple(sorted(self._serving.get(self._find(action), ())))

    def has_reason(self, action: Action) -> bool:
        """Whether what an offered action waits for by a condition, such as a failure, has happened in this session."""
        doubt = self._find(action).doubt
        return doubt is None or not doubt.condition

    def placed(self) -> list[tuple[Action, str]]:
        """The actions for which another place was chosen than the first, since the last call, with that place."""
        places, self._places = self._places, []
        return places

    def places(self, action: Action) -> Iterator[str]:
        """The places that an action can have, the best first; hooks that run in any case can have any of them."""
        act = self._find(action)
        yield from (place for place in act.places if not act.is_gone(place))
        if act.node.spec.hook in _IN_ANY_CASE:
            yield from (place for place in act.places if act.is_gone(place))

    # Events.

    def ready(self) -> list[Action]:
        """All actions that may start now, in graph order; each stays offered until it is started.

        What fragments add comes right behind the node that returned it. A stop takes back what it cancels.
        """
        order = self._board.order
        return [order[key & MASK].action for key in self._limits.offer()]

    def start(self, action: Action) -> None:
        """An offered action has started."""
        act = self._acts.get(action) or self._find(action)
        offered = self._limits.offered
        if act.key not in offered:
            raise ValueError(f"{name_of(action)} is not offered: {look_of(act)}")
        offered.remove(act.key)
        act.state = RUNNING
        if self._serving and act in self._serving:
            # What was notified while it waited is served with the rest.
            self._serving[act] |= self._notified.pop((act.node.spec.handler, act.host), set())
        if act.host:
            self._running += 1
        else:
            self._pausing += 1

    def finish(self, action: Action, outcome: Outcome) -> None:
        """A running action has ended; after a pause the gate opens regardless of the outcome."""
        act = self._acts.get(action) or self._find(action)
        if act.state != RUNNING:
            raise ValueError(f"{name_of(action)} does not run: {look_of(act)}")
        if act.host:
            code = code_of(outcome, act.node)
            if outcome.begun and code != CONDITION:
                act.begun = True
            act.unknown = outcome.unknown and code == FAILED
            self._running -= 1
            self._limits.give_back(act.key)
            self._end(act, code)
            if outcome.notifies:
                for handler in act.node.spec.notifies if outcome.handlers is None else outcome.handlers:
                    self._notify(handler, act.host, act.node.id)
        else:
            self._pausing -= 1
            self._end_pause(act)
        self._settle()

    def defer(self, action: Action, *, begun: bool = True) -> None:
        """A running action waits for its next attempt and releases its limits; after a stop it is Cancelled.

        ``begun``: it may have done something.
        """
        act = self._find(action)
        if act.state != RUNNING or not act.host:
            raise ValueError(f"{name_of(action)} cannot wait for another attempt: {look_of(act)}")
        self._running -= 1
        self._limits.give_back(act.key)
        act.begun |= begun
        if act.node.spec.hook in EXEMPT[self._stopped]:
            act.state = DEFERRED
            self._deferred += 1
        else:
            self._cancel(act)
            self._settle()

    def resume(self, action: Action) -> None:
        """A deferred action is ready for its next attempt; ignored if a stop has cancelled it meanwhile."""
        act = self._find(action)
        if act.state == CANCELLED:
            return
        if act.state != DEFERRED:
            raise ValueError(f"{name_of(action)} does not wait for another attempt: {look_of(act)}")
        self._deferred -= 1
        act.state = WAITING
        self._limits.want(act.key)

    def move(self, action: Action, place: str) -> bool:
        """The running action has done nothing and is to be done at another of its places, as soon as there is room.

        False if a stop has cancelled it instead.
        """
        act = self._find(action)
        if place not in act.places:
            raise ValueError(f"{name_of(action)} cannot be done at {place}")
        self.defer(action, begun=False)
        if act.state != DEFERRED:
            return False
        self._board.move(act, place)
        self.resume(action)
        return True

    def extend(self, action: Action, fragment: ExecutionFragment) -> None:
        """Add a fragment that the running action has returned; ValueError, and nothing is changed, if it does not fit.

        Dependents of the action also wait for the fragment (see ``Graft``). After a stop, new actions are Cancelled.
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
        self._due.extend(graft.open_gates())
        self._settle()

    def stop(self, reason: StopReason) -> None:
        """Start only the hooks for this kind of end; running actions may finish. Cancel takes precedence."""
        if not self.done:
            self._halt(reason)
            self._settle()

    # The state machine. Outcomes are queued and propagated one by one (_settle): long chains need no recursion.

    def _find(self, action: Action) -> Act:
        act = self._acts.get(action)
        if act is None:
            raise ValueError(f"no action {name_of(action)}")
        return act

    def _settle(self) -> None:
        """Propagate outcomes until nothing changes; actions before gates, and both before the ends of groups.

        Last come rescues without a reason: a group inside theirs may have ended, and its failure is one.
        """
        ended, due = self._ended, self._due
        while True:
            if ended:
                act = ended.popleft()
                if act.rescues:
                    self._leave_groups(act)
                    continue
                node, host, loud = act.node, act.host, act.state >= BAD or act.doubt is not None
                node.left -= 1
                if not node.left:
                    self._complete(node)
                for at, on in node.edges:
                    to = at.get(host)
                    if to is not None:
                        if loud or on >= ON_FAILURE:
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
            elif self._over:
                self._end_rescues()
            elif self._needless:
                needless, self._needless = self._needless, []
                for act in needless:
                    self._decide(act, last=True)
            else:
                return

    def _leave_groups(self, act: Act) -> None:
        """An action of groups has ended: outside a group nobody hears of a bad end before its rescue has ended."""
        left, told = act.heard or (0, ())
        act.heard = None
        for number, (rescue, body) in enumerate(act.rescues[left:], left + 1):
            holds = body and act.state in RESCUABLE and not act.unknown
            rescue.unknown |= act.unknown
            if holds:
                rescue.held.append(act)
                rescue.failed |= act.state == FAILED
            elif not body:
                rescue.broken |= act.state >= BAD
            rescue.left -= 1
            if not rescue.left:
                self._over.append(rescue)
            if holds:
                act.heard = number, (*told, rescue)
                self._tell(act, told, inside=rescue)
                return
        if not left and act.state in RESCUABLE:
            self._count(act)
        act.node.left -= 1
        if not act.node.left:
            self._complete(act.node)
        self._tell(act, told)

    def _tell(self, act: Act, told: tuple[Rescue, ...], inside: Rescue | None = None) -> None:
        """Tell who waits for an ended action: all, or those inside a group; not those who know by now."""

        def hears(to: Act | Gate) -> bool:
            return (inside is None or to.is_inside(inside)) and not any(map(to.is_inside, told))

        waiting = [(at[act.host], on) for at, on in act.node.edges if act.host in at]
        for to, on in [*waiting, *(act.edges or ())]:
            if hears(to):
                to.hear(act, on)
                to.pending -= 1
                if not to.pending:
                    self._decide(to)
        for gate, _ in act.watch or ():
            if hears(gate):
                self._count_down(gate)

    def _end_rescues(self) -> None:
        """Groups have ended on their hosts: failures in them were handled, or they count before anybody hears of them.

        All at once, so that what a stop finds does not depend on which of them came first.
        """
        over, self._over = self._over, []
        for rescue in over:
            for act in rescue.held if rescue.succeeds else ():
                self._handled.append(act.action)
                if act.state == FAILED:
                    act.state = RESCUED
                elif act.blame is not None:
                    act.node.spared.append(act.blame)
                    act.state = SPARED
                act.blame, act.shut = None, False
        held = [act for rescue in over for act in rescue.held]
        for act in held:
            if act.state in RESCUABLE and not act.is_held_further:
                self._count(act)
        self._ended.extend(held)

    def _decide(self, act: Act, *, last: bool = False) -> None:
        """All dependencies of an action have ended: offer it or skip it; ``last``: all that follows is known."""
        if act.state != PENDING:
            return
        doubt, skip = act.doubt, act.node.spec.skip
        if doubt is not None and doubt.blame is not None:
            act.blame = doubt.blame
            act.shut = doubt.shut
            self._note(act, LIMIT if doubt.limit else DEPENDENCY, cause=doubt.blame[2])
        elif act.rescues and act.awaited and not last:
            self._needless.append(act)
        elif act.rescues and act.awaited:
            of = next(rescue for rescue, body in act.rescues if not body and not rescue.is_due)
            why = f"runs only if a step of the group {of.group} fails"
            if of.unknown:
                why = f"the outcome of a step of the group {of.group} is unknown"
            self._note(act, CONDITION, message=why)
        elif doubt is not None and doubt.condition and not act.owed:
            hoped = "nothing had begun" if act.node.spec.hook is Hook.ALWAYS else "nothing failed"
            self._note(act, CONDITION, message=hoped)
        elif skip:
            self._note(act, CONDITION, message=skip)
        elif act.node.spec.handler and not self._claim(act):
            self._note(act, CONDITION, message=NOT_NOTIFIED)
        elif not act.places or self._take_place(act):
            act.state = WAITING
            self._limits.want(act.key)

    def _notify(self, handler: str, host: str, source: str) -> None:
        """A node has changed something on a host: the handler is due there, if it has that host."""
        node = self._board.nodes.get(handler)
        if node is not None and host in node.at:
            self._notified.setdefault((handler, host), set()).add(source)

    def _claim(self, act: Act) -> bool:
        """Have an action of a handler serve what is due; False if nothing is, or another action serves it already."""
        handler = act.node.spec.handler
        for name, source in self._late.get(act.action, ()) if self._late else ():
            if name == handler:
                self._notify(handler, act.host, source)
        sources = self._notified.pop((handler, act.host), None)
        if sources is None:
            return False
        self._serving[act] = sources
        return True

    def _take_place(self, act: Act) -> bool:
        """Choose the place of an action; if none of them is left in the run, the action has failed."""
        place = next(self.places(act.action), "")
        if not place:
            names = ", ".join(act.places[:_MOST_NAMES]) + (", ..." if len(act.places) > _MOST_NAMES else "")
            code = IGNORED if act.node.spec.policy.ignore_errors else FAILED
            self._note(act, code, message=f"no place is left in the run to do it for {act.host}: {names}")
        elif place != act.node.spec.place(act.host):
            self._board.move(act, place)
            self._places.append((act.action, place))
        return bool(place)

    def _note(self, act: Act, code: int, cause: str = "", message: str = "") -> None:
        """Set the outcome of an action that is not performed."""
        status, reason = VIEW[code]
        self._notes.append(Transition(act.node.id, act.host, status, reason, cause, message))
        self._end(act, code)

    def _end(self, act: Act, code: int) -> None:
        act.state = code
        self._unfinished -= 1
        self._ended.append(act)
        if self._serving and act in self._serving:
            sources = self._serving.pop(act)
            if code not in (SUCCESS, PRECHECK):
                # Only success serves: the handler stays due.
                self._notified.setdefault((act.node.spec.handler, act.host), set()).update(sources)
        if self._late:
            for handler, source in self._late.pop(act.action, ()):
                if handler != act.node.spec.handler:
                    self._notify(handler, act.host, source)
        if code < BAD:
            return
        if act.blame is None:
            act.blame = (0, act.node.rank, act.node.id)
            act.shut = code in (CANCELLED, LIMIT)
        if not act.rescues or code not in RESCUABLE:
            self._count(act)

    def _count(self, act: Act) -> None:
        """An action has ended badly, and no rescue handles it."""
        node, code = act.node, act.state
        node.bad.append(act)
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
        """Cancel actions that have not started, unless they are exempt."""
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
        """All dependencies of a gate have ended: evaluate it and open it, possibly after a pause."""
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
        """Propagate the result of a gate to its dependents."""
        gate.ended = True
        self._board.gates -= 1
        loud = gate.blame is not None or gate.unmet or bool(gate.out)
        for acts, on in gate.targets:
            for act in acts:
                if loud or on >= ON_FAILURE:
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
        """The node is final: no fragment can add to it."""
        node.final = True
        node.status, reason, cause = sum_up(node)
        if node.status is Status.FAILED and not node.gate:
            self._failed = True
            if self._stops:
                self._halt(self._stops, node.id)
        self._notes.append(Transition(node.id, "", node.status, reason, cause))
