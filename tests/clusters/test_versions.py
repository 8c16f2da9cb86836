"""The versions data: the shipped document keeps its rules, and one of the user's is merged with it."""

from __future__ import annotations

import pathlib

from kubexm_spec.clusters.versions import ARCHITECTURES, address_of, default_version, merged, shipped_versions
from kubexm_spec.models.versions import VersionsDocument
from tests.clusters.kit import HIGHLY_AVAILABLE, checked

SHA = "a" * 64


def own(**content: object) -> VersionsDocument:
    return VersionsDocument.model_validate(
        {"apiVersion": "kubexm.io/v1", "kind": "Versions", "metadata": {"name": "own"}, **content}
    )


def test_a_cluster_gets_what_goes_with_its_kubernetes(tmp_path: pathlib.Path) -> None:
    versions = checked(tmp_path, HIGHLY_AVAILABLE).versions
    assert (versions.kubernetes, versions.etcd, versions.pause) == ("1.36.4", "3.6.14", "3.10.2")
    assert (versions.containerd, versions.runc, versions.network) == ("2.3.4", "1.4.3", "3.32.1")


def test_the_default_is_the_newest_release_of_a_supported_minor() -> None:
    assert default_version(shipped_versions().document) == "1.36.4"


def test_lists_of_versions_are_united_and_newest_first() -> None:
    data = merged(
        shipped_versions().document,
        own(
            kubernetes={"1.36": {"patches": ["1.36.10"]}, "1.38": {"status": "preview"}},
            artifacts={"kubeadm": {"sha256": {"1.36.10": {"amd64": SHA}}}},
            manifests={"flannel": {"0.29.0": {"url": "https://example.org/{version}", "sha256": SHA}}},
        ),
    )
    assert data.kubernetes["1.36"].patches == ["1.36.10", "1.36.4"]
    assert data.kubernetes["1.36"].etcd == "3.6.14"
    assert next(iter(data.kubernetes)) == "1.38"
    assert list(data.artifacts["kubeadm"].sha256) == ["1.36.10", "1.36.4", "1.35.8", "1.34.11"]
    assert list(data.manifests["flannel"]) == ["0.29.0", "0.28.9"]


def test_a_mirror_takes_the_place_of_the_beginning_of_an_address() -> None:
    data = merged(shipped_versions().document, own(mirrors={"https://dl.k8s.io": "https://files.example.org/k8s/"}))
    url = data.artifacts["kubeadm"].url or ""
    assert (
        address_of(data, url, "1.36.4", "arm64")
        == "https://files.example.org/k8s/release/v1.36.4/bin/linux/arm64/kubeadm"
    )


def test_every_version_in_use_has_digests_for_every_architecture() -> None:
    data = shipped_versions().document
    for row in data.kubernetes.values():
        for patch in row.patches:
            for name, version in (
                *((name, patch) for name in ("kubeadm", "kubelet", "kubectl")),
                ("etcd", row.etcd or ""),
                ("crictl", row.crictl or ""),
                ("cniPlugins", row.cni_plugins or ""),
            ):
                assert set(ARCHITECTURES) <= data.artifacts[name].sha256[version].keys(), (name, version)
