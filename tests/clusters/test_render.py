"""The files of a cluster's hosts: of the right form, and accepted by the programs that read them."""

from __future__ import annotations

import json
import pathlib
import shutil
import subprocess
import tomllib
from typing import Any

import pytest
from click.testing import CliRunner
from ruamel.yaml import YAML

from kubexm_exec.cli.main import main
from tests.clusters.kit import HIGHLY_AVAILABLE, SMALLEST
from tests.clusters.test_build import document

FORMS = pathlib.Path(__file__).with_name("v1beta4")
RICH = """\
apiVersion: kubexm.io/v1
kind: Cluster
metadata: {name: lab}
kubernetes:
  version: 1.35.8
  featureGates: {NodeSwap: true}
  proxy: {mode: ipvs, config: {ipvs: {strictARP: true}}}
  apiServer:
    certSANs: [api.example.org]
    nodePortRange: 20000-22767
    audit: {enabled: true}
    oidc: {issuerURL: "https://id.example.org", clientID: kubernetes, groupsClaim: groups}
    admission: {enable: [AlwaysPullImages]}
    extraArgs: {v: 2, profiling: false}
    extraVolumes: [{name: extra, hostPath: /opt/extra, mountPath: /opt/extra, readOnly: true}]
  controllerManager: {nodeCIDRMaskSize: 25}
  kubelet: {config: {maxPods: 50}, extraArgs: {v: 3}}
  patches: [{target: kube-apiserver, patch: "metadata: {labels: {a: b}}"}]
  certificates: {validity: 4000h, algorithm: ECDSA-P256}
hosts:
  - name: cp[1:3]
    address: 10.0.0.[1:3]
    roles: [controlPlane]
    node: {taints: [{key: own, effect: NoExecute}], kubelet: {maxPods: 20}}
  - name: worker[1:2]
    address: 10.0.0.[11:12]
    roles: [worker]
    node: {taints: [{key: gpu, value: "1", effect: NoSchedule}]}
containerRuntime: {version: 1.7.33}
registry:
  mirrors: {docker.io: ["https://one.example.org", "https://two.example.org"], _default: "https://all.example.org"}
system: {swap: keep, proxy: {http: "http://proxy.example.org:3128"}}
etcd: {extraArgs: {max-request-bytes: 2000000}}
"""


def render(folder: pathlib.Path, text: str) -> pathlib.Path:
    (folder / "cluster.yaml").write_text(text)
    out = folder / "out"
    result = CliRunner().invoke(main, ["cluster", "render", "-f", str(folder / "cluster.yaml"), "-o", str(out)])
    assert result.exit_code == 0, result.output
    return out


def documents(path: pathlib.Path) -> dict[str, Any]:
    return {each["kind"]: each for each in YAML(typ="safe").load_all(path.read_text())}


def unknown_keys(data: Any, form: Any, path: str = "") -> list[str]:
    """The keys that the type of kubeadm does not have."""
    if isinstance(form, list) and form and isinstance(data, list):
        return [key for each in data for key in unknown_keys(each, form[0], path)]
    if not isinstance(data, dict) or not isinstance(form, dict) or not form:
        return []
    found = [f"{path}.{key}" for key in data if key not in form and key not in ("apiVersion", "kind")]
    return found + [name for key in data if key in form for name in unknown_keys(data[key], form[key], f"{path}.{key}")]


@pytest.mark.parametrize("text", [SMALLEST, HIGHLY_AVAILABLE, RICH], ids=["smallest", "highly-available", "rich"])
def test_files_for_kubeadm_have_only_keys_of_its_types(text: str, tmp_path: pathlib.Path) -> None:
    out = render(tmp_path, text)
    found = {}
    for path in out.rglob("kubexm/*.yaml"):
        if path.name in ("init.yaml", "join.yaml"):
            found.update({(path.parts[-5], kind): data for kind, data in documents(path).items()})
    assert any(kind == "ClusterConfiguration" for _, kind in found)
    for (host, kind), data in found.items():
        form = FORMS / f"{kind}.json"
        if form.exists():
            assert unknown_keys(data, json.loads(form.read_text())) == [], (host, kind)


def test_every_setting_of_kubernetes_arrives(tmp_path: pathlib.Path) -> None:
    out = render(tmp_path, RICH)
    init = documents(out / "cp1/etc/kubernetes/kubexm/init.yaml")
    cluster = init["ClusterConfiguration"]
    flags = {each["name"]: each["value"] for each in cluster["apiServer"]["extraArgs"]}
    assert flags["service-node-port-range"] == "20000-22767"
    assert flags["feature-gates"] == "NodeSwap=true"
    assert flags["enable-admission-plugins"] == "NodeRestriction,AlwaysPullImages"
    assert (flags["v"], flags["profiling"]) == ("2", "false")
    assert flags["oidc-groups-claim"] == "groups"
    assert {"name": "node-cidr-mask-size", "value": "25"} in cluster["controllerManager"]["extraArgs"]
    assert cluster["certificateValidityPeriod"] == "4000h0m0s"
    assert {"name": "max-request-bytes", "value": "2000000"} in cluster["etcd"]["local"]["extraArgs"]
    assert init["KubeletConfiguration"]["failSwapOn"] is False
    assert init["KubeletConfiguration"]["maxPods"] == 50
    assert init["KubeProxyConfiguration"]["mode"] == "ipvs"
    taints = init["InitConfiguration"]["nodeRegistration"]["taints"]
    assert [taint["key"] for taint in taints] == ["node-role.kubernetes.io/control-plane", "own"]
    join = documents(out / "worker2/etc/kubernetes/kubexm/join.yaml")["JoinConfiguration"]
    assert join["nodeRegistration"]["taints"] == [{"key": "gpu", "value": "1", "effect": "NoSchedule"}]
    assert {"name": "v", "value": "3"} in join["nodeRegistration"]["kubeletExtraArgs"]
    assert "controlPlane" not in join
    policy = (out / "cp3/etc/kubernetes/kubexm/audit-policy.yaml").read_text()
    assert "kind: Policy" in policy
    patches = out / "cp2/etc/kubernetes/kubexm/patches"
    assert sorted(path.name for path in patches.iterdir()) == [
        "kube-apiserver+strategic.yaml", "kubeletconfiguration1+merge.json",
    ]  # fmt: skip


def test_containerd_is_configured_by_the_schema_of_its_version(tmp_path: pathlib.Path) -> None:
    old = render(tmp_path, RICH) / "cp1/etc/containerd"
    config = tomllib.loads((old / "config.toml").read_text())
    assert config["version"] == 2
    cri = config["plugins"]["io.containerd.grpc.v1.cri"]
    assert cri["sandbox_image"] == "registry.k8s.io/pause:3.10.1"
    assert cri["containerd"]["runtimes"]["runc"]["options"]["SystemdCgroup"] is True
    hosts = tomllib.loads((old / "certs.d/docker.io/hosts.toml").read_text())
    assert list(hosts["host"]) == ["https://one.example.org", "https://two.example.org"]
    assert "server" not in tomllib.loads((old / "certs.d/_default/hosts.toml").read_text())
    assert (
        'Environment="HTTP_PROXY=http://proxy.example.org:3128"'
        in (old.parents[0] / "systemd/system/containerd.service").read_text()
    )
    (tmp_path / "new").mkdir()
    new = render(tmp_path / "new", SMALLEST) / "cp1/etc/containerd/config.toml"
    config = tomllib.loads(new.read_text())
    assert config["version"] == 3
    images = config["plugins"]["io.containerd.cri.v1.images"]
    assert images["pinned_images"]["sandbox"] == "registry.k8s.io/pause:3.10.2"


def test_settings_of_containerd_are_merged_by_containerd_itself(tmp_path: pathlib.Path) -> None:
    own = "containerRuntime: {config: \"[plugins.'io.containerd.cri.v1.runtime']\\nrestrict_oom_score_adj = true\"}\n"
    folder = render(tmp_path, SMALLEST + own) / "cp1/etc/containerd"
    assert tomllib.loads((folder / "config.toml").read_text())["imports"] == ["/etc/containerd/conf.d/*.toml"]
    merged = tomllib.loads((folder / "conf.d/kubexm.toml").read_text())
    assert merged["version"] == 3
    assert merged["plugins"]["io.containerd.cri.v1.runtime"]["restrict_oom_score_adj"] is True


def test_checks_of_kubeadm_that_may_fail_are_named_on_every_node(tmp_path: pathlib.Path) -> None:
    text = HIGHLY_AVAILABLE.replace("1.36.4}", "1.36.4, ignorePreflightErrors: [SystemVerification, Swap]}")
    out = render(tmp_path, text + "system: {swap: keep}\n")
    for name, file, kind in (("cp1", "init", "InitConfiguration"), ("worker1", "join", "JoinConfiguration")):
        told = documents(out / f"{name}/etc/kubernetes/kubexm/{file}.yaml")[kind]["nodeRegistration"]
        assert told["ignorePreflightErrors"][:2] == ["Swap", "SystemVerification"]


def test_static_pods_and_patches_are_whole_documents(tmp_path: pathlib.Path) -> None:
    for kind in ("local", "kubeVip"):
        (tmp_path / kind).mkdir()
        out = render(tmp_path / kind, document("1.36.4", "kubeadm", kind, "flannel", "nftables"))
        pods = list(out.rglob("manifests/*.yaml"))
        assert pods
        for path in pods:
            assert documents(path)["Pod"]["spec"]["hostNetwork"] is True
    patch = documents(out / "cp1/etc/kubernetes/kubexm/network/patch.yaml")["ConfigMap"]
    assert json.loads(patch["data"]["net-conf.json"]) == {
        "Network": "10.244.0.0/16", "EnableNFTables": True, "Backend": {"Type": "vxlan"},
    }  # fmt: skip


def accepted(program: str, *arguments: str, root: pathlib.Path | None = None) -> None:
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")
    done = subprocess.run([program, *arguments], capture_output=True, text=True, check=False, cwd=root)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("kind", ["local", "haproxyKeepalived"])
def test_haproxy_accepts_its_configuration(kind: str, tmp_path: pathlib.Path) -> None:
    out = render(tmp_path, document("1.36.4", "kubeadm", kind, "flannel", "nftables"))
    for path in sorted(out.rglob("haproxy.cfg")):
        accepted("haproxy", "-c", "-f", str(path))


def test_keepalived_accepts_its_configuration_with_different_priorities(tmp_path: pathlib.Path) -> None:
    out = render(tmp_path, document("1.36.4", "kubeadm", "haproxyKeepalived", "flannel", "nftables"))
    paths = sorted(out.rglob("keepalived.conf"))
    texts = [path.read_text() for path in paths]
    assert [next(line for line in text.splitlines() if "priority" in line).split()[1] for text in texts] == [
        "200", "190", "180",
    ]  # fmt: skip
    if shutil.which("keepalived") is None:
        pytest.skip("keepalived is not installed")
    for path in paths:
        # The interface and the script are those of a host that is not here.
        script = path.with_name("check-haproxy.sh")
        script.chmod(0o755)
        text = path.read_text().replace("interface eth0", "interface lo")
        path.write_text(text.replace("/etc/keepalived/check-haproxy.sh", str(script)))
        accepted("keepalived", "-t", "-f", str(path))


def test_systemd_accepts_the_units(tmp_path: pathlib.Path) -> None:
    folder = render(tmp_path, HIGHLY_AVAILABLE) / "cp1/etc/systemd/system"
    for path in (*folder.rglob("*.service"), *folder.rglob("*.conf")):
        # Their programs and users are not on this machine.
        path.write_text(path.read_text().replace("=/usr/local/bin/", "=/bin/true ").replace("User=etcd\n", ""))
    units = sorted(folder.glob("*.service"))
    assert [path.name for path in units] == ["containerd.service", "etcd.service", "kubelet.service"]
    accepted("systemd-analyze", "verify", "--man=no", *map(str, units))
