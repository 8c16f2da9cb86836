"""What kubeadm is told: its configuration documents (v1beta4), the first control plane, the others and the workers."""

from __future__ import annotations

from typing import Any, Final

from kubexm_spec.clusters.checks import CheckedCluster
from kubexm_spec.clusters.etcd import endpoints, etcd_flags
from kubexm_spec.clusters.hosts import ClusterHost
from kubexm_spec.clusters.settings import Settings
from kubexm_spec.models.cluster import ComponentSpec

_PKI: Final = "/etc/kubernetes/pki"
_AUDIT_POLICY: Final = "/etc/kubernetes/kubexm/audit-policy.yaml"
_AUDIT_LOGS: Final = "/var/log/kubernetes/audit"
_AUTHORITIES: Final = ["ca.crt", "ca.key", "sa.key", "sa.pub", "front-proxy-ca.crt", "front-proxy-ca.key"]
_STACKED_ETCD: Final = ["etcd/ca.crt", "etcd/ca.key"]
_ETCD_CLIENT: Final = ["etcd/ca.crt", "apiserver-etcd-client.crt", "apiserver-etcd-client.key"]
_MINIMAL_POLICY: Final = """\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
  - level: None
    nonResourceURLs: [/healthz*, /livez*, /readyz*, /version]
  - level: Metadata
"""


def build_control_plane(cluster: CheckedCluster, *, pull: bool = True) -> list[dict[str, Any]]:
    """The modules of the control planes: their files, the first one, and the others if there are any; images may be
    there already."""
    settings = cluster.settings
    first = settings.control_planes[0]
    values: dict[str, Any] = {
        "first": first.name,
        "endpoint": settings.endpoint,
        "apiPort": settings.api_port,
        "localName": settings.local_name,
        "clusterConfiguration": cluster_configuration(cluster),
        "kubeletConfiguration": kubelet_configuration(settings),
        "proxyConfiguration": proxy_configuration(settings),
        "skipPhases": skipped_phases(settings),
        "ignorePreflightErrors": ignored_errors(settings),
    }
    if not pull:
        values["pullImages"] = False
    modules = [*_files(cluster), {"name": "control-plane", "uses": "kubexm:control-plane", "with": values}]
    if len(settings.control_planes) > 1:
        # The clients of an etcd beside Kubernetes have certificates of their own.
        etcd = _STACKED_ETCD if settings.etcd_type == "kubeadm" else []
        modules.append(_more_control_planes(settings, first, etcd))
    return modules


def build_more_control_planes(cluster: CheckedCluster, through: ClusterHost) -> list[dict[str, Any]]:
    """The modules of control planes that join a cluster through one that is there: it has all they need."""
    settings = cluster.settings
    etcd = _STACKED_ETCD if settings.etcd_type == "kubeadm" else _ETCD_CLIENT
    return [*_files(cluster), _more_control_planes(settings, through, etcd)]


def build_workers(cluster: CheckedCluster, through: ClusterHost | None = None) -> list[dict[str, Any]]:
    """The module of the workers, if there are any; they join through a control plane, or the first one."""
    settings = cluster.settings
    if not settings.workers:
        return []
    # A static pod of ours is in the folder before the kubelet is.
    pods = ["DirAvailable--etc-kubernetes-manifests"] if settings.load_balancer == "local" else []
    joining = _joining(settings, through or settings.control_planes[0])
    values = {**joining, "ignorePreflightErrors": [*ignored_errors(settings), *pods]}
    return [{"name": "workers", "uses": "kubexm:workers", "with": values}]


def _files(cluster: CheckedCluster) -> list[dict[str, Any]]:
    kubernetes = cluster.settings.document.kubernetes
    values: dict[str, Any] = {"patches": [patch.model_dump(by_alias=True) for patch in kubernetes.patches]}
    if kubernetes.api_server.audit.enabled:
        policy = kubernetes.api_server.audit.policy_file
        text = (cluster.loaded.folder / policy).read_text("utf-8") if policy is not None else _MINIMAL_POLICY
        values["auditPolicy"] = text
    return [{"name": "control-plane-files", "uses": "kubexm:control-plane-files", "with": values}]


def _more_control_planes(settings: Settings, through: ClusterHost, etcd: list[str]) -> dict[str, Any]:
    values = {
        **_joining(settings, through),
        "apiPort": settings.api_port,
        "authorities": [*_AUTHORITIES, *etcd],
        "ignorePreflightErrors": ignored_errors(settings),
    }
    return {"name": "more-control-planes", "uses": "kubexm:more-control-planes", "with": values}


def _joining(settings: Settings, through: ClusterHost) -> dict[str, Any]:
    """What every node has to know that joins."""
    return {
        "first": through.name,
        "endpoint": settings.endpoint,
        "localName": settings.local_name,
        "firstAddress": through.ip,
    }


def skipped_phases(settings: Settings) -> list[str]:
    """Phases of kubeadm that are left out, now and in every upgrade."""
    return ["addon/kube-proxy"] if settings.document.kubernetes.proxy.mode == "none" else []


def ignored_errors(settings: Settings) -> list[str]:
    """Checks of kubeadm that may fail."""
    swap = ["Swap"] if settings.document.system.swap == "keep" else []
    return list(dict.fromkeys([*swap, *settings.document.kubernetes.ignore_preflight_errors]))


def cluster_configuration(cluster: CheckedCluster) -> dict[str, Any]:
    """ClusterConfiguration."""
    settings, document = cluster.settings, cluster.settings.document
    kubernetes, network = document.kubernetes, document.network
    manager = {**_component(settings, kubernetes.controller_manager)}
    mask = kubernetes.controller_manager.node_cidr_mask_size
    if mask is not None:
        flag = "node-cidr-mask-size-ipv4" if settings.is_dual_stack else "node-cidr-mask-size"
        manager["extraArgs"] = [*_arguments({flag: [str(mask)]}), *manager.get("extraArgs", [])]
    return {
        "apiVersion": "kubeadm.k8s.io/v1beta4",
        "kind": "ClusterConfiguration",
        "kubernetesVersion": f"v{cluster.versions.kubernetes}",
        "clusterName": kubernetes.cluster_name or document.metadata.name,
        "controlPlaneEndpoint": settings.endpoint,
        "imageRepository": kubernetes.image_repository,
        "networking": {
            "podSubnet": ",".join(network.pod_cidrs),
            "serviceSubnet": ",".join(network.service_cidrs),
            "dnsDomain": kubernetes.dns_domain,
        },
        "apiServer": _api_server(settings),
        "controllerManager": manager,
        "scheduler": _component(settings, kubernetes.scheduler),
        "etcd": _etcd(settings),
        "encryptionAlgorithm": kubernetes.certificates.algorithm,
        "certificateValidityPeriod": go_duration(kubernetes.certificates.validity),
        "caCertificateValidityPeriod": go_duration(kubernetes.certificates.ca_validity),
    }


def kubelet_configuration(settings: Settings) -> dict[str, Any]:
    """KubeletConfiguration of all nodes."""
    found: dict[str, Any] = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "cgroupDriver": "systemd",
    }
    if settings.document.system.swap == "keep":
        found |= {"failSwapOn": False, "memorySwap": {"swapBehavior": "LimitedSwap"}}
    return _with_gates(settings, {**found, **settings.document.kubernetes.kubelet.config})


def proxy_configuration(settings: Settings) -> dict[str, Any]:
    """KubeProxyConfiguration; an empty mode would be a warning of kubeadm, so that there always is one."""
    proxy = settings.document.kubernetes.proxy
    found = {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": proxy.mode or "auto",
    }
    return _with_gates(settings, {**found, **proxy.config})


def _with_gates(settings: Settings, data: dict[str, Any]) -> dict[str, Any]:
    gates = settings.document.kubernetes.feature_gates
    return {**data, "featureGates": {**gates, **data.get("featureGates", {})}} if gates else data


def _component(settings: Settings, spec: ComponentSpec) -> dict[str, Any]:
    """Flags and volumes of a component; flags of the user come last and win."""
    gates = settings.document.kubernetes.feature_gates
    shown = ",".join(f"{name}={str(on).lower()}" for name, on in sorted(gates.items()))
    arguments = _arguments({**({"feature-gates": [shown]} if gates else {}), **spec.extra_args})
    volumes = [volume.model_dump(by_alias=True, exclude_defaults=True) for volume in spec.extra_volumes]
    return {
        **({"extraArgs": arguments} if arguments else {}),
        **({"extraVolumes": volumes} if volumes else {}),
    }


def _arguments(flags: dict[str, list[str]]) -> list[dict[str, str]]:
    return [{"name": name, "value": value} for name, values in flags.items() for value in values]


def _api_server(settings: Settings) -> dict[str, Any]:
    api = settings.document.kubernetes.api_server
    flags: dict[str, list[str]] = {}
    volumes: list[dict[str, Any]] = []
    if api.node_port_range != "30000-32767":
        flags["service-node-port-range"] = [api.node_port_range]
    if api.admission.enable:
        flags["enable-admission-plugins"] = [",".join(["NodeRestriction", *api.admission.enable])]
    if api.admission.disable:
        flags["disable-admission-plugins"] = [",".join(api.admission.disable)]
    if api.oidc is not None:
        flags |= {
            "oidc-issuer-url": [api.oidc.issuer_url],
            "oidc-client-id": [api.oidc.client_id],
            "oidc-username-claim": [api.oidc.username_claim],
        }
        if api.oidc.groups_claim is not None:
            flags["oidc-groups-claim"] = [api.oidc.groups_claim]
    if api.audit.enabled:
        flags |= {
            "audit-policy-file": [_AUDIT_POLICY],
            "audit-log-path": [f"{_AUDIT_LOGS}/audit.log"],
            "audit-log-maxage": [str(api.audit.max_age)],
            "audit-log-maxbackup": [str(api.audit.max_backups)],
            "audit-log-maxsize": [str(api.audit.max_size)],
        }
        volumes += [
            _volume("audit-policy", _AUDIT_POLICY, "File", read_only=True),
            _volume("audit-logs", _AUDIT_LOGS, "DirectoryOrCreate"),
        ]
    own = _component(settings, api)
    arguments = [*_arguments(flags), *own.get("extraArgs", [])]
    volumes += own.get("extraVolumes", [])
    names = [settings.endpoint_host, settings.endpoint_address, "127.0.0.1", "localhost"]
    for host in settings.control_planes:
        names += [host.node_name, *host.addresses]
    return {
        "certSANs": list(dict.fromkeys([*names, *api.cert_sans])),
        **({"extraArgs": arguments} if arguments else {}),
        **({"extraVolumes": volumes} if volumes else {}),
    }


def _volume(name: str, path: str, kind: str, *, read_only: bool = False) -> dict[str, Any]:
    found: dict[str, Any] = {"name": name, "hostPath": path, "mountPath": path, "pathType": kind}
    return {**found, "readOnly": True} if read_only else found


def _etcd(settings: Settings) -> dict[str, Any]:
    etcd = settings.document.etcd
    if settings.etcd_type != "kubeadm":
        health = etcd.external.http_endpoints if etcd.external is not None else []
        return {
            "external": {
                "endpoints": endpoints(settings),
                **({"httpEndpoints": health} if health else {}),
                "caFile": f"{_PKI}/etcd/ca.crt",
                "certFile": f"{_PKI}/apiserver-etcd-client.crt",
                "keyFile": f"{_PKI}/apiserver-etcd-client.key",
            }
        }
    flags = {name: [value] for name, value in etcd_flags(settings).items()}
    return {"local": {"dataDir": etcd.data_dir, "extraArgs": _arguments({**flags, **etcd.extra_args})}}


def go_duration(seconds: float) -> str:
    """A duration as Kubernetes writes it: 8760h0m0s."""
    whole = round(seconds)
    return f"{whole // 3600}h{whole % 3600 // 60}m{whole % 60}s"
