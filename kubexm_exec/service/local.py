"""The service in this process: it runs what it is asked to run itself, and keeps a journal of it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from kubexm_exec.model.result import RunMode, Status
from kubexm_exec.service.errors import Invalid, Refused, journal_errors
from kubexm_exec.service.live import LiveRun, Watcher, begun, patience
from kubexm_exec.service.requests import (
    AnswerRequest,
    CommandRequest,
    Documents,
    DriftRequest,
    InventoryRequest,
    NotificationsRequest,
    Outcome,
    PruneRequest,
    ResumeRequest,
    RollbackRequest,
    RunDetails,
    RunInfo,
    RunRequest,
    VarsRequest,
)
from kubexm_spec.diagnostics import did_you_mean, some

if TYPE_CHECKING:
    from pathlib import Path

    from kubexm_exec.compile.explain import ValueRow
    from kubexm_exec.engine.notifications import Notification
    from kubexm_exec.journal.store import Store
    from kubexm_exec.model.events import Event
    from kubexm_exec.model.graph import ExecutionGraph
    from kubexm_exec.model.result import PastChange
    from kubexm_exec.service.requests import Difference, Drift, DueHandler, HostInfo, Planned, Undoable, Validation

_NOBODY = Watcher()
_EARLIER: Final = 20
"""So many earlier runs of a target may have left hosts out of service."""


class LocalService:
    """Runs specs in this process. It may be called by several threads at once."""

    def __init__(self, journal: str = "", state: Path | None = None) -> None:
        """``journal``: a file or database URL, ``state``: a folder for files of runs; by default the user's."""
        from kubexm_exec.journal.database import state_folder

        self.state = (state or state_folder()).absolute()
        self.journal = journal or str(self.state / "journal.db")

    @property
    def place(self) -> str:
        """Where the journal is, without a password; empty if that is the usual place."""
        from kubexm_exec.journal.database import shown

        if self.journal == str(self.state / "journal.db"):
            return ""
        return shown(self.journal).removeprefix("journal ") if "://" in self.journal else self.journal

    @contextmanager
    def _store(self, *, reading: bool = False) -> Iterator[Store]:
        """The open journal; its errors become errors of the service."""
        from kubexm_exec.journal.store import Store

        with journal_errors():
            store = Store(self.journal, reading=reading)
            try:
                yield store
            finally:
                store.close()

    def _unpacked(self, documents: Documents, temporary: ExitStack, run: str = "") -> Documents:
        """Documents whose texts are files, among the files of a run, until ``temporary`` ends."""
        if not documents.files:
            return documents
        from kubexm_exec.journal.store import folder_of
        from kubexm_exec.model.ids import new_run_id
        from kubexm_exec.service.documents import claim, discard, sweep, unpacked

        run = run or new_run_id()
        sweep(self.state)
        claim(self.state, run)
        temporary.callback(discard, self.state, run)
        return unpacked(documents, folder_of(self.state, run))

    # Documents

    def validate(self, paths: Sequence[str], documents: Documents) -> Validation:
        """Check documents in files and folders; nothing is run."""
        from kubexm_exec.service.inspecting import validate

        with ExitStack() as temporary:
            return validate(paths, self._unpacked(documents, temporary))

    def plan(self, documents: Documents, watcher: Watcher = _NOBODY) -> Planned:
        """Compile a spec to a plan that can be saved, and run as it is; raises Invalid."""
        from kubexm_exec.compile.plan import make_plan
        from kubexm_exec.plugins import step_registry
        from kubexm_exec.service.documents import as_asked, chosen_besides, compiled, reads
        from kubexm_exec.service.requests import Planned

        with ExitStack() as temporary:
            here = self._unpacked(documents, temporary)
            _, graph = compiled(here, watcher.found)
            graph = as_asked(graph, here, documents, lasting=True)
            plan = make_plan(graph, documents.spec, step_registry(), documents.folder, chosen_besides(documents))
            return Planned(plan, reads(documents, graph))

    def diff(self, before: Documents, after: Documents, watcher: Watcher = _NOBODY) -> Difference:
        """What changes in the graph from one spec to another; raises Invalid."""
        from kubexm_exec.service.inspecting import diff

        with ExitStack() as temporary:
            return diff(self._unpacked(before, temporary), self._unpacked(after, temporary), watcher.found)

    def vars(self, request: VarsRequest, watcher: Watcher = _NOBODY) -> list[ValueRow]:
        """The values that a host sees, and where each is from; raises Invalid."""
        from kubexm_exec.service.inspecting import values

        with ExitStack() as temporary:
            return values(self._unpacked(request.documents, temporary), request.host, request.scope, watcher.found)

    def inventory(self, request: InventoryRequest, watcher: Watcher = _NOBODY) -> list[HostInfo]:
        """The hosts of a spec or an inventory; no host is contacted. Raises Invalid."""
        from kubexm_exec.service.inspecting import hosts

        with ExitStack() as temporary:
            return hosts(self._unpacked(request.documents, temporary), request.pattern, watcher.found)

    # Running

    def run(self, request: RunRequest, watcher: Watcher = _NOBODY) -> Outcome:
        """Make a spec or a plan true; raises Invalid, Held or Changed, and then nothing was run."""
        from kubexm_exec.model.ids import new_run_id
        from kubexm_exec.service.documents import (
            as_asked,
            begin_work,
            check_complete,
            claim_of,
            compiled,
            planned,
            reads,
            withheld,
        )

        run, compilation = new_run_id(), None
        if request.documents.files and not request.documents.folder and request.journal:
            raise Invalid("the documents have no folder", "name one: it says which documents of that name they are")
        with ExitStack() as temporary:
            documents = self._unpacked(request.documents, temporary, run)
            if documents.plan:
                import os

                plan, documents = planned(documents)
                # A run from a plan is a run of the spec that the plan was made of.
                graph, request = plan.graph, replace(request, documents=documents)
                made_of = [documents.plan, *(os.path.join(plan.root, name) for name in graph.sources)]  # noqa: PTH118
            else:
                compilation, graph = compiled(documents, watcher.found)
                graph = as_asked(graph, documents, request.documents)
                made_of = reads(documents, graph)
            expressions = compilation.expressions if compilation is not None else None
            live = LiveRun(graph, replace(request, documents=documents), run_id=run, expressions=expressions)
            live.reads = made_of
            watcher.attach(live)
            live.check_connectors()
            if documents.offline and compilation is not None and compilation.state is not None:
                check_complete(documents, compilation.state, live.runtime.resources)
            live.check_secrets(watcher, compilation.span_of_secret if compilation is not None else None)
            live.reach_out()
            if live.mode is not RunMode.ACT or not request.journal:
                begin_work(self.state, run)
                if request.journal and any(node.handler for node in graph.steps()):
                    live.runtime.pending = self._pending(graph.target)
                return live.execute(watcher)
            from msgspec import to_builtins

            from kubexm_exec.journal.session import Session, Start

            _check_recordable(request.documents)
            hidden = dict.fromkeys(sorted(withheld(request.documents, live.mask)), "")
            request = replace(
                request, documents=replace(request.documents, files={**request.documents.files, **hidden})
            )
            with self._store() as store:
                start = Start(
                    run=run, name=graph.name, target=graph.target, spec=request.documents.place,
                    executor=request.executor, made_from=_made_from(live, hidden), asked=to_builtins(request),
                )  # fmt: skip
                with begun(Session.begin(store, self.state, start, wait=patience(watcher, request.wait))) as session:
                    live.keep(session)
                live.tell_unserved(watcher)
                _tell_left_out(store, graph, run, watcher)
                temporary.pop_all()  # a resume or an undo needs the documents
                claim_of(self.state, run).unlink(missing_ok=True)
                return live.execute(watcher)

    def _pending(self, target: str) -> list[Notification]:
        """The handlers that are due, for a run that only says what it would do; there may be no journal yet."""
        from pathlib import Path

        if "://" not in self.journal and not Path(self.journal).exists():
            return []
        with self._store(reading=True) as store:
            return store.notifications(target)

    def run_command(self, request: CommandRequest, watcher: Watcher = _NOBODY) -> Outcome:
        """Run one command on some hosts, without a journal; raises Invalid."""
        from kubexm_exec.compile.adhoc import command_graph
        from kubexm_exec.model.ids import new_run_id
        from kubexm_exec.service.documents import begin_work, hosts_of, site_of

        _check_command(request)
        run = new_run_id()
        with ExitStack() as temporary:
            documents = self._unpacked(request.documents, temporary, run)
            site, _ = site_of(documents, watcher.found)
            hosts = hosts_of(site, [request.pattern])
            graph = command_graph(site, hosts, list(request.argv) or None, request.shell, request.become)
            where = Documents(folder=documents.folder)
            asked = RunRequest(documents=where, executor=request.executor, forks=request.forks, verbose=1)
            live = LiveRun(graph, asked, run_id=run)
            live.reads = [name for name in (documents.spec, documents.inventory) if name]
            live.reads += [str(file.path) for file in site.sources.values()]
            watcher.attach(live)
            live.check_connectors()
            begin_work(self.state, run)
            return live.execute(watcher)

    def resume(self, request: ResumeRequest, watcher: Watcher = _NOBODY) -> Outcome:
        """Go on with a run; raises Changed if its spec is not what it was, Held, NotFound or Invalid."""
        from kubexm_exec.service.resuming import resume

        with self._store() as store:
            return resume(store, self.state, request, watcher)

    def retry(self, request: ResumeRequest, watcher: Watcher = _NOBODY) -> Outcome:
        """Go on with a run on the hosts where something failed; raises Refused if nothing did, and as ``resume``."""
        past = self.get(request.run).past
        failed = {
            each.host_name
            for node in past.result.node_results.values()
            for each in node.host_results.values()
            if each.status is Status.FAILED and not each.ignored
        }
        if not failed:
            raise Refused(f"run {past.row.id} has no failed action", f"kubexm runs show {past.row.id}")
        return self.resume(replace(request, run=past.row.id, hosts=",".join(sorted(failed))), watcher)

    def undoable(self, request: RollbackRequest) -> Undoable:
        """What a rollback would do; raises Refused if there is nothing to undo."""
        from kubexm_exec.service.resuming import undoable

        with self._store() as store:
            return undoable(store, request)

    def roll_back(self, request: RollbackRequest, watcher: Watcher = _NOBODY) -> Outcome:
        """Undo what a run has done; raises Held, NotFound or Refused."""
        from kubexm_exec.service.resuming import roll_back

        with self._store() as store:
            return roll_back(store, self.state, request, watcher)

    def cancel(self, run: str) -> RunInfo:
        """Ask a run to stop, wherever it runs; raises Invalid if it is not running."""
        return self._ask(run, "cancel", "")

    def answer(self, request: AnswerRequest) -> RunInfo:
        """Answer a question of a run, wherever it runs; raises Invalid if it does not ask anything."""
        import json

        past = self.get(request.run).past
        waiting = past.waiting()
        if not any(node == request.node and request.host in ("", host) for node, host in waiting):
            on = f" on {request.host}" if request.host else ""
            raise Invalid(
                f"{request.node}{on} does not wait for an answer in run {past.row.id}",
                _answerable(request.node, waiting) or f"nothing does: kubexm runs show {past.row.id}",
            )
        said = {"node": request.node, "host": request.host, "answer": request.answer}
        return self._ask(past.row.id, "answer", json.dumps(said))

    def _ask(self, run: str, kind: str, data: str) -> RunInfo:
        """Send a request to a run through the journal; raises Invalid if it is not running."""
        from kubexm_exec.journal.owner import Owner
        from kubexm_exec.service.past import info

        with self._store() as store:
            found = info(store, store.run(run))
            row = found.row
            if found.state is not Status.RUNNING:
                raise Invalid(f"run {row.id} is not running: it is {found.state.value}", f"kubexm runs show {row.id}")
            store.ask(row.id, kind, str(Owner.me()), data)
            return found

    def drift(self, request: DriftRequest, watcher: Watcher = _NOBODY) -> Drift:
        """Ask hosts whether all is as the last successful run of a spec left it; nothing is changed."""
        from kubexm_exec.service.drift import drift

        with self._store(reading=True) as store:
            return drift(store, request, watcher)

    # What is known of runs

    def runs(self, *, limit: int = 20, name: str = "") -> list[RunInfo]:
        """The newest runs, newest first."""
        from kubexm_exec.service.past import info

        with self._store(reading=True) as store:
            return [info(store, row) for row in store.runs(limit=limit, name=name)]

    def get(self, run: str) -> RunDetails:
        """All that is known of a run; raises NotFound."""
        from kubexm_exec.service.past import details

        with self._store(reading=True) as store:
            return details(store, run)

    def events(self, run: str, *, follow: bool = False) -> Iterator[Event]:
        """What happened in a run; ``follow``: until it ends."""
        from kubexm_exec.service.past import events

        with self._store(reading=True) as store:
            yield from events(store, run, follow=follow)

    def logs(
        self, run: str, *, hosts: str | None = None, nodes: Sequence[str] = (), follow: bool = False
    ) -> Iterator[Event]:
        """What the steps of a run printed; raises NotFound if that is kept on another machine."""
        from kubexm_exec.service.past import logs

        with self._store(reading=True) as store:
            yield from logs(store, self.state, run, hosts, nodes, follow=follow)

    def changes(self, run: str, *, hosts: str | None = None, nodes: Sequence[str] = ()) -> list[PastChange]:
        """What a run changed on its hosts; raises NotFound."""
        from kubexm_exec.service.past import changes

        with self._store(reading=True) as store:
            return changes(store, run, hosts, nodes)

    def report(self, run: str) -> RunDetails:
        """A run with all that a report tells of it."""
        from kubexm_exec.model.events import ACTION_RETRY, GRAPH_EXTENDED, RUN_STOPPING
        from kubexm_exec.service.past import details, events

        with self._store(reading=True) as store:
            found = details(store, run)
            told = events(store, found.past.row.id)
            return replace(
                found, events=[each for each in told if each.kind in (ACTION_RETRY, GRAPH_EXTENDED, RUN_STOPPING)]
            )

    def prunable(self, request: PruneRequest) -> list[RunInfo]:
        """The runs that can be removed."""
        from kubexm_exec.service.past import prunable

        with self._store() as store:
            return prunable(store, request)

    def prune(self, runs: Sequence[str]) -> int:
        """Remove runs with their logs and their data for undo; gives the number of remaining runs."""
        from kubexm_exec.service.past import prune

        with self._store() as store:
            return prune(store, self.state, runs)

    def notifications(self, request: NotificationsRequest) -> list[DueHandler]:
        """The handlers that are due: the next run of their target runs them."""
        from kubexm_exec.service.notifications import due

        with self._store(reading=True) as store:
            return due(store, request)

    def drop_notifications(self, several: Sequence[DueHandler]) -> int:
        """Forget that handlers are due; gives the number of those that were."""
        from kubexm_exec.service.notifications import drop

        with self._store() as store:
            return drop(store, several)


def _answerable(wanted: str, waiting: Collection[tuple[str, str]]) -> str:
    """What can be answered instead, the likeliest first."""
    nodes = list(dict.fromkeys(node for node, _ in waiting))
    short = [node for node in nodes if node.endswith(f"/{wanted}")]
    guess = f'did you mean "{short[0]}"?' if short else did_you_mean(wanted, nodes)
    listed = ", ".join(f"{node} on {some(host for of, host in waiting if of == node)}" for node in nodes)
    return f"{guess} waiting: {listed}".strip() if nodes else ""


def _check_command(request: CommandRequest) -> None:
    """Raise Invalid if it is not said what to run, or as whom."""
    argv, line = request.argv, request.shell
    if bool(argv) == (line is not None):
        raise Invalid("give either a command or a line of shell")
    if argv and not argv[0]:
        raise Invalid("the command names no program")
    if line is not None and not line.strip():
        raise Invalid("the line of shell is empty")
    if request.become is not None:
        from kubexm_spec.models.common import written_out

        try:
            written_out(request.become)
        except ValueError as error:
            raise Invalid(f'become "{request.become}": it {error}') from None


def _check_recordable(documents: Documents) -> None:
    """Raise Invalid if a journal cannot hold the name of the spec: it identifies the run."""
    try:
        documents.place.encode()
    except UnicodeEncodeError:
        hint = "rename the folder, or run without a journal"
        raise Invalid(f"{documents.place!a} cannot be recorded: its name is not UTF-8", hint) from None


def _tell_left_out(store: Store, graph: ExecutionGraph, run: str, watcher: Watcher) -> None:
    """Warn of hosts that earlier runs of the target have left out of service."""
    rows = [row for row in store.runs(limit=_EARLIER, target=graph.target) if row.id != run]
    if all(row.status == Status.SUCCESS.value for row in rows):
        return
    from kubexm_exec.service.takenout import still_out

    found = still_out(store, rows, graph)
    if len(found):
        watcher.found(found, {})


def _made_from(live: LiveRun, withheld: Iterable[str]) -> dict[str, Any]:
    """What a run was made from, besides what was asked for; some files are not recorded."""
    import importlib.metadata

    from kubexm_exec.compile.plan import packages_of
    from kubexm_exec.plugins import step_registry

    types = sorted({node.step_name for node in live.graph.steps()})
    return {
        "version": importlib.metadata.version("kubexm"),
        "graph": live.graph.to_json(),
        "target": live.graph.target,
        "folder": live.documents.folder,
        "packages": packages_of(types, step_registry()),
        "withheld": list(withheld),
    }
