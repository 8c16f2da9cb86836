"""From documents to a graph: what is wrong with them is an error, with all findings."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from kubexm_exec.service.errors import Changed, Invalid
from kubexm_exec.service.requests import Documents

if TYPE_CHECKING:
    from pathlib import Path

    from kubexm_exec.compile import Compilation, CompileOptions
    from kubexm_exec.compile.plan import Plan
    from kubexm_exec.model.graph import ExecutionGraph
    from kubexm_spec.diagnostics import Span


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


def compiled(documents: Documents) -> tuple[Compilation, ExecutionGraph]:
    """The graph of a spec; raises Invalid."""
    from kubexm_exec.compile import compile_file

    result = compile_file(documents.spec, compile_options(documents))
    if result.graph is None:
        raise Invalid.documents(result.diagnostics, result.sources, documents.folder)
    return result, result.graph


def reads(documents: Documents, graph: ExecutionGraph) -> list[str]:
    """The files that a graph was made from."""
    names = [documents.spec, documents.plan, documents.inventory or "", *documents.vars_files]
    made_of = [os.path.join(os.path.dirname(documents.spec), name) for name in graph.sources]  # noqa: PTH118, PTH120
    return [os.path.join(documents.folder, name) for name in (*names, *made_of) if name]  # noqa: PTH118


def planned(documents: Documents) -> Plan:
    """The plan that is named, if all that it was made from is as it was; raises Invalid or Changed."""
    from kubexm_exec.compile.plan import PlanError, StalePlanError, check_plan, load_plan
    from kubexm_exec.plugins import step_registry

    try:
        plan = load_plan(documents.plan, documents.folder)
        check_plan(plan, step_registry(), documents.folder)
    except PlanError as error:
        raise Invalid(str(error), kind="bad-plan") from error
    except StalePlanError as error:
        import shlex

        again = f"kubexm plan {shlex.quote(plan.spec_from(documents.folder))} -o {shlex.quote(documents.plan)}"
        raise Changed("the plan is stale", f"create it again: {again}", error.changes, kind="stale-plan") from error
    return plan


def template_folders(documents: Documents) -> tuple[str, ...]:
    """The folders of templates, wherever they are looked for from."""
    return tuple(os.path.join(documents.folder, os.path.expanduser(name)) for name in documents.templates)  # noqa: PTH111, PTH118


def bundle_folder(documents: Documents) -> Path | None:
    """The folder of a bundle; raises Invalid if there is none."""
    if not documents.bundle:
        return None
    from pathlib import Path

    folder = Path(documents.folder, documents.bundle)
    if not folder.is_dir():
        raise Invalid(f"there is no bundle {documents.bundle}", "create one: kubexm resources bundle SPEC -o DIR")
    return folder


def _read_values(documents: Documents) -> tuple[dict[str, Any], dict[str, Span]]:
    """The values in some files, and where each was written; a later file wins."""
    from kubexm_spec.diagnostics import SpecError
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
            raise Invalid(f"{name} is not a mapping of parameter names to values")
        found.update(data)
        places.update({key: file.place(0, (key,)).span() for key in data})
    return found, places
