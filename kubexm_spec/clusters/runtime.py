"""The container runtime of every node, and the environment of a proxy."""

from __future__ import annotations

from typing import Any

from kubexm_spec.clusters.artifacts import image
from kubexm_spec.clusters.checks import CheckedCluster
from kubexm_spec.clusters.settings import Settings
from kubexm_spec.semver import version_key


def build_runtime(cluster: CheckedCluster) -> list[dict[str, Any]]:
    """containerd, and the programs of Kubernetes."""
    proxy = proxy_environment(cluster.settings)
    values = {**runtime_values(cluster), "proxy": proxy}
    return [
        {"name": "containerd", "uses": "kubexm:containerd", "with": values},
        {"name": "kubernetes", "uses": "kubexm:kubernetes", "with": {"proxy": proxy}},
    ]


def runtime_values(cluster: CheckedCluster) -> dict[str, Any]:
    """What the configuration of containerd itself is made of."""
    document = cluster.settings.document
    runtime = document.container_runtime
    return {
        "schema": 3 if version_key(cluster.versions.containerd) >= version_key("2") else 2,
        "dataDir": runtime.data_dir,
        "sandboxImage": runtime.sandbox_image or image(cluster, "pause", cluster.versions.pause),
        "mirrors": document.registry.mirrors,
        "config": runtime.config,
    }


def proxy_environment(settings: Settings) -> dict[str, str]:
    """The variables of a proxy; what is in the cluster is never asked for through it."""
    proxy = settings.document.system.proxy
    if proxy is None:
        return {}
    network = settings.document.network
    direct = ["127.0.0.1", "localhost", f".{settings.document.kubernetes.dns_domain}", ".svc"]
    direct += [*network.pod_cidrs, *network.service_cidrs]
    direct += [address for host in settings.hosts.by_name.values() for address in host.addresses]
    direct += [settings.endpoint_host, *proxy.no_proxy]
    given = {"HTTP_PROXY": proxy.http, "HTTPS_PROXY": proxy.https}
    return {
        **{name: value for name, value in given.items() if value is not None},
        "NO_PROXY": ",".join(dict.fromkeys(direct)),
    }
