"""Nodes that join or leave: the cluster is asked first, and what it cannot bear is refused before the first change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from kubexm_exec.model.result import DEFAULT_EXECUTOR, GraphExecutionResult, Status
from kubexm_exec.service.clusters import flow_documents, read_cluster
from kubexm_exec.service.documents import Warn
from kubexm_exec.service.errors import Invalid, Refused
from kubexm_exec.service.requests import Documents, RunRequest
from kubexm_spec.diagnostics import Diagnostics

if TYPE_CHECKING:
    from kubexm_exec.service.live import Watcher
    from kubexm_exec.service.protocol import Service
    from kubexm_spec.clusters.build import Asked
    from kubexm_spec.clusters.checks import CheckedCluster
    from kubexm_spec.clusters.hosts import ClusterHost
    from kubexm_spec.clusters.membership import Membership


class Change(Struct, frozen=True):
    """Nodes that are to join or to leave, and the pipeline for that."""

    documents: Documents | None
    """None if there is nothing to do."""
    nodes: Sequence[str] = ()
    gone: Sequence[str] = ()
    """Those of them that do not answer, and on which nothing is done."""


class Nodes:
    """The nodes of a document's cluster. With a service the cluster is asked; without one only the document counts."""

    def __init__(
        self, file: str, folder: str, warn: Warn, service: Service | None, watcher: Watcher, forks: int = 50
    ) -> None:
        self.cluster: CheckedCluster = read_cluster(file, folder, warn)
        self._file = file
        self._folder = folder
        self._warn = warn
        self._service = service
        self._watcher = watcher
        self._forks = forks

    def join(self, patterns: Sequence[str]) -> Change:
        """Hosts that are to become nodes: those that are named, or all that have not joined. Raises ServiceError."""
        from kubexm_spec.clusters.build import Asked
        from kubexm_spec.clusters.membership import check_joining
        from kubexm_spec.clusters.nodes import balancers_to_change

        chosen = self._named(patterns)
        if self._service is None and not patterns:
            raise Invalid("which hosts have not joined is not known without asking", "name them with --nodes")
        settings = self.cluster.settings
        others = balancers_to_change(settings, [host.name for host in chosen])
        known = self._ask([host.name for host in chosen], others)
        joining = chosen or [host for host in settings.hosts.nodes if known and host.node_name not in known.nodes]
        if not joining:
            return Change(None)
        silent = known.silent if known else {}
        if known and not chosen and (others := balancers_to_change(settings, [host.name for host in joining])):
            silent = _silent(self._run(known.through, (), others), others)
        found = Diagnostics()
        check_joining(self.cluster, joining, known, found)
        self._warn_of(others, silent, "its load balancer will not know new control planes", found)
        self._tell(found)
        asked = Asked(
            nodes=tuple(host.name for host in joining),
            through=known.through if known else "",
            silent=tuple(silent),
        )
        return self._change("add-nodes", asked)

    def leave(self, patterns: Sequence[str], *, dead: bool) -> Change:
        """Nodes that are to leave; ``dead``: those that do not answer never will. Raises ServiceError."""
        from kubexm_spec.clusters.build import Asked
        from kubexm_spec.clusters.membership import check_leaving
        from kubexm_spec.clusters.nodes import balancers_to_change

        leaving = self._named(patterns)
        names = [host.name for host in leaving]
        found = Diagnostics()
        # What the document alone tells needs no connection.
        check_leaving(self.cluster, leaving, names if dead and self._service is None else (), None, found)
        self._tell(found)
        others = balancers_to_change(self.cluster.settings, names)
        known = self._ask(names, [*names, *others])
        silent = known.silent if known else dict.fromkeys(names if dead else (), "")
        gone = [name for name in names if name in silent]
        found = Diagnostics()
        check_leaving(self.cluster, leaving, gone, known, found)
        for host in leaving if not dead else ():
            if host.name in gone:
                summary = f'host "{host.name}" does not answer, so that nothing can be removed from it'
                hint = "start it; or if it is gone for good, say so with --dead"
                found.error("unreachable", summary, host.place, hint=hint, detail=silent[host.name])
        self._warn_of(others, silent, "its load balancer still has the control planes that leave", found)
        self._tell(found)
        asked = Asked(
            nodes=tuple(names), through=known.through if known else "", gone=tuple(gone), silent=tuple(silent)
        )
        return self._change("remove-nodes", asked)

    def _warn_of(self, hosts: Sequence[str], silent: Mapping[str, str], what: str, found: Diagnostics) -> None:
        for name in hosts:
            if name in silent:
                place = self.cluster.settings.hosts.by_name[name].place
                hint = "run `kubexm cluster create` when it is back"
                summary = f'host "{name}" does not answer: {what}'
                found.warning("unreachable", summary, place, hint=hint, detail=silent[name])

    def _named(self, patterns: Sequence[str]) -> list[ClusterHost]:
        from kubexm_spec.clusters.membership import named_nodes

        found = Diagnostics()
        chosen = named_nodes(self.cluster, patterns, found)
        self._tell(found)
        return chosen

    def _tell(self, found: Diagnostics) -> None:
        loaded, inventory = self.cluster.loaded, self.cluster.settings.hosts.inventory
        sources = {loaded.source.name: loaded.source, inventory.source.name: inventory.source}
        if found.has_errors:
            raise Invalid.documents(found, sources, self._folder)
        if len(found):
            self._warn(found, sources)

    def _change(self, flow: str, asked: Asked) -> Change:
        built = flow_documents(self.cluster, self._file, self._folder, flow, asked)
        return Change(built, asked.nodes, asked.gone)

    def _ask(self, nodes: Sequence[str], probed: Sequence[str]) -> Membership | None:
        """What the first control plane knows that answers for its cluster; others than the nodes alone are asked."""
        from kubexm_spec.clusters.membership import membership_of

        if self._service is None:
            return None
        silent: dict[str, str] | None = None
        reasons: list[str] = []
        for host in self.cluster.settings.control_planes:
            if host.name in nodes:
                continue
            result = self._run(host.name, nodes, probed if silent is None else ())
            if result.status is Status.CANCELLED:
                raise Refused("interrupted while the cluster was asked; nothing was changed")
            if silent is None:
                silent = _silent(result, probed)
            said = _said(result)
            if isinstance(said, str):
                reasons.append(f"{host.name}: {said}")
                continue
            try:
                return membership_of(host.name, said, silent)
            except (ValueError, KeyError, TypeError):
                reasons.append(f"{host.name}: its programs say something that is not understood")
        hint = "a cluster without a quorum of etcd has to be repaired first; `kubexm cluster create` creates one"
        shown = "; ".join(reasons) or "there is none beside the nodes that were named"
        raise Refused(f"no control plane answers for the cluster: {shown}", hint)

    def _run(self, through: str, nodes: Sequence[str], probed: Sequence[str]) -> GraphExecutionResult:
        from kubexm_spec.clusters.build import Asked

        assert self._service is not None
        asked = Asked(nodes=tuple(nodes), through=through, probed=tuple(probed))
        built = flow_documents(self.cluster, self._file, self._folder, "membership", asked)
        request = RunRequest(documents=built, executor=DEFAULT_EXECUTOR, forks=self._forks, journal=False)
        return self._service.run(request, self._watcher).result


def _silent(result: GraphExecutionResult, probed: Sequence[str]) -> dict[str, str]:
    """Those of the hosts that did not answer, and why."""
    node = result.node_results.get("membership/hosts/answers")
    answers = node.host_results if node is not None else {}
    return {
        name: answers[name].message for name in probed if name in answers and answers[name].status is not Status.SUCCESS
    }


def _said(result: GraphExecutionResult) -> dict[str, str] | str:
    """What the steps printed, by their names, or why one of them failed."""
    said = {}
    for name in ("cluster/nodes", "cluster/configuration", "etcd/members", "etcd/health"):
        node = result.node_results.get(f"membership/{name}")
        for each in node.host_results.values() if node is not None else ():
            if each.status is Status.FAILED:
                return each.message
            said[name.rpartition("/")[2]] = str(each.outputs.get("stdout", ""))
    return said
