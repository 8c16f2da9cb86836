"""From a source to a graph: what is wrong with it is an error, with all findings."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from kubexm_exec.service.errors import Changed, Invalid
from kubexm_exec.service.requests import Source

if TYPE_CHECKING:
    from pathlib import Path

    from kubexm_exec.compile import Compilation, CompileOptions
    from kubexm_exec.compile.plan import Plan
    from kubexm_exec.model.graph import ExecutionGraph
    from kubexm_spec.diagnostics import Span


def compile_options(source: Source) -> CompileOptions:
    """Values and choices as the compiler takes them; raises Invalid."""
    from kubexm_exec.compile import CompileOptions

    values, given_at = _read_values(source)
    return CompileOptions(
        values={**source.values, **values},
        given_at=given_at,
        texts=source.texts,
        inventory=source.inventory,
        limit=source.limit,
        tags=frozenset(source.tags),
        skip_tags=frozenset(source.skip_tags),
        templates=template_folders(source),
        folder=source.folder,
    )


def compiled(source: Source) -> tuple[Compilation, ExecutionGraph]:
    """The graph of a spec; raises Invalid."""
    from kubexm_exec.compile import compile_file

    result = compile_file(source.spec, compile_options(source))
    if result.graph is None:
        raise Invalid.documents(result.diagnostics, result.sources, source.folder)
    return result, result.graph


def reads(source: Source, graph: ExecutionGraph) -> list[str]:
    """The files that a graph was made from."""
    names = [source.spec, source.plan, source.inventory or "", *source.vars_files]
    made_of = [os.path.join(os.path.dirname(source.spec), name) for name in graph.sources]  # noqa: PTH118, PTH120
    return [os.path.join(source.folder, name) for name in (*names, *made_of) if name]  # noqa: PTH118


def planned(source: Source) -> Plan:
    """The plan that a source names, if all that it was made from is as it was; raises Invalid or Changed."""
    from kubexm_exec.compile.plan import PlanError, StalePlanError, check_plan, load_plan
    from kubexm_exec.plugins import step_registry

    try:
        plan = load_plan(source.plan, source.folder)
        check_plan(plan, step_registry(), source.folder)
    except PlanError as error:
        raise Invalid(str(error), kind="bad-plan") from error
    except StalePlanError as error:
        import shlex

        again = f"kubexm plan {shlex.quote(plan.spec_from(source.folder))} -o {shlex.quote(source.plan)}"
        raise Changed("the plan is stale", f"make it again: {again}", error.changes, kind="stale-plan") from error
    return plan


def template_folders(source: Source) -> tuple[str, ...]:
    """The folders of templates, wherever they are looked for from."""
    return tuple(os.path.join(source.folder, os.path.expanduser(name)) for name in source.templates)  # noqa: PTH111, PTH118


def bundle_folder(source: Source) -> Path | None:
    """The folder of a bundle; raises Invalid if there is none."""
    if not source.bundle:
        return None
    from pathlib import Path

    folder = Path(source.folder, source.bundle)
    if not folder.is_dir():
        raise Invalid(f"there is no bundle {source.bundle}", "make one: kubexm resources bundle SPEC -o DIR")
    return folder


def _read_values(source: Source) -> tuple[dict[str, Any], dict[str, Span]]:
    """The values in some files, and where each was written; a later file wins."""
    from kubexm_spec.diagnostics import SpecError
    from kubexm_spec.yaml.source import SourceFile

    found: dict[str, Any] = {}
    places: dict[str, Span] = {}
    for name in source.vars_files:
        try:
            file = SourceFile.load(os.path.join(source.folder, name), name=name)  # noqa: PTH118
        except SpecError as error:
            raise Invalid.documents(error.diagnostics, {}, source.folder) from None
        data = file.documents[0] if file.documents else {}
        # What is no name is not quoted: it may be any file.
        if not isinstance(data, dict) or not all(map(str.isidentifier, data)):
            raise Invalid(f"{name} holds no mapping of names of parameters to values")
        found.update(data)
        places.update({key: file.place(0, (key,)).span() for key in data})
    return found, places
