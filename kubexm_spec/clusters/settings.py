"""What follows from a Cluster document: defaults that depend on its hosts, each decided in one place."""

from __future__ import annotations

import ipaddress
import re
import zlib
from typing import Final

from msgspec import Struct

from kubexm_spec.clusters.hosts import CONTROL_PLANE, ETCD, LOAD_BALANCER, WORKER, ClusterHost, ClusterHosts
from kubexm_spec.models.cluster import ClusterDocument

API_PORT = 6443
"""Port of the API server."""
SHARED_PORT = 8443
"""Port of haproxy on a host that has an API server on the other one."""

_PROVIDER: Final = re.compile(r"[a-z][a-z0-9-]*:")


class Settings(Struct, frozen=True):
    """A Cluster document with its hosts; everything else follows from them."""

    document: ClusterDocument
    hosts: ClusterHosts

    @property
    def control_planes(self) -> list[ClusterHost]:
        """The control planes; the first one begins."""
        return self.hosts.role(CONTROL_PLANE)

    @property
    def workers(self) -> list[ClusterHost]:
        """Nodes that are no control planes."""
        return [host for host in self.hosts.role(WORKER) if CONTROL_PLANE not in host.roles]

    @property
    def load_balancer(self) -> str:
        """The kind of the load balancer."""
        return self.document.load_balancer.type or ("none" if len(self.control_planes) < 2 else "local")

    @property
    def without_packages(self) -> bool:
        """Whether hosts have the packages that they need."""
        return self.document.offline.packages == "none"

    @property
    def balancers(self) -> list[ClusterHost]:
        """The hosts on which haproxy runs."""
        if self.load_balancer == "local":
            return self.workers
        if self.load_balancer == "haproxyKeepalived":
            return self.hosts.role(LOAD_BALANCER) or self.control_planes
        return []

    @property
    def balancer_port(self) -> int:
        """The port on which haproxy listens; on a worker that of the API servers: the endpoint has one port."""
        if self.load_balancer == "local":
            return self.api_port
        shared = any(CONTROL_PLANE in host.roles for host in self.balancers)
        given = self.document.load_balancer.port
        return given or (SHARED_PORT if shared and self.api_port == API_PORT else API_PORT)

    @property
    def api_port(self) -> int:
        """The port of the API server on the control planes."""
        return self.document.kubernetes.api_server.bind_port

    @property
    def endpoint_port(self) -> int:
        """The port that clients use."""
        given = self.document.control_plane_endpoint.port
        if given:
            return given
        return self.balancer_port if self.load_balancer in ("local", "haproxyKeepalived") else self.api_port

    @property
    def endpoint_address(self) -> str:
        """The address that the endpoint stands for; of a local load balancer that of the first control plane."""
        return self.document.control_plane_endpoint.address or self.control_planes[0].ip

    @property
    def endpoint_host(self) -> str:
        """The name or address of the endpoint in certificates and kubeconfigs."""
        return self.document.control_plane_endpoint.domain or self.local_name or self.endpoint_address

    @property
    def local_name(self) -> str:
        """The name of the endpoint with a local load balancer: 127.0.0.1 on every node, so that it has to be a name."""
        if self.load_balancer != "local":
            return ""
        plain = self.document.metadata.name.lower().replace("_", "-").replace(".", "-").strip("-")
        return self.document.control_plane_endpoint.domain or f"api.{plain}.internal"

    @property
    def endpoint(self) -> str:
        """The endpoint as kubeadm takes it."""
        return f"{in_url(self.endpoint_host)}:{self.endpoint_port}"

    @property
    def etcd_type(self) -> str:
        """Who runs etcd."""
        return self.document.etcd.type or ("kubexm" if self.hosts.role(ETCD) else "kubeadm")

    @property
    def etcd_members(self) -> list[ClusterHost]:
        """The members of an etcd of ours."""
        return self.hosts.role(ETCD) if self.etcd_type == "kubexm" else []

    @property
    def etcd_hosts(self) -> list[ClusterHost]:
        """The hosts on whose disks etcd writes, whoever runs it."""
        return self.control_planes if self.etcd_type == "kubeadm" else self.etcd_members

    @property
    def schedulable(self) -> bool:
        """Whether pods run on control planes."""
        given = self.document.kubernetes.schedulable_control_plane
        return not self.workers if given is None else given

    @property
    def cis(self) -> bool:
        """Whether the CIS profile is chosen."""
        return self.document.hardening.profile == "cis"

    @property
    def is_dual_stack(self) -> bool:
        """Whether pods have addresses of IPv4 and of IPv6."""
        return len(self.document.network.pod_cidrs) > 1

    @property
    def router_id(self) -> int:
        """The number of the virtual router of keepalived: the same for a name every time."""
        given = self.document.load_balancer.keepalived.virtual_router_id
        return given if given is not None else zlib.crc32(self.document.metadata.name.encode()) % 255 + 1


def names_file(value: str) -> bool:
    """Whether a value that is a file or a secret reference is a file: references begin with their provider."""
    return _PROVIDER.match(value) is None


def in_url(host: str) -> str:
    """A name or an address as a part of a URL: those of IPv6 stand in brackets."""
    try:
        return f"[{host}]" if ipaddress.ip_address(host).version == 6 else host
    except ValueError:
        return host
