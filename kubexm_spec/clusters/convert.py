"""Cluster documents of other tools turned into one of ours; what has no counterpart is told with its place."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any, Final

from kubexm_spec.clusters.hosts import CONTROL_PLANE, ETCD, LOAD_BALANCER, REGISTRY, WORKER
from kubexm_spec.clusters.versions import default_version, shipped_versions
from kubexm_spec.diagnostics import Diagnostics
from kubexm_spec.models import API_VERSION
from kubexm_spec.models.versions import VersionsDocument
from kubexm_spec.semver import minor_of
from kubexm_spec.yaml.source import Path, SourceFile

CODE: Final = "not-converted"
ROLES: Final = {
    "master": CONTROL_PLANE,
    "control-plane": CONTROL_PLANE,
    "controlPlane": CONTROL_PLANE,
    "kube_control_plane": CONTROL_PLANE,
    "kube-master": CONTROL_PLANE,
    "worker": WORKER,
    "kube_node": WORKER,
    "kube-node": WORKER,
    "etcd": ETCD,
    "loadbalancer": LOAD_BALANCER,
    "loadBalancer": LOAD_BALANCER,
    "registry": REGISTRY,
}
"""By their names elsewhere the roles of hosts."""
PLUGINS: Final = ("calico", "flannel", "cilium", "none")
_ADMISSION_DEFAULT: Final = "NodeRestriction"
_GONE_FLAGS: Final = ("pod-infra-container-image",)
_TEMPLATE: Final = re.compile(r"\{\{|\{%")


class Foreign:
    """A document of another tool: what was read of it, and so what was not."""

    def __init__(self, source: SourceFile, index: int, found: Diagnostics, prefix: Path = ()) -> None:
        self.source, self.index, self.found, self.prefix = source, index, found, prefix
        data = source.documents[index]
        for part in prefix:
            data = data[part] if isinstance(data, Mapping) and part in data else {}
        self.data: Any = data
        self._taken: set[Path] = set()

    def get(self, *path: str | int) -> Any:
        """A value, which counts as read; None for what is not there or is empty."""
        self._taken.add(path)
        value = self._at(path)
        if isinstance(value, str) and _TEMPLATE.search(value):
            self.lost(path, "it is a template: write its value", "")
            return None
        return value if value or value is False or value == 0 else None

    def text(self, *path: str | int) -> str | None:
        """A value as a text."""
        value = self.get(*path)
        return None if value is None or isinstance(value, dict | list) else str(value)

    def items(self, *path: str | int) -> list[Any]:
        """A list, also one that was written as a single value."""
        value = self.get(*path)
        return value if isinstance(value, list) else [] if value is None else [value]

    def table(self, *path: str | int) -> dict[str, Any]:
        """A mapping."""
        value = self.get(*path)
        return {str(key): item for key, item in value.items()} if isinstance(value, Mapping) else {}

    def keys(self, *path: str | int) -> list[Any]:
        """The keys of a mapping, none of which counts as read."""
        value = self._at(path)
        return list(value) if isinstance(value, Mapping) else []

    def positions(self, *path: str | int) -> range:
        """The numbers of the entries of a list, none of which counts as read."""
        value = self._at(path)
        return range(len(value) if isinstance(value, list) else 0)

    def _at(self, path: Path) -> Any:
        value = self.data
        for part in path:
            if isinstance(value, Mapping):
                value = value.get(part)
            elif isinstance(value, list) and isinstance(part, int) and part < len(value):
                value = value[part]
            else:
                return None
        return value

    def lost(self, path: Path, why: str, hint: str) -> None:
        """Tell what does not become a part of the result, or not as it was; its value may be a secret."""
        place = self.source.place(self.index, (*self.prefix, *path), key=True)
        self.found.warning(CODE, f"{shown((*self.prefix, *path))}: {why}", place, hint=hint)

    def rest(self, hints: Mapping[str, str]) -> None:
        """Tell of all that nobody has read; ``hints``: what to do about some, by the beginning of their paths."""
        for path in self._unread(self.data, ()):
            name = shown(path)
            hint = next((text for start, text in hints.items() if name == start or name.startswith(f"{start}.")), "")
            self.lost(path, "there is no counterpart", hint)

    def _unread(self, value: Any, path: Path) -> Iterator[Path]:
        if path in self._taken:
            return
        if path and not any(other[: len(path)] == path for other in self._taken):
            if value and not (isinstance(value, Mapping) and value.get("enabled") is False):
                yield path
            return
        entries: Iterable[tuple[Any, Any]] = ()
        if isinstance(value, Mapping):
            entries = value.items()
        elif isinstance(value, list):
            entries = enumerate(value)
        for key, item in entries:
            yield from self._unread(item, (*path, key))


class Made:
    """The document that is made; what is empty is left out."""

    def __init__(self, name: str) -> None:
        self.data: dict[str, Any] = {"apiVersion": API_VERSION, "kind": "Cluster", "metadata": {"name": name}}

    def put(self, value: Any, *path: str) -> None:
        """Set a value; None and empty ones are not written."""
        if value is None or value == "" or value in ([], {}):
            return
        target = self.data
        for part in path[:-1]:
            target = target.setdefault(part, {})
        known = target.get(path[-1])
        target[path[-1]] = {**known, **value} if isinstance(known, dict) and isinstance(value, dict) else value

    def ordered(self) -> dict[str, Any]:
        """The parts in the order in which people read them."""
        order = [
            "apiVersion", "kind", "metadata", "kubernetes", "defaults", "hosts", "roleGroups", "controlPlaneEndpoint",
            "loadBalancer", "etcd", "network", "dns", "containerRuntime", "registry", "system", "preflight", "addons",
        ]  # fmt: skip
        return {key: self.data[key] for key in order if key in self.data}


def shown(path: Path) -> str:
    """``spec.hosts[2].arch``."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text


@cache
def _versions() -> VersionsDocument:
    return shipped_versions().document


def put_version(made: Made, foreign: Foreign, *path: str) -> None:
    """The version of Kubernetes: one that is known here, and told if that is another."""
    data = _versions()
    given = (foreign.text(*path) or "").removeprefix("v").partition("-")[0].partition("+")[0]
    row = data.kubernetes.get(minor_of(given)) if given else None
    if row is not None and given in row.patches:
        made.put(given, "kubernetes", "version")
        return
    chosen = row.patches[0] if row is not None and row.patches else default_version(data)
    what = f"Kubernetes {given} is not known here" if given else "there is no version of Kubernetes"
    hint = "a cluster that runs already is upgraded one minor at a time; or make the version known: kubexm versions add"
    foreign.lost(path, f"{what}: {chosen} is written", hint)
    made.put(chosen, "kubernetes", "version")


def secret(name: str, *words: str) -> str:
    """A reference in place of a password, which is never copied."""
    return "env:" + re.sub(r"[^A-Z0-9]+", "_", "_".join((name, *words)).upper()).strip("_")


def arguments(values: Iterable[Any]) -> dict[str, Any]:
    """Flags as ``--name=value`` in a list, by their names."""
    found: dict[str, Any] = {}
    for each in values:
        name, _, value = str(each).removeprefix("--").partition("=")
        found[name] = (
            [*([found[name]] if isinstance(found[name], str) else found[name]), value] if name in found else value
        )
    return found


def put_kubelet_flags(made: Made, flags: Mapping[str, Any], foreign: Foreign, path: Path) -> None:
    """Flags of the kubelet, without those that it no longer starts with."""
    for name in _GONE_FLAGS:
        if name in flags:
            foreign.lost(path, f"the kubelet has no flag {name} any more", "use containerRuntime.sandboxImage")
    made.put(
        {key: value for key, value in flags.items() if key not in _GONE_FLAGS}, "kubernetes", "kubelet", "extraArgs"
    )


def put_plugin(made: Made, name: str | None, foreign: Foreign, path: Path) -> str:
    """The network plugin, or none in place of one that there is no module for."""
    if name is None:
        return "calico"
    plugin = name if name in PLUGINS else "none"
    if plugin != name:
        foreign.lost(
            path, f'there is no network plugin "{name}": none is written', "install it yourself, or choose calico"
        )
    made.put(plugin, "network", "plugin")
    return plugin


def encapsulation(ipip: str | None, vxlan: str | None) -> str | None:
    """What the two modes of Calico mean together."""
    for kind, mode in (("VXLAN", vxlan), ("IPIP", ipip)):
        if mode in ("Always", "CrossSubnet"):
            return kind if mode == "Always" else f"{kind}CrossSubnet"
    return "None" if ipip == "Never" and vxlan == "Never" else None


def admission(plugins: Iterable[Any]) -> list[str]:
    """Admission plugins beside the one that is always enabled."""
    return [str(each) for each in plugins if each != _ADMISSION_DEFAULT]


def cidrs(text: str | None) -> list[str] | None:
    """``10.0.0.0/16,fd00::/64`` as a list."""
    return [part.strip() for part in text.split(",") if part.strip()] if text else None


def number(value: Any) -> int | None:
    """A number that may have been written as a text."""
    text = str(value).strip() if value is not None else ""
    return int(text) if text.isdigit() else None
