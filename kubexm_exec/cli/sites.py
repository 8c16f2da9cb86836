"""What commands about hosts share: where the inventory comes from, and which hosts are meant."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kubexm_exec.cli.common import here, show_diagnostics

if TYPE_CHECKING:
    from kubexm_exec.compile.adhoc import Site

F = TypeVar("F", bound=Callable[..., Any])


def inventory_option(function: F) -> F:
    """``-i``, in every form that inventories have."""
    return click.option(
        "-i",
        "--inventory",
        metavar="FILE",
        help="Inventory: a file (of kubexm, Ansible or Terraform outputs), a folder, a program, or NAME:argument.",
    )(function)


def spec_option(function: F) -> F:
    """``--spec``, for commands whose arguments are something else."""
    return click.option("--spec", metavar="SPEC", help="Use the inventory of this spec.")(function)


def site_shown(spec: str | None, inventory: str | None, output: str) -> Site:
    """The hosts; warnings are shown. Raises Invalid."""
    from kubexm_exec.service.sites import site_of

    site = site_of(here(), spec, inventory)
    if len(site.diagnostics):
        show_diagnostics(site.diagnostics, site.sources, output, to_stderr=True)
    return site
