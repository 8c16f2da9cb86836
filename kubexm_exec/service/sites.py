"""The hosts of an inventory, and which of them are meant."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from kubexm_exec.service.errors import Invalid

if TYPE_CHECKING:
    from kubexm_exec.compile.adhoc import Site
    from kubexm_exec.compile.state import State
    from kubexm_exec.service.documents import Warn
    from kubexm_exec.service.requests import Documents


def site_of(documents: Documents, warn: Warn) -> tuple[Site, State]:
    """The hosts of a spec's inventory, or of the one given instead; ``warn`` gets its warnings. Raises Invalid."""
    from kubexm_exec.compile.adhoc import load_site

    if not documents.spec and documents.inventory is None:
        raise Invalid("which hosts? Give an inventory with -i FILE, or a spec")
    site = load_site(documents.spec or None, documents.inventory, documents.folder)
    if site.state is None:
        raise Invalid.documents(site.diagnostics, site.sources, documents.folder)
    if len(site.diagnostics):
        warn(site.diagnostics, site.sources)
    return site, site.state


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
