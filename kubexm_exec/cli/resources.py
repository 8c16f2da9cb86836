"""``kubexm resources``: what a spec needs from elsewhere: listed, fetched into the cache, bundled for offline runs.

Nothing for the service: the cache and the bundles are files of this machine, for runs that begin here.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, NoReturn

import click
from msgspec import Struct
from msgspec.structs import replace

from kubexm_exec.cli import codes
from kubexm_exec.cli.common import Warnings, bundle_option, fail, output_option, value_options
from kubexm_exec.service.requests import Documents
from kubexm_spec.diagnostics import plural

if TYPE_CHECKING:
    from kubexm_exec.compile.resourcelist import Declared
    from kubexm_exec.model.graph import ExecutionGraph
    from kubexm_exec.resources.source import LocalResource, Source
    from kubexm_exec.resources.store import ResourceStore
    from kubexm_exec.secrets import Secrets

_AT_ONCE = 4
_HEAD = ("resource", "variant", "size", "sha256", "here", "steps", "source")


@click.group("resources")
def command() -> None:
    """List, fetch and bundle the resources of a spec: downloads, objects of a store, files.

    These commands contact no host.
    """


def arch_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """``--arch NAME``."""
    return click.option(
        "--arch",
        "architectures",
        multiple=True,
        metavar="NAME",
        help="Architecture of hosts, such as amd64, for resources that depend on it, instead of all; repeatable.",
    )(function)


def bundle_target_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """``-o DIR|FILE``."""
    return click.option(
        "-o",
        "--out",
        "target",
        required=True,
        metavar="DIR|FILE",
        help="Folder of the bundle, which can exist already; or one file: NAME.tar, NAME.tar.gz or NAME.tar.zst.",
    )(function)


class Wanted(Struct, frozen=True):
    """One file that a spec may need."""

    declared: Declared
    source: Source

    @property
    def steps(self) -> int:
        """How many steps use it."""
        return len(self.declared.users)


class Site(Struct, frozen=True):
    """A spec with all it may need, and the store to get it from."""

    graph: ExecutionGraph
    wanted: list[Wanted]
    unknown: list[tuple[Declared, str]]
    store: ResourceStore
    secrets: Secrets


def site_of(source: Documents, architectures: Sequence[str], output: str, *, whole: bool = True) -> Site:
    """All that documents may need, for these architectures or all; ``whole``: with what is secret about access."""
    from pathlib import Path
    from tempfile import TemporaryDirectory

    from kubexm_exec.compile.resourcelist import declared, possible
    from kubexm_exec.compile.static import NoRecords, no_facts
    from kubexm_exec.resources.store import ResourceStore
    from kubexm_exec.runner.facts import ARCHITECTURES
    from kubexm_exec.secrets import Redactor, SecretError, Secrets
    from kubexm_exec.service.documents import bundle_folder, compiled, unpacked
    from kubexm_exec.values.evaluate import Evaluator
    from kubexm_exec.values.expressions import Expressions

    folder = bundle_folder(source)
    with TemporaryDirectory() as scratch:
        result, graph = compiled(unpacked(source, Path(scratch)), Warnings(output).found)
    state = result.state
    if state is None:
        raise RuntimeError("a graph has its state")
    secrets = Secrets(Redactor(), lambda message: click.echo(f"warning: {message}", err=True), source.folder)
    evaluator = Evaluator(graph, Expressions(), records=NoRecords(), facts=no_facts, secret=secrets.resolve)
    chosen = {ARCHITECTURES.get(name, name) for name in architectures}
    others = {
        name
        for machine, architecture in ARCHITECTURES.items()
        for name in (machine, architecture)
        if chosen and architecture not in chosen
    }
    wanted: dict[tuple[str, Source], Wanted] = {}
    unknown: list[tuple[Declared, str]] = []
    for one in declared(state):
        try:
            results = possible(state, evaluator, one, architectures, whole=whole)
        except SecretError as error:
            fail(f'secret "{error.reference}": {error.what}', error.hint, output=output)
        for each in results:
            if each.source is not None:
                if each.source.variant not in others:
                    wanted.setdefault((one.scope, each.source), Wanted(one, each.source))
            elif each.problem:
                fail(each.problem, each.hint, output=output, kind="bad-resource")
            else:
                unknown.append((one, each.unknown))
    return Site(graph, list(wanted.values()), unknown, ResourceStore(bundle=folder), secrets)


def _site(spec: str, choice: Documents, architectures: Sequence[str], bundle: str | None, output: str) -> Site:
    return site_of(replace(choice, spec=spec, bundle=bundle), architectures, output)


@command.command("list")
@click.argument("spec")
@arch_option
@bundle_option
@value_options
@output_option
def list_command(spec: str, architectures: tuple[str, ...], bundle: str | None, choice: Documents, output: str) -> None:
    """List the resources of SPEC, and whether each one is available locally.

    Exit codes: 0 success, 2 wrong spec or command line.
    """
    site = _site(spec, choice, architectures, bundle, output)
    rows = [_row(one, held_by(site.store, one.source, output)) for one in site.wanted]
    if output == "json":
        more = [
            {"resource": one.name, "unknown": name, "steps": len(one.users), "place": one.head.file_line}
            for one, name in site.unknown
        ]
        click.echo(json.dumps([*rows, *more], ensure_ascii=False))
        return
    _table(rows, site.unknown)


def held_by(store: ResourceStore, source: Source, output: str) -> LocalResource | None:
    """What is here of a resource: in the bundle, in the cache, or a file of this machine."""
    from kubexm_exec.resources.source import LocalResource, ResourceError

    try:
        found = store.known(source)
    except ResourceError as error:
        if source.kind == "bundle":
            return None
        fail(error.message, error.hint, output=output, kind="bad-resource")
    if found is None and not source.sha256:
        record = store.cache.record(source)
        held = store.cache.find(record.sha256) if record is not None else None
        return held and LocalResource(held.path, held.sha256, held.size, "cache")
    return found


def _row(one: Wanted, held: LocalResource | None) -> dict[str, Any]:
    source = one.source
    return {
        "resource": source.name,
        "variant": source.variant,
        "source": source.shown,
        "sha256": source.sha256 or None,
        "found": held.sha256 if held is not None else None,
        "size": held.size if held is not None else None,
        "here": held.where if held is not None else None,
        "fetchOn": source.fetch_on,
        "steps": one.steps,
        "place": one.declared.head.file_line,
    }


def _table(rows: list[dict[str, Any]], unknown: list[tuple[Declared, str]]) -> None:
    from kubexm_exec.console.text import columns, format_size

    cells: list[tuple[str, ...]] = [_HEAD]
    for row in rows:
        size = format_size(row["size"]) if row["size"] is not None else "-"
        here = {"path": "file"}.get(row["here"], row["here"]) or "-"
        digest = (row["sha256"] or "")[:12] or "missing"
        cells.append((row["resource"], row["variant"] or "-", size, digest, here, str(row["steps"]), row["source"]))
    cells += [(one.name, "-", "-", "-", "-", str(len(one.users)), f"depends on {name}") for one, name in unknown]
    for line in columns(cells, left=frozenset(range(len(_HEAD))) - {2, 5}):
        click.echo(line)
    total, here = len(rows), sum(1 for row in rows if row["here"] is not None)
    click.echo(f"\n{plural(total, 'file')}, {here} here")
    if unknown:
        click.echo("Name the architectures of the hosts to see the rest: --arch amd64 --arch arm64")


@command.command("fetch")
@click.argument("spec")
@arch_option
@bundle_option
@value_options
@output_option
def fetch_command(
    spec: str, architectures: tuple[str, ...], bundle: str | None, choice: Documents, output: str
) -> None:
    """Fetch the resources of SPEC into the cache, and print the digests that it lacks.

    Exit codes: 0 success, 1 a resource could not be fetched, 2 wrong spec or command line.
    """
    site = _site(spec, choice, architectures, bundle, output)
    done, failed = _fetch_all(site, output)
    if output == "json":
        rows = [_row(one, local) for one, local in done]
        click.echo(json.dumps({"fetched": rows, "failed": failed}, ensure_ascii=False))
    else:
        _advice(done)
    _tell_unknown(site, output)
    raise SystemExit(codes.FAILED if failed else codes.OK)


def _fetch_all(site: Site, output: str) -> tuple[list[tuple[Wanted, LocalResource]], list[dict[str, str]]]:
    """Everything, a few at once; what cannot be had hinders nothing else."""
    from kubexm_exec.cli.sidebyside import side_by_side
    from kubexm_exec.console.text import format_size
    from kubexm_exec.control import Cancel
    from kubexm_exec.model.errors import CommandCancelled
    from kubexm_exec.resources.source import ResourceError

    cancel = Cancel()
    mask = site.secrets.redactor.mask
    done: list[tuple[Wanted, LocalResource]] = []
    failed: list[dict[str, str]] = []
    with _shown_progress(output) as shown:

        def get(one: Wanted) -> LocalResource | ResourceError | None:
            tell = shown(one.source.label)
            try:
                return site.store.fetch(one.source, cancel=cancel, progress=tell)
            except ResourceError as error:
                return error
            except CommandCancelled:
                return None

        try:
            results = side_by_side(get, site.wanted, _AT_ONCE, cancel)
            for one, result in zip(site.wanted, results, strict=True):
                if isinstance(result, ResourceError):
                    failed.append({"resource": one.source.label, "error": mask(result.message), "hint": result.hint})
                    if output == "text":
                        click.echo(f"error: {mask(result.message)}\n  → {result.hint}", err=True)
                elif result is not None:
                    done.append((one, result))
                    if output == "text":
                        how = "fetched" if result.where == "fetched" else f"here ({result.where})"
                        click.echo(f"{one.source.label}  {how}  {format_size(result.size)}  {result.sha256}")
        except KeyboardInterrupt:
            click.echo("interrupted; run the same command again to continue", err=True)
            raise SystemExit(codes.INTERRUPTED) from None
    return done, failed


def _shown_progress(output: str) -> AbstractContextManager[Callable[[str], Callable[[int, int | None], None]]]:
    """Bars on a terminal, and nothing elsewhere: lines say what has arrived."""
    if output != "text" or not sys.stderr.isatty():
        return nullcontext(lambda label: lambda done, total: None)

    @contextmanager
    def bars() -> Any:
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

        looks = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
        with Progress(*looks, console=Console(stderr=True), transient=True) as progress:

            def start(label: str) -> Callable[[int, int | None], None]:
                task = progress.add_task(label, total=None)
                return lambda done, total: progress.update(task, completed=done, total=total)

            yield start

    return bars()


def _advice(done: Sequence[tuple[Wanted, LocalResource]]) -> None:
    """The digests that are missing, ready to be pasted."""
    missing = [(one, local) for one, local in done if not one.source.sha256]
    if not missing:
        return
    click.echo("\nAdd the digests, so that no other content is ever accepted:")
    for one, local in missing:
        value = f"{{{one.source.variant}: {local.sha256}}}" if one.source.variant else local.sha256
        click.echo(f"  {one.declared.head.file_line}  {one.source.name}:  sha256: {value}")


def _tell_unknown(site: Site, output: str) -> None:
    if output != "text":
        return
    for one, name in site.unknown:
        click.echo(
            f"warning: resource {one.name} was not included: it depends on {name}\n"
            "  → name the architectures of the hosts: --arch amd64 --arch arm64",
            err=True,
        )


@command.command("bundle")
@click.argument("spec")
@bundle_target_option
@arch_option
@bundle_option
@value_options
@output_option
def bundle_command(
    spec: str, target: str, architectures: tuple[str, ...], bundle: str | None, choice: Documents, output: str
) -> None:
    """Collect all resources of SPEC in a folder or an archive, for runs without a network.

    Use it with: kubexm-run SPEC --bundle DIR. Exit codes: 0 success, 1 a resource could not be fetched, 2 wrong spec.
    """
    check_target(target, output)
    site = _site(spec, choice, architectures, bundle, output)
    make_bundle(site, target, output, f"kubexm-run {shlex.quote(spec)} --bundle {shlex.quote(target)}")


def check_target(target: str, output: str) -> None:
    """End the program if a bundle cannot be put there, before anything is fetched."""
    from pathlib import Path

    from kubexm_exec.resources.bundle import check_bundle
    from kubexm_exec.resources.source import ResourceError

    try:
        check_bundle(Path(target))
    except ResourceError as error:
        fail(error.message, error.hint, output=output, kind="would-replace")


def make_bundle(site: Site, target: str, output: str, use: str) -> NoReturn:
    """Fetch everything, put it into a bundle, and say how it is used; ends the program.

    An archive is only written when nothing is missing: half of one could be taken for the whole.
    """
    from pathlib import Path

    from kubexm_exec.resources.bundle import is_archive, write_bundle
    from kubexm_exec.resources.source import ResourceError

    done, failed = _fetch_all(site, output)
    written = [] if failed and is_archive(Path(target)) else [(one.source, local) for one, local in done]
    try:
        entries = write_bundle(Path(target), written) if written or not failed else []
    except ResourceError as error:
        fail(error.message, error.hint, code=codes.FAILED, output=output, kind="bad-bundle")
    if output == "json":
        data = {"bundle": target, "resources": [entry.to_json() for entry in entries], "failed": failed}
        click.echo(json.dumps(data, ensure_ascii=False))
    else:
        from kubexm_exec.console.text import format_size

        _advice(done)
        size = format_size(sum(entry.size for entry in entries))
        click.echo(f"\n{plural(len(entries), 'file')}, {size}, in {target}")
        if failed:
            click.echo(f"{plural(len(failed), 'item')} missing: run the same command again to continue", err=True)
        else:
            click.echo(f"Use it with: {use}")
    _tell_unknown(site, output)
    raise SystemExit(codes.FAILED if failed else codes.OK)


@command.command("prune")
@click.option(
    "--older-than",
    "age",
    default="30d",
    show_default=True,
    metavar="TIME",
    help="Remove what has not been used for this time; 0s removes everything.",
)
@output_option
def prune_command(age: str, output: str) -> None:
    """Remove unused resources and incomplete downloads from the cache."""
    from kubexm_exec.console.text import format_size
    from kubexm_exec.resources.cache import Cache
    from kubexm_spec.duration import parse_duration

    try:
        seconds = parse_duration(age)
    except ValueError as error:
        fail(f"--older-than {age}: {error}", "write 30d, 12h or 0s", output=output)
    cache = Cache()
    try:
        gone = cache.prune(seconds)
    except OSError as error:
        fail(f"{cache.folder}: {(error.strerror or str(error)).lower()}", code=codes.FAILED, output=output)
    if output == "json":
        click.echo(json.dumps({"folder": str(cache.folder), "files": gone.files, "bytes": gone.size}))
    else:
        click.echo(f"removed {plural(gone.files, 'file')} ({format_size(gone.size)}) from {cache.folder}")
