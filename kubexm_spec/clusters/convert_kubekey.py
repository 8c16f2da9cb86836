"""Cluster documents of kubekey and of kubexm in Go, which have the same bones, as one of ours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from kubexm_spec.clusters.convert import (
    ROLES,
    Foreign,
    Made,
    admission,
    arguments,
    cidrs,
    encapsulation,
    number,
    put_kubelet_flags,
    put_plugin,
    put_version,
    secret,
)
from kubexm_spec.clusters.hosts import CONTROL_PLANE, ETCD, LOAD_BALANCER, WORKER
from kubexm_spec.diagnostics import Diagnostics
from kubexm_spec.ranges import expand_range
from kubexm_spec.yaml.source import SourceFile

_HINTS: Final = {
    "spec.storage": "install a storage class as an addon",
    "spec.system.preInstall": "write a module, and name it under hooks.prepare.before",
    "spec.system.postInstall": "write a module, and name it under hooks.addons.after",
    "spec.system.postClusterInstall": "write a module, and name it under hooks.workers.after",
    "spec.registry.namespaceOverride": "a mirror has images under their own names",
    "spec.global": "options of the command line, or nothing that a document says",
}
_ETCD_FLAGS: Final = {
    "snapshotCount": "snapshot-count",
    "maxRequestBytes": "max-request-bytes",
    "maxWals": "max-wals",
    "metrics": "metrics",
    "logLevel": "log-level",
}
_KUBELET: Final = (
    "maxPods", "podPidsLimit", "cpuManagerPolicy", "kubeReserved", "systemReserved", "evictionHard", "evictionSoft",
    "hairpinMode", "containerLogMaxSize", "containerLogMaxFiles", "cgroupDriver",
)  # fmt: skip
"""Settings of kubexm in Go that are keys of KubeletConfiguration."""


def convert_kubekey(source: SourceFile, index: int, found: Diagnostics) -> dict[str, Any]:
    """A Cluster of kubekey (kubekey.kubesphere.io/v1alpha2)."""
    return _Documents(source, index, found).kubekey()


def convert_kubexm_go(source: SourceFile, index: int, found: Diagnostics) -> dict[str, Any]:
    """A Cluster of kubexm in Go (kubexms.io/v1alpha1)."""
    return _Documents(source, index, found).kubexm_go()


class _Documents:
    def __init__(self, source: SourceFile, index: int, found: Diagnostics) -> None:
        self.doc = Foreign(source, index, found)
        for path in (("apiVersion",), ("kind",)):
            self.doc.get(*path)
        self.made = Made(self.doc.text("metadata", "name") or "cluster")
        self.made.put(self.doc.table("metadata", "labels"), "metadata", "labels")
        self.roles: dict[str, list[str]] = {}

    def kubekey(self) -> dict[str, Any]:
        doc, made = self.doc, self.made
        self._common()
        self._load_balancer(managed=False)
        k = ("spec", "kubernetes")
        if (kind := doc.text(*k, "type")) not in (None, "kubernetes"):
            doc.lost((*k, "type"), f"there is no {kind} here: a cluster of kubeadm is written", "")
        self._runtime(doc.text(*k, "containerManager"), (*k, "containerManager"))
        made.put(doc.items(*k, "apiserverCertExtraSans"), "kubernetes", "apiServer", "certSANs")
        made.put(number(doc.get(*k, "nodeCidrMaskSize")), "kubernetes", "controllerManager", "nodeCIDRMaskSize")
        self._proxy(doc.text(*k, "proxyMode"), doc.get(*k, "disableKubeProxy") is True, doc.get(*k, "masqueradeAll"))
        made.put(doc.table(*k, "kubeProxyConfiguration"), "kubernetes", "proxy", "config")
        made.put(doc.table(*k, "kubeletConfiguration"), "kubernetes", "kubelet", "config")
        for key in ("maxPods", "podPidsLimit"):
            made.put(number(doc.get(*k, key)), "kubernetes", "kubelet", "config", key)
        for key, component in (
            ("apiserver", "apiServer"),
            ("controllerManager", "controllerManager"),
            ("scheduler", "scheduler"),
        ):
            made.put(arguments(doc.items(*k, f"{key}Args")), "kubernetes", component, "extraArgs")
        put_kubelet_flags(made, arguments(doc.items(*k, "kubeletArgs")), doc, (*k, "kubeletArgs"))
        made.put(doc.table(*k, "featureGates"), "kubernetes", "featureGates")
        made.put(doc.get(*k, "autoRenewCerts"), "kubernetes", "certificates", "autoRenew")
        made.put(doc.get(*k, "audit", "enabled"), "kubernetes", "apiServer", "audit", "enabled")
        made.put(doc.get(*k, "nodelocaldns"), "dns", "nodeLocal", "enabled")
        self._kubekey_etcd()
        made.put(doc.text("spec", "dns", "dnsEtcHosts"), "dns", "hosts")
        made.put(doc.items("spec", "dns", "coredns", "upstreamDNSServers"), "dns", "upstreams")
        self._calico(("spec", "network", "calico"))
        r = ("spec", "registry")
        made.put(
            {"docker.io": doc.items(*r, "registryMirrors")} if doc.items(*r, "registryMirrors") else None,
            "registry",
            "mirrors",
        )
        self._private(doc.text(*r, "privateRegistry"), (*r, "privateRegistry"))
        for host in doc.items(*r, "insecureRegistries"):
            made.put({str(host): {"skipVerify": True}}, "registry", "auths")
        self._auths((*r, "auths"))
        for position in doc.positions("spec", "addons"):
            self._addon(("spec", "addons", position), [("spec", "addons", position, "sources")])
        doc.rest(_HINTS)
        return made.ordered()

    def kubexm_go(self) -> dict[str, Any]:
        doc, made = self.doc, self.made
        g = ("spec", "global")
        for key in ("user", "port", "privateKeyPath"):
            made.put(doc.get(*g, key), "defaults", key)
        made.put(doc.text(*g, "connectionTimeout"), "defaults", "connectTimeout")
        if doc.get(*g, "password") is not None:
            made.put(self._password((*g, "password"), "password"), "defaults", "password")
        self._inline_key((*g, "privateKey"))
        if made.data.get("defaults", {}).get("user", "root") != "root":
            made.put(True, "defaults", "become")
        self._common()
        self._load_balancer(managed=True)
        self._go_kubernetes()
        self._go_etcd()
        self._calico(("spec", "network", "calico"))
        self._calico(("spec", "network", "calico", "networking"))
        d = ("spec", "dns")
        made.put(doc.text(*d, "dnsEtcHosts"), "dns", "hosts")
        made.put(doc.items(*d, "coreDNS", "upstream", "staticServers"), "dns", "upstreams")
        made.put(doc.get(*d, "nodeLocalDNS", "enabled"), "dns", "nodeLocal", "enabled")
        made.put(doc.text(*d, "nodeLocalDNS", "ip"), "dns", "nodeLocal", "ip")
        self._private(
            doc.text("spec", "registry", "mirroring", "privateRegistry"),
            ("spec", "registry", "mirroring", "privateRegistry"),
        )
        self._auths(("spec", "registry", "auths"))
        made.put(doc.text("spec", "registry", "local", "dataRoot"), "registry", "storage")
        made.put(doc.items("spec", "system", "modules"), "system", "modules")
        made.put(
            {key: str(value) for key, value in doc.table("spec", "system", "sysctlParams").items()}, "system", "sysctl"
        )
        for position in doc.positions("spec", "addons"):
            addon = ("spec", "addons", position)
            if doc.get(*addon, "enabled") is False:
                doc.get(*addon)
            else:
                self._addon(addon, [(*addon, "sources", each) for each in doc.positions(*addon, "sources")])
        self._go_preflight()
        for key, target in (("CADuration", "caValidity"), ("CertDuration", "validity")):
            made.put(doc.text("spec", "certs", key), "kubernetes", "certificates", target)
        entries = [
            {
                "ip": doc.text("spec", "extra", "hosts", each, "ip"),
                "names": doc.items("spec", "extra", "hosts", each, "hostnames"),
            }
            for each in doc.positions("spec", "extra", "hosts")
        ]
        made.put([each for each in entries if each["ip"] and each["names"]], "system", "hosts")
        doc.rest(_HINTS)
        return made.ordered()

    # both

    def _common(self) -> None:
        doc, made = self.doc, self.made
        put_version(made, doc, "spec", "kubernetes", "version")
        name, domain = doc.text("spec", "kubernetes", "clusterName"), doc.text("spec", "kubernetes", "dnsDomain")
        made.put(name, "kubernetes", "clusterName")
        # Elder documents have one name for both.
        made.put(domain or (name if name and "." in name else None), "kubernetes", "dnsDomain")
        made.put([self._host(each) for each in doc.positions("spec", "hosts")], "hosts")
        self._role_groups()
        n = ("spec", "network")
        plugin = put_plugin(made, doc.text(*n, "plugin"), doc, (*n, "plugin"))
        made.put(cidrs(doc.text(*n, "kubePodsCIDR")), "network", "podCIDRs")
        made.put(cidrs(doc.text(*n, "kubeServiceCIDR")), "network", "serviceCIDRs")
        backend = doc.text(*n, "flannel", "backendMode")
        if plugin == "flannel":
            made.put(backend, "network", "flannel", "backend")
            made.put(doc.get(*n, "flannel", "directRouting"), "network", "flannel", "directRouting")
        s = ("spec", "system")
        made.put(doc.items(*s, "ntpServers"), "system", "ntp", "servers")
        made.put(doc.text(*s, "timezone"), "system", "timezone")
        made.put(doc.items(*s, "debs") or doc.items(*s, "rpms"), "system", "packages")
        made.put(doc.get(*s, "skipConfigureOS") or None, "system", "skip")

    def _host(self, position: int) -> dict[str, Any]:
        doc, path = self.doc, ("spec", "hosts", position)
        name = doc.text(*path, "name") or f"node{position + 1}"
        host: dict[str, Any] = {"name": name}
        for key in ("address", "internalAddress", "port", "user", "privateKeyPath"):
            value = doc.get(*path, key)
            if value is not None and not (key == "internalAddress" and value == host.get("address")):
                host[key] = value
        if host.get("user", "root") != "root":
            host["become"] = True
        if doc.get(*path, "password") is not None:
            host["password"] = self._password((*path, "password"), name, "password")
        self._inline_key((*path, "privateKey"))
        doc.get(*path, "arch")  # it is found out
        node: dict[str, Any] = {}
        labels = {
            key: str(value)
            for key, value in doc.table(*path, "labels").items()
            if not key.startswith("node-role.kubernetes.io/")
        }
        taints = [
            {key: taint[key] for key in ("key", "value", "effect") if taint.get(key)}
            for taint in doc.items(*path, "taints")
            if isinstance(taint, dict) and not str(taint.get("key", "")).startswith("node-role.kubernetes.io/")
        ]
        node |= {"labels": labels} if labels else {}
        node |= {"taints": taints} if taints else {}
        return {**host, "node": node} if node else host

    def _password(self, path: tuple[str | int, ...], *words: str) -> str:
        reference = secret(self.made.data["metadata"]["name"], *words)
        self.doc.lost(
            path, f"a password is not copied: {reference} is written", "set that variable, or log in with a key"
        )
        return reference

    def _inline_key(self, path: tuple[str | int, ...]) -> None:
        if self.doc.get(*path) is not None:
            self.doc.lost(
                path, "a key is not copied", "put it into a file of yours, and name that under privateKeyPath"
            )

    def _role_groups(self) -> None:
        doc = self.doc
        for name in doc.keys("spec", "roleGroups"):
            members = [str(each) for each in doc.items("spec", "roleGroups", name)]
            role = ROLES.get(str(name))
            if not members:
                continue
            if role is None:
                doc.lost(
                    ("spec", "roleGroups", name),
                    f'there is no role "{name}"',
                    "use labels of hosts, and a module of yours",
                )
                continue
            self.roles.setdefault(role, []).extend(each for each in members if each not in self.roles.get(role, []))
        if doc.text("spec", "etcd", "type") in ("kubeadm", "external"):
            self.roles.pop(ETCD, None)
        if doc.get("spec", "roleGroups") is not None:
            self.made.put(self.roles, "roleGroups")
        control, workers = self._names(CONTROL_PLANE), self._names(WORKER)
        both = [name for name in control if name in workers]
        if both and len(both) == len(control):
            self.made.put(True, "kubernetes", "schedulableControlPlane")
        elif both:
            why = "some control planes are workers as well, and others not: none takes pods"
            doc.lost(("spec", "roleGroups"), why, "set kubernetes.schedulableControlPlane for all of them")

    def _names(self, role: str) -> list[str]:
        found: list[str] = []
        for pattern in self.roles.get(role, []):
            try:
                found += expand_range(pattern)
            except ValueError:
                found.append(pattern)
        return found

    def _load_balancer(self, *, managed: bool) -> None:
        """The endpoint; ``managed``: haproxy and keepalived serve a virtual address, unless another kind is said."""
        doc, made, path = self.doc, self.made, ("spec", "controlPlaneEndpoint")
        address = doc.text(*path, "address") or doc.text(*path, "lb_address")
        port = number(doc.get(*path, "port"))
        made.put(doc.text(*path, "domain"), "controlPlaneEndpoint", "domain")
        made.put(doc.get(*path, "externalDNS"), "controlPlaneEndpoint", "externalDNS")
        inside = doc.text(*path, "internalLoadbalancer") or doc.text(*path, "internalLoadBalancerType")
        outside = doc.text(*path, "externalLoadBalancer") or doc.text(*path, "externalLoadBalancerType")
        several = len(self._names(CONTROL_PLANE)) > 1
        kind = {"haproxy": "local", "nginx": "local", "kube-vip": "kubeVip", "kubevip": "kubeVip"}.get(inside or "")
        if inside == "nginx":
            doc.lost(path, "nginx on workers is not there: haproxy does the same", "")
        if kind is None and outside is not None:
            kind = "external" if outside == "external" else "haproxyKeepalived"
        if kind is None and address and several:
            kind = "haproxyKeepalived" if managed else "external"
        mode = doc.text(*path, "kubevip", "mode")
        if kind == "kubeVip" and mode in ("ARP", "BGP"):
            made.put("arp", "loadBalancer", "kubeVip", "mode")
            if mode == "BGP":
                doc.lost((*path, "kubevip", "mode"), "BGP needs peers: ARP is written", "set loadBalancer.kubeVip.bgp")
        if kind == "haproxyKeepalived" and not self.roles.get(LOAD_BALANCER) and port == 6443:
            doc.lost(
                (*path, "port"), "haproxy shares hosts with API servers: it gets port 8443", "clients use that port"
            )
            port = None
        made.put(kind, "loadBalancer", "type")
        made.put(address, "controlPlaneEndpoint", "address")
        made.put(port, "controlPlaneEndpoint", "port")

    def _runtime(self, name: str | None, path: Sequence[str]) -> None:
        if name not in (None, "containerd"):
            why = f"there is no {name}: containerd is the runtime"
            self.doc.lost(tuple(path), why, "nodes that have another one are best made anew")

    def _proxy(self, mode: str | None, disabled: bool, masquerade: Any) -> None:
        self.made.put("none" if disabled else mode, "kubernetes", "proxy", "mode")
        if masquerade is True:
            self.made.put({"iptables": {"masqueradeAll": True}}, "kubernetes", "proxy", "config")

    def _calico(self, path: tuple[str, ...]) -> None:
        doc, made = self.doc, self.made
        kind = encapsulation(doc.text(*path, "ipipMode"), doc.text(*path, "vxlanMode"))
        mtu, nat = number(doc.get(*path, "vethMTU")), doc.get(*path, "ipv4NatOutgoing")
        if made.data.get("network", {}).get("plugin", "calico") == "calico":
            made.put(kind, "network", "calico", "encapsulation")
            made.put(mtu, "network", "mtu")
            made.put(nat, "network", "calico", "natOutgoing")

    def _private(self, name: str | None, path: tuple[str, ...]) -> None:
        if name is not None:
            self.made.put({"_default": [f"https://{name}"]}, "registry", "mirrors")
            why = "the registry is written as a mirror of all others"
            self.doc.lost(path, why, "see that it has the images under their own names")

    def _auths(self, path: tuple[str, ...]) -> None:
        for host in self.doc.keys(*path):
            own = (*path, host)
            found: dict[str, Any] = {}
            if (user := self.doc.text(*own, "username")) is not None:
                found["username"] = user
            if self.doc.get(*own, "password") is not None:
                found["password"] = self._password((*own, "password"), str(host), "password")
            if self.doc.get(*own, "skipTLSVerify") or self.doc.get(*own, "insecureSkipVerify"):
                found["skipVerify"] = True
            if found:
                self.made.put({str(host): found}, "registry", "auths")

    def _addon(self, path: tuple[str | int, ...], sources: list[tuple[str | int, ...]]) -> None:
        """An addon; each of its sources is one of ours."""
        doc = self.doc
        name, namespace = doc.text(*path, "name") or "addon", doc.text(*path, "namespace")
        made: list[dict[str, Any]] = []
        for source in sources:
            found: dict[str, Any] = {"name": name if not made else f"{name}-{len(made) + 1}"}
            found |= {"namespace": space} if (space := doc.text(*source, "namespace") or namespace) else {}
            if chart := self._chart((*source, "chart")):
                made.append({**found, "chart": chart})
                found = {**found, "name": f"{name}-{len(made) + 1}"}
            if paths := self._manifests((*source, "yaml", "path")):
                made.append({**found, "manifest": {"path": paths}})
        self.made.put([*self.made.data.get("addons", []), *made], "addons")

    def _chart(self, path: tuple[str | int, ...]) -> dict[str, Any]:
        doc = self.doc
        name, repo, local = doc.text(*path, "name"), doc.text(*path, "repo"), doc.text(*path, "path")
        if repo is None and local is None:
            return {}
        found: dict[str, Any] = {"name": name, "repo": repo} if repo is not None else {"path": local}
        if (version := doc.text(*path, "version")) is not None:
            found["version"] = version
        if (file := doc.text(*path, "valuesFile")) is not None:
            found["valuesFiles"] = [file]
        values = doc.get(*path, "values")
        if isinstance(values, dict):
            found["values"] = values
        elif values is not None:
            doc.lost(
                (*path, "values"), "values as texts are not copied: they may be secrets", "write them under values"
            )
        return found

    def _manifests(self, path: tuple[str | int, ...]) -> list[str]:
        kept = []
        for each in map(str, self.doc.items(*path)):
            if "://" in each:
                self.doc.lost(path, f"{each} is an address", "download it, and name the file under manifest.path")
            else:
                kept.append(each)
        return kept

    # kubekey

    def _kubekey_etcd(self) -> None:
        doc, made, e = self.doc, self.made, ("spec", "etcd")
        kind = doc.text(*e, "type")
        made.put({"kubekey": "kubexm"}.get(kind or "", kind), "etcd", "type")
        if kind == "external":
            names = {"endpoints": "endpoints", "caFile": "ca", "certFile": "cert", "keyFile": "key"}
            for name, target in names.items():
                made.put(doc.get(*e, "external", name), "etcd", "external", target)
        made.put(doc.text(*e, "dataDir"), "etcd", "dataDir")
        made.put(doc.text(*e, "backupDir"), "etcd", "backup", "dir")
        made.put(number(doc.get(*e, "keepBackupNumber")), "etcd", "backup", "keep")
        for key in ("heartbeatInterval", "electionTimeout"):
            value = number(doc.get(*e, key))
            made.put(f"{value}ms" if value else None, "etcd", key)
        hours = number(doc.get(*e, "autoCompactionRetention"))
        made.put(f"{hours}h" if hours else None, "etcd", "compaction")
        made.put(number(doc.get(*e, "quotaBackendBytes")), "etcd", "quota")
        for key, flag in _ETCD_FLAGS.items():
            text = doc.text(*e, key)
            made.put({flag: text} if text is not None else None, "etcd", "extraArgs")

    # kubexm in Go

    def _go_kubernetes(self) -> None:
        doc, made, k = self.doc, self.made, ("spec", "kubernetes")
        runtime = (*k, "containerRuntime")
        self._runtime(doc.text(*runtime, "type"), (*runtime, "type"))
        if doc.text(*runtime, "version") is not None:
            doc.lost((*runtime, "version"), "the version that goes with Kubernetes is used", "see kubexm versions list")
        made.put(doc.text(*runtime, "containerd", "root"), "containerRuntime", "dataDir")
        made.put(doc.text(*runtime, "containerd", "pause"), "containerRuntime", "sandboxImage")
        for key in ("state", "configPath", "cgroupDriver"):
            doc.get(*runtime, "containerd", key)  # as we have them
        mirrors = (*runtime, "containerd", "registry", "mirrors")
        for host in doc.keys(*mirrors):
            made.put({str(host): doc.items(*mirrors, host, "endpoints")}, "registry", "mirrors")
        configs = (*runtime, "containerd", "registry", "configs")
        for host in doc.keys(*configs):
            if doc.get(*configs, host, "tls", "insecureSkipVerify"):
                made.put({str(host): {"skipVerify": True}}, "registry", "auths")
        api = (*k, "apiServer")
        made.put(doc.items(*api, "certExtraSans"), "kubernetes", "apiServer", "certSANs")
        made.put(doc.text(*api, "serviceNodePortRange"), "kubernetes", "apiServer", "nodePortRange")
        made.put(admission(doc.items(*api, "admissionPlugins")), "kubernetes", "apiServer", "admission", "enable")
        for key in ("enabled", "maxAge", "maxBackups", "maxSize"):
            made.put(doc.get(*api, "audit", key), "kubernetes", "apiServer", "audit", key)
        mask = number(doc.get(*k, "controllerManager", "nodeCidrMaskSize"))
        made.put(mask, "kubernetes", "controllerManager", "nodeCIDRMaskSize")
        for component in ("apiServer", "controllerManager", "scheduler"):
            made.put(doc.table(*k, component, "extraArgs"), "kubernetes", component, "extraArgs")
        for component in ("apiServer", "controllerManager", "scheduler", "kubelet", "kubeProxy"):
            made.put(doc.table(*k, component, "featureGates"), "kubernetes", "featureGates")
        for key in _KUBELET:
            made.put(doc.get(*k, "kubelet", key), "kubernetes", "kubelet", "config", key)
        put_kubelet_flags(made, doc.table(*k, "kubelet", "extraArgs"), doc, (*k, "kubelet", "extraArgs"))
        proxy = (*k, "kubeProxy")
        self._proxy(doc.text(*proxy, "mode"), doc.get(*proxy, "enable") is False, doc.get(*proxy, "masqueradeAll"))

    def _go_etcd(self) -> None:
        doc, made, e = self.doc, self.made, ("spec", "etcd")
        kind = doc.text(*e, "type")
        made.put({"kubexm": "kubexm", "kubeadm": "kubeadm", "external": "external"}.get(kind or ""), "etcd", "type")
        if doc.text(*e, "version") is not None:
            doc.lost((*e, "version"), "the version that goes with Kubernetes is used", "see kubexm versions list")
        made.put(doc.text(*e, "cluster", "dataDir"), "etcd", "dataDir")
        made.put(doc.table(*e, "cluster", "extraArgs"), "etcd", "extraArgs")
        made.put(number(doc.get(*e, "performance", "quotaBackendBytes")), "etcd", "quota")
        if kind == "external":
            for name, target in {
                "endpoints": "endpoints",
                "caFile": "ca",
                "certFile": "cert",
                "keyFile": "key",
            }.items():
                made.put(doc.get(*e, "external", name), "etcd", "external", target)

    def _go_preflight(self) -> None:
        doc, made, p = self.doc, self.made, ("spec", "preflight")
        made.put(number(doc.get(*p, "minCPUCores")), "preflight", "minCPU")
        memory = number(doc.get(*p, "minMemoryMB"))
        made.put(f"{memory}Mi" if memory else None, "preflight", "minMemory")
        made.put("keep" if doc.get(*p, "disableSwap") is False else None, "system", "swap")
        made.put("disable" if doc.get(*p, "disableFirewalld") else None, "system", "firewall")
        made.put("permissive" if doc.get(*p, "disableSelinux") else None, "system", "selinux")
