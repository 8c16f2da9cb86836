"""What the steps of a run printed, whole: it is kept beside the journal, on the machine that ran it."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from pathlib import Path

from kubexm_exec.journal.logfile import NAME, read_log
from kubexm_exec.journal.store import Store, folder_of
from kubexm_exec.model.events import ACTION_OUTPUT, Event
from kubexm_exec.service.errors import NotFound
from kubexm_exec.service.past import check_nodes, chosen_hosts, load_past, looks, read_past


def logs(
    store: Store, state: Path, run: str, hosts: str | None, nodes: Sequence[str], *, follow: bool
) -> Iterator[Event]:
    """The pieces in the order in which they were printed; raises NotFound if there is no log."""
    from kubexm_exec.engine.resume import matches

    past = load_past(store, run)
    row = past.row
    # What was added to the graph while it ran may have printed something, too.
    check_nodes([node.id for node in read_past(store, past).whole.steps()], nodes, row.id)
    chosen = None if hosts is None else chosen_hosts(past.graph.hosts, hosts)
    folder = folder_of(state, row.id)
    offset, said = 0, False
    for alive in looks(store, row.id, follow=follow):
        for after, piece in read_log(folder, offset):
            offset, said = after, True
            if (chosen is None or piece["host"] in chosen) and (not nodes or matches(piece["node"], nodes)):
                data = {key: value for key, value in piece.items() if key not in ("time", "node", "host")}
                yield Event(ACTION_OUTPUT, row.id, piece["time"], piece["node"], piece["host"], data)
        if not said and not (folder / NAME).exists() and not (alive and follow):
            if row.holder.host == socket.gethostname():
                message = f"the steps of run {row.id} have no output (the log would be in {folder})"
                raise NotFound(message, kind="no-output")
            raise NotFound(
                f"the log of run {row.id} is not here: it was run on {row.holder.host} by {row.holder.user}",
                f"run this command there, or see the end of every output: kubexm runs report {row.id} -o FILE",
                kind="elsewhere",
            )
