"""Clusters without a network: the bill of materials, bundles from a real registry, and runs that fetch nothing."""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from kubexm_exec.cli.main import main
from kubexm_spec.clusters.build import Asked, build_create
from tests.clusters.kit import HIGHLY_AVAILABLE, SMALLEST, checked
from tests.e2e.program import environment, run, start
from tests.lab.depot import registry
from tests.lab.oci import Image, push_index
from tests.resources.server import Web, serve

PASSWORD = "p4ssword-of-the-mirror"
FILES = ("kubeadm", "kubelet", "kubectl", "etcd", "containerd", "runc", "cniPlugins", "crictl", "network")
IMAGES = (
    "registry.k8s.io/kube-apiserver:v1.36.4",
    "registry.k8s.io/kube-controller-manager:v1.36.4",
    "registry.k8s.io/kube-scheduler:v1.36.4",
    "registry.k8s.io/etcd:3.6.8-0",
    "registry.k8s.io/kube-proxy:v1.36.4",
    "registry.k8s.io/coredns/coredns:v1.14.2",
    "registry.k8s.io/pause:3.10.2",
    "ghcr.io/flannel-io/flannel:v0.28.9",
    "ghcr.io/flannel-io/flannel-cni-plugin:v1.9.1-flannel3",
)
needs_registry = pytest.mark.skipif(shutil.which("docker-registry") is None, reason="there is no docker-registry")


def digest_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def size_of(path: Path) -> int:
    """The size of a file that may be gone by now."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


class World:
    """A cluster whose files and images this computer serves, and a folder to work in."""

    def __init__(self, folder: Path, web: Web, mirror: str) -> None:
        self.folder, self.web = folder, web
        self.document: dict[str, Any] = {
            "apiVersion": "kubexm.io/v1",
            "kind": "Cluster",
            "metadata": {"name": "lab"},
            "kubernetes": {"version": "1.36.4"},
            "versions": "versions.yaml",
            "network": {"plugin": "flannel"},
            # Nobody answers there: whatever asks a host fails.
            "hosts": [{"name": "cp1", "address": "192.0.2.1", "roles": ["controlPlane"]}],
            "registry": {"mirrors": {"_default": [mirror]}},
        }
        versions: dict[str, Any] = {
            "apiVersion": "kubexm.io/v1",
            "kind": "Versions",
            "metadata": {"name": "lab"},
            "mirrors": {"https://": web.url("/")},
            "artifacts": {},
        }
        plain = {key: value for key, value in self.document.items() if key != "versions"}
        for name, resource in build_create(checked(folder, json.dumps(plain)))["resources"].items():
            version = resource["description"].rpartition(" ")[2]
            urls = {"": resource["url"]} if name == "network" else resource["url"]
            contents = {arch: f"{name} for {arch}\n".encode() * 3000 for arch in urls}
            for arch, url in urls.items():
                web.add(contents[arch], _path(url))
            sums = {arch: digest_of(content) for arch, content in contents.items()}
            if name == "network":
                versions["manifests"] = {"flannel": {version: {"sha256": sums[""], "size": len(contents[""])}}}
            else:
                versions["artifacts"][name] = {"sha256": {version: sums}}
        self.write(versions)

    def write(self, versions: dict[str, Any] | None = None) -> None:
        (self.folder / "cluster.yaml").write_text(json.dumps(self.document, indent=1))
        if versions is not None:
            (self.folder / "versions.yaml").write_text(json.dumps(versions, indent=1))

    def environment(self, cache: str = "cache") -> dict[str, str]:
        return environment(
            HOME=str(self.folder), XDG_CACHE_HOME=str(self.folder / cache), KUBEXM_STATE=str(self.folder / "state"),
            MIRROR_PASSWORD=PASSWORD,
        )  # fmt: skip

    def kubexm(self, *words: str, code: int = 0, cache: str = "cache") -> str:
        """The command in this process, which is quicker."""
        with contextlib.chdir(self.folder):
            result = CliRunner().invoke(main, list(words), env=self.environment(cache))
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exc_info
        said = result.stdout + result.stderr
        assert result.exit_code == code, f"{words}: exit code {result.exit_code}\n{said}"
        assert PASSWORD not in said
        return said

    def bom(self, *options: str) -> dict[str, Any]:
        shown = self.kubexm("cluster", "bom", "-f", "cluster.yaml", "--output", "json", *options)
        found: dict[str, Any] = json.loads(shown.splitlines()[0])
        return found

    def bundle(self, target: str, *options: str, code: int = 0, cache: str = "cache") -> str:
        words = ["cluster", "bundle", "-f", "cluster.yaml", "-o", target, "--arch", "amd64", *options]
        return self.kubexm(*words, code=code, cache=cache)

    def create(self, *options: str, code: int) -> str:
        return self.kubexm("cluster", "create", "-f", "cluster.yaml", *options, code=code, cache="other")


def push_images(url: str, folder: Path) -> None:
    for ref in IMAGES:
        name, _, tag = ref.partition("/")[2].rpartition(":")
        file = folder / "program"
        file.write_text(ref)
        push_index(url, name, tag, [Image({"/program": file}, architecture="amd64")])


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The storage of a registry with all images."""
    folder = tmp_path_factory.mktemp("registry")
    with registry(folder / "storage", "127.0.0.1", writable=True) as url:
        push_images(url, folder)
    return folder / "storage"


@pytest.fixture
def world(tmp_path: Path, storage: Path) -> Iterator[World]:
    work = tmp_path / "work"
    work.mkdir()
    with serve() as web, registry(storage, "127.0.0.1", writable=False) as url:
        yield World(work, web, url)


def _path(url: str) -> str:
    return urllib.parse.urlsplit(url).netloc.join(("/", "")) + urllib.parse.urlsplit(url).path


def test_the_bill_names_every_file_image_and_package_and_says_what_nobody_knows_yet(tmp_path: Path) -> None:
    (tmp_path / "cluster.yaml").write_text(SMALLEST + "network: {plugin: flannel}\n")

    def bom(*more: str) -> tuple[int, str]:
        env = environment(HOME=str(tmp_path), XDG_CACHE_HOME=str(tmp_path / "cache"))
        with contextlib.chdir(tmp_path):
            done = CliRunner().invoke(main, ["cluster", "bom", "-f", "cluster.yaml", "--arch", *more], env=env)
        return done.exit_code, done.stdout + done.stderr

    code, shown = bom("amd64", "--output", "json")
    assert code == 0, shown
    bill = json.loads(shown.splitlines()[0])
    assert [row["name"] for row in bill["files"]] == list(FILES)
    assert all(len(row["sha256"]) == 64 for row in bill["files"])
    assert [row["image"] for row in bill["images"]] == list(IMAGES)
    assert {(row["digest"], row["size"]) for row in bill["images"]} == {(None, None)}
    packages = {row["package"]: row["systems"] for row in bill["packages"]}
    assert packages["conntrack"] == ["debian"]
    assert packages["conntrack-tools"] == ["redhat", "suse", "alpine"]
    _, text = bom("amd64")
    assert "9 files, 9 images, 5 packages" in text
    assert "not known before it is fetched: 17 sizes, 9 digests of images" in text
    code, text = bom("vax")
    assert (code, "--arch vax: the versions data has no files for it" in text) == (2, True)


def test_images_follow_from_the_document(tmp_path: Path) -> None:
    from kubexm_spec.clusters.offline import images

    more = """\
        kubernetes: {version: 1.36.4, imageRepository: mirror.example/k8s, proxy: {mode: none}}
        loadBalancer: {type: kubeVip}
        controlPlaneEndpoint: {address: 10.0.0.100}
        network: {plugin: none}
    """
    text = HIGHLY_AVAILABLE.replace("kubernetes: {version: 1.36.4}\n", "")
    names = [image.name for image in images(checked(tmp_path, text, more))]
    assert names == [
        "mirror.example/k8s/kube-apiserver:v1.36.4",
        "mirror.example/k8s/kube-controller-manager:v1.36.4",
        "mirror.example/k8s/kube-scheduler:v1.36.4",
        "ghcr.io/kube-vip/kube-vip:v1.2.3",
        "mirror.example/k8s/coredns:v1.14.2",
        "mirror.example/k8s/pause:3.10.2",
    ], "etcd has hosts of its own, and kubeadm names CoreDNS otherwise in a repository of one's own"


def test_without_a_network_images_are_there_before_kubeadm_and_nothing_is_pulled(tmp_path: Path) -> None:
    built = build_create(checked(tmp_path, HIGHLY_AVAILABLE), Asked(offline=True, architectures=("amd64",)))
    names = [module["name"] for module in built["modules"]]
    assert names[0] == "offline"
    assert names.index("containerd") < names.index("images") < names.index("control-plane")
    by_name = {module["name"]: module["with"] for module in built["modules"]}
    assert by_name["control-plane"]["pullImages"] is False
    assert by_name["offline"]["architectures"] == ["amd64"]
    assert built == build_create(checked(tmp_path, HIGHLY_AVAILABLE), Asked(offline=True, architectures=("amd64",)))
    online = build_create(checked(tmp_path, HIGHLY_AVAILABLE))
    assert not {"offline", "images"} & {module["name"] for module in online["modules"]}


@needs_registry
def test_a_bundle_has_everything_and_a_run_with_it_asks_nobody(world: World) -> None:
    said = world.bundle("airgap")
    assert "18 files" in said
    assert "Use it with: kubexm cluster create -f cluster.yaml --bundle airgap" in said
    bill = world.bom("--arch", "amd64", "--bundle", "airgap")
    rows = [*bill["files"], *bill["images"]]
    assert {row["here"] for row in rows} == {"bundle"}
    assert all(row["size"] for row in rows)
    assert all(row["digest"].startswith("sha256:") for row in bill["images"])
    assert max(len(path.name) for path in (world.folder / "airgap").rglob("*")) < 128
    asked = len(world.web.asked)
    shown = world.create("--bundle", "airgap", "--executor", "dry-run", code=0)
    assert "images/nodes/import[image-pause]" in shown
    assert len(world.web.asked) == asked


@needs_registry
def test_the_same_document_gives_the_same_archive_in_every_format(world: World) -> None:
    formats = ["tar", "tar.gz", *(["tar.zst"] if shutil.which("zstd") else [])]
    for kind in formats:
        world.bundle(f"first.{kind}")
        world.bundle(f"second.{kind}", cache="another")
        first, second = ((world.folder / f"{name}.{kind}").read_bytes() for name in ("first", "second"))
        assert digest_of(first) == digest_of(second), kind
        world.document["offline"] = {"bundle": f"first.{kind}"}
        world.write()
        assert "images/nodes/import" in world.create("--executor", "dry-run", code=0)


@needs_registry
def test_a_run_is_refused_before_the_first_change_with_all_that_is_missing(world: World) -> None:
    world.bundle("airgap")
    index = world.folder / "airgap" / "index.json"
    data = json.loads(index.read_text())
    lost = [entry for entry in data["resources"] if entry["name"] in ("kubelet", "image-pause")]
    data["resources"] = [entry for entry in data["resources"] if entry not in lost]
    index.write_text(json.dumps(data))
    for options in (["--bundle", "airgap"], ["--bundle", "airgap", "--executor", "check"]):
        said = world.create(*options, code=3)
        assert "2 items are not in the bundle" in said
        assert f"kubelet (amd64): sha256 {lost[1]['sha256']}" in said
        assert "image-pause (amd64): registry.k8s.io/pause:3.10.2" in said
    assert not (world.folder / "state" / "journal.db").exists(), "no run has begun"
    damaged = next((world.folder / "airgap" / "files").glob("*/kubeadm"))
    damaged.write_text("rotten")
    assert f"{damaged} of the bundle is damaged" in world.create("--bundle", "airgap", code=3)
    assert "there is no bundle" in world.create("--bundle", "nowhere", code=2)


@needs_registry
def test_a_bundle_that_was_killed_goes_on_where_it_was(world: World) -> None:
    import threading

    page = next(page for path, page in world.web.pages.items() if path.endswith("amd64/kubelet"))
    page.hold = threading.Event()
    words = ["cluster", "bundle", "-f", "cluster.yaml", "-o", "airgap.tar", "--arch", "amd64"]
    killed = start("kubexm", *words, cwd=world.folder, env=world.environment())
    assert page.held.wait(120)
    parts = world.folder / "cache" / "kubexm" / "resources" / "parts"
    while not any(size_of(path) == len(page.content) // 2 for path in parts.glob("*")):
        assert killed.poll() is None
    killed.kill()
    killed.communicate()
    assert not (world.folder / "airgap.tar").exists()
    page.hold.set()
    page.hold = None
    asked = len(world.web.asked)
    world.bundle("airgap.tar")
    again = [headers.get("range", "") for path, headers in world.web.asked[asked:] if path.endswith("/kubelet")]
    assert len(again) == 1
    assert again == [f"bytes={len(page.content) // 2}-"]
    world.bundle("whole.tar", cache="another")
    assert (world.folder / "airgap.tar").read_bytes() == (world.folder / "whole.tar").read_bytes()


@needs_registry
def test_what_is_not_what_it_should_be_is_refused_and_no_archive_is_left(world: World) -> None:
    page = next(page for path, page in world.web.pages.items() if path.endswith("amd64/kubeadm"))
    page.content = b"something else"
    said = world.bundle("airgap.tar.gz", code=1)
    assert "kubeadm (amd64)" in said
    assert "has the wrong sha256" in said
    assert not (world.folder / "airgap.tar.gz").exists()


@needs_registry
def test_the_password_of_a_registry_is_used_and_never_shown(world: World, storage: Path, tmp_path: Path) -> None:
    import bcrypt

    (tmp_path / "users").write_text(f"deploy:{bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(4)).decode()}\n")
    auth = {"htpasswd": {"realm": "lab", "path": str(tmp_path / "users")}}
    with registry(storage, "127.0.0.1", writable=False, auth=auth) as url:
        world.document["registry"]["mirrors"] = {"_default": [url]}
        access = {"username": "deploy", "password": "env:MIRROR_PASSWORD"}
        world.document |= {"offline": {"bundle": "airgap"}}
        world.document["registry"]["auths"] = {urllib.parse.urlsplit(url).netloc: access}
        world.write()
        assert "18 files" in world.bundle("airgap")
        world.kubexm("cluster", "build", "-f", "cluster.yaml", "-o", "built.yaml")
    for path in world.folder.rglob("*"):
        assert not path.is_file() or PASSWORD.encode() not in path.read_bytes(), path
    world.document["registry"]["auths"] = {"registry.k8s.io": {"username": "deploy", "password": PASSWORD}}
    world.write()
    world.kubexm("cluster", "bom", "-f", "cluster.yaml", code=2)


def test_a_host_of_another_architecture_or_without_programs_is_refused(tmp_path: Path) -> None:
    import platform

    from kubexm_exec.runner.facts import ARCHITECTURES

    here = ARCHITECTURES.get(platform.machine(), platform.machine())

    def attempt(architectures: list[str], programs: list[str]) -> str:
        spec = {
            "apiVersion": "kubexm.io/v1",
            "kind": "Pipeline",
            "metadata": {"name": "offline"},
            "modules": [
                {
                    "name": "offline",
                    "uses": "kubexm:offline",
                    "with": {"architectures": architectures, "programs": programs, "balancerPrograms": []},
                }
            ],
        }
        (tmp_path / "spec.yaml").write_text(json.dumps(spec))
        env = environment(HOME=str(tmp_path), KUBEXM_STATE=str(tmp_path / "state"))
        done = run("kubexm-run", "spec.yaml", "--output", "plain", cwd=tmp_path, env=env)
        return f"{done.returncode} {done.stdout}{done.stderr}"

    assert attempt([here], ["sh", "ls"]).startswith("0 ")
    assert f"the bundle has files for vax, and this host is {here}" in attempt(["vax"], [])
    said = attempt([here], ["sh", "no-such-a", "no-such-b"])
    assert "not installed: no-such-a no-such-b" in said
