"""The kit for testing a step: the step itself, with the engine's own context, on a host that is a folder of the test.

Nothing is faked: commands run, files are written, what is saved for an undo is what a run would save.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self, TextIO

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

__all__ = ["StepTest", "snapshot"]

_NODE: Final = "module/task/step"


class StepTest:
    """A step type with its parameters, on one host; each call makes the step anew, as the engine does for an attempt.

    Use it in a ``with``, which lets go of everything at the end.
    """

    def __init__(
        self,
        folder: Path,
        step: str | type[AnyStep],
        with_: Mapping[str, Any],
        *,
        sensitive: bool = False,
        host_vars: Mapping[str, Any] | None = None,
        address: str = "",
        answers: TextIO | None = None,
        timeout: float = 60.0,
        host: GraphHost | None = None,
        others: Sequence[GraphHost] = (),
    ) -> None:
        """``folder`` is where the spec would be; ``step`` a class, or the name of an installed step type.

        ``with_`` are the parameters as they would stand in a spec. Without a ``host`` it is this machine. ``others``
        are more hosts of the inventory, for ``ctx.read_on``.
        """
        host = host or GraphHost("here", connector="local", address=address, vars=host_vars or {})
        kind = step if isinstance(step, str) else step.__name__
        node = ExecutionNode(
            id=_NODE, name="step", step_name=kind, hosts=(host.name,), with_=with_, scope="", sensitive=sensitive
        )
        graph = ExecutionGraph(
            "test",
            {_NODE: node},
            {each.name: each for each in (host, *others)},
            {"": Scope("", own_params=True, base=str(folder))},
        )
        self.events: list[Event] = []
        """All that was told while it ran."""
        self.undo: Mapping[str, Any] | None = None
        """What the last run saved for its undo."""
        self.cancel = Cancel()
        """Set it to cancel what runs."""
        bus = EventBus("run")
        bus.subscribe(self.events.append)
        self.runtime = Runtime(
            graph,
            options=RunOptions(input=answers),
            bus=bus,
            secrets=Secrets(Redactor()),
            steps=step_registry() if isinstance(step, str) else _Only(step),
            connectors=connector_registry(),
        )
        self._node = node
        self._host = host.name
        self._timeout = timeout
        self._lifecycle = Lifecycle(self.runtime)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of everything."""
        self.runtime.close()

    def forecast(self) -> Forecast[Any]:
        """What precheck says, as in a check."""
        step, ctx, _ = self._make()
        try:
            return self._lifecycle.forecast(step, ctx)
        finally:
            ctx.close()

    def run(self) -> Result:
        """Look, and run if there is something to do; what is saved for an undo is remembered, also if it fails."""
        step, ctx, attempt = self._make()
        try:
            forecast = self._lifecycle.forecast(step, ctx)
            if forecast.effect is Effect.NONE:
                return Result(changed=False, message=forecast.message, outputs=forecast.outputs)
            result = step.run(ctx, forecast)
            self._lifecycle.ran(attempt, step, result, forecast)
            step.outputs_model.model_validate(result.outputs)
            return result
        finally:
            self.undo = attempt.undo
            ctx.close()

    def run_again(self) -> Result:
        """Run once more, as a later attempt does: what both have saved for an undo is remembered as one."""
        first = self.undo
        try:
            return self.run()
        finally:
            if first is not None:
                kind = self.runtime.steps.load(self._node.step_name)
                self.undo = first if self.undo is None else kind.merge_undo(first, self.undo)

    def standing(self) -> Standing:
        """What an undo of the last run would find."""
        step, ctx, _ = self._make()
        try:
            return step.standing(ctx, self._saved())
        finally:
            ctx.close()

    def rollback(self) -> None:
        """Undo what the last run saved, without a look."""
        step, ctx, _ = self._make()
        step.rollback(ctx, self._saved())
        ctx.close()

    def undo_run(self, *, overwrite: bool = False) -> tuple[str, str]:
        """Undo the last run as a rollback does: how that ended, and the message.

        It ended as ``undone``, ``undoFailed``, ``leftAlone`` (changed since by somebody else) or ``notReversible``.
        """
        _, ctx, attempt = self._make()
        ctx.close()
        attempt.undo = self._saved()
        result = HostResult(host_name=self._host, status=Status.SUCCESS, changed=True)
        self.runtime.options.overwrite = overwrite
        undo_all(self.runtime, [Saved(self._node, self._host, result, [attempt])])
        state, _, said = result.undo.partition(": ")
        return state, said

    def output(self) -> str:
        """All that commands of the step have written."""
        return "".join(event.data["text"] for event in self.events if event.kind == "action.output")

    def _saved(self) -> Mapping[str, Any]:
        assert self.undo is not None, "nothing was saved for an undo"
        return self.undo

    def _make(self) -> tuple[AnyStep, ActionContext, Attempt]:
        attempt = Attempt(self._node, self._host, 1, self.cancel, Deadline.after(self._timeout))
        # Forget what was seen before: a test may have changed it since.
        self.runtime.prefetch.begin(attempt)
        self.runtime.prefetch.end(attempt)
        return self._lifecycle.step(attempt), ActionContext(self.runtime, attempt), attempt


class _Only:
    """A registry of one step type, which need not be installed."""

    def __init__(self, step: type[AnyStep]) -> None:
        self._step = step

    def load(self, name: str) -> Any:
        return self._step

    def names(self) -> list[str]:
        return [self._step.__name__]


def snapshot(folder: Path, *, exact: bool = False) -> dict[str, tuple[Any, ...]]:
    """Everything below a folder: kind, mode, content or target, attributes, owner and group, by its path.

    Two of them are equal if nothing was changed in between. ``exact`` adds what any touch changes: precheck leaves not
    even a temporary file.
    """
    found: dict[str, tuple[Any, ...]] = {}
    for path in sorted([folder, *folder.rglob("*")] if exact else folder.rglob("*")):
        info = path.lstat()
        mode = f"{stat.S_IMODE(info.st_mode):04o}"
        if stat.S_ISLNK(info.st_mode):
            entry: tuple[Any, ...] = ("link", os.readlink(path))  # noqa: PTH115  # as it is written
        elif stat.S_ISDIR(info.st_mode):
            entry = ("directory", mode)
        else:
            attributes = tuple((name, os.getxattr(path, name)) for name in sorted(os.listxattr(path)))
            entry = ("file", mode, path.read_bytes(), attributes)
        touched = (info.st_ino, info.st_mtime_ns, info.st_ctime_ns) if exact else ()
        found[str(path.relative_to(folder))] = (*entry, info.st_uid, info.st_gid, *touched)
    return found
