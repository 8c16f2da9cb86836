"""``kubexm cluster``: a Kubernetes cluster from one document."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import replace

from kubexm_exec.cli.common import (
    Warnings,
    approve,
    bundle_option,
    executor_option,
    fail,
    forks_option,
    here,
    output_option,
    telling,
)
from kubexm_exec.cli.gc import prepare
from kubexm_exec.cli.resources import arch_option, bundle_target_option, check_target, make_bundle, site_of
from kubexm_exec.cli.run import RunCommand, run_documents, run_options
from kubexm_exec.cli.targets import Product, check_targets, force_option, write_text
from kubexm_exec.service.errors import Invalid
from kubexm_exec.service.requests import Documents
from kubexm_spec.diagnostics import plural

if TYPE_CHECKING:
    from kubexm_exec.service.clusters import Looking
    from kubexm_exec.service.nodes import Nodes
    from kubexm_spec.clusters.build import Asked
    from kubexm_spec.clusters.checks import CheckedCluster


@click.group("cluster")
def command() -> None:
    """A Kubernetes cluster from one document (kind: Cluster)."""


def _file_option(function: Any) -> Any:
    return click.option("-f", "--file", "file", required=True, metavar="FILE", help="The Cluster document.")(function)


@command.command("build")
@_file_option
@click.option(
    "-o", "--out", "target", default="-", metavar="FILE", help="Where to write it; standard output by default."
)
@force_option
@output_option
def build_command(file: str, target: str, force: bool, output: str) -> None:
    """Print the pipeline that creates the cluster, as YAML (or JSON) that `kubexm-run` takes.

    It uses the modules that come with kubexm. The same document gives the same text.
    """
    from kubexm_exec.service.clusters import build
    from kubexm_spec.clusters.build import pipeline_text

    check_targets([(target, Product.PIPELINE)], output, force=force, reads=[file])
    pipeline = build(file, here(), Warnings(output).found)
    write_text(target, pipeline_text(pipeline, file) if output == "text" else json.dumps(pipeline, ensure_ascii=False))


@command.command("render")
@_file_option
@click.option(
    "-o", "--out", "target", required=True, metavar="DIR", help="Folder to write to; one folder a host in it."
)
@telling
def render_command(file: str, target: str) -> None:
    """Write every file that the cluster's hosts would get into a folder; no host is contacted.

    Facts are assumed (Debian, kernel 6.1, interface eth0), and what is known only during a run, such as a token, stays
    an expression.
    """
    from pathlib import Path

    from kubexm_exec.cli.rendering import rendered_files
    from kubexm_exec.service.clusters import documents

    folder = Path(target)
    if folder.exists() and any(folder.iterdir()):
        fail(f"{target} is not empty", "name a new folder")
    files = list(rendered_files(documents(file, here(), Warnings("text").found)))
    for host, path, text in files:
        place = folder / host / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, "utf-8")
    hosts = len({host for host, _, _ in files})
    click.echo(f"{plural(len(files), 'file')} of {plural(hosts, 'host')} written to {target}")


@command.command("preflight")
@_file_option
@forks_option()
@output_option
def preflight_command(file: str, forks: int, output: str) -> None:
    """Look at all hosts before the first change, and say what is missing and what to do; nothing is changed.

    Demands and checks to leave out are in the document, under `preflight`. A host that does not answer is one finding.

    Exit codes: 0 all demands are met, perhaps with warnings, 1 some are not, 2 wrong document or command line,
    130 interrupted.
    """
    from kubexm_exec.cli import codes
    from kubexm_exec.cli.preflight import preflight_json, preflight_lines
    from kubexm_exec.console.jsonl import json_line

    found = _looking(file, output).preflight(forks)
    if output == "json":
        click.echo(json_line(preflight_json(found)), nl=False)
    else:
        click.echo("\n".join(preflight_lines(found, file)))
    if found.cancelled:
        raise SystemExit(codes.INTERRUPTED)
    raise SystemExit(codes.FAILED if found.failed else codes.OK)


@command.command("bom")
@_file_option
@arch_option
@bundle_option
@output_option
@telling
def bom_command(file: str, architectures: tuple[str, ...], bundle: str | None, output: str) -> None:
    """List every file, image and package that the cluster needs from elsewhere, with digest and size.

    It is derived from the compiled plan; no host and no server is contacted. What cannot be known then, such as the
    size of an image that is neither in the cache nor in the bundle, is shown as a dash (null).
    """
    from kubexm_exec.cli.bill import bill_lines, bill_of
    from kubexm_exec.console.jsonl import json_line

    cluster, made = _for_bundle(file, architectures, output)
    site = site_of(replace(made, bundle=bundle or made.bundle), architectures, output, whole=False)
    bill = bill_of(cluster, site, output)
    click.echo(json_line(bill) if output == "json" else "\n".join(bill_lines(bill)) + "\n", nl=False)


@command.command("bundle")
@_file_option
@bundle_target_option
@arch_option
@output_option
@telling
def bundle_command(file: str, target: str, architectures: tuple[str, ...], output: str) -> None:
    """Fetch everything that the cluster needs into one folder or file, to create it without a network.

    All files and images of `kubexm cluster bom`, verified, for all architectures or those of --arch. An interrupted
    command continues where it stopped when it is started again. Packages of the operating system are not in it.

    Exit codes: 0 success, 1 something could not be fetched, 2 wrong document or command line, 130 interrupted.
    """
    import shlex

    check_target(target, output)
    _, made = _for_bundle(file, architectures, output)
    made = replace(made, bundle=None)
    use = f"kubexm cluster create -f {shlex.quote(file)} --bundle {shlex.quote(target)}"
    make_bundle(site_of(made, architectures, output), target, output, use)


def _for_bundle(file: str, architectures: tuple[str, ...], output: str) -> tuple[CheckedCluster, Documents]:
    """A cluster, and its pipeline as it is without a network."""
    from kubexm_exec.service.clusters import documents_for_bundle
    from kubexm_spec.clusters.offline import known_architectures

    cluster, made = documents_for_bundle(file, here(), Warnings(output).found)
    known = known_architectures(cluster)
    if unknown := [name for name in architectures if name not in known]:
        fail(
            f"--arch {unknown[0]}: the versions data has no files for it",
            f"there are {', '.join(known)}",
            output=output,
        )
    return cluster, made


def _looking(file: str, output: str) -> Looking:
    from kubexm_exec.cli.journaled import service_of
    from kubexm_exec.cli.running import Terminal
    from kubexm_exec.service.clusters import looking_at

    watcher = Terminal("silent", logs=("error", "text"))
    return looking_at(file, here(), service_of(None), watcher, Warnings(output).found)


def _days_option(function: Any) -> Any:
    return click.option(
        "--days", type=click.IntRange(0), default=30, show_default=True, metavar="DAYS",
        help="Certificates that are valid for fewer days are to be renewed."
    )(function)  # fmt: skip


@command.command("status")
@_file_option
@click.option("--watch", is_flag=True, help="Look again and again, until Ctrl-C.")
@click.option(
    "--interval", type=click.FloatRange(0.1), default=5.0, show_default=True, metavar="SECONDS",
    help="Pause between two looks, with --watch."
)  # fmt: skip
@_days_option
@forks_option()
@output_option
def status_command(file: str, watch: bool, interval: float, days: int, forks: int, output: str) -> None:
    """Show the state of the cluster: nodes, etcd, certificates, load balancers, components; nothing is changed.

    What differs from the document is shown as well. The first control plane that answers is asked; a host that does
    not answer is told, and keeps nothing else from being shown.

    Exit codes: 0 all is well and as the document says, perhaps with warnings (a cordoned node, a certificate that
    expires soon), 1 something is broken, does not answer or differs, 2 wrong document or command line, 130 interrupted.
    """
    import time

    from kubexm_exec.cli import codes
    from kubexm_exec.cli.common import wants_color
    from kubexm_exec.cli.status import status_json, status_lines
    from kubexm_exec.console.jsonl import json_line
    from kubexm_exec.console.text import Paint

    paint, looking = Paint(wants_color(sys.stdout)), _looking(file, output)
    while True:
        found = looking.status(days, forks)
        if found.cancelled:
            raise SystemExit(codes.INTERRUPTED)
        if output == "json":
            click.echo(json_line(status_json(found)), nl=False)
        else:
            if watch and sys.stdout.isatty():
                click.clear()
            click.echo("\n".join(status_lines(found, file, paint)))
        if not watch:
            raise SystemExit(codes.FAILED if found.failed else codes.OK)
        sys.stdout.flush()
        time.sleep(interval)


@command.command("certs")
@_file_option
@_days_option
@forks_option()
@output_option
def certs_command(file: str, days: int, forks: int, output: str) -> None:
    """Show the certificates on all hosts of the cluster and how long they are valid; nothing is changed.

    Exit codes: 0 all are valid for at least --days, 1 one is not or cannot be read, or a host does not answer,
    2 wrong document or command line, 130 interrupted.
    """
    from kubexm_exec.cli import codes
    from kubexm_exec.cli.common import wants_color
    from kubexm_exec.cli.status import certificates_json, certificates_lines
    from kubexm_exec.console.jsonl import json_line
    from kubexm_exec.console.text import Paint

    found = _looking(file, output).certificates(days, forks)
    if output == "json":
        click.echo(json_line(certificates_json(found)), nl=False)
    else:
        click.echo("\n".join(certificates_lines(found, file, Paint(wants_color(sys.stdout)))))
    if found.cancelled:
        raise SystemExit(codes.INTERRUPTED)
    raise SystemExit(codes.FAILED if found.due or found.unseen else codes.OK)


@command.command("kubeconfig")
@_file_option
@click.option(
    "-o", "--out", "target", metavar="FILE",
    help="Where to write it: NAME.kubeconfig by default, ~/.kube/config with --merge; - prints it."
)  # fmt: skip
@click.option("--merge", is_flag=True, help="Add the cluster to a kubeconfig that may have others, which stay.")
@force_option
@telling
def kubeconfig_command(file: str, target: str | None, merge: bool, force: bool) -> None:
    """Write the administrator's kubeconfig, taken from the first control plane that answers; hosts are not changed.

    The file is only yours to read (0600): it gives all rights in the cluster. The server in it is the endpoint of the
    document; with a local load balancer, which has a name on nodes alone, it is that control plane.

    Exit codes: 0 success, 1 no control plane has answered, 2 wrong document or command line, or a file that is not
    overwritten, 3 an entry of another cluster that is not replaced, 130 interrupted.
    """
    from kubexm_exec.cli.kubeconfig import write_kubeconfig

    write_kubeconfig(file, target, _looking(file, "text"), merge=merge, force=force)


@command.command("convert")
@click.argument("file")
@click.option(
    "--from",
    "tool",
    type=click.Choice(["kubekey", "kubexm-go", "kubespray"]),
    help="Whose it is; found out by default.",
)
@click.option(
    "-o", "--out", "target", default="-", metavar="FILE", help="Where to write it; standard output by default."
)
@force_option
@output_option
def convert_command(file: str, tool: str | None, target: str, force: bool, output: str) -> None:
    """Turn a cluster document of kubekey or of kubexm in Go, or an inventory of kubespray, into a Cluster document.

    FILE is the document, or the inventory (hosts.yaml or inventory.ini, with group_vars beside it). What has no
    counterpart is listed with its place, on standard error and as comments in the result. Passwords and keys are never
    copied: references take their place.

    Exit codes: 0 success, 1 written, but the result has errors that the input has had, 2 it cannot be read.
    """
    from kubexm_exec.cli import codes
    from kubexm_exec.cli.common import show_diagnostics
    from kubexm_exec.service.convert import convert

    check_targets([(target, Product.CLUSTER)], output, force=force, reads=[file])
    made = convert(file, here(), tool or "", target if target != "-" else "cluster.yaml")
    write_text(target, made.text if output == "text" else json.dumps(made.data, ensure_ascii=False))
    if output == "json":
        show_diagnostics(made.lost, {}, output, to_stderr=True)
    else:
        for each in made.lost:
            # Without the lines of the file: there may be passwords in them.
            click.echo(f"{each.span}: {each.summary}" + (f"\n  → {each.hint}" if each.hint else ""), err=True)
        if len(made.lost):
            click.echo(f"{plural(len(made.lost), 'setting')} not converted, or not as it was.", err=True)
    if made.findings.has_errors:
        show_diagnostics(made.findings, made.sources, output, to_stderr=True)
        raise SystemExit(codes.FAILED)


class _Create(RunCommand):
    words = ("kubexm", "cluster", "create")


@command.command("create", cls=_Create)
@_file_option
@executor_option
@run_options
def create_command(file: str, executor: str, choice: Documents, bundle: str | None, **options: Any) -> None:
    """Create the cluster: build its pipeline and run it.

    Everything of `kubexm-run` works here: dry-run, check with diffs, debug, --limit, reports, the journal and resume.
    Running it again changes nothing that is as it should be.

    Exit codes: 0 success, 1 something failed, 2 wrong document or command line, nothing ran, 3 refused,
    130 interrupted.
    """
    _run("create", file, executor, choice, bundle, options)


class _Renew(RunCommand):
    words = ("kubexm", "cluster", "renew-certs")


@command.command("renew-certs", cls=_Renew)
@_file_option
@_days_option
@click.option("--all", "everything", is_flag=True, help="Renew all of them, whatever their age.")
@executor_option
@run_options
def renew_command(
    file: str,
    days: int,
    everything: bool,
    executor: str,
    choice: Documents,
    bundle: str | None,
    **options: Any,
) -> None:
    """Renew certificates that expire soon, and restart what reads them, one control plane at a time.

    Those of kubeadm (with its kubeconfigs), of an etcd of our own, and what kubelets serve with. CAs are not renewed,
    and a kubelet renews its client certificate by itself. Running it again changes nothing, unless with --all.

    Exit codes: 0 success, 1 something failed, 2 wrong document or command line, nothing ran, 3 refused,
    130 interrupted.
    """
    from kubexm_exec.service.clusters import read_cluster
    from kubexm_spec.clusters.build import Asked
    from kubexm_spec.clusters.renewal import largest_threshold

    most = largest_threshold(read_cluster(file, here(), lambda *_: None))
    if days > most and not everything:
        hint = f"use at most --days {most}, or renew them all with --all"
        fail(f"with --days {days} every run would renew what the last one has renewed", hint)
    asked = Asked(days=min(days, most), everything=everything)
    _run("renew-certs", file, executor, choice, bundle, options, asked)


class _Backup(RunCommand):
    words = ("kubexm", "cluster", "backup")


@command.command("backup", cls=_Backup)
@_file_option
@click.option(
    "-o", "--out", "target", default="", metavar="DIR", help="Folder to copy the snapshot to; one a host in it."
)
@executor_option
@run_options
def backup_command(
    file: str, target: str, executor: str, choice: Documents, bundle: str | None, **options: Any
) -> None:
    """Take a snapshot of etcd now, on one of its members, and verify it.

    One member that lives is enough; a follower is asked if there is one. The snapshot stays on the member, in the
    folder `etcd.backup.dir` of the document, with its sha256 beside it. It holds all secrets of the cluster: copies
    are 0600.

    Exit codes: 0 success, 1 something failed, 2 wrong document or command line, nothing ran, 3 refused,
    130 interrupted.
    """
    from pathlib import Path

    from kubexm_spec.clusters.build import Asked

    asked = Asked(fetch_to=str(Path(here()) / target) if target else "")
    _run("backup", file, executor, choice, bundle, options, asked)


class _Restore(RunCommand):
    words = ("kubexm", "cluster", "restore")


@command.command("restore", cls=_Restore)
@_file_option
@click.option("--snapshot", required=True, metavar="FILE", help="The snapshot, a file of this machine.")
@click.option("--yes", is_flag=True, help="Do not ask for approval.")
@executor_option
@run_options
def restore_command(
    file: str, snapshot: str, yes: bool, executor: str, choice: Documents, bundle: str | None, **options: Any
) -> None:
    """Replace the data of etcd by a snapshot, on all members: what was written since is lost.

    The snapshot is judged, here and on every member, before anything is stopped. API servers are stopped meanwhile. The
    data of before is renamed, never removed. After a failure or a crash, resume the run.

    Exit codes: 0 success, 1 something failed, 2 wrong document, snapshot or command line, nothing ran, 3 refused,
    130 interrupted.
    """
    from kubexm_exec.service.snapshots import read_snapshot
    from kubexm_spec.clusters.build import Asked

    found = read_snapshot(snapshot, here())
    question = "" if yes else f"replace all data of the etcd of {file} by {snapshot}?"
    asked = Asked(snapshot=found.path, sha256=found.sha256)
    _run("restore", file, executor, choice, bundle, options, asked, question)


class _Upgrade(RunCommand):
    words = ("kubexm", "cluster", "upgrade")


@command.command("upgrade", cls=_Upgrade)
@_file_option
@executor_option
@run_options
def upgrade_command(file: str, executor: str, choice: Documents, bundle: str | None, **options: Any) -> None:
    """Upgrade the running cluster to the versions in its document, by one minor version at most.

    Everything is checked before the first change. Then etcd is kept as a snapshot; the control planes follow one at a
    time, the workers in batches (`operations.workers`), each node drained before and uncordoned afterwards, whatever
    happens. Running it again changes nothing; after a failure `kubexm runs resume` goes on.

    Exit codes: 0 success, 1 something failed, or the cluster cannot be upgraded to that version, 2 wrong document or
    command line, nothing ran, 3 refused, 130 interrupted.
    """
    _run("upgrade", file, executor, choice, bundle, options)


class _AddNodes(RunCommand):
    words = ("kubexm", "cluster", "add-nodes")


@command.command("add-nodes", cls=_AddNodes)
@_file_option
@click.option("--nodes", metavar="HOSTS", help="Hosts of the document: names, ranges or globs, with commas between.")
@executor_option
@run_options
def add_nodes_command(
    file: str, nodes: str | None, executor: str, choice: Documents, bundle: str | None, **options: Any
) -> None:
    """Add hosts of the document to the cluster that runs: those of --nodes, or all that have not joined.

    Only these hosts and one control plane are connected to, and nothing on that one is changed but tokens of kubeadm.
    With new control planes, load balancers of ours learn of them. Workers join all at once, control planes one by one.
    Running it again changes nothing.

    Exit codes: 0 success, 1 something failed, 2 wrong document or command line, nothing ran, 3 refused,
    130 interrupted.
    """
    changing, words = _nodes(file, nodes, executor, choice, options)
    change = changing.join(words)
    if change.documents is None:
        click.echo("All hosts of the document have joined the cluster. Nothing to do.", err=options["output"] == "json")
        return
    _run_built(replace(change.documents, bundle=_absolute(bundle)), executor, replace(choice, limit=()), options)


class _RemoveNodes(RunCommand):
    words = ("kubexm", "cluster", "remove-nodes")


@command.command("remove-nodes", cls=_RemoveNodes)
@_file_option
@click.option("--nodes", metavar="HOSTS", help="Hosts of the document: names, ranges or globs, with commas between.")
@click.option("--dead", is_flag=True, help="Hosts of --nodes that do not answer are gone for good.")
@click.option("--yes", is_flag=True, help="Do not ask for approval.")
@executor_option
@run_options
def remove_nodes_command(
    file: str,
    nodes: str | None,
    dead: bool,
    yes: bool,
    executor: str,
    choice: Documents,
    bundle: str | None,
    **options: Any,
) -> None:
    """Remove nodes from the cluster, any control plane too, and everything that was made for it from their hosts.

    Nodes are drained first; one that does not get that far takes pods again. What would cost the quorum of etcd or the
    last control plane is refused before the first change. On a dead host nothing is done: its node and its
    member of etcd are removed from the cluster. The document needs the hosts until they are removed.

    Exit codes: 0 success, 1 something failed, 2 wrong document or command line, nothing ran, 3 refused,
    130 interrupted.
    """
    if not nodes and not choice.limit:
        raise Invalid("which nodes? Nothing is removed without a selection", "name them with --nodes")
    changing, words = _nodes(file, nodes, executor, choice, options)
    change = changing.leave(words, dead=dead)
    assert change.documents is not None
    shown = [f"{name} (it does not answer)" if name in change.gone else name for name in change.nodes]
    question = "" if yes else f"remove {', '.join(shown)} from the cluster of {file}?"
    _run_built(
        replace(change.documents, bundle=_absolute(bundle)), executor, replace(choice, limit=()), options, question
    )


def _absolute(bundle: str | None) -> str | None:
    """A bundle by its whole path: the documents of a flow are unpacked elsewhere."""
    from pathlib import Path

    return str(Path(here()) / bundle) if bundle else None


def _nodes(
    file: str, nodes: str | None, executor: str, choice: Documents, options: dict[str, Any]
) -> tuple[Nodes, list[str]]:
    """The nodes of a cluster, which is asked unless no host is to be contacted, and the words that select some."""
    from kubexm_exec.cli.journaled import service_of
    from kubexm_exec.cli.running import Terminal
    from kubexm_exec.service.nodes import Nodes

    if nodes is not None and choice.limit:
        raise Invalid("--nodes and --limit both select hosts", "leave out --limit")
    words = [word for each in (nodes or "").split(",") if (word := each.strip())] or list(choice.limit)
    if nodes is not None and not words:
        raise Invalid("--nodes names no host", "give names, ranges or globs, with commas between")
    prepare()
    service = None if executor == "dry-run" else service_of(None)
    quiet = Terminal("silent", logs=("error", "text"))
    return Nodes(file, here(), Warnings("text").found, service, quiet, options["forks"]), words


class _Reset(RunCommand):
    words = ("kubexm", "cluster", "reset")


@command.command("reset", cls=_Reset)
@_file_option
@click.option("--yes", is_flag=True, help="Do not ask for approval.")
@executor_option
@run_options
def reset_command(file: str, yes: bool, executor: str, choice: Documents, bundle: str | None, **options: Any) -> None:
    """Remove the cluster from its hosts, with everything in it: its data is lost.

    What was made is removed, and nothing else; at the end every host is compared with what it was before the cluster,
    and the difference is shown. Packages stay. It asks for approval, unless --limit says for which hosts.

    Exit codes: 0 success, 1 something failed, 2 wrong document or command line, nothing ran, 3 refused,
    130 interrupted.
    """
    question = "" if yes or choice.limit else f"remove the cluster of {file} and all its data from its hosts?"
    _run("reset", file, executor, choice, bundle, options, question=question)


def _run(
    flow: str,
    file: str,
    executor: str,
    choice: Documents,
    bundle: str | None,
    options: dict[str, Any],
    asked: Asked | None = None,
    question: str = "",
) -> None:
    """Build the pipeline of a flow and run it; a question has to be approved before, if the run can change hosts."""
    from kubexm_exec.service.clusters import documents

    prepare()
    built = documents(file, here(), Warnings("text").found, flow, asked, bundle or "")
    _run_built(built, executor, choice, options, question)


def _run_built(built: Documents, executor: str, choice: Documents, options: dict[str, Any], question: str = "") -> None:
    if question and executor not in ("check", "dry-run"):
        approve(question, options["output"])
    made = replace(choice, spec=built.spec, files=built.files, bundle=built.bundle, offline=built.offline)
    run_documents(made, executor, **options)
