"""``kubexm versions``: which versions of the parts of a cluster are known, and how to add one.

Nothing for the service's protocol: the data is a file of this machine.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from kubexm_exec.cli import codes
from kubexm_exec.cli.common import here, output_option, show_diagnostics
from kubexm_spec.diagnostics import plural

if TYPE_CHECKING:
    from kubexm_spec.models.versions import VersionsDocument

_HEAD = ("minor", "status", "end of life", "releases", "etcd", "coredns", "pause", "containerd")
_DEFAULT = "versions.yaml"


@click.group("versions")
def command() -> None:
    """Show, check and extend the versions data: which versions of the parts of a cluster go together.

    The data that comes with kubexm is merged with a document of yours (kind: Versions), which a Cluster names under
    `versions`.
    """


def _file_option(function: Any) -> Any:
    return click.option(
        "-f",
        "--file",
        "file",
        default="",
        metavar="FILE",
        help="A Versions document of yours, merged with the shipped.",
    )(function)


def _target_option(function: Any) -> Any:
    return click.option(
        "-f",
        "--file",
        "file",
        default=_DEFAULT,
        metavar="FILE",
        show_default=True,
        help="The Versions document of yours to write to; it is created if it does not exist.",
    )(function)


@command.command("list")
@_file_option
@output_option
def list_command(file: str, output: str) -> None:
    """List the known minors of Kubernetes, newest first, and what goes with them."""
    from kubexm_exec.service.versions import read_versions

    data = read_versions(file, here()).data
    if output == "json":
        rows = {minor: _plain(row) for minor, row in data.kubernetes.items()}
        click.echo(json.dumps(rows, ensure_ascii=False))
        return
    from kubexm_exec.console.text import columns

    cells: list[tuple[str, ...]] = [_HEAD]
    for minor, row in data.kubernetes.items():
        releases = ", ".join(row.patches) or "-"
        cells.append(
            (minor, row.status or "-", str(row.eol or "-"), releases, row.etcd or "-", row.coredns or "-",
             row.pause or "-", " or ".join(row.containerd) or "-")
        )  # fmt: skip
    for line in columns(cells, left=frozenset(range(len(_HEAD)))):
        click.echo(line)


@command.command("show")
@click.argument("name")
@_file_option
@output_option
def show_command(name: str, file: str, output: str) -> None:
    """Show what is known of NAME: a Kubernetes version such as 1.36.4, or a component such as etcd or calico."""
    from kubexm_exec.service.errors import NotFound
    from kubexm_exec.service.versions import read_versions
    from kubexm_spec.diagnostics import did_you_mean
    from kubexm_spec.semver import minor_of

    data = read_versions(file, here()).data
    row = data.kubernetes.get(minor_of(name))
    if row is not None:
        wanted = [patch for patch in row.patches if name.removeprefix("v") in (patch, minor_of(patch))]
        found = {**_plain(row), "files": [each for patch in wanted[:1] for each in _kubernetes(data, patch)]}
    elif name in data.artifacts:
        found = {"files": _files(data, name, list(data.artifacts[name].sha256))}
    elif name in data.manifests:
        found = {version: _plain(each) for version, each in data.manifests[name].items()}
    else:
        known = [*data.kubernetes, *data.artifacts, *data.manifests]
        hint = did_you_mean(name, known) or f"there are {', '.join(known)}"
        raise NotFound(f'the versions data has no "{name}"', hint, kind="unknown-component")
    if output == "json":
        click.echo(json.dumps(found, ensure_ascii=False))
        return
    for key, value in found.items():
        if key == "files":
            for each in value:
                click.echo(f"{each['sha256']}  {each['url']}")
        else:
            click.echo(f"{key}: {json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else value}")


def _kubernetes(data: VersionsDocument, version: str) -> list[dict[str, str]]:
    from kubexm_spec.clusters.versions import KUBERNETES

    return [each for name in KUBERNETES for each in _files(data, name, [version])]


def _files(data: VersionsDocument, name: str, versions: list[str]) -> list[dict[str, str]]:
    from kubexm_spec.clusters.versions import address_of

    artifact = data.artifacts[name]
    return [
        {"url": address_of(data, artifact.url or "", version, arch), "sha256": digest}
        for version in versions
        for arch, digest in artifact.sha256.get(version, {}).items()
    ]


def _plain(row: Any) -> dict[str, Any]:
    found: dict[str, Any] = row.model_dump(by_alias=True, exclude_unset=True, mode="json")
    return found


@command.command("check")
@click.argument("file", default="")
@click.option("--online", is_flag=True, help="Ask for every file: whether it is there, and as large as the data says.")
@output_option
def check_command(file: str, online: bool, output: str) -> None:
    """Check FILE, or the data that comes with kubexm: order, addresses, digests.

    Exit codes: 0 success, 1 a file is not as the data says, 2 the document is wrong.
    """
    from kubexm_exec.service.versions import check_data, read_versions, unreachable

    read = read_versions(file, here())
    found = check_data(read)
    if len(found) or output == "json":
        show_diagnostics(found, read.sources, output)
    if found.has_errors:
        raise SystemExit(codes.WRONG)
    failed = list(unreachable(read)) if online else []
    for each in failed:
        click.echo(f"error: {each}", err=True)
    if failed:
        raise SystemExit(codes.FAILED)
    if output == "text":
        click.echo(f"{file or 'The shipped data'} is as it should be.")


@command.command("add")
@click.argument("component")
@click.argument("version")
@_target_option
@output_option
def add_command(component: str, version: str, file: str, output: str) -> None:
    """Add VERSION of COMPONENT (kubernetes, etcd, containerd, calico, ...) with the digests that its project publishes.

    Name the file under `versions` in the Cluster that should use it.
    """
    _write(file, [(component, version)], output)


@command.command("update")
@_target_option
@output_option
def update_command(file: str, output: str) -> None:
    """Add new patch releases of known minors; a new minor of Kubernetes is added with `status: preview`."""
    from kubexm_exec.service.versions import updates

    _write(file, updates(_known(file)), output)


def _known(file: str) -> VersionsDocument:
    import pathlib

    from kubexm_exec.service.versions import read_versions

    return read_versions(file if pathlib.Path(file).exists() else "", here()).data


def _write(file: str, wanted: list[tuple[str, str]], output: str) -> None:
    from kubexm_exec.cli.targets import write_text
    from kubexm_exec.service.versions import addition, write_additions

    data = _known(file)
    more = [addition(data, component, version) for component, version in wanted]
    if more:
        write_text(file, write_additions(file, here(), more))
    if output == "json":
        click.echo(json.dumps([{"component": name, "version": version} for name, version in wanted]))
        return
    for name, version in wanted:
        click.echo(f"added {name} {version}")
    click.echo(f"{file}: {plural(len(wanted), 'version')} added" if wanted else "Nothing is newer than the data.")
