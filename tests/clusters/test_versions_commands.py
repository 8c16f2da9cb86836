"""``kubexm versions``: listed, shown, checked, and added to from a real server."""

from __future__ import annotations

import hashlib
import json
import pathlib
from collections.abc import Iterator

import pytest
from click.testing import CliRunner, Result

from kubexm_exec.cli.main import main
from tests.resources.server import Web, serve

HEAD = "# Ours.\napiVersion: kubexm.io/v1\nkind: Versions\nmetadata: {name: ours}\n"
MANIFEST = b"""\
spec:
  containers:
    - image: quay.io/calico/node:v9
  initContainers:
    - name: install
      image: 'quay.io/calico/cni:v9'
"""


@pytest.fixture
def web() -> Iterator[Web]:
    with serve() as found:
        yield found


@pytest.fixture
def folder(tmp_path: pathlib.Path, web: Web, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    monkeypatch.chdir(tmp_path)
    hosts = ("https://dl.k8s.io", "https://github.com", "https://raw.githubusercontent.com")
    mirrors = "".join(f"  {host}: {web.url('')}\n" for host in hosts)
    (tmp_path / "versions.yaml").write_text(f"{HEAD}# All files come from here.\nmirrors:\n{mirrors}")
    return tmp_path


def kubexm(*arguments: str, code: int = 0) -> Result:
    result = CliRunner().invoke(main, ["versions", *arguments])
    assert result.exit_code == code, result.output
    return result


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def publish(web: Web, version: str) -> None:
    for name in ("kubeadm", "kubelet", "kubectl"):
        for arch in ("amd64", "arm64"):
            web.add(digest(f"{name}{version}{arch}").encode(), f"/release/v{version}/bin/linux/{arch}/{name}.sha256")


def test_the_shipped_data_is_listed_and_as_it_should_be() -> None:
    assert "1.36   supported  2027-06-28   1.36.4" in kubexm("list").stdout
    assert json.loads(kubexm("list", "--output", "json").stdout)["1.35"]["etcd"] == "3.6.14"
    assert "as it should be" in kubexm("check").stdout


def test_a_version_or_a_component_is_shown_with_its_files() -> None:
    text = kubexm("show", "v1.36.4").stdout
    assert "etcd: 3.6.14" in text
    assert "https://dl.k8s.io/release/v1.36.4/bin/linux/arm64/kubelet" in text
    assert "etcd-v3.6.14-linux-amd64.tar.gz" in kubexm("show", "etcd").stdout
    assert "quay.io/calico/node" in kubexm("show", "calico").stdout
    assert 'did you mean "etcd"?' in kubexm("show", "etc", code=2).output


def test_a_release_of_kubernetes_is_added_and_comments_are_kept(folder: pathlib.Path, web: Web) -> None:
    for version in ("1.36.5", "1.36.10"):
        publish(web, version)
        kubexm("add", "kubernetes", f"v{version}")
    text = (folder / "versions.yaml").read_text()
    assert text.startswith("# Ours.\n")
    assert "# All files come from here." in text
    shown = json.loads(kubexm("show", "1.36.10", "-f", "versions.yaml", "--output", "json").stdout)
    assert shown["patches"] == ["1.36.10", "1.36.5", "1.36.4"]
    assert {each["sha256"] for each in shown["files"]} >= {digest("kubeadm1.36.10amd64"), digest("kubectl1.36.10arm64")}
    kubexm("check", "versions.yaml")


@pytest.mark.parametrize(
    "form", ["{digest}  {name}\n{other}  other.tar.gz\n", "{digest} *./{name}\n", "SHA256 ({name}) = {digest}\n"]
)
def test_digests_are_read_in_every_form_that_projects_publish(folder: pathlib.Path, web: Web, form: str) -> None:
    sums = "".join(
        form.format(name=f"etcd-v3.6.15-linux-{arch}.tar.gz", digest=digest(arch), other=digest("other"))
        for arch in ("amd64", "arm64")
    )
    web.add(sums.encode(), "/etcd-io/etcd/releases/download/v3.6.15/SHA256SUMS")
    kubexm("add", "etcd", "3.6.15")
    found = json.loads(kubexm("show", "etcd", "-f", "versions.yaml", "--output", "json").stdout)["files"]
    assert [each["sha256"] for each in found[:2]] == [digest("amd64"), digest("arm64")]


def test_a_manifest_is_added_with_its_images(folder: pathlib.Path, web: Web) -> None:
    web.add(MANIFEST, "/projectcalico/calico/v3.33.0/manifests/calico.yaml")
    kubexm("add", "calico", "3.33.0")
    found = json.loads(kubexm("show", "calico", "-f", "versions.yaml", "--output", "json").stdout)["3.33.0"]
    assert found["sha256"] == hashlib.sha256(MANIFEST).hexdigest()
    assert [each["ref"] for each in found["images"]] == ["quay.io/calico/cni:v9", "quay.io/calico/node:v9"]
    kubexm("check", "versions.yaml", "--online")


def test_what_is_not_published_or_not_known_is_said(folder: pathlib.Path, web: Web) -> None:
    before = (folder / "versions.yaml").read_text()
    assert "answered 404" in kubexm("add", "kubernetes", "1.36.99", code=2).output
    web.add(b"nothing here\n", "/etcd-io/etcd/releases/download/v3.6.15/SHA256SUMS")
    assert "has no sha256 of etcd-v3.6.15" in kubexm("add", "etcd", "3.6.15", code=2).output
    assert 'did you mean "containerd"?' in kubexm("add", "contanerd", "2.3.5", code=2).output
    assert "three numbers" in kubexm("add", "etcd", "newest", code=2).output
    assert (folder / "versions.yaml").read_text() == before


def test_an_update_adds_patches_of_known_minors_and_new_minors_as_previews(folder: pathlib.Path, web: Web) -> None:
    stable = {"": "v1.38.0", "-1.38": "v1.38.0", "-1.37": "v1.37.1", "-1.36": "v1.36.4", "-1.35": "v1.35.9"}
    for minor, version in stable.items():
        web.add(f"{version}\n".encode(), f"/release/stable{minor}.txt")
        publish(web, version.removeprefix("v"))
    for project in ("etcd-io/etcd", "containerd/containerd", "opencontainers/runc", "containernetworking/plugins"):
        web.add(b"", f"/{project}/releases.atom")
    feed = b'<link href="https://github.com/kubernetes-sigs/cri-tools/releases/tag/v1.36.1"/>'
    web.add(feed, "/kubernetes-sigs/cri-tools/releases.atom")
    for arch in ("amd64", "arm64"):
        name = f"crictl-v1.36.1-linux-{arch}.tar.gz"
        web.add(digest(arch).encode(), f"/kubernetes-sigs/cri-tools/releases/download/v1.36.1/{name}.sha256")
    added = json.loads(kubexm("update", "--output", "json").stdout)
    assert [(each["component"], each["version"]) for each in added] == [
        ("kubernetes", "1.38.0"), ("kubernetes", "1.37.1"), ("kubernetes", "1.35.9"), ("crictl", "1.36.1"),
    ]  # fmt: skip
    rows = json.loads(kubexm("list", "-f", "versions.yaml", "--output", "json").stdout)
    assert rows["1.38"]["status"] == "preview"
    assert rows["1.35"]["patches"] == ["1.35.9", "1.35.8"]
    assert "Nothing is newer" in kubexm("update").stdout


def test_a_file_that_is_gone_or_has_another_size_is_said_online(folder: pathlib.Path, web: Web) -> None:
    web.add(MANIFEST, "/projectcalico/calico/v3.33.0/manifests/calico.yaml")
    kubexm("add", "calico", "3.33.0")
    web.pages["/projectcalico/calico/v3.33.0/manifests/calico.yaml"].content += b"more"
    assert f"bytes instead of {len(MANIFEST)}" in kubexm("check", "versions.yaml", "--online", code=1).output
    web.pages.clear()
    assert "status 404" in kubexm("check", "versions.yaml", "--online", code=1).output
