"""``kubexm validate``: checks files and folders of specs."""

from __future__ import annotations

import pathlib
from collections.abc import Iterable, Iterator

import click

from kubexm_exec.cli import codes
from kubexm_exec.cli.common import (
    Choice,
    fail,
    output_option,
    show_diagnostics,
    value_options,
    yaml_files,
)


@click.command("validate")
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@value_options
@output_option
def command(
    paths: tuple[str, ...],
    choice: Choice,
    output: str,
) -> None:
    """Check specs: files, or folders with all the specs below them. No step is run.

    Pipelines are compiled with everything they use; other documents are checked on their own. In a folder, YAML files
    that hold nothing of kubexm's (values, other tools' files) are left out, and so is what is in hidden folders. An
    inventory that is a program is run, to know its hosts.
    """
    from kubexm_exec.compile import compile_file, merged
    from kubexm_exec.compile.standalone import check_broken, check_document
    from kubexm_exec.plugins import step_registry
    from kubexm_exec.values.expressions import Expressions
    from kubexm_spec.diagnostics import Diagnostics
    from kubexm_spec.documents.loader import Loader

    options = choice.options(output)
    diagnostics = Diagnostics()
    loader = Loader(diagnostics)
    steps = step_registry()
    sources = {}
    checked = left_out = 0
    for path, is_spec in _files(paths, output):
        if not is_spec:
            left_out += 1
            continue
        checked += 1
        source = loader.source(path, str(path))
        if source is None:
            continue
        sources[source.name] = source
        documents = loader.documents(source)
        for loaded in documents:
            check_document(loaded, loader, diagnostics, steps)
        if any(isinstance(data, dict) and data.get("kind") == "Pipeline" for data in source.documents):
            result = compile_file(path, options)
            diagnostics.extend(result.diagnostics)
            sources.update(result.sources)
    check_broken(loader.broken, diagnostics, steps, Expressions())
    diagnostics = merged(diagnostics)
    show_diagnostics(diagnostics, sources, output)
    if diagnostics.has_errors:
        raise SystemExit(codes.WRONG)
    if output == "text":
        from kubexm_spec.excerpt import nothing_was_run

        others = f" {left_out} other YAML {'file was' if left_out == 1 else 'files were'} left out." if left_out else ""
        valid = f"{checked} {'file is' if checked == 1 else 'files are'} valid."
        click.echo(f"{valid}{others} {nothing_was_run(sources)}")


def _files(paths: Iterable[str], output: str) -> Iterator[tuple[pathlib.Path, bool]]:
    """Every file once, with whether it is to be checked: all that are named, and of those in folders the specs."""
    seen: set[pathlib.Path] = set()
    for name in paths:
        path = pathlib.Path(name)
        found = [(path, True)]
        if path.is_dir():
            found = yaml_files(path)
            if not any(is_spec for _, is_spec in found):
                fail(f"{name} holds no spec: no .yaml or .yml file with apiVersion: kubexm.io/v1", output=output)
        for file, is_spec in found:
            if file.absolute() not in seen:
                seen.add(file.absolute())
                yield file, is_spec
