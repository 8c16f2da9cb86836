"""A slow reference for the scheduler: it works everything out again each time, from the definitions and the events.

It shares no code with the scheduler. There are no counters and no queues: an action or a gate asks those it waits for.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from kubexm_exec.model.graph import ExecutionGraph, ExecutionNode, FailurePolicy, Hook, On, Part, Policy
from tests.scheduler.definitions import Act, Definition, Definitions, Door, Look

Blame = tuple[int, int, str]

GOOD = {"Success", "Skipped precheck", "Skipped condition", "Failed ignored", "Failed rescued", "Skipped rescued"}
RESCUABLE = {"Failed", "Skipped dependency"}


@dataclass(frozen=True)
class End:
    """How an action ended."""

    what: str
    blame: Blame | None = None
    shut: bool = False
    message: str = ""
    out: dict[str, Blame] = field(default_factory=dict)
    """Hosts that failed in something that it waited for, directly or over others, and so have left the run."""
    spared: Blame | None = None
    """Why it was skipped, although a rescue has handled that."""

    @property
    def good(self) -> bool:
        return self.what in GOOD


@dataclass
class DoorEnd:
    """How a gate was judged."""

    failed: bool = False
    limit: bool = False
    unmet: bool = False
    blame: Blame | None = None
    out: dict[str, Blame] = field(default_factory=dict)
    fails: dict[str, tuple[int, set[str]]] = field(default_factory=dict)
    seen: dict[str, set[str]] = field(default_factory=dict)
    chosen: str = ""
    """The host for what runs once."""
    nobody: bool = False
    """There was no host left for what runs once."""


def nearest(*blames: Blame | None) -> Blame | None:
    """The least one."""
    return min((blame for blame in blames if blame is not None), default=None)


def all_further(out: dict[str, Blame]) -> dict[str, Blame]:
    """All of them seen over one edge more."""
    return {host: (blame[0] + 1, *blame[1:]) for host, blame in out.items()}


def add_out(known: dict[str, Blame], more: dict[str, Blame]) -> None:
    """The nearest blame for each host."""
    for host, blame in more.items():
        known[host] = min(blame, known.get(host, blame))


def one_further(blame: Blame | None) -> Blame | None:
    """Seen over one edge more."""
    return None if blame is None else (blame[0] + 1, *blame[1:])


class Model(Definitions):
    """The graph as definitions, the events as sets."""

    def __init__(
        self,
        graph: ExecutionGraph,
        forks: int,
        due: Iterable[tuple[str, str, str]] = (),
        owed: Iterable[Act] = (),
        late: Iterable[tuple[Act, Iterable[tuple[str, str]]]] = (),
    ) -> None:
        super().__init__(graph)
        self.forks = forks
        self.late: dict[Act, list[tuple[str, str]]] = {act: list(more) for act, more in late}
        """Handlers that are due from the end of an action on, each with the node that notified it."""
        self.owed: set[Act] = set(owed)
        self.begun: set[Act] = set()
        """What may have done something."""
        self.moved: dict[Act, str] = {}
        """Where actions are done that could not be done where they should have been."""
        self._parts: dict[tuple[str, str, Part, int], list[Act]] = {}
        """The actions of each part of a group on a host; there are more after a fragment."""
        self.finished: dict[Act, End] = {}
        self.running: set[Act] = set()
        self.deferred: set[Act] = set()
        self.offered: set[Act] = set()
        self.paused: set[Door] = set()
        """Gates whose pause is over."""
        self.pauses: dict[str, str] = {}
        """Pauses that are under way: gate -> offered | running."""
        self.placed: dict[str, str] = {}
        """Nodes that run once and were cancelled before a host was chosen: where they would have run."""
        self.notified: dict[Act, set[str]] = {}
        """By handler and host the nodes whose notifications nobody serves."""
        self.serving: dict[Act, set[str]] = {}
        """Those that an action of a handler serves, from when it could start until it ended."""
        self.verdicts: dict[tuple[str, str], bool] = {}
        """The groups that have ended on a host, and whether their rescue has handled what failed there."""
        self.unneeded: set[Act] = set()
        """Actions of rescues for which there was no reason when they could have started."""
        self.idle: set[Act] = set()
        """Actions of handlers that were not due when they could have started."""
        for handler, host, source in due:
            self._notify(handler, host, source)
        self.stopped = ""
        self.ends: dict[Act, End] = {}
        self.opened: dict[Door, DoorEnd] = {}
        self.go: list[Act] = []
        self.refresh()

    # Events

    def start(self, act: Act) -> None:
        if act[1]:
            self.offered.remove(act)
            self.running.add(act)
            if act in self.serving:
                self.serving[act] |= self.notified.pop((self.nodes[act[0]].handler, act[1]), set())
        else:
            self.pauses[act[0]] = "running"
        self.refresh()

    def finish(self, act: Act, what: str, *, notifies: bool = False, begun: bool = True) -> None:
        if not act[1]:
            self._end_pause(act[0])
            self.refresh()
            return
        node = self.nodes[act[0]]
        self.running.remove(act)
        if begun and what != "Skipped condition":
            self.begun.add(act)
        if what == "Failed" and node.policy.ignore_errors:
            what = "Failed ignored"
        for source in self.serving.pop(act, ()):
            if what not in ("Success", "Skipped precheck"):
                self._notify(node.handler, act[1], source)
        for handler in node.notifies if notifies else ():
            self._notify(handler, act[1], node.id)
        blame = (0, self.place[node.id], node.id) if what in ("Failed", "Cancelled") else None
        self.finished[act] = self.ends[act] = End(what, blame, shut=what == "Cancelled")
        if what == "Failed" and not any(part is Part.BODY for _, part in self.rescues_of(act)):
            self._count({act})
        self.refresh()

    def _counted(self) -> set[Act]:
        """The actions that have failed, apart from those of which a rescue may yet say otherwise."""
        failed = [act for act, end in self.finished.items() if end.what == "Failed"]
        return {act for act in failed if (end := self._left(act)) is not None and end.what == "Failed"}

    def _count(self, new: set[Act]) -> None:
        """Stop the run if these are too many failures of a node, together with those that counted before."""
        if self.graph.failure_policy is FailurePolicy.CONTINUE:
            return
        counted = self._counted() | new
        for name in {act[0] for act in new}:
            failures = sum(act[0] == name for act in counted)
            if failures > self.nodes[name].policy.budget(len(self.hosts[name])):
                self._halt(self.graph.failure_policy.value)

    def _notify(self, handler: str, host: str, source: str) -> None:
        if host in self.hosts.get(handler, ()):
            self.notified.setdefault((handler, host), set()).add(source)

    def _end_pause(self, gate: str) -> None:
        del self.pauses[gate]
        self.paused |= {door for door in self.doors if door[0] == gate}

    def defer(self, act: Act, *, begun: bool = True) -> None:
        self.running.remove(act)
        if begun:
            self.begun.add(act)
        if self.stopped and not self._exempt(act[0]):
            self.finished[act] = self._cancelled(act)
        else:
            self.deferred.add(act)
        self.refresh()

    def resume(self, act: Act) -> None:
        if act in self.deferred:
            self.deferred.remove(act)
            self.refresh()

    def move(self, act: Act, place: str) -> None:
        self.defer(act, begun=False)
        if act in self.deferred:
            self.moved[act] = place
            self.resume(act)

    def extend(self, act: Act, nodes: Sequence[ExecutionNode]) -> None:
        for new in self.graft(act, nodes, self.ends):
            if self.stopped and not self._exempt(new[0]):
                self.finished[new] = self._cancelled(new)
        self.refresh()

    def stop(self, reason: str) -> None:
        if not self.done:
            self._halt(reason)
            self.refresh()

    def _halt(self, reason: str) -> None:
        force = ["", "failFast rollback", "cancel"]
        strength = {word: number for number, words in enumerate(force) for word in words.split() or [""]}
        if strength[reason] <= strength[self.stopped]:
            return
        self.stopped = reason
        for act in self.needs:
            if act not in self.ends and act not in self.running and not self._exempt(act[0]):
                node = self.nodes[act[0]]
                if node.once and self.host_of(node.id) is None:
                    self.placed[node.id] = node.hosts[0] if node.hosts else ""
                self.finished[act] = End("Skipped condition") if self.aside(act) else self._cancelled(act)
                self.deferred.discard(act)
                self.offered.discard(act)
        for gate in [gate for gate, state in self.pauses.items() if state == "offered"]:
            self._end_pause(gate)

    def _cancelled(self, act: Act) -> End:
        return End("Cancelled", (0, self.place[act[0]], act[0]), shut=True)

    def _exempt(self, name: str) -> bool:
        hook = self.nodes[name].hook
        return hook is Hook.ALWAYS or (hook is Hook.ON_FAILURE and self.stopped != "cancel")

    def host_of(self, name: str) -> str | None:
        """The host of a node that runs once, if it is known; for others that is not the question."""
        once = self.nodes[name].once
        if name in self.placed or not once:
            return self.placed.get(name)
        door = self.opened.get((once, 0))
        return None if door is None else door.chosen if door.chosen in self.hosts[name] else ""

    def aside(self, act: Act) -> bool:
        """Whether an action is of a node that runs once, on another host."""
        return self.host_of(act[0]) not in (None, act[1])

    # What follows from the definitions

    def refresh(self) -> None:
        """Work it all out; whenever nothing else follows, groups end, and last rescues that nobody needs."""
        while True:
            self._work_out()
            over = {key: verdict for key in self.rescues if (verdict := self._verdict(*key)) is not None}
            if over:
                counted = self._counted()
                self.verdicts |= over
                self._count(self._counted() - counted)
            elif self._needless:
                self.unneeded |= self._needless
            else:
                return

    def _work_out(self) -> None:
        self.ends, self.opened, self.go = {}, {}, []
        self._asked: set[object] = set()
        self._needless: set[Act] = set()
        for door in self.doors:
            self._opened(door)
        for act in self.needs:
            self._end(act)

    def _end(self, act: Act) -> End | None:
        if act not in self._asked:
            self._asked.add(act)
            end = self.finished.get(act)
            if end is None and act not in self.running and act not in self.deferred:
                end = self._decide(act)
            elif end is not None and end.what != "Cancelled" and not self.aside(act):
                end = replace(end, out=self._out(act))
            if end is not None:
                self.ends[act] = end
                for handler, source in self.late.pop(act, ()):
                    if handler != self.nodes[act[0]].handler:
                        self._notify(handler, act[1], source)
        return self.ends.get(act)

    # Groups: whether a failure in one counts is known when its rescue has ended on that host.

    def _seen(self, act: Act, by: Act | Door) -> End | None:
        """The end of an action as another one or a gate sees it: inside a group as it is, outside with its rescue."""
        chain = self.rescues_of(act)
        inside = self.groups_of(by) if by in self.doors else {group for group, _ in self.rescues_of(by)}  # type: ignore[arg-type]
        passed = next((number for number, (group, _) in enumerate(chain) if group in inside), len(chain))
        return self._left(act, passed)

    def _left(self, act: Act, groups: int | None = None) -> End | None:
        """The end of an action outside so many of its groups, or all; None if that is not known yet."""
        end = self._end(act)
        for group, part in self.rescues_of(act)[:groups]:
            if end is None:
                return None
            if part is Part.BODY and end.what in RESCUABLE:
                handled = self.verdicts.get((group, self.home(act)))
                if handled is None:
                    return None
                if handled:
                    spared = end.blame if end.what == "Skipped dependency" else None
                    out = {host: blame for host, blame in end.out.items() if host != self.home(act)}
                    end = End(f"{end.what.split()[0]} rescued", out=out, spared=spared)
        return end

    def _ends_in(self, group: str, host: str, part: Part) -> list[End | None]:
        """How the actions of a part of a group have ended for it: those of groups inside it with their rescues."""
        found = []
        for act in self._members(group, host, part):
            found.append(self._left(act, self.rescues_of(act).index((group, part))))
        return found

    def _members(self, group: str, host: str, part: Part) -> list[Act]:
        key = (group, host, part, len(self.needs))
        if key not in self._parts:
            self._parts[key] = [
                act for act in self.needs if self.home(act) == host and (group, part) in self.rescues_of(act)
            ]
        return self._parts[key]

    def _verdict(self, group: str, host: str) -> bool | None:
        """Whether a rescue has handled the failures of its group; None if it has not ended, or that is known."""
        rescue = self._ends_in(group, host, Part.RESCUE)
        if (group, host) in self.verdicts or None in rescue or None in self._ends_in(group, host, Part.BODY):
            return None
        well = all(end is not None and end.good for end in rescue)
        return self.rescues[group, host] and well and self._has_failed(group, host)

    def _has_failed(self, group: str, host: str) -> bool:
        return any(end is not None and end.what == "Failed" for end in self._ends_in(group, host, Part.BODY))

    def _out(self, act: Act) -> dict[str, Blame]:
        """The hosts that have left the run before an action of which all that it waits for has ended."""
        out: dict[str, Blame] = {}
        for need, on in self.needs[act]:
            if on is not On.SUCCESS:
                continue
            if need in self.doors:
                door = self._opened(need)
                assert door is not None
                add_out(out, all_further(door.out))
            else:
                end = self._seen(need, act)  # type: ignore[arg-type]
                assert end is not None
                add_out(out, all_further(self._out_for(need, end, act[0])))  # type: ignore[arg-type]
                if end.blame is not None and not end.shut and need[1] != act[1]:
                    add_out(out, all_further({str(need[1]): end.blame}))
        return out

    def _out_for(self, need: Act, end: End, name: str) -> dict[str, Blame]:
        """The hosts that have left the run before an action, as a node hears of it that waits for that one.

        What the action itself has returned hears only what everybody knows who may return the same.
        """
        if self.owner.get(name) != need[0]:
            return end.out
        root = self.roots.get(need, need)
        known = self.ends[root].out if root in self.ends else {}
        found: dict[str, Blame] = {}
        for gate, edges in self.heard_by_all(root).items() if known else ():
            for host, blame in self.opened[gate, 0].out.items():
                if host in known or host != root[1]:
                    add_out(found, {host: (blame[0] + edges + 1, *blame[1:])})
        return found

    def _gone(self, act: Act) -> set[str]:
        """The hosts of which an action hears that they have left, although it does not wait for a success."""
        gone: set[str] = set()
        for need, on in self.needs[act]:
            if on is On.SUCCESS:
                continue
            if need in self.doors:
                door = self._opened(need)
                assert door is not None
                gone |= door.out.keys()
            else:
                end = self._seen(need, act)  # type: ignore[arg-type]
                assert end is not None
                gone |= self._out_for(need, end, act[0]).keys()  # type: ignore[arg-type]
                if end.blame is not None and not end.shut:
                    gone.add(str(need[1]))
        return gone

    def _decide(self, act: Act) -> End | None:
        name, host = act
        if self.nodes[name].once and name not in self.placed:
            if self._opened((self.nodes[name].once, 0)) is None:
                return None
            if self.aside(act):
                return End("Skipped condition")
        blame: Blame | None = None
        shut = limit = off = met = False
        unmet = any(
            dep.on is On.BEGUN and self.hosts[dep.node] and (dep.hosts is None or host in dep.hosts)
            for dep in self.nodes[name].dependencies
            if not self.is_gate(dep.node) and name not in self.owner
        )
        for need, on in self.needs[act]:
            if need in self.doors:
                door = self._opened(need)
                if door is None:
                    return None
                if on is On.SUCCESS:
                    blame = nearest(blame, one_further(door.blame))
                    shut |= door.blame is not None
                    limit |= door.limit
                    off |= door.unmet
                elif on is On.FAILURE:
                    met |= door.failed
                    unmet |= not door.failed
                elif on is On.BEGUN:
                    unmet = True
            else:
                end = self._seen(need, act)  # type: ignore[arg-type]
                if end is None:
                    return None
                if on is On.SUCCESS and not end.good:
                    blame = nearest(blame, one_further(end.blame))
                    shut |= end.shut
                elif on is On.FAILURE:
                    failed = end.what in ("Failed", "Failed ignored")
                    met |= failed
                    unmet |= not failed
                elif on is On.BEGUN:
                    met |= need in self.begun
                    unmet |= need not in self.begun
        out = self._out(act)
        blame = nearest(blame, out.get(host))
        if blame is not None:
            return End("Skipped limit" if limit else "Skipped dependency", blame, shut, out=out)
        home = self.home(act)
        if act in self.unneeded:
            return End("Skipped condition", message="runs only if a step of the group fails", out=out)
        if any(part is Part.RESCUE and not self._has_failed(group, home) for group, part in self.rescues_of(act)):
            self._needless.add(act)
            return None
        if (off or (unmet and not met)) and act not in self.owed:
            return End("Skipped condition", message="nothing failed", out=out)
        if self.nodes[name].skip:
            return End("Skipped condition", message=self.nodes[name].skip, out=out)
        if self.nodes[name].handler and act not in self.serving:
            if act not in self.idle:
                for handler, source in self.late.get(act, ()):
                    if handler == self.nodes[name].handler:
                        self._notify(handler, host, source)
            sources = None if act in self.idle else self.notified.pop((self.nodes[name].handler, host), None)
            if sources is None:
                self.idle.add(act)
                return End("Skipped condition", message="not notified: nothing changed", out=out)
            self.serving[act] = sources
        if act in self.choices:
            gone = {*out, *self._gone(act)}
            lenient = self.nodes[name].hook in (Hook.ALWAYS, Hook.ON_FAILURE)
            left = [place for place in self.choices[act] if place not in gone]
            if not left and not lenient:
                if self.nodes[name].policy.ignore_errors:
                    return End("Failed ignored", out=out)
                return End("Failed", (0, self.place[name], name), out=out)
            self.at[act] = self.moved.get(act) or (left or self.choices[act])[0]
        self.go.append(act)
        return None

    def _opened(self, door: Door) -> DoorEnd | None:
        if door not in self._asked:
            self._asked.add(door)
            end = self._judge(door)
            if end is not None and not self._pausing(door, end):
                self.opened[door] = end
        return self.opened.get(door)

    def _pausing(self, door: Door, end: DoorEnd) -> bool:
        node = self.nodes[door[0]]
        if node.pause <= 0 or self.doors[door].relay or end.blame is not None or door in self.paused:
            return False
        if self.stopped and self.pauses.get(door[0]) != "running":
            return False
        lets_go = any(
            act not in self.finished
            and not self.nodes[act[0]].skip
            and need == door
            and (on is On.DONE or (on is On.SUCCESS and not end.unmet and act[1] not in end.out))
            for act, needs in self.needs.items()
            for need, on in needs
        )
        if not lets_go and self.pauses.get(door[0]) != "running":
            return False
        self.pauses.setdefault(door[0], "offered")
        return True

    def _judge(self, door: Door) -> DoorEnd | None:
        definition = self.doors[door]
        budget = self.nodes[door[0]].batch_budget if not definition.relay else None
        ends: list[tuple[Look, dict[str, End]]] = []
        for look in definition.looks:
            found = {host: self._seen((look.node, host), door) for host in look.hosts}
            if None in found.values():
                return None
            ends.append((look, {host: end for host, end in found.items() if end is not None}))
        before = [(other, self._opened(other), on) for other, on in definition.doors]
        if any(end is None for _, end, _ in before):
            return None
        result = DoorEnd()
        for other, earlier, _ in before:
            if earlier is not None and self.nodes[other[0]].batch_budget is not None:
                for name, (distance, hosts) in earlier.fails.items():
                    near, known = result.fails.get(name, (distance + 1, set()))
                    result.fails[name] = (min(near, distance + 1), known | hosts)
                for name, hosts in earlier.seen.items():
                    result.seen[name] = result.seen.get(name, set()) | hosts
        if budget is not None:
            for look, found_ends in ends:
                failed = {host for host, end in found_ends.items() if end.what == "Failed"}
                if failed:
                    result.fails[look.node] = (1, failed | result.fails.get(look.node, (1, set()))[1])
                result.seen[look.node] = result.seen.get(look.node, set()) | look.hosts
        hopes: list[bool] = []
        for look, found_ends in ends:
            failed = {host for host, end in found_ends.items() if end.what == "Failed"}
            hosts = set(self.hosts[look.node])
            if not look.whole:
                failed |= result.fails.get(look.node, (0, set()))[1]
                if look.node in self.owner:
                    hosts = result.seen.get(look.node, set()) | look.hosts
            over = bool(failed) and len(failed) > self.nodes[look.node].policy.budget(len(hosts))
            if look.on is On.SUCCESS:
                result.failed |= over
                if over:
                    result.blame = nearest(result.blame, (1, self.place[look.node], look.node))
                for host, end in found_ends.items():
                    add_out(result.out, all_further(self._out_for((look.node, host), end, door[0])))
                    if end.shut:
                        result.blame = nearest(result.blame, one_further(end.blame))
                    elif end.blame is not None:
                        add_out(result.out, all_further({host: end.blame}))
            elif look.on is On.FAILURE:
                hopes.append(over)
            elif look.on is On.BEGUN:
                hopes.append(any((look.node, host) in self.begun for host in look.hosts))
        for _, earlier, on in before:
            assert earlier is not None
            if on is On.SUCCESS:
                result.failed |= earlier.failed
                result.blame = nearest(result.blame, one_further(earlier.blame))
                add_out(result.out, all_further(earlier.out))
            elif on is On.FAILURE:
                hopes.append(earlier.failed)
            elif on is On.BEGUN:
                hopes.append(False)
        if budget is not None:
            self._judge_batch(door, budget, definition, result)
        candidates = self.nodes[door[0]].candidates if not definition.relay else ()
        if definition.relay or candidates:
            result.failed = False
        result.unmet = result.blame is None and bool(hopes) and not any(hopes)
        if candidates:
            self._choose(door, ends, [(end, on) for _, end, on in before if end is not None], result)
        return result

    def _choose(
        self, door: Door, ends: list[tuple[Look, dict[str, End]]], before: list[tuple[DoorEnd, On]], result: DoorEnd
    ) -> None:
        away = dict(result.out)
        for look, found in ends:
            for host, end in found.items():
                if look.on is not On.SUCCESS:
                    add_out(away, all_further(self._out_for((look.node, host), end, door[0])))
                    if end.blame is not None and not end.shut:
                        add_out(away, all_further({host: end.blame}))
        for earlier, on in before:
            if on is not On.SUCCESS:
                add_out(away, all_further(earlier.out))
        node = self.nodes[door[0]]
        left = [host for host in node.candidates if host not in away]
        result.chosen = (left or node.candidates)[0]
        lenient = node.hook in (Hook.ALWAYS, Hook.ON_FAILURE)
        if not left and result.blame is None and not result.unmet and not lenient:
            result.blame = nearest(*(away[host] for host in node.candidates))
            result.failed = result.nobody = True

    def _judge_batch(self, door: Door, budget: str, definition: Definition, result: DoorEnd) -> None:
        owner = self.owner.get(door[0])
        written = [look for look in definition.looks if self.owner.get(look.node) == owner]
        if owner is None:
            all_hosts = {host for look in written for host in self.hosts[look.node]}
        else:
            all_hosts = {host for look in written for host in look.hosts}
        failed = {host for _, hosts in result.fails.values() for host in hosts}
        if failed and len(failed) > Policy(max_failures=budget).budget(len(all_hosts)):
            result.failed = result.limit = True
            for name, (distance, _) in result.fails.items():
                result.blame = nearest(result.blame, (distance, self.place[name], name))

    # What can be asked

    @property
    def done(self) -> bool:
        return len(self.ends) == len(self.needs) and len(self.opened) == len(self.doors)

    def ready(self) -> list[Act]:
        """In graph order, everything that fits beside what runs and what was offered before."""
        for act in sorted(set(self.go) - self.offered, key=self.turn.__getitem__):
            if self.fits([*self.running, *self.offered, act]):
                self.offered.add(act)
        pauses = [(gate, "") for gate, state in self.pauses.items() if state == "offered"]
        return sorted([*self.offered, *pauses], key=self.turn.__getitem__)

    def fits(self, acts: Iterable[Act]) -> bool:
        """Whether these may all run at once."""
        count: dict[object, int] = {}
        limit: dict[object, int] = {"forks": self.forks}
        for name, origin in acts:
            node, host = self.nodes[name], self.at[name, origin]
            constraints = node.constraints
            wanted: list[object] = ["forks", ("host", host)]
            known = self.graph.hosts.get(host)
            limit["host", host] = known.per_host_limit if known else 1
            if constraints.global_limit is not None:
                wanted.append(("node", name))
                limit["node", name] = constraints.global_limit
            if constraints.per_host_limit is not None:
                family = name[: name.rindex("[")] if node.has_item else name
                wanted.append(("family", family, host))
                limit["family", family, host] = constraints.per_host_limit
            for lock in set(constraints.locks):
                wanted.append(("lock", lock))
                limit["lock", lock] = self.graph.locks.get(lock, 1)
            for what in wanted:
                count[what] = count.get(what, 0) + 1
        return all(number <= limit[what] for what, number in count.items())

    def final(self, name: str) -> bool:
        """Whether the node has ended, and can get no more hosts."""
        owner = self.owner.get(name)
        ended = all(self._left((name, host)) is not None for host in self.hosts[name])
        opened = all(door in self.opened for door in self.doors if door[0] == name)
        return ended and opened and (owner is None or self.final(owner))

    def node_end(self, name: str) -> str:
        """The end of a node or gate as a whole, in short."""
        if self.is_gate(name):
            parts = [end for door, end in self.opened.items() if door[0] == name]
            failed = [end for end in parts if end.failed]
            closed = failed or [end for end in parts if end.blame is not None]
            if not closed:
                return "Success"
            reason = "limit" if any(end.limit for end in closed) else "dependency"
            cause = nearest(*(end.blame for end in closed)) or (0, 0, "?")
            return f"{'Failed' if failed else 'Skipped'} {reason} {cause[2]}"
        found = [self._left((name, host)) for host in self.hosts[name] if not self.aside((name, host))]
        ends = [end for end in found if end is not None]
        if not ends:
            return "Skipped"
        if sum(end.what == "Failed" for end in ends) > self.nodes[name].policy.budget(len(ends)):
            return "Failed"
        if any(end.what == "Cancelled" for end in ends):
            return "Cancelled"
        spared = [end.spared for end in ends if end.spared is not None]
        if len(spared) == len(ends):
            return f"Skipped dependency {min(spared)[2]}"
        skipped = [end for end in ends if end.what in ("Skipped dependency", "Skipped limit")]
        if len(skipped) + len(spared) == len(ends):
            reason = "dependency" if any(end.what == "Skipped dependency" for end in ends) else "limit"
            cause = nearest(*(end.blame for end in ends)) or (0, 0, "?")
            return f"Skipped {reason} {cause[2]}"
        return "Success"

    def rescued(self) -> set[Act]:
        """The actions that ended badly, and a rescue has handled it: at once when it has ended."""
        found = set()
        for act in self.ends:
            chain = self.rescues_of(act)
            ends = [self._left(act, number + 1) for number in range(len(chain))]
            if any(end is not None and end.what.endswith(" rescued") for end in ends):
                found.add(act)
        return found

    def run_status(self) -> str:
        """What the run has come to."""
        if self.stopped == "cancel":
            return "Cancelled"
        steps = [self.node_end(name) for name in self.nodes if not self.is_gate(name)]
        if "Failed" in steps or any(end.limit or end.nobody for end in self.opened.values()):
            return "Failed"
        return "Cancelled" if any(end.what == "Cancelled" for end in self.ends.values()) else "Success"
