"""Images of containers from files: one layer, pushed to a registry as any other image."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_INDEX = "application/vnd.oci.image.index.v1+json"
_CONFIG = "application/vnd.oci.image.config.v1+json"
_LAYER = "application/vnd.oci.image.layer.v1.tar"
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_USERS = b"root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534::/:/\n"


class Image:
    """An image with files by their paths in it; a text is the target of a link."""

    def __init__(
        self, files: Mapping[str, Path | str], entrypoint: Sequence[str] = (), architecture: str = "amd64"
    ) -> None:
        layer = _layer(files)
        self.architecture = architecture
        config = {
            "architecture": architecture,
            "os": "linux",
            "config": {"Entrypoint": list(entrypoint), "Env": [f"PATH={_PATH}"], "WorkingDir": "/"},
            "rootfs": {"type": "layers", "diff_ids": [digest(layer)]},
        }
        self._config = json.dumps(config).encode()
        self._layer = layer
        self.manifest = json.dumps(
            {
                "schemaVersion": 2,
                "mediaType": _MANIFEST,
                "config": _described(_CONFIG, self._config),
                "layers": [_described(_LAYER, layer)],
            }
        ).encode()

    @property
    def blobs(self) -> tuple[bytes, bytes]:
        """Configuration and layer."""
        return self._config, self._layer

    def archive(self, name: str) -> bytes:
        """It as a file that `ctr images import` takes, under a name."""
        described = {**_described(_MANIFEST, self.manifest), "annotations": {"io.containerd.image.name": name}}
        parts = {"oci-layout": b'{"imageLayoutVersion":"1.0.0"}'}
        parts["index.json"] = json.dumps({"schemaVersion": 2, "manifests": [described]}).encode()
        for blob in (self._config, self._layer, self.manifest):
            parts[f"blobs/{digest(blob).replace(':', '/')}"] = blob
        target = io.BytesIO()
        with tarfile.open(fileobj=target, mode="w") as tar:
            for path, data in parts.items():
                entry = tarfile.TarInfo(path)
                entry.size = len(data)
                tar.addfile(entry, io.BytesIO(data))
        return target.getvalue()

    def push(self, registry: str, name: str, tag: str) -> None:
        """Give it to the registry at an address such as http://127.0.0.1:5000."""
        for blob in self.blobs:
            begun = _ask("POST", f"{registry}/v2/{name}/blobs/uploads/", b"", "")
            place = begun.headers["Location"]
            _ask("PUT", f"{place}{'&' if '?' in place else '?'}digest={digest(blob)}", blob, "application/octet-stream")
        _ask("PUT", f"{registry}/v2/{name}/manifests/{tag}", self.manifest, _MANIFEST)


def push_index(registry: str, name: str, tag: str, images: Sequence[Image]) -> str:
    """Give images of several architectures to a registry under one tag; returns the digest of the tag."""
    entries = []
    for image in images:
        image.push(registry, name, digest(image.manifest))
        entry = _described(_MANIFEST, image.manifest)
        entries.append({**entry, "platform": {"os": "linux", "architecture": image.architecture}})
    index = json.dumps({"schemaVersion": 2, "mediaType": _INDEX, "manifests": entries}).encode()
    _ask("PUT", f"{registry}/v2/{name}/manifests/{tag}", index, _INDEX)
    return digest(index)


def digest(data: bytes) -> str:
    """The digest of data as registries write it."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _described(media: str, data: bytes) -> dict[str, Any]:
    return {"mediaType": media, "digest": digest(data), "size": len(data)}


def _ask(method: str, url: str, data: bytes, media: str) -> Any:
    request = urllib.request.Request(url, data, {"Content-Type": media} if media else {}, method=method)  # noqa: S310
    with urllib.request.urlopen(request, timeout=120) as answer:  # noqa: S310
        return answer


def _layer(files: Mapping[str, Path | str]) -> bytes:
    """A tar with the folders of the files, the same for the same files."""
    target = io.BytesIO()
    folders = {"tmp", "etc", "root", "run", "var"}
    with tarfile.open(fileobj=target, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path in files:
            folders |= {str(parent).lstrip("/") for parent in PurePosixPath(path).parents if str(parent) != "/"}
        for folder in sorted(folders):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if folder == "tmp" else 0o755
            tar.addfile(entry)
        users = tarfile.TarInfo("etc/passwd")
        users.size, users.mode = len(_USERS), 0o644
        tar.addfile(users, io.BytesIO(_USERS))
        for path, source in files.items():
            entry = tarfile.TarInfo(path.lstrip("/"))
            entry.mode = 0o755
            if isinstance(source, str):
                entry.type, entry.linkname = tarfile.SYMTYPE, source
                tar.addfile(entry)
                continue
            entry.size = source.stat().st_size
            with source.open("rb") as content:
                tar.addfile(entry, content)
    return target.getvalue()
