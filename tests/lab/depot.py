"""What hosts of a cluster get from the internet, served by this computer: files at the paths of projects, a registry.

`python -m tests.lab.depot` makes it from the programs that `make kubernetes` has built; `depot()` serves it.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import http.server
import io
import json
import shutil
import socket
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.lab.machines import image as base_image
from tests.lab.oci import Image

KUBERNETES = ("1.36.4", "1.35.8")
"""The newer one first; the older one may be missing."""
_TOOL = Path(__file__).parents[2] / "tools" / "kubernetes.sh"
_PARTS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy")
_IMAGE_VERSIONS: Mapping[str, Mapping[str, str]] = {
    "1.36.4": {"etcd": "3.6.8", "coredns": "1.14.2", "pause": "3.10.2"},
    "1.35.8": {"etcd": "3.6.6", "coredns": "1.13.1", "pause": "3.10.1"},
}
"""What kubeadm of each version runs."""
HAPROXY = "3.2-alpine"
"""The tag that clusters ask for; what is under it is the haproxy of the hosts' distribution."""
_UP_TIME = 30.0


@functools.cache
def programs() -> Path:
    """Where the programs are, or would be."""
    shown = subprocess.run([_TOOL, "--where"], capture_output=True, text=True, check=True, timeout=60)
    return Path(shown.stdout.strip())


def place() -> Path:
    """Where the depot is, or would be."""
    return programs().parent / "depot"


@functools.cache
def missing(kubernetes: str = KUBERNETES[0]) -> str:
    """Why there is no cluster of that version here, or nothing."""
    try:
        known = json.loads((place() / "versions.json").read_text())
    except FileNotFoundError:
        return f"no programs of Kubernetes in {place()}: `make kubernetes` builds them (more than half an hour)"
    if kubernetes not in known["artifacts"]["kubeadm"]["sha256"]:
        return f"no Kubernetes {kubernetes} in {place()}: `make kubernetes` builds it"
    return ""


@dataclass(frozen=True)
class Depot:
    """A depot that is served."""

    files: str
    registry: str

    def versions(self) -> str:
        """A Versions document for clusters that are made from it: JSON, which is YAML."""
        data = json.loads((place() / "versions.json").read_text())
        return json.dumps({**data, "mirrors": {"https://": f"{self.files}/"}}, indent=1)


@contextlib.contextmanager
def depot(address: str) -> Iterator[Depot]:
    """Serve it at an address of this computer."""
    handler = functools.partial(_Quiet, directory=str(place() / "files"))
    with http.server.ThreadingHTTPServer((address, 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            with registry(place() / "registry", address, writable=False) as url:
                yield Depot(f"http://{address}:{server.server_port}", url)
        finally:
            server.shutdown()
            thread.join()


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: it would stand between the lines of the tests."""


@contextlib.contextmanager
def registry(storage: Path, address: str, *, writable: bool, auth: Mapping[str, Any] | None = None) -> Iterator[str]:
    """A registry with that storage, at a free port of that address; ``auth``: who may use it."""
    with socket.create_server((address, 0)) as free:
        port = free.getsockname()[1]
    config = {
        "version": 0.1,
        "log": {"level": "error", "accesslog": {"disabled": True}},
        "storage": {
            "filesystem": {"rootdirectory": str(storage)},
            "maintenance": {"readonly": {"enabled": not writable}, "uploadpurging": {"enabled": False}},
        },
        "http": {"addr": f"{address}:{port}"},
        **({"auth": auth} if auth else {}),
    }
    with tempfile.TemporaryDirectory() as scratch:
        file, log = Path(scratch, "config.yml"), Path(scratch, "log")
        file.write_text(json.dumps(config))
        with log.open("wb") as said:
            server = subprocess.Popen(
                ["docker-registry", "serve", file], stdin=subprocess.DEVNULL, stdout=said, stderr=said,
            )  # fmt: skip
        url, until = f"http://{address}:{port}", time.monotonic() + _UP_TIME
        try:
            while not _answers(f"{url}/v2/"):
                assert server.poll() is None, f"the registry has ended:\n{log.read_text()}"
                assert time.monotonic() < until, f"the registry does not answer:\n{log.read_text()}"
                time.sleep(0.02)
            yield url
        finally:
            server.terminate()
            server.wait()


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5):  # noqa: S310
            return True
    except urllib.error.HTTPError as error:
        return error.code == 401
    except OSError:
        return False


class _Maker:
    """Makes a depot in a folder from the programs that are there."""

    def __init__(self, target: Path) -> None:
        self.files = target / "files"
        self.sums: dict[str, dict[str, dict[str, str]]] = {}
        self.target = target

    def make(self) -> None:
        for version in KUBERNETES:
            folder = programs() / f"kubernetes-{version}"
            for name in ("kubeadm", "kubelet", "kubectl") if folder.is_dir() else ():
                self.file(name, version, f"dl.k8s.io/release/v{version}/bin/linux/amd64/{name}", folder / name)
        for folder, name, version in _versions("runc"):
            path = f"opencontainers/runc/releases/download/v{version}/runc.amd64"
            self.file("runc", version, f"github.com/{path}", folder / name)
        for folder, name, version in _versions("containerd"):
            path = f"{name}/{name}/releases/download/v{version}/{name}-{version}-linux-amd64.tar.gz"
            self.archive(name, version, f"github.com/{path}", folder, "bin/")
        for folder, name, version in _versions("cni-plugins"):
            path = f"containernetworking/plugins/releases/download/v{version}/{name}-linux-amd64-v{version}.tgz"
            self.archive("cniPlugins", version, f"github.com/{path}", folder)
        for folder, name, version in _versions("crictl"):
            path = f"kubernetes-sigs/cri-tools/releases/download/v{version}/{name}-v{version}-linux-amd64.tar.gz"
            self.archive(name, version, f"github.com/{path}", folder)
        for folder, name, version in _versions("etcd"):
            inside = f"{name}-v{version}-linux-amd64"
            path = f"etcd-io/etcd/releases/download/v{version}/{inside}.tar.gz"
            self.archive(name, version, f"github.com/{path}", folder, f"{inside}/")
        for folder, _, version in _versions("flannel"):
            manifest = f"flannel-io/flannel/v{version}/Documentation/kube-flannel.yml"
            self._place(f"raw.githubusercontent.com/{manifest}").write_bytes((folder / "kube-flannel.yml").read_bytes())
        with registry(self.target / "registry", "127.0.0.1", writable=True) as url:
            for name, tag, made in _images():
                made.push(url, name, tag)
        data = {
            "apiVersion": "kubexm.io/v1",
            "kind": "Versions",
            "metadata": {"name": "lab", "description": "The programs that `make kubernetes` has built."},
            # Of crictl only one version could be built.
            "kubernetes": {"1.35": {"crictl": "1.36.0"}},
            "artifacts": {name: {"sha256": sums} for name, sums in self.sums.items()},
        }
        (self.target / "versions.json").write_text(json.dumps(data, indent=1))

    def _place(self, path: str) -> Path:
        found = self.files / path
        found.parent.mkdir(parents=True, exist_ok=True)
        return found

    def file(self, name: str, version: str, path: str, source: Path) -> None:
        """A file as it is."""
        shutil.copyfile(source, self._place(path))
        self._sum(name, version, path)

    def archive(self, name: str, version: str, path: str, folder: Path, prefix: str = "") -> None:
        """The programs of a folder as an archive, the same for the same programs."""
        with tarfile.open(self._place(path), "w:gz", compresslevel=1) as tar:
            for source in sorted(folder.iterdir()):
                entry = tarfile.TarInfo(f"{prefix}{source.name}")
                entry.size, entry.mode = source.stat().st_size, 0o755
                tar.addfile(entry, io.BytesIO(source.read_bytes()))
        self._sum(name, version, path)

    def _sum(self, name: str, version: str, path: str) -> None:
        with (self.files / path).open("rb") as content:
            found = hashlib.file_digest(content, "sha256").hexdigest()
        self.sums.setdefault(name, {})[version] = {"amd64": found}


def _versions(name: str) -> Iterator[tuple[Path, str, str]]:
    for folder in sorted(programs().glob(f"{name}-[0-9]*")):
        yield folder, name, folder.name.removeprefix(f"{name}-")


def _images() -> Iterator[tuple[str, str, Image]]:
    """By the name and the tag that the manifests ask for."""
    tools = _from_base("busybox", "nft", "xtables-nft-multi", "ip")
    xtables = base_image() / "usr/lib/x86_64-linux-gnu/xtables"
    tools |= {f"/usr/lib/x86_64-linux-gnu/xtables/{each.name}": each for each in xtables.glob("*.so")}
    names = ("iptables", "ip6tables", "iptables-save", "ip6tables-save", "iptables-restore", "ip6tables-restore")
    tools |= {f"/usr/sbin/{name}": "/usr/sbin/xtables-nft-multi" for name in names}
    shell = {f"/bin/{name}": "/usr/bin/busybox" for name in ("sh", "cp", "cat", "wget", "httpd", "nslookup", "sleep")}
    for version in KUBERNETES:
        folder = programs() / f"kubernetes-{version}"
        for part in _PARTS if folder.is_dir() else ():
            more = tools if part == "kube-proxy" else {}
            yield part, f"v{version}", Image({**more, f"/usr/local/bin/{part}": folder / part}, [part])
        for name, own in _IMAGE_VERSIONS[version].items() if folder.is_dir() else ():
            folder_of = programs() / f"{name}-{own}"
            if name == "etcd":
                files = {f"/usr/local/bin/{each.name}": each for each in folder_of.iterdir()}
                yield "etcd", f"{own}-0", Image(files, ["etcd"])
            elif name == "coredns":
                yield "coredns/coredns", f"v{own}", Image({"/coredns": folder_of / "coredns"}, ["/coredns"])
            else:
                yield "pause", own, Image({"/pause": folder_of / "pause"}, ["/pause"])
    for folder, _, version in _versions("flannel"):
        files = {f"/opt/bin/{name}": folder / name for name in ("flanneld", "install-conf")}
        yield "flannel-io/flannel", f"v{version}", Image({**tools, **shell, **files}, ["/opt/bin/flanneld"])
    for folder, _, version in _versions("flannel-cni-plugin"):
        yield "flannel-io/flannel-cni-plugin", f"v{version}", Image({**tools, **shell, "/flannel": folder / "flannel"})
    yield "library/busybox", "latest", Image({**tools, **shell}, ["/bin/sh"])
    with tempfile.TemporaryDirectory() as scratch:
        yield "library/haproxy", HAPROXY, Image(_haproxy(Path(scratch)), ["/usr/sbin/haproxy"])


def _haproxy(scratch: Path) -> dict[str, Path | str]:
    """haproxy of the hosts' package repository, with the libraries that it is linked with."""
    root = base_image()
    for name in ("haproxy", "libopentracing-c-wrapper0", "libopentracing1"):
        (package,) = (root / "usr/share/lab/debs").glob(f"{name}_*.deb")
        subprocess.run(["dpkg-deb", "-x", str(package), str(scratch)], check=True, timeout=60)
    place = "usr/lib/x86_64-linux-gnu"
    folders = f"{scratch / place}:{root / place}"
    # The loader of the image: this computer's may be too old for it.
    loader = root / place / "ld-linux-x86-64.so.2"
    words = [str(loader), "--library-path", folders, "--list", str(scratch / "usr/sbin/haproxy")]
    shown = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60)
    found: dict[str, Path | str] = {"/usr/sbin/haproxy": scratch / "usr/sbin/haproxy"}
    for line in shown.stdout.splitlines():
        name, arrow, rest = line.strip().partition(" => ")
        if arrow and not name.startswith("/"):
            found[f"/{place}/{name}"] = Path(rest.split()[0]).resolve()
    return {**found, "/lib64/ld-linux-x86-64.so.2": loader.resolve()}


def _from_base(*names: str) -> dict[str, Path | str]:
    """Programs of the hosts' image with the libraries that they are linked with."""
    root, found = base_image(), dict[str, Path | str]()
    script = """
p=$(readlink -f "$(command -v "$1")") && echo "$p" "$p"
for each in $(ldd "$p" | grep -o '/[^ ]*'); do echo "$each" "$(readlink -f "$each")"; done
"""
    for name in names:
        inside = ["chroot", str(root), "sh", "-c", script, "sh", name]
        shown = subprocess.run(inside, capture_output=True, text=True, check=True, timeout=60)
        for line in shown.stdout.splitlines():
            path, real = line.split()
            found[path] = root / real.lstrip("/")
    return found


if __name__ == "__main__":
    scratch = Path(tempfile.mkdtemp(prefix="depot.", dir=programs().parent))
    try:
        _Maker(scratch).make()
        shutil.rmtree(place(), ignore_errors=True)
        scratch.rename(place())
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    sys.stdout.write(f"{place()}\n")
