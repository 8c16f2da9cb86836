"""From documents to a graph, or to hosts: what is wrong with them is an error, with all findings."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from msgspec import ValidationError, convert, to_builtins
from msgspec.structs import replace

from kubexm_exec.service.errors import Changed, Invalid, Refused
from kubexm_exec.service.requests import SHIPPED, Documents
from kubexm_spec.diagnostics import Diagnostics, Span, SpecError, plural
from kubexm_spec.paths import is_file, is_folder
from kubexm_spec.yaml.lines import is_spec

if TYPE_CHECKING:
    from pathlib import Path

    from kubexm_exec.compile import Compilation, CompileOptions
    from kubexm_exec.compile.adhoc import Site
    from kubexm_exec.compile.plan import Plan
    from kubexm_exec.compile.state import State
    from kubexm_exec.model.graph import ExecutionGraph
    from kubexm_exec.resources.source import Source
    from kubexm_exec.resources.store import ResourceStore

Warn: TypeAlias = "Callable[[Diagnostics, Mapping[str, Any]], None]"
"""Takes warnings, with the files that they refer to."""
_MOST_FILES: Final = 1000
_MOST_BYTES: Final = 16 << 20
_LONGEST_NAME: Final = 1024
_DEEPEST: Final = 64
_SECRET_FILE: Final = re.compile(r"""\bfile:([^\s'"\\#{}|~()%]*)(\\?['"](?!\s*:)|[{%]|)\s*([~+%]?)""")
"""A reference to a secret in a file, or the beginning of one: what ends it, and what an expression adds to it."""


def claim_of(state: Path, run: str) -> Path:
    """The file that names the process which is about to begin a run, as long as no journal knows the run."""
    return state / "unpacking" / run


def claim(state: Path, run: str) -> None:
    """Let nobody ``sweep`` the folder of a run while this process lives; raises Invalid."""
    from kubexm_exec.journal.owner import Owner
    from kubexm_exec.ownership import open_own, own_folder

    path = claim_of(state, run)
    try:
        own_folder(path.parent)
        with os.fdopen(open_own(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "w") as file:
            file.write(Owner.me().to_json())
    except OSError as error:
        raise Invalid(f"the documents cannot be unpacked in {state}: {error.strerror}") from error


def begin_work(state: Path, run: str) -> None:
    """Keep what is written from now on among the documents of a run that no journal knows: it is the work of steps."""
    with suppress(FileNotFoundError), os.fdopen(os.open(claim_of(state, run), os.O_WRONLY | os.O_APPEND), "w") as file:
        file.write("\n")


def discard(state: Path, run: str) -> None:
    """Remove the documents that were unpacked for a run, and leave what its steps have written there."""
    from kubexm_exec.journal.store import folder_of
    from kubexm_exec.ownership import remove_folder

    claimed, folder = claim_of(state, run), folder_of(state, run)
    if not claimed.read_text().endswith("\n"):
        remove_folder(folder)
    else:
        _remove_older(folder, claimed.stat().st_mtime_ns, _DEEPEST + 1)
    if folder.exists():
        from kubexm_exec.logs import get_logger

        get_logger().warning("files that steps wrote beside the documents of a request are kept", folder=str(folder))
    claimed.unlink()


def _remove_older(folder: Path, began: int, levels: int) -> None:
    """Remove the files that were there when steps began, with folders that are empty then; deeper ones are theirs."""
    for path in list(folder.iterdir()):
        info = path.lstat()
        if stat.S_ISDIR(info.st_mode):
            if levels:
                _remove_older(path, began, levels - 1)
        elif info.st_ctime_ns <= began:
            path.unlink()
    with suppress(OSError):
        folder.rmdir()


def sweep(state: Path) -> None:
    """Remove what processes have unpacked that were killed before a journal knew their runs."""
    from kubexm_exec.journal.owner import Owner
    from kubexm_exec.model.ids import is_run_id

    folder = claim_of(state, "")
    for path in folder.iterdir() if folder.is_dir() else ():
        # Another process may be as far; one is being written.
        with suppress(OSError, ValueError, TypeError):
            if is_run_id(path.name) and Owner.from_json(path.read_text()).alive() is False:
                discard(state, path.name)


def secret_files(documents: Documents) -> set[str]:
    """The files of a request that its texts and values name as secrets: they are for their owner alone."""
    said = (*documents.files.values(), *documents.texts.values(), *map(str, documents.values.values()))
    exact: set[str] = set()
    starts: set[str] = set()
    for text in said:
        for name, end, added in _SECRET_FILE.findall(text):
            name = name.removeprefix("./")
            if name in documents.files and end not in ("{", "%") and not added:
                exact.add(name)
            elif name or end:  # not the key in `file: NAME`
                starts.add(name)
    # What is known only when it runs may be any file of that beginning but a document.
    return exact | {
        name
        for name, text in documents.files.items()
        if any(name[:end] in starts for end in range(len(name) + 1)) and not is_spec(text)
    }


def unpacked(documents: Documents, folder: Path, kept: Collection[str] = ()) -> Documents:
    """The same documents as files in a folder that is ours alone; those that are files already stay where they are.

    Existing files are replaced whole by the same content: another session may be reading them. ``kept``: files whose
    text is only there. Raises Invalid.
    """
    if not documents.files:
        return documents
    from kubexm_exec.ownership import open_own, own_folder

    contents = {name: text.encode("utf-8", "surrogatepass") for name, text in documents.files.items()}
    if len(contents) > _MOST_FILES or sum(map(len, contents.values())) > _MOST_BYTES:
        raise Invalid(f"the request has too many files: {_MOST_FILES} of together {_MOST_BYTES >> 20} MiB are accepted")
    if documents.plan:
        raise Invalid("a plan cannot be run from the files of a request", "give its spec")
    if documents.spec and not documents.spec.startswith(SHIPPED) and documents.spec not in contents:
        raise Invalid(f'"{documents.spec:.200}" is not among the files of the request')
    folder, private = folder / "documents", secret_files(documents)
    for name, content in contents.items():
        parts = name.split("/")
        # Nothing that has two names, or that a message could not show.
        if not name.isprintable() or os.path.normpath(name) != name or parts[0] in ("", ".", ".."):
            hint = "use relative paths without . and .."
            raise Invalid(f"{name[:200]!r} is not the path of a file in the request", hint)
        if len(name) > _LONGEST_NAME or len(parts) > _DEEPEST:
            said = f"{_LONGEST_NAME} characters and {_DEEPEST} levels are accepted"
            raise Invalid(f'the path "{name:.60}..." in the request is too long: {said}')
        path = folder.joinpath(*parts)
        if name in kept:
            continue
        temporary = path.with_name(f".{os.urandom(8).hex()}.tmp")
        try:
            own_folder(path.parent)
            with os.fdopen(open_own(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb") as file:
                os.fchmod(file.fileno(), 0o600 if name in private else 0o644)
                file.write(content)
            temporary.replace(path)
        except OSError as error:
            raise Invalid(f"{name:.200} cannot be unpacked: {error.strerror}") from error
    return replace(documents, folder=str(folder), files={})


def withheld(documents: Documents, mask: Callable[[str], str]) -> set[str]:
    """The files of a request that are not recorded: named as secrets, or with one that is known in them."""
    return secret_files(documents) | {name for name, text in documents.files.items() if mask(text) != text}


def as_asked(graph: ExecutionGraph, here: Documents, asked: Documents, *, lasting: bool = False) -> ExecutionGraph:
    """A graph of unpacked documents with the target, and if ``lasting`` the files, of the folder that was asked for."""

    def moved(path: str) -> str:
        inside = path == here.folder or path.startswith(f"{here.folder}/")
        return os.path.normpath(os.path.join(asked.folder, os.path.relpath(path, here.folder))) if inside else path  # noqa: PTH118

    if not asked.files:
        return graph
    scopes = {name: replace(scope, base=moved(scope.base)) for name, scope in graph.scopes.items()}
    return replace(graph, target=moved(graph.target), scopes=scopes if lasting else graph.scopes)


def compile_options(documents: Documents) -> CompileOptions:
    """Values and choices as the compiler takes them; raises Invalid."""
    from kubexm_exec.compile import CompileOptions

    values, given_at = _read_values(documents)
    return CompileOptions(
        values={**documents.values, **values},
        given_at=given_at,
        texts=documents.texts,
        inventory=documents.inventory,
        limit=documents.limit,
        tags=frozenset(documents.tags),
        skip_tags=frozenset(documents.skip_tags),
        templates=template_folders(documents),
        folder=documents.folder,
    )


def compiled(documents: Documents, warn: Warn) -> tuple[Compilation, ExecutionGraph]:
    """The graph of a spec; ``warn`` gets its warnings. Raises Invalid."""
    from kubexm_exec.compile import compile_file

    if not documents.spec:
        raise Invalid("the request names no spec")
    result = compile_file(documents.spec, compile_options(documents))
    if result.graph is None:
        raise Invalid.documents(result.diagnostics, result.sources, documents.folder)
    if len(result.diagnostics):
        warn(result.diagnostics, result.sources)
    return result, result.graph


def reads(documents: Documents, graph: ExecutionGraph) -> list[str]:
    """The files that a graph was made from."""
    names = [documents.spec, documents.plan, documents.inventory or "", *documents.vars_files]
    made_of = [os.path.join(os.path.dirname(documents.spec), name) for name in graph.sources]  # noqa: PTH118, PTH120
    return [os.path.join(documents.folder, name) for name in (*names, *made_of) if name]  # noqa: PTH118


def chosen_besides(documents: Documents) -> dict[str, Any]:
    """What was chosen besides the spec, as plain data for a plan, which may be run in another folder."""

    def lasting(name: str) -> str:
        return os.path.abspath(os.path.join(documents.folder, name))  # noqa: PTH100, PTH118

    choice = Documents(
        values=documents.values, texts=documents.texts, vars_files=tuple(map(lasting, documents.vars_files)),
        inventory=documents.inventory and lasting(documents.inventory), limit=documents.limit, tags=documents.tags,
        skip_tags=documents.skip_tags,
    )  # fmt: skip
    found: dict[str, Any] = to_builtins(choice)
    return found


def planned(documents: Documents) -> tuple[Plan, Documents]:
    """The named plan with its spec and choices, if its inputs are unchanged. Raises Invalid or Changed."""
    from kubexm_exec.compile.plan import PlanError, StalePlanError, check_plan, load_plan
    from kubexm_exec.plugins import step_registry

    if documents.spec:
        raise Invalid("the request names a spec and a plan: a plan contains its spec")
    given = ("folder", "plan", "templates", "bundle", "offline")
    if documents != Documents(**{name: getattr(documents, name) for name in given}):
        raise Invalid(
            "a plan runs exactly as saved: values, hosts and tags were chosen when it was created",
            "kubexm plan SPEC -o FILE",
        )
    try:
        plan = load_plan(documents.plan, documents.folder)
        check_plan(plan, step_registry(), documents.folder)
        choice = convert(plan.choice, Documents)
    except (PlanError, ValidationError) as error:
        raise Invalid(str(error), kind="bad-plan") from error
    except StalePlanError as error:
        import shlex

        again = f"kubexm plan {shlex.quote(plan.spec_from(documents.folder))} -o {shlex.quote(documents.plan)}"
        raise Changed("the plan is stale", f"create it again: {again}", error.changes, kind="stale-plan") from error
    own = replace(
        choice, folder=documents.folder, spec=plan.place, plan=documents.plan, templates=documents.templates,
        bundle=documents.bundle, offline=documents.offline,
    )  # fmt: skip
    return plan, own


def template_folders(documents: Documents) -> tuple[str, ...]:
    """The folders of templates, wherever they are looked for from."""
    return tuple(os.path.join(documents.folder, os.path.expanduser(name)) for name in documents.templates)  # noqa: PTH111, PTH118


def bundle_folder(documents: Documents) -> Path | None:
    """The folder of a bundle, unpacked if it is one file; raises Invalid if there is none."""
    if not documents.bundle:
        if documents.offline:
            raise Invalid("without a network a bundle is needed", "name it: --bundle DIR")
        return None
    from pathlib import Path

    folder = Path(documents.folder, documents.bundle)
    if is_file(folder):
        from kubexm_exec.resources.bundle import unpacked
        from kubexm_exec.resources.cache import Cache
        from kubexm_exec.resources.source import ResourceError

        try:
            return unpacked(folder, Cache().bundles)
        except ResourceError as error:
            raise Invalid(error.message, error.hint, kind="bad-bundle") from error
    if not is_folder(folder):
        raise Invalid(f"there is no bundle {documents.bundle:.200}", "create one: kubexm resources bundle SPEC -o DIR")
    return folder


def check_complete(documents: Documents, state: State, store: ResourceStore) -> None:
    """Raise Refused if a run that fetches nothing would lack something, with everything that is missing.

    Of a resource with variants, those are needed that the bundle was made for, as its index says.
    """
    from kubexm_exec.compile.resourcelist import declared, possible
    from kubexm_exec.compile.static import linked_evaluator
    from kubexm_exec.resources.source import ResourceError

    evaluator = linked_evaluator(state)
    found: dict[tuple[str, str], dict[Source, bool]] = {}
    for one in declared(state):
        sources = [each.source for each in possible(state, evaluator, one) if each.source is not None]
        try:
            found[one.scope, one.name] = {source: store.known(source) is not None for source in sources}
        except ResourceError as error:
            raise Refused(f"{error.message}; nothing was run", error.hint, kind="bad-bundle") from error
    made_for = store.made_for() or {source.variant for each in found.values() for source, here in each.items() if here}
    missing: list[str] = []
    for each in found.values():
        needed = [source for source in each if source.variant in made_for] or list(each)
        missing += [
            f"{source.label}: {f'sha256 {source.sha256}' if source.sha256 else source.shown}"
            for source in needed
            if not each[source]
        ]
    if missing:
        verb = "is" if len(missing) == 1 else "are"
        said = f"{plural(len(missing), 'item')} {verb} not in the bundle {documents.bundle}"
        raise Changed(said, "create the bundle again, where there is a network", missing, kind="missing-items")


def _read_values(documents: Documents) -> tuple[dict[str, Any], dict[str, Span]]:
    """The values in some files, and where each was written; a later file wins."""
    from kubexm_spec.yaml.source import SourceFile

    found: dict[str, Any] = {}
    places: dict[str, Span] = {}
    for name in documents.vars_files:
        try:
            file = SourceFile.load(os.path.join(documents.folder, name), name=name)  # noqa: PTH118
        except SpecError as error:
            raise Invalid.documents(error.diagnostics, {}, documents.folder) from None
        data = file.documents[0] if file.documents else {}
        # What is no name is not quoted: it may be any file.
        if not isinstance(data, dict) or not all(map(str.isidentifier, data)):
            raise Invalid(f"{name} is not a mapping of names to values")
        found.update(data)
        places.update({key: file.place(0, (key,)).span() for key in data})
    return found, places


def site_of(documents: Documents, warn: Warn) -> tuple[Site, State]:
    """The hosts of a spec's inventory, or of the one given instead; ``warn`` gets its warnings. Raises Invalid."""
    from kubexm_exec.compile.adhoc import load_site

    if documents.plan or documents.limit or documents.tags or documents.skip_tags:
        raise Invalid("a plan, a limit and tags mean nothing without a run of the spec", "choose hosts by a pattern")
    if not documents.spec and documents.inventory is None:
        raise Invalid("which hosts? Give an inventory or a spec")
    site = load_site(documents.spec or None, documents.inventory, documents.folder)
    if site.state is None:
        raise Invalid.documents(site.diagnostics, site.sources, documents.folder)
    if len(site.diagnostics):
        warn(site.diagnostics, site.sources)
    return site, site.state


def hosts_of(site: Site, patterns: Iterable[str], *, reached: bool = True) -> list[str]:
    """The hosts of patterns; raises Invalid if one has none, or if a host to be ``reached`` lacks its connector."""
    from kubexm_exec.compile.adhoc import choose_hosts
    from kubexm_exec.compile.hostpatterns import PatternError

    try:
        names = choose_hosts(site, patterns)
    except PatternError as error:
        raise Invalid(error.message, error.hint, kind="unknown-host") from None
    beyond = site.state.beyond_reach if site.state is not None else {}
    for name in names if beyond and reached else ():
        if name in beyond:
            lacking, place = beyond[name]
            hint = f'{lacking.hint}; or leave it out: "!{name}"'
            raise Invalid(f'host "{name}": {lacking.message} ({place.file_line})', hint, kind=lacking.code)
    return names
