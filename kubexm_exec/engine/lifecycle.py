"""The life cycle of one attempt: condition, parameters, precheck, run; every exception becomes a result."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final, NoReturn
from weakref import WeakValueDictionary

from msgspec.structs import replace
from pydantic import ValidationError

from kubexm_exec.control import Semaphore
from kubexm_exec.engine import entries, uncertain
from kubexm_exec.engine.attempt import ActionOutcome, Attempt
from kubexm_exec.engine.context import ActionContext
from kubexm_exec.engine.failures import cancelled, caused_by, failed, find_cause
from kubexm_exec.engine.judgement import is_over, judge
from kubexm_exec.engine.ports import JournalError
from kubexm_exec.engine.runtime import Runtime
from kubexm_exec.engine.sensitive import conceal, masker
from kubexm_exec.model.errors import CommandCancelled, CommandTimedOut, FileChanged, NotYet, StepFailed
from kubexm_exec.model.graph import ExecutionNode
from kubexm_exec.model.plain import plain
from kubexm_exec.model.result import FailureKind, ForecastState, HostResult, SkipReason, Status
from kubexm_exec.plugins import RegistryError
from kubexm_exec.step import AnyStep, Diff, Effect, Forecast, Outputs, Params, Result
from kubexm_exec.values.evaluate import NO_ITEMS
from kubexm_exec.values.expressions import ExpressionError, UnknownValueError
from kubexm_exec.values.items import ItemsError
from kubexm_spec.diagnostics import plural, some
from kubexm_spec.documents.checking import wording

_NONE: Final = Effect.NONE
KEPT: Final = 64 << 10
"""Characters kept of each stream in the record."""
_TRACEBACK: Final = 32 << 10
"""Characters kept of a traceback."""
_TRIES: Final = 5
"""How often a step may find a file changed by others since it looked at it."""
_MOST_TURNS: Final = 16
"""Files for which an action waits; one that changes more writes them whole, whatever they were."""
_turns: Final[WeakValueDictionary[tuple[Any, str], Semaphore]] = WeakValueDictionary()
_turns_lock: Final = threading.Lock()
_LARGE_DIFF: Final = 256 << 10
"""Longer texts are not compared line by line: that takes long, and nobody reads it."""


class Lifecycle:
    """Performs attempts; shared by all threads."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._evaluator = runtime.evaluator
        self._prefetch = runtime.prefetch
        self._static: dict[str | type[AnyStep], Params] = {}
        """Parameters without expressions by the id of their node; by step type where there are none."""
        self._raw: dict[type[Params], frozenset[str]] = {}
        self._output_names: dict[type[Outputs], dict[str, str]] = {}

    def perform(self, attempt: Attempt) -> ActionOutcome:
        """Perform an attempt, and return its outcome; never raises, whatever the step does."""
        ctx: ActionContext | None = None
        step: AnyStep | None = None
        forecast: Forecast[Any] | None = None
        try:
            unmet = self.unmet(attempt)
            if unmet is not None:
                outcome = unmet
            else:
                step = self.step(attempt)
                ctx = ActionContext(self._runtime, attempt)
                forecast = self.forecast(step, ctx)
                if forecast.effect is _NONE:
                    outcome = self.satisfied(attempt, step, forecast)
                    if attempt.unsure or attempt.worked:
                        outcome = uncertain.was_done(attempt, outcome)
                else:
                    attempt.begin_work()
                    if attempt.unsure:
                        uncertain.settle(attempt, step, forecast)
                    if attempt.deadline.at is not None:
                        _in_time(attempt)
                    if attempt.notifies and self._runtime.journal is not None:
                        # Before anything changes: if nobody ever hears of the end, the handlers are not forgotten.
                        self._runtime.journal.write(entries.Work(attempt.node.id, attempt.host, attempt.notifies))
                    attempt.working = True
                    forecast, outcome = self._work(attempt, step, ctx, forecast)
                if attempt.deadline.at is not None:
                    _in_time(attempt)
        except BaseException as error:  # noqa: BLE001  a step may raise anything, also SystemExit: it is the action's failure
            outcome = self.broke(attempt, error, ctx)
            uncertain.mark(attempt, outcome, error, step, forecast)
            if attempt.undo is not None and ctx is not None and step is not None:
                self._withdraw_undo(attempt, outcome, step, ctx)
            if attempt.working and step is not None and forecast is not None and forecast.diffs:
                if isinstance(error, StepFailed) and error.refused:
                    outcome.result.refused = diff_data(forecast.diffs)
                else:
                    self._may_have_changed(attempt, outcome, step, forecast)
        if ctx is not None:
            ctx.close()
        return self.done(attempt, outcome)

    def _work(
        self, attempt: Attempt, step: AnyStep, ctx: ActionContext, forecast: Forecast[Any]
    ) -> tuple[Forecast[Any], ActionOutcome]:
        """Run the step; if a file is not what it saw any more, it looks again first.

        Actions of this process that change the same file take turns: of themselves, they need to look again once.
        """
        if forecast.diffs:
            paths = sorted({diff.path for diff in forecast.diffs if diff.path.startswith("/")})[:_MOST_TURNS]
            with contextlib.ExitStack() as turns:
                machine = self._runtime.graph.hosts[attempt.place].machine
                for path in paths:
                    with _turns_lock:
                        turn = _turns.setdefault((machine, path), Semaphore(1))
                    if not turn.take(attempt.deadline, attempt.cancel):
                        raise CommandTimedOut(f"while another action changes {path}")
                    turns.callback(turn.give_back)
                forecast, done = self._run(attempt, step, ctx, forecast)
        else:
            forecast, done = self._run(attempt, step, ctx, forecast)
        if done is not None:
            return forecast, done
        outcome = self.satisfied(attempt, step, forecast)
        if attempt.undo is not None:
            self._withdraw_undo(attempt, outcome, step, ctx)
        if attempt.undo is not None:
            result = Result(message=forecast.message, outputs=forecast.outputs)
            outcome = self.ran(attempt, step, result, forecast)
        return forecast, outcome

    def _run(
        self, attempt: Attempt, step: AnyStep, ctx: ActionContext, forecast: Forecast[Any]
    ) -> tuple[Forecast[Any], ActionOutcome | None]:
        """Run the step until it finds all files as it has seen them; no outcome if there is nothing left to do."""
        prefetch, replaces = self._prefetch, forecast.replaces
        prefetch.begin(attempt, replaces)
        try:
            for tries_left in reversed(range(_TRIES)):
                try:
                    result = step.run(ctx, forecast)
                except FileChanged as changed:
                    ctx.spare_undo(step, changed.path)
                    if not tries_left:
                        raise
                else:
                    return forecast, self.ran(attempt, step, result, forecast)
                forecast = self.forecast(step, ctx)
                if forecast.effect is Effect.NONE:
                    break
        finally:
            prefetch.end(attempt, replaces)
        return forecast, None

    def _withdraw_undo(self, attempt: Attempt, outcome: ActionOutcome, step: AnyStep, ctx: ActionContext) -> None:
        """Discard the undo data of an attempt that has ended before it changed anything."""
        result = outcome.result
        if result.kind not in (None, FailureKind.FAILED) or result.unknown or attempt.abandoned:
            return
        if attempt.cancel.is_set():
            return
        try:
            if step.standing(ctx, attempt.undo or {}).before:
                ctx.withdraw_undo()
        except Exception as error:  # noqa: BLE001  then the undo finds out itself
            mask = masker(attempt, self._runtime.redactor)
            ctx.log.debug("cannot tell whether it changed anything", error=mask(str(error)))

    def _may_have_changed(
        self, attempt: Attempt, outcome: ActionOutcome, step: AnyStep, forecast: Forecast[Any]
    ) -> None:
        """Note what an attempt that broke off was about to change, unless it has changed nothing."""
        if attempt.undo is not None or not step.undo.reversible:
            outcome.result.diffs = diff_data(forecast.diffs)

    # The parts, which other executors combine differently

    def unmet(self, attempt: Attempt) -> ActionOutcome | None:
        """The outcome when one of the node's conditions is false."""
        node = attempt.node
        if node.when is None and not node.guards:
            return None
        condition = self._evaluator.unmet(node, attempt.host)
        if condition is None:
            return None
        return skipped(attempt, f"condition not met: {condition}")

    def expand(self, attempt: Attempt) -> ActionOutcome:
        """The outcome of a loop whose items are known only now; raises UnknownValueError if they are not even now."""
        node, host = attempt.node, attempt.host
        assert node.loop is not None
        try:
            condition = self._evaluator.unmet(self._before_items(node), host)
            if condition is not None:
                return skipped(attempt, f"condition not met: {condition}")
            mask = self._runtime.redactor.mask
            items = self._evaluator.items(node, node.loop, host, is_secret=lambda text: mask(text) != text)
            if not items:
                return skipped(attempt, NO_ITEMS)
            keys = [key for key, _ in items]
        except ItemsError as error:
            return self.broke(attempt, StepFailed(error.message, hint=error.hint), None)
        except UnknownValueError:
            raise
        except BaseException as error:  # noqa: BLE001  as with a step: whatever it is, it is the action's failure
            return self.broke(attempt, error, None)
        message = plural(len(keys), "item") if node.sensitive else f"{plural(len(keys), 'item')}: {some(keys)}"
        return ActionOutcome(HostResult(host_name=host, status=Status.SUCCESS, message=message), items=items)

    def _before_items(self, node: ExecutionNode) -> ExecutionNode:
        """The node with the conditions that can be judged before its items are known."""
        if not isinstance(node.when, str):
            return node
        of_item = any(one.root == "item" for one in self._runtime.expressions.expression(node.when).references)
        return replace(node, when=None) if of_item else node

    def step(self, attempt: Attempt) -> AnyStep:
        """The step with its checked parameters; raises what rendering or checking them raises."""
        node = attempt.node
        kind: type[AnyStep] = self._runtime.steps.load(node.step_name)
        params, raw = None, attempt.params
        if raw is not None:
            params = kind.params_model.model_validate(raw)
        elif not node.with_ or self._evaluator.is_static(node):
            # Parameters are immutable, so that all hosts can share them; each action has its own step object.
            key, raw = node.id if node.with_ else kind, node.with_
            params = self._static.get(key)
            if params is None:
                params = kind.params_model.model_validate(raw)
                if len(node.hosts) > 1 or key is kind:
                    self._static[key] = params
        else:
            raw = self._evaluator.params(node, attempt.host, skip=self.raw_keys(kind))
            params = kind.params_model.model_validate(raw)
        attempt.rendered, attempt.used = raw, params
        return kind(params)

    def raw_keys(self, kind: type[AnyStep]) -> frozenset[str]:
        """The parameters that a step type takes unrendered."""
        model = kind.params_model
        if model not in self._raw:
            from kubexm_exec.compile.types import marks_of

            self._raw[model] = marks_of(model).raw
        return self._raw[model]

    def forecast(self, step: AnyStep, ctx: ActionContext) -> Forecast[Any]:
        """The forecast of the step's precheck."""
        ctx.looking = True
        try:
            forecast = step.precheck(ctx)
        finally:
            ctx.looking = False
        if not isinstance(forecast, Forecast):
            _wrong_type(step, "precheck", "Forecast", forecast)
        return forecast

    def satisfied(self, attempt: Attempt, step: AnyStep, forecast: Forecast[Any]) -> ActionOutcome:
        """The outcome when there is nothing to do."""
        # The outputs of ``run`` are not known before it has run.
        outputs = None
        if forecast.effect is Effect.NONE:
            judged = None if forecast.spared else Result(message=forecast.message)
            outputs = self._outputs(attempt, step, forecast.outputs, judged)
        result = HostResult(
            host_name=attempt.host,
            status=Status.SKIPPED,
            reason=SkipReason.PRECHECK,
            skipped=True,
            message=forecast.message,
            forecast=ForecastState.SATISFIED,
        )
        return ActionOutcome(result, outputs)

    def ran(self, attempt: Attempt, step: AnyStep, result: Result, forecast: Forecast[Any]) -> ActionOutcome:
        """The outcome after ``run``."""
        if not isinstance(result, Result):
            _wrong_type(step, "run", "Result", result)
        if not isinstance(result.message, str):
            raise TypeError(f"{type(step).__name__}.run: the message must be text, not {result.message!r:.60}")
        changed = result.changed or (attempt.worked and forecast.effect is Effect.CHANGES)
        host_result = HostResult(
            host_name=attempt.host, status=Status.SUCCESS, changed=changed, message=result.message,
            stdout=result.stdout, stderr=result.stderr, command=result.command, exit_code=result.exit_code,
        )  # fmt: skip
        if forecast.diffs and result.changed:
            host_result.diffs = diff_data(forecast.diffs)
        outputs = self._outputs(attempt, step, result.outputs, result)
        return ActionOutcome(host_result, outputs, result.fragment)

    def broke(self, attempt: Attempt, error: BaseException, ctx: ActionContext | None) -> ActionOutcome:
        """The outcome after an exception."""
        if attempt.cancel.is_set() and caused_by(error, CommandCancelled):
            result = cancelled(attempt)
        elif (lost := find_cause(error, JournalError)) is not None:
            # Nothing is changed that cannot be recorded; the run ends because of it.
            result = cancelled(attempt)
            result.message = f"stopped while it ran: {lost.what}"
        else:
            result = failed(attempt, error)
            # A mistake in a plug-in is told by its message; its author finds the rest in the result.
            if result.traceback and not attempt.abandoned and not isinstance(error, RegistryError):
                log = self._runtime.logger(node=attempt.node.id, host=attempt.host)
                mask = masker(attempt, self._runtime.redactor)
                log.error("the step raised an exception", error=mask(result.message), exception=mask(result.traceback))
        if ctx is not None:
            # The cause may be on either stream, whatever the step kept.
            result.stdout = result.stdout or ctx.output("stdout")
            result.stderr = result.stderr or ctx.output("stderr")
        result.ignored = result.status is Status.FAILED and attempt.node.policy.ignore_errors
        given = error.outputs if isinstance(error, StepFailed) else None
        outcome = ActionOutcome(result, self._salvaged(attempt, given) if given else None)
        if isinstance(error, StepFailed):
            attempt.changed = error.changed
        outcome.not_yet = isinstance(error, NotYet)
        outcome.final = bool(given) and is_over(self._evaluator, attempt.node, attempt.host, given or {})
        return outcome

    def done(self, attempt: Attempt, outcome: ActionOutcome) -> ActionOutcome:
        """The outcome as it may be shown: bounded, without secrets, with its end time."""
        result = outcome.result
        result.repeated = attempt.repeats
        if outcome.outputs:
            result.outputs = dict(outcome.outputs)
        if attempt.since:
            result.due_since, result.message = attempt.since, attempt.because(result.message)
        conceal(attempt, outcome, self._runtime.redactor)
        # Only now: a truncated secret would not be masked.
        result.stdout, result.stderr = result.stdout[-KEPT:], result.stderr[-KEPT:]
        if result.traceback:
            result.traceback = result.traceback[-_TRACEBACK:]
        result.end_time = time.time()
        return outcome

    def _outputs(
        self, attempt: Attempt, step: AnyStep, own: Mapping[str, Any], judged: Result | None
    ) -> Mapping[str, Any] | None:
        """The outputs of a step, whose result is judged by what the spec says of it."""
        if own:
            own = self._declared(step, own)
        if judged is not None and (attempt.node.failed_when or attempt.node.policy.retry.until is not None):
            judge(self._evaluator, attempt.node, attempt.host, own, judged)
        if attempt.node.outputs:
            return self._evaluator.outputs(attempt.node, attempt.host, own)
        return own or None

    def _salvaged(self, attempt: Attempt, own: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """The outputs of a failed step, as far as they can be evaluated."""
        node = attempt.node
        model = self._runtime.steps.load(node.step_name).outputs_model
        names = self._names_of(model)
        found = {names.get(key, key): plain(value) for key, value in own.items() if key in names or _takes_any(model)}
        for name, value in node.outputs.items():
            with contextlib.suppress(ExpressionError):
                found[name] = self._evaluator.output(node, attempt.host, value, found)
        return found or None

    def _names_of(self, model: type[Outputs]) -> dict[str, str]:
        names = self._output_names.get(model)
        if names is None:
            names = self._output_names[model] = {
                key: info.alias or name
                for name, info in model.model_fields.items()
                for key in (name, info.alias or name)
            }
        return names

    def _declared(self, step: AnyStep, own: Mapping[str, Any]) -> dict[str, Any]:
        """The outputs under the names that specs use; an undeclared one is an error of the step's author."""
        model = step.outputs_model
        names = self._names_of(model)
        if not type(step).__module__.startswith("kubexm_steps."):  # ours are checked by their tests
            _check_outputs(step, own)
        if _takes_any(model):
            return {names.get(key, key): plain(value) for key, value in own.items()}
        unknown = sorted(key for key in own if key not in names)
        if unknown:
            raise TypeError(
                f"{type(step).__name__} returned the output {unknown[0]!r}, which {model.__name__} does not declare"
            )
        return {names[key]: plain(value) for key, value in own.items()}


def _check_outputs(step: AnyStep, own: Mapping[str, Any]) -> None:
    try:
        step.outputs_model.model_validate(own)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        name, model = ".".join(map(str, problem["loc"])), step.outputs_model.__name__
        wrong = f"returned the output {name!r}, which is not as {model} declares it: {wording(problem)}"
        raise TypeError(f"{type(step).__name__} {wrong}") from None


def _in_time(attempt: Attempt) -> None:
    if attempt.deadline.passed():
        raise CommandTimedOut


def _takes_any(model: type[Outputs]) -> bool:
    return model.model_config.get("extra") == "allow"


def _wrong_type(step: AnyStep, method: str, wanted: str, got: object) -> NoReturn:
    name = type(step).__name__
    raise TypeError(f"{name}.{method} must return a {wanted}, not {type(got).__name__}")


def skipped(attempt: Attempt, why: str) -> ActionOutcome:
    """The outcome of an attempt that is not made."""
    return ActionOutcome(
        HostResult(host_name=attempt.host, status=Status.SKIPPED, reason=SkipReason.CONDITION, message=why)
    )


def diff_data(diffs: Sequence[Diff]) -> list[dict[str, Any]]:
    """Diffs as plain data, bounded."""
    data = []
    for diff in diffs:
        if len(diff.before or "") + len(diff.after or "") > _LARGE_DIFF:
            before, after = len((diff.before or "").splitlines()), len((diff.after or "").splitlines())
            note = f"content changes ({plural(before, 'line')} before, {after} after: too long to show)"
            data.append({"path": diff.path, "text": "", "note": f"{diff.note}, {note}" if diff.note else note})
        else:
            data.append({"path": diff.path, "text": diff.unified(), "note": diff.note})
    return data
