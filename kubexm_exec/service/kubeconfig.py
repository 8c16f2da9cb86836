"""The administrator's kubeconfig of a cluster: from a living control plane, alone or merged with others."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from kubexm_exec.model.result import GraphExecutionResult, Status
from kubexm_exec.service.certificates import HostRow, results_of, unseen_host
from kubexm_exec.service.errors import Invalid, Refused
from kubexm_spec.clusters.settings import Settings, in_url

_MARK: Final = "kubexm.io/cluster"
"""The extension that tells which entries of a merged file are ours."""


class Kubeconfig(Struct, frozen=True, kw_only=True):
    """The entries of one cluster in a kubeconfig; it has a key in it."""

    name: str
    """Of the cluster and the context."""
    server: str
    cluster: Mapping[str, Any]
    user: Mapping[str, Any]
    host: str
    """The control plane that it is from."""

    @property
    def entries(self) -> dict[str, dict[str, Any]]:
        """By list of a kubeconfig the entry for it."""
        user = f"{self.name}-admin"
        return {
            "clusters": {"name": self.name, "cluster": dict(self.cluster)},
            "users": {"name": user, "user": dict(self.user)},
            "contexts": {"name": self.name, "context": {"cluster": self.name, "user": user}},
        }


class NoKubeconfig(Struct, frozen=True):
    """No control plane has given one."""

    unseen: Sequence[HostRow]


def kubeconfig_in(result: GraphExecutionResult, settings: Settings) -> Kubeconfig | NoKubeconfig:
    """The one of the first control plane in the document that has answered."""
    of_hosts = results_of(result, "kubeconfig")
    unseen = []
    for host in settings.control_planes:
        found = of_hosts.get(host.name)
        config = _loaded(found.stdout) if found is not None and found.status is Status.SUCCESS else None
        if config is None:
            unseen.append(unseen_host(host.name, found))
            continue
        # The name of a local load balancer is known on the nodes alone: from elsewhere, one control plane is asked.
        local = f"{in_url(host.ip)}:{settings.api_port}"
        named = settings.document.control_plane_endpoint.external_dns
        server = local if settings.load_balancer == "local" and not named else settings.endpoint
        mark = {"name": _MARK, "extension": {"cluster": settings.document.metadata.name}}
        cluster = {**config["clusters"][0]["cluster"], "server": f"https://{server}", "extensions": [mark]}
        return Kubeconfig(
            name=settings.document.metadata.name,
            server=f"https://{server}",
            cluster=cluster,
            user=config["users"][0]["user"],
            host=host.name,
        )
    return NoKubeconfig(unseen)


def _loaded(text: str) -> dict[str, Any] | None:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        found = YAML(typ="safe", pure=True).load(text)
    except YAMLError:
        return None
    whole = isinstance(found, dict) and found.get("clusters") and found.get("users")
    return found if whole else None


def kubeconfig_text(found: Kubeconfig, made_from: str) -> str:
    """A kubeconfig with this cluster alone."""
    lists = {key: [entry] for key, entry in found.entries.items()}
    data = {"apiVersion": "v1", "kind": "Config", "current-context": found.name, **lists}
    return f"# Made by `kubexm cluster kubeconfig` from {made_from}: it gives all rights.\n{_dumped(data)}"


def merged(found: Kubeconfig, text: str, path: str, *, force: bool) -> str:
    """A kubeconfig with this cluster in it, and all else as it was; raises Invalid and Refused.

    An entry of the same name that is another cluster's is replaced only by ``force``.
    """
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        data = _in_blocks(YAML().load(text)) if text.strip() else None
    except YAMLError as error:
        raise Invalid(f"{path} is no kubeconfig: {str(error).splitlines()[0]}") from None
    if data is None:
        data = {"apiVersion": "v1", "kind": "Config", "preferences": {}}
    if not isinstance(data, dict) or data.get("kind") != "Config":
        raise Invalid(f"{path} is no kubeconfig: its kind is not Config", "give another file with -o")
    own = any(
        entry.get("name") == found.name and _is_ours(entry.get("cluster"), found)
        for entry in _entries(data, "clusters", path)
    )
    for key, entry in found.entries.items():
        entries = _entries(data, key, path)
        at = next((number for number, each in enumerate(entries) if each.get("name") == entry["name"]), None)
        if at is None:
            entries.append(entry)
        elif own or force:
            entries[at] = entry
        else:
            raise Refused(
                f'{path} has an entry "{entry["name"]}" in {key} that is not of this cluster: it is not replaced',
                "write a file of its own with -o FILE, or replace the entry with --force",
            )
        data[key] = entries
    if not data.get("current-context"):
        data["current-context"] = found.name
    return _dumped(data)


def _entries(data: Mapping[str, Any], key: str, path: str) -> list[Any]:
    entries = data.get(key)
    if entries is None:
        return []
    if not isinstance(entries, list) or not all(isinstance(each, dict) for each in entries):
        raise Invalid(f"{path} is no kubeconfig: {key} is no list of entries", "give another file with -o")
    return entries


def _is_ours(cluster: Any, found: Kubeconfig) -> bool:
    """Whether an entry is this cluster's: an earlier one of ours, or with the same CA."""
    if not isinstance(cluster, dict):
        return False
    marks = cluster.get("extensions")
    ours = isinstance(marks, list) and any(isinstance(each, dict) and each.get("name") == _MARK for each in marks)
    authority = "certificate-authority-data"
    return ours or (authority in cluster and cluster[authority] == found.cluster.get(authority))


def _in_blocks(value: Any) -> Any:
    """Lists and maps on lines of their own: some readers want quotes in braces where others need none."""
    if isinstance(value, dict | list):
        if hasattr(value, "fa"):
            value.fa.set_block_style()
        for each in value.values() if isinstance(value, dict) else value:
            _in_blocks(each)
    return value


def _dumped(data: Any) -> str:
    from ruamel.yaml import YAML

    yaml = YAML()
    yaml.default_flow_style = False
    yaml.width = 1 << 30  # certificates stay on their lines
    target = io.StringIO()
    yaml.dump(data, target)
    return target.getvalue()
