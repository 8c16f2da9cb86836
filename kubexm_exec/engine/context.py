"""The engine's side of the step SDK: what one attempt may use, created on demand."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Mapping, MutableMapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from kubexm_exec.connectors.base import Becomes, Connector
from kubexm_exec.control import Deadline, raise_if_over
from kubexm_exec.engine import entries
from kubexm_exec.engine.attempt import Attempt
from kubexm_exec.engine.output import OutputLines
from kubexm_exec.engine.ports import ChangedError, JournalError
from kubexm_exec.engine.runtime import Runtime
from kubexm_exec.engine.sensitive import masker
from kubexm_exec.model.errors import CommandCancelled, ConnectorError, StepFailed
from kubexm_exec.model.events import ACTION_ASKS, ACTION_OUTPUT, ACTION_PROGRESS
from kubexm_exec.model.plain import plain
from kubexm_exec.model.result import SENSITIVE
from kubexm_exec.resources.resolve import resolve
from kubexm_exec.resources.source import PREFIX
from kubexm_exec.runner import Runner
from kubexm_exec.step import AnyStep, LocalResource, Resource, ResourceError, StepContext
from kubexm_exec.values.expressions import UnknownValueError
from kubexm_exec.values.finder import Trimming
from kubexm_spec.diagnostics import did_you_mean

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger


_PROGRESS_INTERVAL: Final = 0.1
"""Seconds between two progress events of one step."""
_MOST_PARAMS: Final = 64 << 10
"""Longer parameters (in characters) are not recorded for an undo."""


class ActionContext(StepContext):
    """The context of one attempt; ``runner`` and ``log`` are created on first use."""

    looking = False
    """Whether precheck is running."""
    _runner: Runner | None = None
    _output: OutputLines | None = None
    _next_progress = 0.0
    _spared: Mapping[str, Any] | None = None
    _withheld = False
    """Content was kept for an undo in this session only."""
    reads: tuple[tuple[str, str], ...] = ()
    """Files of hosts by name that were read: host and path."""

    def __init__(self, runtime: Runtime, attempt: Attempt) -> None:
        node = attempt.node
        self._runtime = runtime
        self._attempt = attempt
        self.origin = runtime.host_views[attempt.host]
        self.host = runtime.host_views[attempt.place] if node.places else self.origin
        self.node = node.id
        self.run_id = runtime.run_id
        self.attempt = attempt.number
        self.sensitive = node.sensitive
        self.judged = bool(node.failed_when)

    @cached_property
    def log(self) -> FilteringBoundLogger:
        """A logger of this attempt."""
        log: FilteringBoundLogger = self._runtime.logger(node=self.node, host=self._attempt.host)
        return log

    @cached_property
    def _names(self) -> Mapping[str, Any]:
        return self._runtime.evaluator.context(self._attempt.node, self._attempt.host)

    @property
    def runner(self) -> Runner:
        """Operations on the host; connects to it."""
        # No cached_property: Python 3.11 has one lock for all objects, and hosts would be connected one by one.
        if self._runner is None:
            self._runner = self._make_runner()
        return self._runner

    def _make_runner(self) -> Runner:
        attempt = self._attempt
        connector = connector_of(self._runtime, attempt, attempt.deadline)
        attempt.connected = True
        own = attempt.node.become
        if attempt.node.env and attempt.env is None:
            attempt.env = self._runtime.evaluator.env(attempt.node, attempt.host)
        if not self.sensitive:
            self._output = OutputLines(self._emit_output, self._runtime.redactor, self._runtime.later)
        become = self._runtime.graph.hosts[attempt.place].becomes if own is None else own
        ahead = None
        # Prefetched state was read as the host's own user, on the hosts of the steps themselves.
        if attempt.number == 1 and not attempt.unsure and own is None and not attempt.node.places:
            ahead = self._runtime.prefetch.of(attempt, self._is_looking)
        return Runner(
            connector,
            deadline=attempt.deadline,
            cancel=attempt.cancel,
            on_output=None if self._output is None else self._take_output,
            sensitive=self.sensitive,
            become="root" if become is True else str(become or ""),
            facts=lambda: self.facts,
            transfers=self._runtime.transfers,
            on_progress=self.progress,
            forget=lambda: self._runtime.known_facts.forget(attempt.place),
            ahead=ahead,
            looking=self._is_looking,
            env=attempt.env,
        )

    def _is_looking(self) -> bool:
        return self.looking

    def _take_output(self, stream: str, data: bytes) -> None:
        # Here, in a thread that may wait: what is pending is sent by the driver's, too.
        self._attempt.wait_for_journal()
        if self._output is not None:
            self._output(stream, data)

    def _emit_output(self, stream: str, text: str) -> None:
        if not self._attempt.abandoned:
            self._emit(ACTION_OUTPUT, stream=stream, text=text)

    def _emit(self, kind: str, **data: Any) -> None:
        attempt = self._attempt
        if place := attempt.node.elsewhere(attempt.host):
            data["place"] = place
        self._runtime.bus.emit(kind, self.node, attempt.host, **data)

    def output(self, stream: str) -> str:
        """The last output of this attempt's commands."""
        return "" if self._output is None else self._output.tail(stream)

    def close(self) -> None:
        """Emit pending output; nothing follows."""
        if self._output is not None:
            self._output.close()

    @property
    def facts(self) -> Mapping[str, Any]:
        """Facts of the host, gathered on first use."""
        return self._runtime.known_facts.of(self.host.name, self._attempt.deadline, self._attempt.cancel)

    def cache(self, scope: Literal["run", "module", "task", "host"]) -> MutableMapping[str, Any]:
        """A cache for the length of the run."""
        node = self._attempt.node
        keys: dict[str, tuple[str, ...]] = {
            "run": ("run",),
            "module": ("module", node.module),
            "task": ("task", node.module, node.task),
            "host": ("host", self.host.name),
        }
        if scope not in keys:
            raise ValueError(f"there is no cache {scope!r}; choose one of {', '.join(keys)}")
        return self._runtime.cache(*keys[scope])

    def secret(self, reference: str) -> str:
        """The value of a reference, masked from now on."""
        return self._runtime.secrets.resolve(reference)

    def holds_secret(self, data: str | bytes) -> bool:
        """Whether data contains a secret of this run."""
        return self._runtime.redactor.mask(data) != data

    def hide(self, *texts: str) -> None:
        """Mask texts from now on."""
        for text in texts:
            self._runtime.redactor.add_token(text)

    def read_on(self, host: str, path: str, *, limit: int = 1 << 20) -> bytes | None:
        """The content of a file of any host; None if there is none."""
        what, attempt = f"read {path} on {host}", self._attempt
        if host not in self._runtime.graph.hosts:
            guess = did_you_mean(host, self._runtime.graph.hosts)
            raise StepFailed(f'{what}: there is no host "{host}"', hint=guess or "name a host of the inventory")
        self.reads = (*self.reads, (host, path))
        try:
            connector = connector_of(self._runtime, attempt, attempt.deadline, host)
            data = connector.get(path, deadline=attempt.deadline, cancel=attempt.cancel, limit=limit + 1)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StepFailed(
                f"{what}: {(error.strerror or str(error)).lower()}",
                hint="the step reads it as the user that it works as itself: give it `become: true`, or check the path",
            ) from error
        except ConnectorError as error:
            raise StepFailed(f"{what}: {error}", hint=f"{host} must be reachable for this step") from error
        if len(data) > limit:
            raise StepFailed(f"{what}: it is larger than {limit} bytes", hint="check the path")
        return data

    def local_path(self, path: str) -> Path:
        """A path on the control node, relative to the file of the step; or that of a resource."""
        if path.startswith(PREFIX):
            return self.fetch(self.resource(path.removeprefix(PREFIX))).path
        return Path(self._runtime.base(self._attempt.node), path)

    def resource(self, resource: str | Resource) -> Resource:
        """A resource rendered for this host."""
        runtime = self._runtime
        try:
            if isinstance(resource, str):
                resource = resolve(runtime.evaluator, self._attempt.node, self._attempt.host, resource)
            options = runtime.options
            if resource.fetch_on == "host" and (
                options.offline or (options.bundle and runtime.resources.bundled(resource))
            ):
                return resource.fetched_on("control")
            return resource
        except ResourceError as error:
            raise StepFailed(error.message, hint=error.hint) from error

    def fetch(self, resource: Resource) -> LocalResource:
        """The file of a resource on the control node."""
        store, attempt = self._runtime.resources, self._attempt
        try:
            found = store.known(resource)
            if found is None and self._runtime.looks_only:
                label = f"resource {resource.label}"
                known = "is not here" if resource.sha256 else "has no sha256, so that its source must be asked"
                raise UnknownValueError(label, f"{label} {known}: {self._runtime.looks_only}")
            return found or store.fetch(
                resource,
                deadline=attempt.deadline,
                cancel=attempt.cancel,
                progress=lambda done, total: self.progress(f"fetch {resource.filename}", done, total),
            )
        except ResourceError as error:
            raise StepFailed(error.message, hint=error.hint) from error

    def render_template(
        self,
        name: str,
        variables: Mapping[str, Any] | None = None,
        *,
        trim_blocks: bool = True,
        lstrip_blocks: bool = False,
    ) -> str:
        """A template rendered for this host."""
        names = {**self._names, **variables} if variables else self._names
        trimming = Trimming(trim_blocks, lstrip_blocks)
        return self._runtime.templates.render(name, self._runtime.base(self._attempt.node), names, trimming)

    def evaluate(self, expression: str, variables: Mapping[str, Any] | None = None) -> Any:
        """The value of a bare expression for this host."""
        names = {**self._names, **variables} if variables else self._names
        return self._runtime.expressions.expression(expression)(names)

    def progress(self, message: str, done: float | None = None, total: float | None = None) -> None:
        """Report progress; limited to a readable rate, except for the end."""
        self._still_wanted()
        now = time.monotonic()
        if now < self._next_progress and (done is None or done != total):
            return
        self._next_progress = now + _PROGRESS_INTERVAL
        self._attempt.wait_for_journal()
        text = SENSITIVE if self.sensitive else message
        self._emit(ACTION_PROGRESS, message=text, done=done, total=total)

    def save_undo(self, data: Mapping[str, Any]) -> None:
        """Save what ``rollback`` needs; must be plain JSON data."""
        self._still_wanted()
        try:
            data = json.loads(json.dumps(dict(data), allow_nan=False))
        except (TypeError, ValueError) as error:
            raise TypeError(f"save_undo takes plain JSON data: {error}") from error
        if self._spared is not None:
            data = self._runtime.steps.load(self._attempt.node.step_name).merge_undo(self._spared, data)
        self._attempt.undo = data
        journal = self._runtime.journal
        if journal is None:
            return
        if self.holds_secret(json.dumps(self._attempt.undo, ensure_ascii=False)):
            self.log.warning("can be undone in this session only: its undo data contains a secret")
            return
        params = lasting(self._runtime, self._attempt)
        journal.write(entries.undo(self._attempt, self._attempt.undo, params, withheld=self._withheld))

    def spare_undo(self, step: AnyStep, path: str) -> None:
        """Leave a file out that was not replaced after all; what was done besides is merged into what is saved next."""
        if self._attempt.undo is not None:
            spared = step.spare_undo(self._attempt.undo, path)
            self._spared = None
            self.save_undo(spared)
            self._spared = spared

    def withdraw_undo(self) -> None:
        """Discard the undo data of this attempt: it has changed nothing."""
        self._attempt.undo = None
        if self._runtime.journal is not None:
            self._runtime.journal.write(entries.undo(self._attempt, None))

    def keep(self, data: bytes) -> str:
        """Store bytes for a later undo."""
        secret = self.holds_secret(data)
        token = self._runtime.blobs.put(data, secret=secret)
        # Secrets are never recorded: replacing one can be undone in this session only.
        self._withheld |= secret
        if self._runtime.journal is not None and not secret:
            self._runtime.journal.keep(token, data)
        return token

    def kept(self, token: str) -> bytes:
        """The bytes of a token."""
        try:
            return self._runtime.blobs.get(token)
        except KeyError:
            if self._runtime.journal is None:
                raise
        try:
            return self._runtime.journal.kept(token)
        except KeyError:
            raise StepFailed(
                "the replaced content was not recorded, because it contains a secret",
                hint="restore it by hand",
            ) from None
        except ChangedError as error:
            raise StepFailed(error.what, hint=error.hint) from None

    def ask(self, question: str, *, timeout: float | None = None, default: bool | None = None) -> bool:
        """Ask the user."""
        attempt = self._attempt
        asked_until = attempt.deadline.earlier(timeout)
        who = f"{self.node} on {attempt.node.where(attempt.host)}"
        runtime, journal = self._runtime, self._runtime.journal
        question = masker(attempt, runtime.redactor)(question)
        # With a default the spec says what holds if nobody is there, and without a timeout it might wait forever.
        waits = journal is not None and default is None and asked_until.at is not None
        elsewhere = f"kubexm runs answer {runtime.run_id} {shlex.quote(self.node)} yes" if journal is not None else ""

        def note(question: str) -> None:
            if journal is not None:
                # Without a journal the run ends, whatever is answered.
                with suppress(JournalError):
                    journal.write(entries.Asks(self.node, attempt.host, question, default))

        def opened() -> None:
            attempt.wait_for_journal()
            note(question)
            self._emit(ACTION_ASKS, question=question, default=default)

        answer = runtime.asker.ask(
            self.node, attempt.host, who, question, default=default, deadline=asked_until, cancel=attempt.cancel,
            waits=waits, elsewhere=elsewhere, opened=opened,
        )  # fmt: skip
        note("")
        if answer is not None:
            return answer
        nobody = runtime.lines is None and not waits and not runtime.options.patient
        attempted = "there is nobody to ask" if nobody else "nobody answered"
        hint = "run it on a terminal, pipe the answer in, or give the step a `default`"
        if elsewhere:
            hint += f"; with a `timeout` or --wait-for-answers it waits for: {elsewhere}"
        raise StepFailed(f"{attempted}: {question}", hint=hint)

    def sleep(self, seconds: float) -> None:
        """Wait; a cancel or the step's timeout ends it early."""
        attempt = self._attempt
        attempt.cancel.wait(attempt.deadline.earlier(max(0.0, seconds)).left())
        raise_if_over(attempt.deadline, attempt.cancel)
        self._still_wanted()

    def time_left(self) -> float | None:
        """Seconds until this attempt's timeout, or None."""
        return self._attempt.deadline.left()

    def _still_wanted(self) -> None:
        if self._attempt.abandoned:
            raise CommandCancelled("the step was abandoned because it did not stop in time")


def lasting(runtime: Runtime, attempt: Attempt) -> Any:
    """The parameters of an attempt, for an undo after the spec has changed; None if they must not be recorded."""
    rendered = attempt.rendered if attempt.params is None else attempt.params
    if rendered is None or attempt.node.sensitive:
        return None
    params = plain(rendered)
    text = json.dumps(params, ensure_ascii=False)
    return None if len(text) > _MOST_PARAMS or runtime.redactor.mask(text) != text else params


def connector_of(runtime: Runtime, attempt: Attempt, deadline: Deadline, host: str = "") -> Connector:
    """The connector of an attempt's host, or of another one, as the user of its node."""
    host = host or attempt.place
    connector = runtime.connect(host, deadline, attempt.cancel)
    user = attempt.node.become
    if user is None:
        return connector
    if not isinstance(connector, Becomes):
        raise StepFailed(f"the connector of {host} cannot become another user", hint="take `become` off the step")
    try:
        return connector.as_user(user)
    except ValueError as error:
        raise StepFailed(f"host {host}: {error}") from error
