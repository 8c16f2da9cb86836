"""Places: where a step works for its hosts, instead of on them (``delegateTo``)."""

from __future__ import annotations

from msgspec import Struct

from kubexm_exec.compile.selectors import select, static_run_on
from kubexm_exec.compile.state import State, StepDraft
from kubexm_exec.values.expressions import is_dynamic
from kubexm_spec.models import DelegateToSpec
from kubexm_spec.yaml.source import Place


class Delegation(Struct, frozen=True):
    """A ``delegateTo`` with its place in the document, and the scope that its expressions see."""

    spec: DelegateToSpec
    place: Place
    scope: str


def delegate(state: State, draft: StepDraft, to: Delegation) -> None:
    """Give a step its places: one for each host if there is only one, or one of several; else nodes at each of them."""
    chosen = _places(state, draft, to)
    if chosen is None:
        return
    if to.spec.one:
        numbers = {places: number for number, places in enumerate(dict.fromkeys(chosen.values()))}
        draft.choices = tuple(numbers)
        draft.choice = {host: numbers[places] for host, places in chosen.items() if numbers[places]}
    if to.spec.one or all(len(places) == 1 for places in chosen.values()):
        draft.places = {host: places[0] for host, places in chosen.items()}
        return
    served: dict[str, list[str]] = {}
    for host, places in chosen.items():
        for place in places:
            served.setdefault(place, []).append(host)
    draft.served = {name: tuple(served[name]) for name in state.hosts if name in served}


def _places(state: State, draft: StepDraft, to: Delegation) -> dict[str, tuple[str, ...]] | None:
    """The places of each host, of which a limit excludes none; None with findings."""
    dynamic = is_dynamic(to.spec.model_dump())
    known: dict[str, tuple[str, ...] | None] = {}
    found: dict[str, tuple[str, ...]] = {}
    for host in draft.hosts if dynamic else ("",):
        rendered = static_run_on(state, to.spec, to.place, to.scope, host or None)
        if rendered is None:
            return None
        key = rendered.model_dump_json()  # the same for many hosts
        if key not in known:
            # An expression that gives nothing means nobody, not everybody.
            chosen = rendered.all or rendered.roles or rendered.groups or rendered.hosts or rendered.labels
            known[key] = select(state, rendered, to.place, state.reach) if chosen else ()
        places = known[key]
        if not places:
            if places is not None and state.hosts_known:
                summary = f"{draft.called} is delegated to no host" + (f" for {host}" if host else "")
                state.diagnostics.error("no-hosts", summary, to.place, hint="check the selector and the inventory")
            return None
        found[host] = places
    return found if dynamic else dict.fromkeys(draft.hosts, found[""])
