"""What follows from a Cluster document: roles, defaults that depend on hosts, and addresses."""

from __future__ import annotations

import pathlib

import pytest

from tests.clusters.kit import HIGHLY_AVAILABLE, SMALLEST, checked


def test_the_smallest_document_is_a_whole_cluster(tmp_path: pathlib.Path) -> None:
    settings = checked(tmp_path, SMALLEST).settings
    assert settings.load_balancer == "none"
    assert settings.etcd_type == "kubeadm"
    assert settings.endpoint == "10.0.0.1:6443"
    assert settings.schedulable
    assert settings.document.etcd.quota == 8 << 30


def test_several_control_planes_get_a_local_load_balancer(tmp_path: pathlib.Path) -> None:
    settings = checked(tmp_path, HIGHLY_AVAILABLE).settings
    assert settings.load_balancer == "local"
    assert [host.name for host in settings.balancers] == ["worker1", "worker2"]
    assert settings.etcd_type == "kubexm"
    assert [host.name for host in settings.etcd_members] == ["cp1", "cp2", "cp3"]
    assert not settings.schedulable


def test_haproxy_beside_an_api_server_has_another_port(tmp_path: pathlib.Path) -> None:
    more = """\
        controlPlaneEndpoint: {address: 10.0.0.100, domain: api.lab.example.org}
        loadBalancer: {type: haproxyKeepalived}
    """
    settings = checked(tmp_path, HIGHLY_AVAILABLE, more).settings
    assert settings.balancer_port == 8443
    assert settings.endpoint == "api.lab.example.org:8443"
    assert 1 <= settings.router_id <= 255
    assert settings.router_id == checked(tmp_path, HIGHLY_AVAILABLE, more).settings.router_id


def test_haproxy_on_hosts_of_its_own_has_the_usual_port(tmp_path: pathlib.Path) -> None:
    more = """\
          - {name: lb1, address: 10.0.0.20, roles: [loadBalancer]}
        controlPlaneEndpoint: {address: 10.0.0.100}
        loadBalancer: {type: haproxyKeepalived}
    """
    assert checked(tmp_path, HIGHLY_AVAILABLE, more).settings.endpoint == "10.0.0.100:6443"


def test_roles_of_groups_and_hosts_are_united(tmp_path: pathlib.Path) -> None:
    more = """\
        roleGroups: {worker: ["cp[1:2]"], etcd: [cp3]}
    """
    hosts = checked(tmp_path, HIGHLY_AVAILABLE.replace(", etcd", ""), more).settings.hosts
    assert hosts.by_name["cp1"].roles == ("controlPlane", "worker")
    assert hosts.by_name["cp3"].roles == ("controlPlane", "etcd")


@pytest.mark.parametrize("alias", ["master", "control-plane", "kube_control_plane"])
def test_names_of_other_tools_are_understood(tmp_path: pathlib.Path, alias: str) -> None:
    found = checked(tmp_path, SMALLEST.replace("controlPlane", alias))
    assert [host.name for host in found.settings.control_planes] == ["cp1"]


def test_two_addresses_are_for_dual_stack(tmp_path: pathlib.Path) -> None:
    text = SMALLEST.replace(
        "- {name: cp1, address: 10.0.0.1, roles: [controlPlane]}",
        '- {name: "cp[1:2]", address: "c[1:2].example.org", internalAddress: "10.0.0.[1:2],fd00::[1:2]", '
        "roles: [controlPlane]}",
    )
    more = """\
        controlPlaneEndpoint: {address: "fd00::100"}
        loadBalancer: {type: external}
        network: {podCIDRs: [10.244.0.0/16, "fd00:10::/56"], serviceCIDRs: [10.96.0.0/16, "fd00:20::/112"]}
    """
    settings = checked(tmp_path, text, more).settings
    assert settings.hosts.by_name["cp2"].addresses == ("10.0.0.2", "fd00::2")
    assert settings.endpoint == "[fd00::100]:6443"


def test_hosts_of_an_inventory_with_roles_of_its_own_are_taken(tmp_path: pathlib.Path) -> None:
    (tmp_path / "hosts.yaml").write_text(
        """\
apiVersion: kubexm.io/v1
kind: Inventory
metadata: {name: site}
groups:
  first: {hosts: ["a*"], roles: [master]}
hosts:
  - {name: a1, address: 10.0.0.1, roles: [web]}
  - {name: b1, address: 10.0.0.2, roles: [worker, web]}
  - {name: other, address: other.example.org, roles: [web]}
"""
    )
    text = SMALLEST.partition("hosts:")[0]
    hosts = checked(tmp_path, text, "inventory: hosts.yaml\n").settings.hosts
    assert {name: host.roles for name, host in hosts.by_name.items()} == {
        "a1": ("controlPlane",),
        "b1": ("worker",),
        "other": (),
    }


def test_flags_are_texts_however_yaml_reads_them(tmp_path: pathlib.Path) -> None:
    more = """\
        etcd: {extraArgs: {max-txn-ops: 1024, --pre-vote: true, listen: [a, b]}}
    """
    assert checked(tmp_path, SMALLEST, more).settings.document.etcd.extra_args == {
        "max-txn-ops": ["1024"],
        "pre-vote": ["true"],
        "listen": ["a", "b"],
    }
