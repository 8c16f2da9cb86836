"""``kubexm cluster bom``: every file, image and package that a cluster needs from elsewhere, from its compiled plan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from kubexm_exec.cli.resources import Site, Wanted, held_by
from kubexm_spec.diagnostics import plural

if TYPE_CHECKING:
    from kubexm_spec.clusters.checks import CheckedCluster

_FAMILIES: Final = ("debian", "redhat", "suse", "alpine")
"""Families of systems whose packages are listed."""
_NOT_KNOWN: Final = "not known before it is fetched"


def bill_of(cluster: CheckedCluster, site: Site, output: str) -> dict[str, Any]:
    """The bill as plain data; what nobody can say without a network is None."""
    from kubexm_spec.clusters.artifacts import sizes

    known = sizes(cluster)
    rows = [_item(one, known, site, output) for one in site.wanted]
    return {
        "cluster": cluster.settings.document.metadata.name,
        "kubernetes": cluster.versions.kubernetes,
        "files": [row for row in rows if "image" not in row],
        "images": [row for row in rows if "image" in row],
        "packages": list(_packages(site)),
    }


def _item(one: Wanted, known: Mapping[tuple[str, str], int], site: Site, output: str) -> dict[str, Any]:
    from kubexm_exec.resources.images import digest_in_archive
    from kubexm_spec.imagenames import image_name

    source = one.source
    held = held_by(site.store, source, output)
    size = held.size if held is not None else known.get((source.name, source.variant))
    row: dict[str, Any] = {"name": source.name, "architecture": source.variant or None}
    if source.kind == "image":
        digest = image_name(source.location).digest or (digest_in_archive(held.path) if held is not None else "")
        row |= {"image": source.location, "digest": digest or None}
    else:
        row |= {"source": source.shown, "sha256": source.sha256 or (held.sha256 if held is not None else None)}
    return {**row, "size": size, "here": held.where if held is not None else None, "steps": one.steps}


def _packages(site: Site) -> Iterator[dict[str, Any]]:
    """The packages by family of the hosts' system; versions are those of their repositories."""
    found: dict[str, dict[str, dict[str, None]]] = {}
    for family in _FAMILIES:
        for name, host in _installed(site, family):
            found.setdefault(name, {}).setdefault(family, {})[host] = None
    for name, families in sorted(found.items()):
        package, _, version = name.partition("=")
        hosts = dict.fromkeys(host for named in families.values() for host in named)
        yield {"package": package, "version": version or None, "systems": list(families), "hosts": list(hosts)}


def _installed(site: Site, family: str) -> Iterator[tuple[str, str]]:
    """Packages and hosts, as if all hosts were of a family."""
    from kubexm_exec.cli.rendering import ASSUMED
    from kubexm_exec.compile.static import NoRecords, no_secret
    from kubexm_exec.plugins import step_registry
    from kubexm_exec.step import Step
    from kubexm_exec.values.evaluate import Evaluator
    from kubexm_exec.values.expressions import Expressions, UnknownValueError

    facts = {**ASSUMED, "os": {**ASSUMED["os"], "family": family, "distribution": family}}
    graph = site.graph
    evaluator = Evaluator(graph, Expressions(), records=NoRecords(), facts=lambda _: facts, secret=no_secret)
    registry = step_registry()
    for node in graph.nodes.values():
        if node.is_gate or (installs := registry.load(node.step_name).installs) is Step.installs:
            continue
        for host in node.hosts:
            try:
                if evaluator.unmet(node, host) is not None:
                    continue
            except UnknownValueError:
                pass  # it may be needed
            params, _ = evaluator.partial_params(node, host)
            for name in installs(params):
                yield name, node.place(host)


def bill_lines(bill: Mapping[str, Any]) -> Iterator[str]:
    """The bill for people."""
    from kubexm_exec.console.text import columns, format_size

    def size(row: Mapping[str, Any]) -> str:
        return format_size(row["size"]) if row["size"] is not None else "-"

    def table(head: Sequence[str], rows: Sequence[tuple[str, ...]], right: int) -> Iterator[str]:
        yield from columns([tuple(head), *rows], left=frozenset(range(len(head))) - {right})
        yield ""

    files, images, packages = bill["files"], bill["images"], bill["packages"]
    yield f"{bill['cluster']}: Kubernetes {bill['kubernetes']}"
    yield ""
    rows: list[tuple[str, ...]] = [
        (row["name"], row["architecture"] or "-", size(row), row["sha256"] or "-", row["here"] or "-", row["source"])
        for row in files
    ]
    yield from table(("file", "arch", "size", "sha256", "here", "source"), rows, 2)
    rows = [
        (row["image"].partition("@")[0], row["architecture"], size(row), row["digest"] or "-", row["here"] or "-")
        for row in images
    ]
    yield from table(("image", "arch", "size", "digest", "here"), rows, 2)
    rows = [
        (row["package"], row["version"] or "-", ", ".join(row["systems"]), plural(len(row["hosts"]), "host"))
        for row in packages
    ]
    if rows:
        yield from columns([("package", "version", "systems", "on"), *rows], left=frozenset(range(4)))
        yield ""
    counts = (plural(len(files), "file"), plural(len(images), "image"), plural(len(packages), "package"))
    yield ", ".join(counts)
    sizes = sum(1 for row in (*files, *images) if row["size"] is None)
    digests = sum(1 for row in images if row["digest"] is None)
    if sizes or digests:
        yield f"{_NOT_KNOWN}: {plural(sizes, 'size')}, {plural(digests, 'digest')} of images (a dash)"
    if packages:
        yield "packages come from the repositories of the hosts, in their versions: a bundle does not have them"
