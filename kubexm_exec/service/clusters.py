"""Clusters: a Cluster document checked, and turned into a pipeline."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from kubexm_exec.service.documents import Warn
from kubexm_exec.service.errors import Invalid
from kubexm_exec.service.requests import SHIPPED, Documents, RunRequest
from kubexm_spec.diagnostics import Diagnostics

if TYPE_CHECKING:
    from kubexm_exec.service.live import Watcher
    from kubexm_exec.service.preflight import Preflight
    from kubexm_exec.service.protocol import Service
    from kubexm_spec.clusters.build import Asked
    from kubexm_spec.clusters.checks import CheckedCluster


def read_cluster(file: str, folder: str, warn: Warn) -> CheckedCluster:
    """The cluster in a file; ``warn`` gets its warnings. Raises Invalid with everything that is wrong."""
    from kubexm_exec.compile.standalone import check_cluster_document
    from kubexm_exec.plugins import step_registry
    from kubexm_spec.clusters.build import check_buildable
    from kubexm_spec.documents.loader import Loaded, Loader
    from kubexm_spec.models.cluster import ClusterDocument

    diagnostics = Diagnostics()
    loader = Loader(diagnostics, folder=folder)
    source = loader.source(loader.folder / file, file)
    found = loader.choose(source, "", "Cluster", source.place(0)) if source is not None else None
    sources: dict[str, Any] = {source.name: source} if source is not None else {}
    checked = None
    if found is not None and isinstance(found.document, ClusterDocument):
        cluster = Loaded(found.document, found.source, found.index)
        checked = check_cluster_document(cluster, loader, step_registry())
        if checked is not None:
            check_buildable(checked, diagnostics)
    if checked is None or diagnostics.has_errors:
        raise Invalid.documents(diagnostics, sources, folder)
    if len(diagnostics):
        warn(diagnostics, sources)
    return checked


def build(file: str, folder: str, warn: Warn, flow: str = "create", asked: Asked | None = None) -> dict[str, Any]:
    """The pipeline of a flow, such as the one that creates a cluster; raises Invalid."""
    return _pipeline(read_cluster(file, folder, warn), flow, asked)


def documents(file: str, folder: str, warn: Warn, flow: str = "create", asked: Asked | None = None) -> Documents:
    """The pipeline of a flow as documents of a request, with the modules of the user that it uses; raises Invalid."""
    return flow_documents(read_cluster(file, folder, warn), file, folder, flow, asked)


def _pipeline(cluster: CheckedCluster, flow: str, asked: Asked | None) -> dict[str, Any]:
    from kubexm_spec.clusters.build import FLOWS, Asked

    return FLOWS[flow](cluster, asked or Asked())


def flow_documents(cluster: CheckedCluster, file: str, folder: str, flow: str, asked: Asked | None = None) -> Documents:
    """The pipeline of a flow of a cluster that was read before."""
    from kubexm_spec.clusters.build import pipeline_text

    pipeline = _pipeline(cluster, flow, asked)
    name = f"{os.path.splitext(os.path.basename(file))[0]}.{flow}.yaml"  # noqa: PTH119, PTH122
    files = {name: pipeline_text(pipeline, file)}
    for module in pipeline["modules"]:
        used = module["uses"].partition("#")[0]
        if not used.startswith(SHIPPED):
            files[used] = (cluster.loaded.folder / used).read_text("utf-8")
    return Documents(folder=folder, spec=name, files=files)


def preflight_of(file: str, folder: str, service: Service, watcher: Watcher, warn: Warn, forks: int = 50) -> Preflight:
    """What the checks of a cluster's hosts find; nothing is changed or recorded. Raises Invalid."""
    from kubexm_exec.model.result import DEFAULT_EXECUTOR
    from kubexm_exec.service.preflight import findings_of

    cluster = read_cluster(file, folder, warn)
    asked = flow_documents(cluster, file, folder, "preflight")
    request = RunRequest(documents=asked, executor=DEFAULT_EXECUTOR, forks=forks, journal=False)
    hosts = [host.name for host in cluster.settings.hosts.by_name.values() if host.roles]
    outcome = service.run(request, watcher)
    return findings_of(outcome.result, hosts, cluster.settings.document.preflight.skip)
