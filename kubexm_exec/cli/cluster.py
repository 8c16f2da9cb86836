"""``kubexm cluster``: a Kubernetes cluster from one document."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import replace

from kubexm_exec.cli.common import Warnings, approve, executor_option, fail, forks_option, here, output_option, telling
from kubexm_exec.cli.gc import prepare
from kubexm_exec.cli.run import RunCommand, run_documents, run_options
from kubexm_exec.cli.targets import Product, check_targets, force_option, write_text
from kubexm_exec.service.errors import Invalid
from kubexm_exec.service.requests import Documents
from kubexm_spec.diagnostics import plural

if TYPE_CHECKING:
    from kubexm_exec.service.nodes import Nodes
    from kubexm_spec.clusters.build import Asked


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
    from kubexm_exec.cli.journaled import service_of
    from kubexm_exec.cli.preflight import preflight_json, preflight_lines
    from kubexm_exec.cli.running import Terminal
    from kubexm_exec.console.jsonl import json_line
    from kubexm_exec.service.clusters import preflight_of

    found = preflight_of(
        file, here(), service_of(None), Terminal("silent", logs=("error", "text")), Warnings(output).found, forks
    )
    if output == "json":
        click.echo(json_line(preflight_json(found)), nl=False)
    else:
        click.echo("\n".join(preflight_lines(found, file)))
    if found.cancelled:
        raise SystemExit(codes.INTERRUPTED)
    raise SystemExit(codes.FAILED if found.failed else codes.OK)


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
    _run_built(change.documents, executor, replace(choice, limit=()), bundle, options)


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
    _run_built(change.documents, executor, replace(choice, limit=()), bundle, options, question=question)


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
    built = documents(file, here(), Warnings("text").found, flow, asked)
    _run_built(built, executor, choice, bundle, options, question)


def _run_built(
    built: Documents, executor: str, choice: Documents, bundle: str | None, options: dict[str, Any], question: str = ""
) -> None:
    if question and executor not in ("check", "dry-run"):
        approve(question, options["output"])
    run_documents(replace(choice, spec=built.spec, files=built.files, bundle=bundle), executor, **options)
