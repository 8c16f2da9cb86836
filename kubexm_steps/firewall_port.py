"""The step type ``firewall-port``: a port that the host's firewall lets in, or does not."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, Field

from kubexm_exec.step import Diff, Forecast, Outputs, Params, Result, StepContext, StepFailed
from kubexm_exec.step.firewall import RULES, Backend, Firewall, Opening, config_text, rules_text
from kubexm_steps.lib.edits import Edit, apply, diffs, save
from kubexm_steps.lib.files import RestoringStep, restore
from kubexm_steps.lib.types import DIGITS

_LAST: Final = 65535


def _port(text: str) -> str:
    found = re.fullmatch(r"(\d{1,5})(?:\s*[-:]\s*(\d{1,5}))?", text.strip())
    first = int(found[1]) if found else 0
    last = int(found[2]) if found and found[2] else first
    if not 1 <= first <= last <= _LAST:
        raise ValueError(f"{text!r} is not a port such as 443, or a range such as 30000-32767")
    return str(first) if first == last else f"{first}-{last}"


def _network(text: str) -> str:
    try:
        network = ipaddress.ip_network(text)
    except ValueError as error:
        raise ValueError(f"{text!r} is not an address or network such as 10.0.0.0/8: {error}") from None
    return str(network.network_address) if network.num_addresses == 1 else str(network)


class FirewallPortParams(Params):
    """Parameters of ``firewall-port``."""

    port: Annotated[str, AfterValidator(_port), DIGITS] = Field(
        description="The port, or a range such as `30000-32767`."
    )
    protocol: Literal["tcp", "udp", "sctp"] = Field("tcp", description="The protocol.")
    source: Annotated[str, AfterValidator(_network)] | None = Field(
        None, description="Only from this address or network, such as `10.0.0.0/8`."
    )
    zone: str | None = Field(
        None, pattern=r"^[A-Za-z0-9_/.-]+$", description="Zone of firewalld; its default zone if not set."
    )
    state: Literal["open", "closed"] = Field("open", description="`closed` removes this rule and no other.")
    backend: Backend = Field(
        "auto", description="Firewall to use: `auto` finds the active one, in the order of this list."
    )

    def model_post_init(self, context: object) -> None:
        if self.zone is not None and self.backend in ("ufw", "nftables"):
            raise ValueError("only firewalld has zones")


class FirewallPortOutputs(Outputs):
    backend: str = Field(description="The firewall: `firewalld`, `ufw` or `nftables`; empty if none is active.")


class FirewallPortStep(RestoringStep[FirewallPortParams, Firewall]):
    """A port, or a range of ports, that the host's firewall lets in, now and after a reboot.

    It uses the active firewall: firewalld, ufw, or nftables rules that reject packets. If there is none,
    nothing has to be opened, and a message says so.

    - With nftables, a chain `kubexm` is inserted before the chains that reject packets. It is saved in
      `/etc/nftables.d/kubexm.nft`, which the main file includes; without a main file it lasts until the next boot.
    - With `backend: ufw` or `firewalld` the rule is also written while that firewall is inactive.
    - Rules made by iptables alone are not touched: they are a failure with a hint.
    - `closed` removes exactly this rule. A wider one (another range, a service, any source) still lets packets in.
    - Undo closes or opens it again.
    """

    outputs_model = FirewallPortOutputs
    example = """\
- name: api
  type: firewall-port
  with: {port: 6443, source: 10.0.0.0/8}
"""

    def precheck(self, ctx: StepContext) -> Forecast[Firewall]:
        now = self._look(ctx)
        edits = self._edits(now)
        if self._is_right(now, edits):
            return Forecast.satisfied(self._message(now), self._outputs(now))
        verb = "opened" if self._open else "closed"
        shown = [Diff(_name(now), note=f"{self._opening} {verb}{when}") for when in self._parts(now)]
        todo = "open" if self._open else "close"
        return Forecast.change(f"would {todo} {self._opening}", [*shown, *diffs(ctx, edits)], seen=now)

    def run(self, ctx: StepContext, forecast: Forecast[Firewall]) -> Result:
        now = forecast.seen
        edits = self._edits(now)
        save(ctx, edits, backend=_name(now), live=now.live, permanent=now.permanent)
        apply(ctx, edits)
        if now.config is not None and any(edit.any for edit in edits):
            self._check(ctx, now, edits)
        if now.live != self._open:
            ctx.runner.firewall.set_live(now, self._opening, self._open)
        if now.found == "firewalld" and now.permanent != self._open:
            ctx.runner.firewall.set_permanent(self._opening, self._open)
        verb = "opened" if self._open else "closed"
        return Result(message=f"{verb} {self._opening} in {_name(now)}{self._late(now)}", outputs=self._outputs(now))

    def rollback(self, ctx: StepContext, undo: Mapping[str, Any]) -> None:
        restore(ctx, undo)
        now = ctx.runner.firewall.look(self._opening, undo["backend"])
        if now.found and now.live != undo["live"]:
            ctx.runner.firewall.set_live(now, self._opening, undo["live"])
        if now.found == "firewalld" and now.permanent != undo["permanent"]:
            ctx.runner.firewall.set_permanent(self._opening, undo["permanent"])

    @property
    def _open(self) -> bool:
        return self.params.state == "open"

    @property
    def _opening(self) -> Opening:
        params = self.params
        return Opening(params.port, params.protocol, params.source or "", params.zone or "")

    def _look(self, ctx: StepContext) -> Firewall:
        now = ctx.runner.firewall.look(self._opening, self.params.backend)
        if not now.found and now.iptables and self._open:
            raise StepFailed(
                f"open {self._opening}: iptables rules reject packets, and neither firewalld nor ufw manages them",
                hint="open it where these rules are defined, or with a `command` step (iptables -I INPUT ...)",
            )
        if not now.found and self.params.backend != "auto" and self._open:
            raise StepFailed(
                f"open {self._opening}: {self.params.backend} is not active on this host",
                hint="install and start it first, or use `backend: auto`",
            )
        return now

    def _check(self, ctx: StepContext, now: Firewall, edits: list[Edit]) -> None:
        """A main file that cannot be loaded would leave the host without any rules after a boot."""
        assert now.config is not None
        try:
            ctx.runner.firewall.check(now.config.path)
        except StepFailed:
            apply(ctx, [edit.back() for edit in edits])
            raise

    def _edits(self, now: Firewall) -> list[Edit]:
        if now.found != "nftables" or now.rules is None or now.config is None:
            return []
        rules = rules_text(now.rules.text, now.chains, self._opening, self._open)
        main = config_text(now.config.text, RULES, included=rules is not None)
        # The file comes before the line that includes it, and goes after it.
        edits = [Edit(now.rules, rules), Edit(now.config, main)]
        return edits if rules is not None else edits[::-1]

    def _is_right(self, now: Firewall, edits: list[Edit]) -> bool:
        if not now.found:
            return True
        if now.found == "nftables":
            return now.live == self._open and not any(edit.any for edit in edits)
        return now.live == self._open and now.permanent == self._open

    def _parts(self, now: Firewall) -> list[str]:
        if now.found != "firewalld":
            return [""] if now.live != self._open else []
        words = [" now"] if now.live != self._open else []
        return [*words, " for the next start"] if now.permanent != self._open else words

    def _message(self, now: Firewall) -> str:
        if not now.found:
            return f"no firewall is active: nothing to {'open' if self._open else 'close'}"
        return f"{self._opening} is {self.params.state} in {_name(now)}{self._late(now)}"

    def _late(self, now: Firewall) -> str:
        if now.found == "nftables" and now.config is None and self._open:
            return "; it lasts until the next boot, because nftables has no main file here"
        return ""

    def _outputs(self, now: Firewall) -> dict[str, Any]:
        return {"backend": _name(now)}


def _name(now: Firewall) -> str:
    return now.found.removesuffix("-offline")
