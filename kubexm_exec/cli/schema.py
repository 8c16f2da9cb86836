"""``kubexm schema``: JSON Schema for editors."""

from __future__ import annotations

import json

import click

from kubexm_exec.cli.targets import Product, check_targets, force_option, write_text


@click.command("schema")
@click.option(
    "-o", "--out", "target", default="-", metavar="FILE", help="Where to write it; standard output by default."
)
@force_option
def command(target: str, force: bool) -> None:
    """Print JSON Schema of all documents, with the parameters of every installed step type.

    In an editor with the YAML language server, put this at the top of a spec:
    # yaml-language-server: $schema=kubexm.schema.json
    """
    check_targets([(target, Product.SCHEMA)], "text", force=force)
    from kubexm_exec.plugins import RegistryError, step_registry
    from kubexm_exec.step.describe import params_schema
    from kubexm_spec.schema import json_schema

    registry = step_registry()
    schemas = {}
    for name in registry.names():
        try:
            schemas[name] = params_schema(registry, name)
        except RegistryError as error:
            # A broken package breaks only specs that use it; the schema says what it can.
            click.echo(f"warning: {error.message}\n  → {error.hint}", err=True)
    write_text(target, json.dumps(json_schema(schemas), indent=2, ensure_ascii=False, sort_keys=True) + "\n")
