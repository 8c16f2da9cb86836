"""Images as resources: from a real registry into an archive: verified, resumed, by way of mirrors and tokens."""

from __future__ import annotations

import base64
import contextlib
import datetime
import hashlib
import json
import shutil
import tarfile
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from kubexm_exec.model.errors import CommandCancelled
from kubexm_exec.resources.cache import Cache
from kubexm_exec.resources.images import digest_in_archive
from kubexm_exec.resources.source import RegistryAccess, ResourceError, Source, archive_name
from kubexm_exec.resources.store import ResourceStore
from tests.lab.depot import registry
from tests.lab.oci import Image, digest, push_index
from tests.resources.server import Web

pytestmark = pytest.mark.skipif(shutil.which("docker-registry") is None, reason="there is no docker-registry")
PASSWORD = "p4ssword-of-the-registry"


def image(tmp_path: Path, content: str = "one", architecture: str = "amd64") -> Image:
    file = tmp_path / f"{content}-{architecture}"
    file.write_text(content + architecture)
    return Image({"/app": file}, ["/app"], architecture)


def source(ref: str, *mirrors: str, architecture: str = "amd64", **access: Any) -> Source:
    return Source(
        name="app", kind="image", location=ref, variant=architecture, filename=archive_name(ref, architecture),
        registry=RegistryAccess(mirrors, **access), retries=0,
    )  # fmt: skip


def names(path: Path) -> dict[str, str]:
    """What an archive calls its images, with their digests; every blob in it has the digest of its name."""
    with tarfile.open(path) as tar:
        for member in tar:
            file = tar.extractfile(member)
            if member.name.startswith("blobs/") and file is not None:
                assert hashlib.sha256(file.read()).hexdigest() == member.name.rpartition("/")[2]
        listed = tar.extractfile("index.json")
        assert listed is not None
        found = json.load(listed)["manifests"]
        return {each["annotations"]["io.containerd.image.name"]: each["digest"] for each in found}


@pytest.fixture
def served(tmp_path: Path) -> Iterator[str]:
    with registry(tmp_path / "storage", "127.0.0.1", writable=True) as url:
        yield url


def test_an_image_comes_as_an_archive_under_its_own_name(tmp_path: Path, served: str) -> None:
    made = image(tmp_path)
    made.push(served, "team/app", "1")
    found = ResourceStore().fetch(source("registry.example/team/app:1", served))
    assert (found.where, found.path.name) == ("fetched", "app-1-amd64.tar")
    assert names(found.path) == {"registry.example/team/app:1": digest(made.manifest)}
    assert digest_in_archive(found.path) == digest(made.manifest)


def test_of_an_index_only_one_architecture_comes_and_the_digest_stays(tmp_path: Path, served: str) -> None:
    top = push_index(served, "app", "1", [image(tmp_path, "one", arch) for arch in ("amd64", "arm64")])
    sizes = set()
    for arch in ("amd64", "arm64"):
        found = ResourceStore().fetch(source("registry.example/app:1", served, architecture=arch))
        assert names(found.path) == {"registry.example/app:1": top}
        with tarfile.open(found.path) as tar:
            sizes.add(tuple(sorted(member.name for member in tar if member.name.startswith("blobs/"))))
    assert [len(each) for each in sizes] == [4, 4]
    with pytest.raises(ResourceError, match="it is not there for linux/riscv64, but for amd64, arm64"):
        ResourceStore().fetch(source("registry.example/app:1", served, architecture="riscv64"))


def test_the_same_image_gives_the_same_bytes_and_is_not_fetched_again(tmp_path: Path, served: str) -> None:
    image(tmp_path).push(served, "app", "1")
    wanted = source("registry.example/app:1", served)
    first = ResourceStore(Cache(tmp_path / "a")).fetch(wanted)
    assert ResourceStore(Cache(tmp_path / "a")).fetch(wanted).where == "cache"
    assert ResourceStore(Cache(tmp_path / "b")).fetch(wanted).sha256 == first.sha256
    image(tmp_path, "two").push(served, "app", "1")
    assert ResourceStore(Cache(tmp_path / "a")).fetch(wanted).sha256 != first.sha256


def test_a_digest_in_the_name_is_kept_to(tmp_path: Path, served: str) -> None:
    made = image(tmp_path)
    made.push(served, "app", "1")
    ref = f"registry.example/app:1@{digest(made.manifest)}"
    found = ResourceStore().fetch(source(ref, served))
    assert names(found.path) == dict.fromkeys(
        ["registry.example/app:1", f"registry.example/app@{digest(made.manifest)}"], digest(made.manifest)
    )


def test_a_registry_that_gives_another_manifest_or_blob_is_refused(tmp_path: Path, web: Web) -> None:
    manifest, _, layer = pages(web, tmp_path)
    other = "sha256:" + "1" * 64
    web.add(manifest, f"/v2/app/manifests/{other}")
    with pytest.raises(ResourceError, match=f"wrong digest: expected {other}, got {digest(manifest)}"):
        ResourceStore().fetch(source(f"registry.example/app:1@{other}", web.url("")))
    web.pages[f"/v2/app/blobs/{layer}"].content = b"something else"
    with pytest.raises(ResourceError, match="has the wrong sha256"):
        ResourceStore().fetch(source("registry.example/app:1", web.url("")))


def test_a_blob_goes_on_where_it_was_cut_off(tmp_path: Path, web: Web) -> None:
    _, _, layer = pages(web, tmp_path)
    page = web.pages[f"/v2/app/blobs/{layer}"]
    page.drops.append(5000)
    found = ResourceStore().fetch(replace(source("registry.example/app:1", web.url("")), retries=2))
    assert "registry.example/app:1" in names(found.path)
    assert [headers.get("range", "") for path, headers in web.asked if layer in path] == ["", "bytes=5000-"]


def test_a_mirror_that_lacks_it_is_passed_over_and_all_are_named_at_the_end(
    tmp_path: Path, served: str, web: Web
) -> None:
    image(tmp_path).push(served, "app", "1")
    assert ResourceStore().fetch(source("registry.example/app:1", web.url(""), served)).where == "fetched"
    with pytest.raises(ResourceError) as caught:
        ResourceStore().fetch(source("127.0.0.1:1/app:1", web.url(""), served.replace("127.0.0.1", "localhost")[:-1]))
    assert f"{web.url('')}/v2/app/manifests/1: the registry answered 404" in caught.value.message
    assert "127.0.0.1:1/v2/app" in caught.value.message


def test_a_registry_with_users_gets_them_and_nobody_else_does(tmp_path: Path, web: Web) -> None:
    import bcrypt

    storage = tmp_path / "storage"
    with registry(storage, "127.0.0.1", writable=True) as url:
        image(tmp_path).push(url, "app", "1")
    (tmp_path / "users").write_text(f"deploy:{bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(4)).decode()}\n")
    auth = {"htpasswd": {"realm": "lab", "path": str(tmp_path / "users")}}
    with registry(storage, "127.0.0.1", writable=False, auth=auth) as url:
        host = urlsplit(url).netloc
        web.add(b"", "/v2/app/manifests/1", needs={"Authorization": "nobody"})
        access = {"host": host, "username": "deploy", "password": PASSWORD}
        assert ResourceStore().fetch(source("registry.example/app:1", web.url(""), url, **access)).size
        assert all("authorization" not in headers for _, headers in web.asked)
        for wrong in ({}, {**access, "password": "wrong"}):
            with pytest.raises(ResourceError, match="the registry answered 401") as caught:
                ResourceStore(Cache(tmp_path / "other")).fetch(source(f"{host}/app:1", **wrong))
            assert PASSWORD not in str(caught.value)


def test_a_token_is_asked_for_where_the_registry_says(tmp_path: Path) -> None:
    storage = tmp_path / "storage"
    with registry(storage, "127.0.0.1", writable=True) as url:
        image(tmp_path).push(url, "app", "1")
    with tokens(tmp_path) as (realm, asked):
        auth = {"token": {"realm": realm, "service": "lab", "issuer": "tests", "rootcertbundle": f"{tmp_path}/ca.pem"}}
        with registry(storage, "127.0.0.1", writable=False, auth=auth) as url:
            host = urlsplit(url).netloc
            wanted = source(f"{host}/app:1", username="deploy", password=PASSWORD)
            assert names(ResourceStore().fetch(wanted).path).keys() == {f"{host}/app:1"}
            basic = base64.b64encode(f"deploy:{PASSWORD}".encode()).decode()
            assert asked == [("repository:app:pull", "lab", f"Basic {basic}")]


def test_a_fetch_that_is_given_up_ends_at_once(tmp_path: Path, web: Web) -> None:
    from kubexm_exec.control import Cancel

    pages(web, tmp_path)
    web.pages["/v2/app/manifests/1"].statuses += [503] * 50
    cancel = Cancel()
    threading.Timer(0.3, cancel.set).start()
    with pytest.raises(CommandCancelled):
        ResourceStore().fetch(replace(source("registry.example/app:1", web.url("")), retries=50), cancel=cancel)


def pages(web: Web, tmp_path: Path) -> tuple[bytes, str, str]:
    """An image as pages of a web server: its manifest, and the digests of its parts."""
    made = image(tmp_path)
    parts = json.loads(made.manifest)
    web.add(made.manifest, "/v2/app/manifests/1")
    for described, content in zip((parts["config"], *parts["layers"]), made.blobs, strict=True):
        web.add(content, f"/v2/app/blobs/{described['digest']}")
    return made.manifest, parts["config"]["digest"], parts["layers"][0]["digest"]


@contextlib.contextmanager
def tokens(folder: Path) -> Iterator[tuple[str, list[tuple[str, str, str]]]]:
    """A server of tokens that a registry with ca.pem trusts, and what it was asked."""
    key = rsa.generate_private_key(65537, 2048)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "tests")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .sign(key, hashes.SHA256())
    )
    (folder / "ca.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    der = base64.b64encode(certificate.public_bytes(serialization.Encoding.DER)).decode()
    asked: list[tuple[str, str, str]] = []
    since = int(now.timestamp())

    def part(data: Any) -> str:
        raw = data if isinstance(data, bytes) else json.dumps(data).encode()
        return base64.urlsafe_b64encode(raw).decode().rstrip("=")

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            query = parse_qs(urlsplit(self.path).query)
            asked.append((query["scope"][0], query["service"][0], self.headers["Authorization"]))
            kind, repository, actions = query["scope"][0].split(":")
            claims = {
                "iss": "tests", "sub": "deploy", "aud": query["service"][0], "jti": "1", "iat": since,
                "nbf": since - 60, "exp": since + 600,
                "access": [{"type": kind, "name": repository, "actions": actions.split(",")}],
            }  # fmt: skip
            head = f"{part({'typ': 'JWT', 'alg': 'RS256', 'x5c': [der]})}.{part(claims)}"
            signed = f"{head}.{part(key.sign(head.encode(), padding.PKCS1v15(), hashes.SHA256()))}"
            body = json.dumps({"token": signed, "expires_in": 300}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/token", asked
        finally:
            server.shutdown()
            thread.join()
