"""Cluster: a Kubernetes cluster on hosts of ours, in one document."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from kubexm_spec.duration import Duration
from kubexm_spec.models.common import BatchSize, Budget, Identifier, Labels, Metadata, Model, Name, Strings, no_items
from kubexm_spec.models.inventory import ConnectionSpec, HostSpec
from kubexm_spec.models.network import Cidr, DnsName, Ip, Port, PortRange
from kubexm_spec.semver import Version
from kubexm_spec.size import Size

HOOK_POINTS = (
    "prepare", "etcd", "controlPlane", "network", "workers", "addons", "upgradeNode", "removeNode", "reset",
)  # fmt: skip
"""Parts of the work on a cluster that modules of the user can come before and after."""
PREFLIGHT_CHECKS = (
    "cpu", "memory", "disk", "kernel", "cgroup", "modules", "swap", "time", "hostname", "machineId", "productUuid",
    "portsFree", "portsReachable", "dns", "registry", "etcdFsync", "ssh", "sudo", "versions",
)  # fmt: skip
"""Checks of hosts before the first change, by the ids that `preflight.skip` takes."""


def _absolute(text: str) -> str:
    if not text.startswith("/") or "\n" in text or "/../" in f"{text}/":
        raise ValueError("should be an absolute path of the host, such as /var/lib/etcd")
    return text


def _one_check(text: str) -> str:
    if text.lower() == "all":
        raise ValueError("should be the id of one check: with `all` nobody knows what was wrong")
    return text


HostFolder = Annotated[str, AfterValidator(_absolute)]
"""A folder of a host."""
Arguments = dict[str, Strings]
"""Flags of a program without their dashes, each with a value or several."""


def _flags(value: Any) -> Any:
    """Flags as texts: YAML turns ``v: 2`` and ``profiling: false`` into other types."""
    if not isinstance(value, dict):
        return value
    return {str(key).removeprefix("--"): _texts(item) for key, item in value.items()}


def _texts(value: Any) -> Any:
    if isinstance(value, list):
        return [_texts(item) for item in value]
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else value


Flags = Annotated[Arguments, BeforeValidator(_flags, json_schema_input_type=dict[str, Any])]


class TaintSpec(Model):
    """A taint of a node."""

    key: str = Field(min_length=1, description="Key of the taint.")
    value: str = Field(default="", description="Value of the taint.")
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] = Field(description="What it does to pods.")


class NodeSpec(Model):
    """A host as Kubernetes sees it."""

    name: str | None = Field(default=None, description="Name of the node; by default the name of the host.")
    labels: Labels = Field(default_factory=dict, description="Labels of the node, kept in step.")
    annotations: Labels = Field(default_factory=dict, description="Annotations of the node, kept in step.")
    taints: list[TaintSpec] = Field(default_factory=no_items, description="Taints of the node, kept in step.")
    kubelet: dict[str, Any] = Field(
        default_factory=dict, description="Keys of KubeletConfiguration for this node alone."
    )


class ClusterHostSpec(HostSpec):
    """A host of the cluster, or a range of them: as in an Inventory, with what Kubernetes should know of it."""

    internal_address: str | None = Field(
        default=None,
        description="Address for traffic between nodes; by default `address`. Two with a comma between them (IPv4 and "
        "IPv6) for dual stack.",
    )
    roles: Strings = Field(default_factory=no_items, description="controlPlane, worker, etcd, loadBalancer, registry.")
    node: NodeSpec = Field(default_factory=NodeSpec, description="The host as Kubernetes sees it.")


class EndpointSpec(Model):
    """How clients reach the API server."""

    domain: DnsName | None = Field(default=None, description="Name in certificates and kubeconfigs.")
    address: Ip | None = Field(
        default=None,
        description="Virtual address, or that of an external load balancer; by default the first control plane's.",
    )
    port: Port | None = Field(default=None, description="Port for clients; by default that of the load balancer.")
    external_dns: bool = Field(
        default=False, alias="externalDNS", description="The name is in the DNS: do not write it to /etc/hosts."
    )


class KeepalivedSpec(Model):
    """The virtual address of haproxyKeepalived."""

    interface: str | None = Field(default=None, description="By default that of the default route.")
    virtual_router_id: int | None = Field(
        default=None, description="1 to 255, unique in the network segment; by default made from the cluster's name."
    )
    auth_pass: str | None = Field(
        default=None, description="At most 8 characters, only as a secret reference; by default generated."
    )
    unicast: bool = Field(default=True, description="Speak to the peers by their addresses instead of multicast.")


class BgpPeerSpec(Model):
    """A router that kube-vip speaks BGP to."""

    address: Ip = Field(description="Address of the router.")
    as_: int = Field(alias="as", ge=1, description="Its number of the autonomous system.")


class BgpSpec(Model):
    """BGP of kube-vip."""

    router_id: Ip | None = Field(default=None, description="Id of this router; by default the node's address.")
    as_: int = Field(alias="as", ge=1, description="Our number of the autonomous system.")
    peers: list[BgpPeerSpec] = Field(min_length=1, description="The routers.")


class KubeVipSpec(Model):
    """The virtual address of kubeVip."""

    mode: Literal["arp", "bgp"] = Field(default="arp", description="How the address is announced.")
    interface: str | None = Field(default=None, description="By default detected.")
    services: bool = Field(default=False, description="Serve addresses of Services as well.")
    bgp: BgpSpec | None = Field(default=None, description="For `mode: bgp`.")

    @model_validator(mode="after")
    def _bgp_has_peers(self) -> Self:
        if (self.mode == "bgp") != (self.bgp is not None):
            raise ValueError("`bgp` and `mode: bgp` go together")
        return self


class LoadBalancerSpec(Model):
    """What spreads clients over several API servers."""

    type: Literal["none", "local", "haproxyKeepalived", "kubeVip", "external"] | None = Field(
        default=None,
        description="none: the endpoint is one control plane. local: haproxy on every worker, on 127.0.0.1. "
        "haproxyKeepalived: haproxy on the hosts of role loadBalancer (or the control planes) with a virtual address. "
        "kubeVip: a virtual address on the control planes. external: yours. By default none for one control plane, "
        "else local.",
    )
    port: Port | None = Field(
        default=None, description="Port of haproxy: 6443 by default, 8443 on hosts that are control planes."
    )
    health_port: Port = Field(default=8082, description="Port of haproxy's own health.")
    keepalived: KeepalivedSpec = Field(default_factory=KeepalivedSpec, description="For haproxyKeepalived.")
    kube_vip: KubeVipSpec = Field(default_factory=KubeVipSpec, description="For kubeVip.")


class ProxySpec(Model):
    """kube-proxy."""

    mode: Literal["iptables", "nftables", "ipvs", "none"] | None = Field(
        default=None,
        description="By default nftables where the kernels have it (5.13), else iptables. none: the network plugin "
        "replaces kube-proxy.",
    )
    config: dict[str, Any] = Field(default_factory=dict, description="Keys of KubeProxyConfiguration.")


class AuditSpec(Model):
    """The audit log of the API server."""

    enabled: bool | None = Field(default=None, description="By default false; true in `hardening.profile: cis`.")
    policy_file: str | None = Field(
        default=None, description="Policy, relative to this file; by default a minimal one."
    )
    max_age: int = Field(default=30, ge=0, description="Days to keep files.")
    max_backups: int = Field(default=10, ge=0, description="Files to keep.")
    max_size: int = Field(default=100, ge=1, description="Megabytes of a file.")


class OidcSpec(Model):
    """Users from an OpenID Connect provider."""

    issuer_url: str = Field(alias="issuerURL", pattern=r"^https://", description="Address of the provider.")
    client_id: str = Field(alias="clientID", min_length=1, description="Id of the client.")
    username_claim: str = Field(default="sub", description="Claim that is the user.")
    groups_claim: str | None = Field(default=None, description="Claim that has the groups.")
    ca_file: str | None = Field(default=None, description="CA of the provider, relative to this file.")


class AdmissionSpec(Model):
    """Admission plugins of the API server."""

    enable: list[str] = Field(default_factory=no_items, description="Plugins to enable.")
    disable: list[str] = Field(default_factory=no_items, description="Plugins to disable.")


class VolumeSpec(Model):
    """A path of the host in a control plane component, as kubeadm's HostPathMount."""

    name: str = Field(min_length=1, description="Name of the volume.")
    host_path: HostFolder = Field(description="Path on the host.")
    mount_path: HostFolder = Field(description="Path in the container.")
    read_only: bool = Field(default=False, description="Mount it read-only.")
    path_type: Literal["", "DirectoryOrCreate", "Directory", "FileOrCreate", "File", "Socket"] = Field(
        default="", description="What has to be there."
    )


class ComponentSpec(Model):
    """A component of the control plane."""

    extra_args: Flags = Field(default_factory=dict, description="Flags without their dashes: a value or several.")
    extra_volumes: list[VolumeSpec] = Field(default_factory=no_items, description="More paths of the host.")


class ApiServerSpec(ComponentSpec):
    """The API server."""

    cert_sans: list[str] = Field(
        default_factory=no_items, alias="certSANs", description="More names and addresses in its certificate."
    )
    node_port_range: PortRange = Field(default="30000-32767", description="Ports of Services of type NodePort.")
    bind_port: Port = Field(default=6443, description="Port on the control planes.")
    audit: AuditSpec = Field(default_factory=AuditSpec, description="The audit log.")
    oidc: OidcSpec | None = Field(default=None, description="Users from an OpenID Connect provider.")
    admission: AdmissionSpec = Field(default_factory=AdmissionSpec, description="Admission plugins.")


class ControllerManagerSpec(ComponentSpec):
    """The controller manager."""

    node_cidr_mask_size: int | None = Field(
        default=None,
        alias="nodeCIDRMaskSize",
        ge=8,
        le=128,
        description="Size of a node's part of the pod subnet; by default 24, and 64 for IPv6.",
    )


class KubeletSpec(Model):
    """The kubelet of all nodes."""

    config: dict[str, Any] = Field(default_factory=dict, description="Keys of KubeletConfiguration.")
    server_certificates: bool | None = Field(
        default=None, description="Serving certificates from the cluster's CA; by default false, true in cis."
    )
    extra_args: Flags = Field(default_factory=dict, description="Flags without their dashes.")


class PatchSpec(Model):
    """A patch of kubeadm for a manifest or a configuration that it writes."""

    target: Literal[
        "kube-apiserver",
        "kube-controller-manager",
        "kube-scheduler",
        "etcd",
        "kubeletconfiguration",
        "corednsdeployment",
    ] = Field(description="What is patched.")
    type: Literal["strategic", "merge", "json"] = Field(default="strategic", description="Kind of the patch.")
    patch: str = Field(min_length=1, description="The patch, in YAML or JSON.")


class EncryptionSpec(Model):
    """Encryption of resources in etcd."""

    enabled: bool | None = Field(default=None, description="By default false; true in `hardening.profile: cis`.")
    resources: list[str] = Field(default=["secrets"], min_length=1, description="Resources to encrypt.")
    key: str | None = Field(
        default=None, description="Key of 32 bytes in base64, only as a secret reference; by default generated."
    )


class CaBundleSpec(Model):
    """A CA of yours."""

    ca: str = Field(description="Certificate: a file, relative to this one, or a secret reference.")
    key: str = Field(description="Its key, only as a secret reference.")


class CertificatesSpec(Model):
    """Certificates of the cluster."""

    validity: Duration = Field(default=8760 * 3600.0, gt=0, description="Of certificates: a year by default.")
    ca_validity: Duration = Field(default=87600 * 3600.0, gt=0, description="Of CAs: ten years by default.")
    algorithm: Literal["RSA-2048", "RSA-3072", "RSA-4096", "ECDSA-P256", "ECDSA-P384"] = Field(
        default="RSA-2048", description="Algorithm of keys."
    )
    ca_bundle: CaBundleSpec | None = Field(default=None, description="Your own CA; by default one is generated.")
    auto_renew: bool = Field(default=False, description="Renew by a timer on the control planes, one at a time.")


class KubernetesSpec(Model):
    """Kubernetes itself."""

    version: Version = Field(description="Version, such as 1.36.4.")
    cluster_name: Name | None = Field(default=None, description="By default `metadata.name`.")
    dns_domain: DnsName = Field(default="cluster.local", description="Domain of Services.")
    image_repository: str = Field(default="registry.k8s.io", min_length=1, description="Where its images are.")
    feature_gates: dict[str, bool] = Field(default_factory=dict, description="Feature gates of all components.")
    proxy: ProxySpec = Field(default_factory=ProxySpec, description="kube-proxy.")
    api_server: ApiServerSpec = Field(default_factory=ApiServerSpec, description="The API server.")
    controller_manager: ControllerManagerSpec = Field(
        default_factory=ControllerManagerSpec, description="The controller manager."
    )
    scheduler: ComponentSpec = Field(default_factory=ComponentSpec, description="The scheduler.")
    kubelet: KubeletSpec = Field(default_factory=KubeletSpec, description="The kubelet of all nodes.")
    patches: list[PatchSpec] = Field(default_factory=no_items, description="Patches of kubeadm.")
    ignore_preflight_errors: list[Annotated[str, AfterValidator(_one_check)]] = Field(
        default_factory=no_items,
        description="Checks of kubeadm that may fail, by their ids, such as SystemVerification for a kernel with "
        "cgroup v1 (with `failCgroupV1: false` in `kubelet.config`).",
    )
    schedulable_control_plane: bool | None = Field(
        default=None, description="Whether pods run on control planes; by default if there are no workers."
    )
    encryption: EncryptionSpec = Field(default_factory=EncryptionSpec, description="Encryption in etcd.")
    certificates: CertificatesSpec = Field(default_factory=CertificatesSpec, description="Certificates.")


class ExternalEtcdSpec(Model):
    """An etcd of yours."""

    endpoints: list[str] = Field(default_factory=no_items, description="Addresses such as https://10.0.0.1:2379.")
    http_endpoints: list[str] = Field(
        default_factory=no_items, description="Addresses of metrics and health (Kubernetes 1.35)."
    )
    ca: str | None = Field(default=None, description="CA: a file, relative to this one, or a secret reference.")
    cert: str | None = Field(default=None, description="Client certificate: a file or a secret reference.")
    key: str | None = Field(default=None, description="Its key: a file or a secret reference.")


class BackupSpec(Model):
    """Snapshots of etcd by a timer."""

    enabled: bool = Field(default=True, description="Whether there is a timer.")
    on_calendar: str = Field(default="*-*-* 02:00:00", min_length=1, description="When, in the notation of systemd.")
    keep: int = Field(default=7, ge=1, description="Snapshots to keep.")
    dir: HostFolder = Field(default="/var/backups/etcd", description="Folder of the snapshots.")


class EtcdSpec(Model):
    """etcd of the cluster."""

    type: Literal["kubexm", "kubeadm", "external"] | None = Field(
        default=None,
        description="kubexm: a service on the hosts of role etcd. kubeadm: static pods on the control planes. "
        "external: yours. By default kubexm if there are hosts of role etcd, else kubeadm.",
    )
    version: Version | None = Field(default=None, description="By default the one for the Kubernetes version.")
    data_dir: HostFolder = Field(default="/var/lib/etcd", description="Folder of the data.")
    wal_dir: HostFolder | None = Field(default=None, description="Folder of the log; by default in `dataDir`.")
    quota: Size = Field(default=8 << 30, ge=1 << 20, description="Largest size of the database (8Gi).")
    heartbeat_interval: Duration = Field(default=0.1, gt=0, description="Time between heartbeats.")
    election_timeout: Duration = Field(default=1.0, gt=0, description="Silence after which a leader is elected.")
    compaction: Duration = Field(default=8 * 3600.0, ge=0, description="Age of revisions that are compacted.")
    extra_args: Flags = Field(default_factory=dict, description="Flags without their dashes.")
    external: ExternalEtcdSpec | None = Field(default=None, description="For `type: external`.")
    backup: BackupSpec = Field(default_factory=BackupSpec, description="Snapshots by a timer.")


class CalicoSpec(Model):
    """Calico."""

    version: Version | None = Field(default=None, description="By default the newest that is known.")
    encapsulation: Literal["VXLANCrossSubnet", "VXLAN", "IPIPCrossSubnet", "IPIP", "None"] = Field(
        default="VXLANCrossSubnet", description="How pods of different nodes reach one another."
    )
    block_size: int = Field(default=26, ge=20, le=128, description="Size of the blocks that nodes get.")
    bgp: bool = Field(default=True, description="Whether BGP is enabled.")
    nat_outgoing: bool = Field(default=True, description="Whether pods reach others by the node's address.")
    dataplane: Literal["iptables", "nftables"] | None = Field(
        default=None, description="By default as `kubernetes.proxy.mode`."
    )


class FlannelSpec(Model):
    """Flannel."""

    version: Version | None = Field(default=None, description="By default the newest that is known.")
    backend: Literal["vxlan", "host-gw", "wireguard"] = Field(default="vxlan", description="Backend.")
    direct_routing: bool = Field(default=False, description="Route directly between nodes of one subnet (vxlan).")


class CiliumSpec(Model):
    """Cilium."""

    version: Version | None = Field(default=None, description="By default the newest that is known.")
    kube_proxy_replacement: bool | None = Field(
        default=None, description="By default if `kubernetes.proxy.mode` is none."
    )
    hubble: bool = Field(default=False, description="Whether Hubble is installed.")
    encryption: Literal["none", "wireguard", "ipsec"] = Field(default="none", description="Between nodes.")
    values: dict[str, Any] = Field(default_factory=dict, description="Values of its chart.")


class NetworkSpec(Model):
    """Networks of pods and Services."""

    plugin: Literal["calico", "flannel", "cilium", "none"] = Field(
        default="calico", description="Network plugin; none: you install one."
    )
    pod_cidrs: list[Cidr] = Field(
        default=["10.244.0.0/16"], alias="podCIDRs", min_length=1, max_length=2, description="Two for dual stack."
    )
    service_cidrs: list[Cidr] = Field(
        default=["10.96.0.0/12"], alias="serviceCIDRs", min_length=1, max_length=2, description="Two for dual stack."
    )
    mtu: int = Field(default=0, ge=0, le=65535, description="MTU of pods; 0: detected.")
    calico: CalicoSpec = Field(default_factory=CalicoSpec, description="For calico.")
    flannel: FlannelSpec = Field(default_factory=FlannelSpec, description="For flannel.")
    cilium: CiliumSpec = Field(default_factory=CiliumSpec, description="For cilium.")


class NodeLocalDnsSpec(Model):
    """A cache of the DNS on every node."""

    enabled: bool = Field(default=False, description="Whether it is installed.")
    ip: Ip = Field(default="169.254.20.10", description="Its address on every node.")


class DnsSpec(Model):
    """CoreDNS."""

    upstreams: list[str] = Field(default_factory=no_items, description="Servers of other names; by default the node's.")
    hosts: str = Field(default="", description="Lines of a hosts file that it answers from.")
    extra_config: str = Field(default="", description="More server blocks of the Corefile.")
    node_local: NodeLocalDnsSpec = Field(default_factory=NodeLocalDnsSpec, description="A cache on every node.")


class RuntimeSpec(Model):
    """The container runtime."""

    type: Literal["containerd"] = Field(default="containerd", description="The runtime.")
    version: Version | None = Field(default=None, description="By default the newest that fits the Kubernetes version.")
    runc_version: Version | None = Field(default=None, description="By default the newest that is known.")
    cni_plugins_version: Version | None = Field(default=None, description="By default by the Kubernetes version.")
    crictl_version: Version | None = Field(default=None, description="By default by the Kubernetes version.")
    data_dir: HostFolder = Field(default="/var/lib/containerd", description="Folder of images and containers.")
    sandbox_image: str | None = Field(default=None, description="By default the pause image of the Kubernetes version.")
    config: str = Field(
        default="",
        description="TOML that is merged with the configuration, of its schema but without the line `version`. With "
        "containerd 1.x it is added at the end, so that it cannot name a table that is there already.",
    )


class RegistryAuthSpec(Model):
    """Access to a registry."""

    username: str | None = Field(default=None, description="User.")
    password: str | None = Field(default=None, description="Only as a secret reference.")
    ca: str | None = Field(default=None, description="CA of the registry: a file, or a secret reference.")
    skip_verify: bool = Field(default=False, description="Trust every certificate; not for production.")


class RegistrySpec(Model):
    """Registries of images."""

    mirrors: dict[str, Strings] = Field(
        default_factory=dict, description="By registry (or `_default`) the addresses of mirrors."
    )
    auths: dict[str, RegistryAuthSpec] = Field(default_factory=dict, description="By registry its access.")
    deploy: bool | None = Field(
        default=None, description="A registry on the hosts of role registry; by default if there are some."
    )
    storage: HostFolder = Field(default="/var/lib/registry", description="Folder of that registry.")
    port: Port = Field(default=5000, description="Port of that registry.")


class OfflineSpec(Model):
    """Work without the internet."""

    bundle: str | None = Field(
        default=None,
        description="Folder or archive of `kubexm cluster bundle`, relative to this file. Nothing is fetched, and a "
        "missing item is an error before the first change.",
    )
    packages: Literal["repository", "none", "bundle"] = Field(
        default="repository",
        description="Where packages of the operating system come from: the repositories of the hosts (a mirror), or "
        "none is installed, because they are there. `bundle` is not built yet.",
    )


class NtpSpec(Model):
    """Time of the hosts."""

    enabled: bool = Field(default=True, description="Keep the time in sync.")
    servers: list[str] = Field(
        default_factory=no_items, description="Servers, or hosts of the cluster; by default the distribution's."
    )


class HttpProxySpec(Model):
    """A proxy for containerd, the kubelet and downloads."""

    http: str | None = Field(default=None, description="Proxy for http.")
    https: str | None = Field(default=None, description="Proxy for https.")
    no_proxy: list[str] = Field(default_factory=no_items, description="Added to the cluster's own names and subnets.")


class HostEntrySpec(Model):
    """A line of /etc/hosts."""

    ip: Ip = Field(description="Address.")
    names: list[str] = Field(min_length=1, description="Names.")


class SystemSpec(Model):
    """Preparation of the operating system."""

    hostname: bool = Field(default=False, description="Set host names from `hosts[].node.name`.")
    timezone: str | None = Field(default=None, description="Time zone; by default unchanged.")
    ntp: NtpSpec = Field(default_factory=NtpSpec, description="Time of the hosts.")
    swap: Literal["disable", "keep"] = Field(default="disable", description="What becomes of swap.")
    sysctl: Labels = Field(default_factory=dict, description="Added to the computed ones.")
    modules: list[str] = Field(default_factory=no_items, description="Kernel modules, added to the computed ones.")
    packages: list[str] = Field(default_factory=no_items, description="Packages, added to the computed ones.")
    firewall: Literal["keep", "disable", "open"] = Field(
        default="keep", description="open: open the needed ports only."
    )
    selinux: Literal["keep", "permissive"] = Field(default="keep", description="What becomes of SELinux.")
    apparmor: Literal["keep", "permissive"] = Field(default="keep", description="What becomes of AppArmor.")
    proxy: HttpProxySpec | None = Field(default=None, description="A proxy for the hosts.")
    hosts: list[HostEntrySpec] = Field(default_factory=no_items, description="More lines of /etc/hosts.")
    skip: bool = Field(default=False, description="Prepare nothing: the images of the hosts are prepared.")


class HardeningSpec(Model):
    """Security beyond the defaults."""

    profile: Literal["none", "cis"] = Field(default="none", description="cis: what the CIS benchmark asks for.")


class AddonManifestSpec(Model):
    """Manifests of an addon."""

    path: Strings = Field(min_length=1, description="Files or folders, relative to this file.")


class AddonChartSpec(Model):
    """A chart of an addon."""

    name: str | None = Field(default=None, description="Name of the chart in `repo`.")
    repo: str | None = Field(default=None, description="Address of a repository.")
    path: str | None = Field(default=None, description="Folder or archive, relative to this file.")
    oci: str | None = Field(default=None, pattern=r"^oci://", description="Address in a registry.")
    version: str | None = Field(default=None, description="Version of the chart.")
    values: dict[str, Any] = Field(default_factory=dict, description="Values.")
    values_files: Strings = Field(default_factory=no_items, description="Files with values, relative to this file.")

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if sum(source is not None for source in (self.repo, self.path, self.oci)) != 1:
            raise ValueError("a chart comes from exactly one of repo, path and oci")
        if (self.repo is None) != (self.name is None):
            raise ValueError("`name` and `repo` go together")
        return self


class AddonSpec(Model):
    """Something that is installed into the cluster."""

    name: Name = Field(description="Name, unique among the addons.")
    namespace: str = Field(default="default", min_length=1, description="Namespace.")
    wait: bool = Field(default=True, description="Wait until it is available.")
    timeout: Duration = Field(default=300.0, gt=0, description="How long.")
    manifest: AddonManifestSpec | None = Field(default=None, description="Manifests.")
    chart: AddonChartSpec | None = Field(default=None, description="Or a chart.")
    when: Literal["create", "always"] = Field(default="always", description="always: kept in step by `apply`.")

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        if (self.manifest is None) == (self.chart is None):
            raise ValueError("an addon has exactly one of manifest and chart")
        return self


class PreflightSpec(Model):
    """Checks of the hosts before the first change."""

    min_cpu: int = Field(default=2, alias="minCPU", ge=1, description="Processors of a control plane.")
    min_memory: Size = Field(default=1700 << 20, description="Memory of a control plane (1700Mi).")
    min_disk: Size = Field(default=10 << 30, description="Free space of /var/lib (10Gi).")
    etcd_fsync: Duration = Field(default=0.01, gt=0, description="Slowest fsync of etcd's disk (99th percentile).")
    skip: list[str] = Field(default_factory=no_items, description="Checks to skip, by their ids.")


class HookModuleSpec(Model):
    """A module of yours around a part of the work."""

    name: Name | None = Field(default=None, description="Name of the module; by default made from the hook.")
    uses: str = Field(min_length=1, description="The module: a path relative to this file, or `kubexm:NAME`.")
    with_: dict[Identifier, Any] = Field(default_factory=dict, alias="with", description="Its parameters.")


def _hook_module(value: Any) -> Any:
    return {"uses": value} if isinstance(value, str) else value


HookModule = Annotated[HookModuleSpec, BeforeValidator(_hook_module, json_schema_input_type=HookModuleSpec | str)]


class HookSpec(Model):
    """Modules before and after a part of the work."""

    before: list[HookModule] = Field(default_factory=no_items, description="Before it.")
    after: list[HookModule] = Field(default_factory=no_items, description="After it.")


class ClusterHooksSpec(Model):
    """Modules of yours around the parts of the work."""

    prepare: HookSpec | None = Field(default=None, description="Preparation of the hosts.")
    etcd: HookSpec | None = Field(default=None, description="etcd.")
    control_plane: HookSpec | None = Field(default=None, description="The control planes.")
    network: HookSpec | None = Field(default=None, description="The network plugin.")
    workers: HookSpec | None = Field(default=None, description="The workers.")
    addons: HookSpec | None = Field(default=None, description="The addons.")
    upgrade_node: HookSpec | None = Field(default=None, description="The upgrade of a node.")
    remove_node: HookSpec | None = Field(default=None, description="The removal of a node.")
    reset: HookSpec | None = Field(default=None, description="The removal of the cluster.")


class WorkersSpec(Model):
    """How work rolls over the workers."""

    batch: BatchSize = Field(default="20%", description="Workers at once.")
    max_failures: Budget = Field(default="0", description="Workers that may fail.")
    pause: Duration = Field(default=0.0, description="Pause between two batches.")


class DrainSpec(Model):
    """How pods leave a node."""

    enabled: bool = Field(default=True, description="Whether nodes are drained.")
    timeout: Duration = Field(default=300.0, gt=0, description="How long it may take.")
    grace_period: int = Field(default=-1, ge=-1, description="Seconds for a pod to end; -1: the pod's own.")
    delete_empty_dir_data: bool = Field(default=True, description="Remove pods with emptyDir volumes.")
    force: bool = Field(default=False, description="Remove pods that nothing would create again.")
    disable_eviction_fallback: bool = Field(
        default=False, description="Delete pods whose eviction is refused until the timeout."
    )


class OperationsSpec(Model):
    """How work is spread over hosts."""

    forks: int = Field(default=50, ge=1, description="Hosts at once.")
    uploads: int = Field(default=5, ge=1, description="Uploads of large files at once.")
    workers: WorkersSpec = Field(default_factory=WorkersSpec, description="Rolling work on workers.")
    drain: DrainSpec = Field(default_factory=DrainSpec, description="How pods leave a node.")


class ClusterDocument(Model):
    """A Kubernetes cluster: its hosts, its version, and what should differ from the defaults."""

    api_version: Literal["kubexm.io/v1"] = Field(description="Version of the format.")
    kind: Literal["Cluster"] = Field(description="Kind of the document.")
    metadata: Metadata = Field(description="Name and description of the cluster.")
    defaults: ConnectionSpec = Field(
        default_factory=ConnectionSpec, description="Default connection settings of hosts."
    )
    inventory: str | None = Field(default=None, description="Path of an Inventory with the hosts, instead of `hosts`.")
    hosts: list[ClusterHostSpec] = Field(default_factory=no_items, description="The hosts.")
    role_groups: dict[str, Strings] = Field(
        default_factory=dict, description="By role the names or ranges of hosts, in addition to `hosts[].roles`."
    )
    control_plane_endpoint: EndpointSpec = Field(
        default_factory=EndpointSpec, description="How clients reach the API server."
    )
    load_balancer: LoadBalancerSpec = Field(
        default_factory=LoadBalancerSpec, description="What spreads clients over several API servers."
    )
    kubernetes: KubernetesSpec = Field(description="Kubernetes itself.")
    etcd: EtcdSpec = Field(default_factory=EtcdSpec, description="etcd of the cluster.")
    network: NetworkSpec = Field(default_factory=NetworkSpec, description="Networks of pods and Services.")
    dns: DnsSpec = Field(default_factory=DnsSpec, description="CoreDNS.")
    container_runtime: RuntimeSpec = Field(default_factory=RuntimeSpec, description="The container runtime.")
    registry: RegistrySpec = Field(default_factory=RegistrySpec, description="Registries of images.")
    offline: OfflineSpec = Field(default_factory=OfflineSpec, description="Work without the internet.")
    system: SystemSpec = Field(default_factory=SystemSpec, description="Preparation of the operating system.")
    hardening: HardeningSpec = Field(default_factory=HardeningSpec, description="Security beyond the defaults.")
    addons: list[AddonSpec] = Field(default_factory=no_items, description="What is installed into the cluster.")
    preflight: PreflightSpec = Field(default_factory=PreflightSpec, description="Checks before the first change.")
    hooks: ClusterHooksSpec = Field(default_factory=ClusterHooksSpec, description="Modules of yours.")
    operations: OperationsSpec = Field(default_factory=OperationsSpec, description="How work is spread over hosts.")
    versions: str | None = Field(
        default=None, description="Path of a Versions document, which is merged with the shipped one."
    )
