"""Clusters: a Cluster document checked, and turned into a pipeline."""

from __future__ import annotations

import os
import shlex
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from msgspec import structs

from kubexm_exec.service.documents import Warn
from kubexm_exec.service.errors import Invalid
from kubexm_exec.service.requests import SHIPPED, Documents, RunRequest
from kubexm_spec.clusters.build import Asked
from kubexm_spec.diagnostics import Diagnostics, SpecError
from kubexm_spec.paths import exists

if TYPE_CHECKING:
    from kubexm_exec.model.result import GraphExecutionResult
    from kubexm_exec.service.certificates import Certificates
    from kubexm_exec.service.kubeconfig import Kubeconfig, NoKubeconfig
    from kubexm_exec.service.live import Watcher
    from kubexm_exec.service.preflight import Preflight
    from kubexm_exec.service.protocol import Service
    from kubexm_exec.service.status import ClusterStatus
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


def documents(
    file: str, folder: str, warn: Warn, flow: str = "create", asked: Asked | None = None, bundle: str = ""
) -> Documents:
    """The pipeline of a flow as documents of a request, with the modules of the user that it uses; raises Invalid.

    With a bundle, or one that the document names, everything comes from it.
    """
    cluster = read_cluster(file, folder, warn)
    place = os.path.abspath(os.path.join(folder, bundle)) if bundle else _named_bundle(cluster)  # noqa: PTH100, PTH118
    if not place or "resources" not in _pipeline(cluster, flow, asked):
        return flow_documents(cluster, file, folder, flow, asked)
    if not exists(place):
        hint = (
            f"create it where there is a network: kubexm cluster bundle -f {shlex.quote(file)} -o {shlex.quote(place)}"
        )
        raise Invalid(f"there is no bundle {place:.200}", hint)
    asked = replace(asked or Asked(), offline=True, architectures=_architectures(cluster, place))
    built = flow_documents(cluster, file, folder, flow, asked)
    return structs.replace(built, bundle=place, offline=True)


def documents_for_bundle(file: str, folder: str, warn: Warn) -> tuple[CheckedCluster, Documents]:
    """A cluster and the pipeline that creates it without a network; with the document's bundle if that is there."""
    cluster = read_cluster(file, folder, warn)
    made = flow_documents(cluster, file, folder, "create", Asked(offline=True))
    place = _named_bundle(cluster)
    return cluster, structs.replace(made, bundle=place) if exists(place) else made


def _named_bundle(cluster: CheckedCluster) -> str:
    """The bundle that a document names; relative to the document, wherever what is made of it is unpacked."""
    named = cluster.settings.document.offline.bundle
    return os.path.abspath(cluster.loaded.folder / named) if named else ""  # noqa: PTH100


def _architectures(cluster: CheckedCluster, bundle: str) -> tuple[str, ...]:
    """The architectures that a bundle has files for; all that are known if it does not say. Raises Invalid."""
    from kubexm_exec.resources.bundle import Bundle
    from kubexm_exec.resources.source import ResourceError
    from kubexm_exec.service.documents import bundle_folder
    from kubexm_spec.clusters.offline import known_architectures

    folder = bundle_folder(Documents(bundle=bundle))
    try:
        variants = {entry.variant for entry in Bundle(folder).entries} if folder is not None else set()
    except ResourceError as error:
        raise Invalid(error.message, error.hint, kind="bad-bundle") from error
    return tuple(arch for arch in known_architectures(cluster) if arch in variants)


def _pipeline(cluster: CheckedCluster, flow: str, asked: Asked | None) -> dict[str, Any]:
    from kubexm_spec.clusters.build import FLOWS

    try:
        return FLOWS[flow](cluster, asked or Asked())
    except SpecError as error:
        source = cluster.loaded.source
        raise Invalid.documents(error.diagnostics, {source.name: source}, str(cluster.loaded.folder)) from error


def flow_documents(cluster: CheckedCluster, file: str, folder: str, flow: str, asked: Asked | None = None) -> Documents:
    """The pipeline of a flow of a cluster that was read before."""
    from kubexm_spec.clusters.build import pipeline_text

    pipeline = _pipeline(cluster, flow, asked)
    name = f"{os.path.splitext(os.path.basename(file))[0]}.{flow}.yaml"  # noqa: PTH119, PTH122
    files = {name: pipeline_text(pipeline, file)}
    for module in pipeline["modules"]:
        used = module.get("uses", SHIPPED).partition("#")[0]
        if not used.startswith(SHIPPED):
            files[used] = (cluster.loaded.folder / used).read_text("utf-8")
    return Documents(folder=folder, spec=name, files=files)


class Looking:
    """Looks at the hosts of a cluster; nothing is changed or recorded."""

    def __init__(self, cluster: CheckedCluster, service: Service, watcher: Watcher, place: tuple[str, str]) -> None:
        """``place``: the file of the document, and the folder that its name starts in."""
        self.cluster = cluster
        self.hosts = [host.name for host in cluster.settings.hosts.by_name.values() if host.roles]
        self._service, self._watcher, self._place = service, watcher, place

    def result(self, flow: str, forks: int) -> GraphExecutionResult:
        """The result of a flow that only looks."""
        from kubexm_exec.model.result import DEFAULT_EXECUTOR

        asked = flow_documents(self.cluster, *self._place, flow)
        request = RunRequest(documents=asked, executor=DEFAULT_EXECUTOR, forks=forks, journal=False)
        return self._service.run(request, self._watcher).result

    def preflight(self, forks: int = 50) -> Preflight:
        """What the checks before the first change find."""
        from kubexm_exec.service.preflight import findings_of

        return findings_of(self.result("preflight", forks), self.hosts, self.cluster.settings.document.preflight.skip)

    def status(self, threshold: int, forks: int = 50) -> ClusterStatus:
        """What the cluster is like; ``threshold``: days that a certificate should be valid."""
        from kubexm_exec.service.status import status_in

        return status_in(self.result("status", forks), self.cluster, threshold)

    def certificates(self, threshold: int, forks: int = 50) -> Certificates:
        """The certificates on all hosts."""
        from kubexm_exec.service.certificates import certificates_in

        return certificates_in(self.result("certs", forks), self.hosts, threshold)

    def kubeconfig(self) -> Kubeconfig | NoKubeconfig:
        """The administrator's kubeconfig, from the first control plane that answers."""
        from kubexm_exec.service.kubeconfig import kubeconfig_in

        return kubeconfig_in(self.result("kubeconfig", 50), self.cluster.settings)


def looking_at(file: str, folder: str, service: Service, watcher: Watcher, warn: Warn) -> Looking:
    """The cluster in a file, to be looked at; raises Invalid."""
    return Looking(read_cluster(file, folder, warn), service, watcher, (file, folder))
