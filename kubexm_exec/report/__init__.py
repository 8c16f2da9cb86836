"""Makes of a run a page that tells what happened: what failed and why, who did what when, and all that was said."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kubexm_exec.model.events import Event
    from kubexm_exec.model.graph import ExecutionGraph
    from kubexm_exec.model.result import GraphExecutionResult

__all__ = ["render_report"]


def render_report(
    graph: ExecutionGraph,
    result: GraphExecutionResult,
    events_or_logs: Sequence[Event] = (),
    *,
    mask: Callable[[Any], Any] | None = None,
) -> str:
    """A self-contained HTML page.

    Events add what a result does not have: attempts that failed, output that was not kept, the parameters of a dry run,
    the log of the run. ``mask`` takes secrets out of any plain data. Mask with it what goes in, not the page that comes
    out: a page in which a word of its own script was masked does not work any more.
    """
    from kubexm_exec.report.html import report_page
    from kubexm_exec.report.inputs import extended, masked

    if mask is not None:
        graph, result, events_or_logs = masked(graph, result, events_or_logs, mask)
    return report_page(extended(graph, events_or_logs), result, events_or_logs)
