"""What commands about hosts share: where the inventory comes from, and which hosts are meant."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kubexm_exec.cli import codes
from kubexm_exec.cli.common import fail, show_diagnostics

if TYPE_CHECKING:
    from kubexm_exec.compile.adhoc import Site

F = TypeVar("F", bound=Callable[..., Any])


def inventory_option(function: F) -> F:
    """``-i``, in every form that inventories have."""
    return click.option(
        "-i",
        "--inventory",
        metavar="FILE",
        help="Inventory: a file (kubexm's, ansible's, terraform's outputs), a folder, a program, or NAME:argument.",
    )(function)


def spec_option(function: F) -> F:
    """``--spec``, for commands whose arguments are something else."""
    return click.option("--spec", metavar="SPEC", help="Take the inventory of this spec.")(function)


def site_or_exit(spec: str | None, inventory: str | None, output: str) -> Site:
    """The hosts; findings are shown, errors end the program with exit code 2."""
    from kubexm_exec.compile.adhoc import load_site

    if spec is None and inventory is None:
        fail("which hosts? Give an inventory with -i FILE, or a spec", output=output)
    site = load_site(spec, inventory)
    if site.state is None:
        show_diagnostics(site.diagnostics, site.sources, output)
        raise SystemExit(codes.WRONG)
    if len(site.diagnostics):
        show_diagnostics(site.diagnostics, site.sources, output, to_stderr=True)
    return site


def hosts_or_exit(site: Site, patterns: Iterable[str], output: str, *, reached: bool = True) -> list[str]:
    """The hosts that patterns mean; a pattern that means none ends the program with exit code 2.

    So does a host that is to be ``reached`` and has a connector that is not installed.
    """
    from kubexm_exec.compile.adhoc import choose_hosts
    from kubexm_exec.compile.hostpatterns import PatternError

    try:
        names = choose_hosts(site, patterns)
    except PatternError as error:
        fail(error.message, error.hint, output=output, kind="unknown-host")
    beyond = site.state.beyond_reach if site.state is not None else {}
    for name in names if beyond and reached else ():
        if name in beyond:
            lacking, place = beyond[name]
            hint = f'{lacking.hint}; or leave it out: "!{name}"'
            fail(f'host "{name}": {lacking.message} ({place.file_line})', hint, output=output, kind=lacking.code)
    return names
