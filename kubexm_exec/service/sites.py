"""The hosts of an inventory, and which of them are meant."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from kubexm_exec.service.errors import Invalid

if TYPE_CHECKING:
    from kubexm_exec.compile.adhoc import Site


def site_of(folder: str, spec: str | None, inventory: str | None) -> Site:
    """The hosts of a spec's inventory, or of the one that takes its place; raises Invalid."""
    from kubexm_exec.compile.adhoc import load_site

    if spec is None and inventory is None:
        raise Invalid("which hosts? Give an inventory with -i FILE, or a spec")
    site = load_site(spec, inventory, folder)
    if site.state is None:
        raise Invalid.documents(site.diagnostics, site.sources, folder)
    return site


def hosts_of(site: Site, patterns: Iterable[str], *, reached: bool = True) -> list[str]:
    """The hosts that patterns mean; raises Invalid if one means none.

    So does a host that is to be ``reached`` and has a connector that is not installed.
    """
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
