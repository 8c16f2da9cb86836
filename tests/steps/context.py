"""One step on one host, with the engine's own context: real parameters, real files, no graph around it."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

from kubexm_exec.control import Cancel, Deadline
from kubexm_exec.engine.attempt import Attempt
from kubexm_exec.engine.context import ActionContext
from kubexm_exec.engine.lifecycle import Lifecycle
from kubexm_exec.engine.runtime import RunOptions, Runtime
from kubexm_exec.engine.undo import Saved, undo_all
from kubexm_exec.model.events import Event, EventBus
from kubexm_exec.model.graph import ExecutionGraph, ExecutionNode, GraphHost, Scope
from kubexm_exec.model.result import HostResult, Status
from kubexm_exec.plugins import connector_registry, step_registry
from kubexm_exec.secrets import Redactor, Secrets
from kubexm_exec.step import AnyStep, Effect, Forecast, Result, Standing

NODE = "module/task/step"


class World:
    """A step type with its parameters; each call makes the step anew, as the engine does for each action."""

    def __init__(
        self,
        base: Path,
        step: str,
        with_: Mapping[str, Any],
        *,
        sensitive: bool = False,
        host_vars: Mapping[str, Any] | None = None,
        address: str = "",
        answers: TextIO | None = None,
        timeout: float | None = None,
        host: GraphHost | None = None,
    ) -> None:
        host = host or GraphHost("here", connector="local", address=address, vars=host_vars or {})
        node = ExecutionNode(
            id=NODE, name="step", step_name=step, hosts=(host.name,), with_=with_, scope="", sensitive=sensitive
        )
        graph = ExecutionGraph(
            "test", {NODE: node}, {host.name: host}, {"": Scope("", own_params=True, base=str(base))}
        )
        self.events: list[Event] = []
        self._lock = threading.Lock()
        bus = EventBus("run")
        bus.subscribe(self.events.append)
        self.runtime = Runtime(
            graph,
            options=RunOptions(input=answers),
            bus=bus,
            secrets=Secrets(Redactor()),
            steps=step_registry(),
            connectors=connector_registry(),
        )
        self.cancel = Cancel()
        self._node = node
        self._host = host.name
        self._timeout = timeout
        self._lifecycle = Lifecycle(self.runtime)
        self.undo: Mapping[str, Any] | None = None

    def forecast(self) -> Forecast[Any]:
        """What precheck says."""
        step, ctx, _ = self._make()
        try:
            return step.precheck(ctx)
        finally:
            ctx.close()

    def run(self) -> Result:
        """Look, and run if there is something to do; its undo is remembered, also if it fails."""
        step, ctx, attempt = self._make()
        try:
            forecast = step.precheck(ctx)
            if forecast.effect is Effect.NONE:
                return Result(changed=False, message=forecast.message, outputs=forecast.outputs)
            result = step.run(ctx, forecast)
            step.outputs_model.model_validate(result.outputs)
            return result
        finally:
            self.undo = attempt.undo
            ctx.close()

    def run_again(self) -> Result:
        """What a later session's run gives; what both have saved for an undo is remembered as one."""
        first = self.undo
        try:
            return self.run()
        finally:
            kind = step_registry().load(self._node.step_name)
            if first is not None:
                self.undo = first if self.undo is None else kind.merge_undo(first, self.undo)

    def rollback(self) -> None:
        """Undo what the last run saved."""
        assert self.undo is not None, "nothing was saved for an undo"
        step, ctx, _ = self._make()
        step.rollback(ctx, self.undo)
        ctx.close()

    def standing(self) -> Standing:
        """What an undo of the last run would find."""
        assert self.undo is not None, "nothing was saved for an undo"
        step, ctx, _ = self._make()
        try:
            return step.standing(ctx, self.undo)
        finally:
            ctx.close()

    def undo_all(self, *, overwrite: bool = False) -> tuple[str, str]:
        """Undo what the last run saved as a rollback does, after a look; its state, and what is said."""
        assert self.undo is not None, "nothing was saved for an undo"
        _, ctx, attempt = self._make()
        ctx.close()
        attempt.undo = self.undo
        result = HostResult(host_name=self._host, status=Status.SUCCESS, changed=True)
        self.runtime.options.overwrite = overwrite
        undo_all(self.runtime, [Saved(self._node, self._host, result, [attempt])])
        state, _, said = result.undo.partition(": ")
        return state, said

    def output(self) -> str:
        """All that was shown while it ran."""
        return "".join(event.data["text"] for event in self.events if event.kind == "action.output")

    def _make(self) -> tuple[AnyStep, ActionContext, Attempt]:
        attempt = Attempt(self._node, self._host, 1, self.cancel, Deadline.after(self._timeout or 60.0))
        step = self._lifecycle.step(attempt)
        return step, ActionContext(self.runtime, attempt), attempt

    def close(self) -> None:
        """Let go of everything."""
        self.runtime.close()
