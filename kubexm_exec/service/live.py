"""A run in progress: engine, journal and watcher, put together for one call."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, TextIO

from kubexm_exec.model.result import GraphExecutionResult, RunMode, Status, counts
from kubexm_exec.service.errors import Held, Invalid, ServiceError, Unavailable
from kubexm_exec.service.requests import DueHandler, Outcome, RunRequest

if TYPE_CHECKING:
    from kubexm_exec.engine.history import RunHistory, SessionHistory
    from kubexm_exec.engine.runtime import Runtime
    from kubexm_exec.executors.base import Executor
    from kubexm_exec.journal.leases import HeldError
    from kubexm_exec.journal.session import OutputLog, Session
    from kubexm_exec.model.events import Subscriber
    from kubexm_exec.model.graph import ExecutionGraph
    from kubexm_exec.plugins import RegistryError
    from kubexm_exec.scheduler import Action
    from kubexm_exec.values.expressions import Expressions
    from kubexm_spec.diagnostics import Diagnostics, Span


class Watcher:
    """Observes a run. This one does nothing."""

    def found(self, diagnostics: Diagnostics, sources: Mapping[str, Any]) -> None:
        """There are warnings; the run begins all the same."""

    def attach(self, run: LiveRun) -> None:
        """There will be a run: subscribe to its events, and keep what can stop it."""

    def waiting(self, held: Held) -> None:
        """Another run holds the target, and this one waits for it; called repeatedly."""

    def going_on(self) -> AbstractContextManager[object]:
        """Entered while it runs, and left when all of it is written down."""
        return nullcontext()

    def ended(self, result: GraphExecutionResult | None) -> None:
        """It ran; None: without a result. Nothing is emitted any more."""


class LiveRun:
    """One session of a run in this process."""

    def __init__(
        self,
        graph: ExecutionGraph,
        asked: RunRequest,
        *,
        run_id: str = "",
        expressions: Expressions | None = None,
    ) -> None:
        """Raises Invalid if there is no such executor, nothing could run, or the documents have no folder."""
        from kubexm_exec.engine.runtime import RunOptions
        from kubexm_exec.executors.base import load_executor
        from kubexm_exec.model.events import EventBus
        from kubexm_exec.model.ids import new_run_id
        from kubexm_exec.plugins import RegistryError, executor_registry
        from kubexm_exec.secrets import Redactor, Secrets
        from kubexm_exec.service.documents import bundle_folder, template_folders

        for name, limit in (("forks", asked.forks), ("uploads", asked.uploads)):
            if limit < 1:
                raise Invalid(f"{name} is {limit}", "give a number of at least 1")
        executor, documents = asked.executor, asked.documents
        if not documents.folder:  # never that of this process
            raise Invalid("the request names no folder")
        try:
            chosen = load_executor(executor_registry(), executor)
        except RegistryError as error:
            raise Invalid(error.message, error.hint, kind=error.code) from None
        self.executor = executor
        self.mode: RunMode = chosen.mode
        self.at_a_terminal = chosen.at_a_terminal
        """Whether the executor is interactive: nothing else is drawn on its terminal."""
        self.make_executor: Callable[[], Executor] = chosen
        self.redactor = Redactor()
        self.secrets = Secrets(self.redactor, self._warn, documents.folder)
        self.bus = EventBus(run_id or new_run_id(), self.redactor.mask)
        self.left: Callable[[Action], bool] | None = None
        """Which actions this session has to do, if not all."""
        self.success = "Success"
        """What the journal calls a run that went well."""
        self.done_before = 0
        self.sessions: Sequence[SessionHistory] = ()
        """This session and those before it, if it is not the first."""
        self._session: Session | None = None
        self._log: OutputLog | None = None
        self._checked = False
        self.documents = documents
        self.reads: list[str] = []
        """The files that it was made from."""
        from pathlib import Path

        templates = tuple(map(Path, template_folders(documents)))
        options = RunOptions(
            forks=asked.forks, uploads=asked.uploads, verbose=asked.verbose, overwrite=asked.overwrite,
            templates=templates, bundle=bundle_folder(documents), folder=documents.folder, patient=asked.patient,
            offline=documents.offline,
        )  # fmt: skip
        self.runtime = self._runtime(graph, options, expressions)
        self._unusable: RegistryError | None = None
        """A connector that its author has to repair."""
        if self.mode is not RunMode.OFFLINE:
            hosts = {host for node in graph.steps() for host in node.hosts}
            self._unusable = self.runtime.connections.prepare(hosts)

    def _runtime(self, graph: ExecutionGraph, options: Any, expressions: Expressions | None) -> Runtime:
        from kubexm_exec.engine.runtime import Runtime
        from kubexm_exec.plugins import connector_registry, step_registry

        steps = step_registry()
        templates = tuple(map(str, options.templates))

        def fragment(graph: ExecutionGraph, node: Any, host: str, data: Any) -> Any:
            from kubexm_exec.compile.fragment import compile_fragment

            return compile_fragment(
                graph, node, host, data, registry=steps, expressions=self.runtime.expressions, templates=templates
            )

        return Runtime(
            graph,
            options=options,
            bus=self.bus,
            secrets=self.secrets,
            steps=steps,
            connectors=connector_registry(),
            compile_fragment=fragment,
            expressions=expressions,
        )

    def _warn(self, message: str) -> None:
        """Log a warning about a secret, such as a file that everybody can read."""
        from kubexm_exec.logs import get_logger

        get_logger(self.redactor.mask).warning(message)

    # For those who watch it

    @property
    def id(self) -> str:
        """The name of the run."""
        return self.bus.run

    @property
    def graph(self) -> ExecutionGraph:
        """What is run, with what was added to it so far."""
        return self.runtime.graph

    def subscribe(self, subscriber: Subscriber) -> None:
        """Send all events from now on to a subscriber, without secrets."""
        self.bus.subscribe(subscriber)

    def mask(self, value: Any) -> Any:
        """Anything without the secrets of the run."""
        return self.redactor.mask(value)

    def interrupt(self) -> int:
        """Stop it, the second time at once; says which time it is. May be called in a signal handler."""
        return self.runtime.interrupt()

    def talk(
        self, lines: TextIO | None, output: TextIO, terminal: Callable[[], AbstractContextManager[None]] = nullcontext
    ) -> None:
        """Let steps ask questions: the source of answers, the output for questions, and what makes room for them."""
        options = self.runtime.options
        options.input, options.output, options.terminal = lines, output, terminal

    # For the service

    def check_secrets(self, watcher: Watcher, of_host: Callable[[str, str], Span | None] | None = None) -> None:
        """Resolve secrets before the run; raises Invalid if one is missing. ``of_host``: where a host's is named."""
        if self._checked or self.mode is RunMode.OFFLINE:
            return
        self._checked = True
        from kubexm_exec.engine.neededsecrets import check, uses_of

        runtime = self.runtime
        uses = uses_of(runtime.graph, runtime.steps.load, runtime.expressions, runtime.finder, self.left)
        found = check(uses, self.secrets, of_host)
        if found.has_errors:
            raise Invalid.documents(found, {}, runtime.options.folder)
        if len(found):
            watcher.found(found, {})

    def check_connectors(self) -> None:
        """Raise Invalid if a connector cannot be used at all: nothing has changed yet."""
        if self._unusable is not None:
            raise Invalid(self._unusable.message, self._unusable.hint, kind=self._unusable.code)

    def reach_out(self) -> None:
        """Let the hosts of the first step know that somebody comes, while the journal is opened; nobody logs in yet."""
        first = next(iter(self.graph.steps()), None)
        if first is None or self.mode is RunMode.OFFLINE or self.at_a_terminal:
            return
        surely = not (first.dependencies or first.skip or first.once or first.guards or first.places)
        if surely and first.when is None:
            self.runtime.connections.expect(first.hosts[: self.runtime.options.forks])

    def keep(self, session: Session, history: RunHistory | None = None) -> None:
        """Write down what happens from now on; ``history``: all that is written down of the run already."""
        from kubexm_exec.journal.session import OutputLog

        self._session = session
        self._log = OutputLog(session.folder, session.lost)
        self.bus.subscribe(self._log)
        session.attach(self.runtime, None if history is None else history.left())

    def tell_unserved(self, watcher: Watcher) -> None:
        """Warn of handlers that are due and that this run cannot run; they do not keep it from running."""
        if not self.runtime.pending or self._session is None:
            return
        from kubexm_exec.service.notifications import by_handler, unserved

        due = by_handler(self._session.target, self.runtime.pending)
        found = unserved(self.graph, due, self.documents.place, limited=self._limited)
        if len(found):
            watcher.found(found, {})

    def _still_due(self) -> Sequence[DueHandler]:
        """The handlers of the graph that are due now, also on hosts that this run leaves out."""
        session = self._session
        if session is None or session.recorder.error is not None:
            return ()
        from kubexm_exec.engine.ports import JournalError
        from kubexm_exec.service.notifications import by_handler, served_by

        try:
            pending = session.store.notifications(session.target)
        except JournalError:
            return ()  # it is told when the end cannot be recorded
        return served_by(self.graph, by_handler(session.target, pending), limited=self._limited)

    @property
    def _limited(self) -> bool:
        """Whether the run leaves out hosts of the inventory."""
        return bool(self.documents.limit)

    def execute(
        self, watcher: Watcher, is_well: Callable[[GraphExecutionResult], bool] = lambda result: False
    ) -> Outcome:
        """Run to the end. ``is_well`` says of a result that is no success whether all that was asked for is done."""
        from kubexm_exec.plugins import RegistryError

        runtime = self.runtime
        result: GraphExecutionResult | None = None
        lost: ServiceError | None = None
        due: Sequence[DueHandler] = ()
        with watcher.going_on():
            try:
                runtime.watch()
                self.check_secrets(watcher)
                result = self.make_executor().execute(runtime)
            except RegistryError as error:
                raise Invalid(error.message, error.hint, kind=error.code) from None
            finally:
                # Whatever goes wrong here, the journal says how it ended, and others may work on the target.
                try:
                    watcher.ended(result)
                finally:
                    try:
                        runtime.close()
                    finally:
                        due = self._still_due()
                        lost = self._close(result)
        shown = result
        if self.sessions:
            from kubexm_exec.journal.results import of_all_sessions

            shown = of_all_sessions(result, self.sessions)
        well = lost is None and (result.status is Status.SUCCESS or is_well(result))
        return Outcome(
            run=self.id, graph=runtime.graph, result=result, shown=shown, mask=self.mask, well=well, lost=lost,
            journaled=self._session is not None and not self._session.gone, done_before=self.done_before, due=due,
        )  # fmt: skip

    def _close(self, result: GraphExecutionResult | None) -> ServiceError | None:
        if self._session is None:
            return None

        if self._log is not None:
            self._log.close()
        error = self._session.close(result, {} if result is None else counts(result), self.success)
        return None if error is None else Unavailable(error.what, error.hint, kind="journal")


@contextmanager
def begun(session: Session) -> Iterator[Session]:
    """A session until its run writes to it; an error before that releases the target."""
    try:
        yield session
    except BaseException:
        session.close(None, {})
        raise


def patience(watcher: Watcher, wait: bool) -> Callable[[HeldError], None] | None:
    """What to do while another run holds the target; None: do not wait."""

    def tell(error: HeldError) -> None:
        watcher.waiting(Held(error.what, error.hint, error.lease))

    return tell if wait else None
