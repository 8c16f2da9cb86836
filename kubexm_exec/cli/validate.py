"""``kubexm validate``: checks files and folders of specs."""

from __future__ import annotations

import pathlib
from collections.abc import Iterable

import click

from kubexm_exec.cli import codes
from kubexm_exec.cli.common import compile_options, fail, output_option, show_diagnostics, value_options


@click.command("validate")
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@value_options
@output_option
def command(
    paths: tuple[str, ...],
    values: tuple[str, ...],
    vars_files: tuple[str, ...],
    inventory: str | None,
    limit: str | None,
    tags: str | None,
    skip_tags: str | None,
    templates: tuple[str, ...],
    output: str,
) -> None:
    """Check specs: files, or folders with all their .yaml and .yml files. Nothing is run.

    Pipelines are compiled with everything they use; other documents are checked on their own.
    """
    from kubexm_exec.compile import compile_file
    from kubexm_spec.bundle import Loader
    from kubexm_spec.diagnostics import Diagnostics
    from kubexm_spec.models import PipelineDocument

    options = compile_options(values, vars_files, inventory, limit, tags, skip_tags, templates, output)
    files = list(_files(paths, output))
    diagnostics = Diagnostics()
    loader = Loader(diagnostics)
    sources = {}
    for path in files:
        source = loader.source(path, str(path))
        if source is None:
            continue
        sources[source.name] = source
        documents = loader.documents(source)
        if any(isinstance(loaded.document, PipelineDocument) for loaded in documents):
            result = compile_file(path, options)
            diagnostics.extend(result.diagnostics)
            sources.update(result.sources)
    show_diagnostics(diagnostics, sources, output)
    if diagnostics.has_errors:
        raise SystemExit(codes.WRONG)
    if output == "text":
        noun = "file is" if len(files) == 1 else "files are"
        click.echo(f"{len(files)} {noun} valid. Nothing was run.")


def _files(paths: Iterable[str], output: str) -> Iterable[pathlib.Path]:
    for name in paths:
        path = pathlib.Path(name)
        if path.is_dir():
            found = sorted(p for p in path.rglob("*") if p.suffix in (".yaml", ".yml") and p.is_file())
            if not found:
                fail(f"{name} holds no .yaml or .yml file", output=output)
            yield from found
        else:
            yield path
