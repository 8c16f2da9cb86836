"""The certificates that a host trusts, in the folders of its distribution."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from kubexm_exec.runner.commands import Operations
from kubexm_exec.runner.files.probe import Held, look

# The folder for local certificates, the suffix of their names, the bundle of all, and the tool that makes it.
_LAYOUTS: Final = r"""
layout() { folder=$1 end=$2 bundle=$3 tool=$4; }
if [ -d /etc/pki/ca-trust/source/anchors ] && have update-ca-trust; then
  layout /etc/pki/ca-trust/source/anchors pem /etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem update-ca-trust
elif [ -d /etc/ca-certificates/trust-source/anchors ] && have update-ca-trust; then
  layout /etc/ca-certificates/trust-source/anchors pem /etc/ca-certificates/extracted/tls-ca-bundle.pem update-ca-trust
elif [ -d /etc/pki/trust/anchors ] && have update-ca-certificates; then
  layout /etc/pki/trust/anchors pem /var/lib/ca-certificates/ca-bundle.pem update-ca-certificates
elif have update-ca-certificates; then
  layout /usr/local/share/ca-certificates crt /etc/ssl/certs/ca-certificates.crt update-ca-certificates
else layout '' '' '' ''; fi
"""
_LOOK: Final = r"""
part folder; printf %s "$folder"
part tool; printf %s "$tool"
[ -n "$folder" ] || exit 0
file "$folder/$1.$end"
if [ -n "$2" ] && [ -r "$bundle" ] && grep -qxF -e "$2" "$bundle"; then part trusted; fi
:
"""
_UPDATE: Final = r"""
case $1 in
  update-ca-trust) update-ca-trust extract ;;
  # Without --fresh, Debian's leaves links to certificates that are gone.
  *) [ -n "$2" ] && update-ca-certificates --fresh || update-ca-certificates ;;
esac
"""


class Anchor(Struct, frozen=True):
    """A local certificate among those that a host trusts."""

    held: Held
    tool: str
    trusted: bool
    """Whether it is in the bundle that programs read."""


class Trust(Operations):
    """The certificates that a host trusts."""

    def look(self, name: str, line: str) -> Anchor | None:
        """The certificate of that name; ``line`` is a unique line of its PEM. None: the host has no tool for this."""
        seen = look(
            self._session, (), _LAYOUTS + _LOOK, name, line, what=f"look at trusted certificate {name}", more=True
        )
        if not seen.text("folder"):
            return None
        (held,) = seen.files.values()
        return Anchor(held, seen.text("tool"), "trusted" in seen.parts)

    def update(self, tool: str, *, fresh: bool) -> None:
        """Make the bundle anew from the folder; ``fresh`` if a certificate was removed from there."""
        hints = (("", f"run `{tool}` on the host to see its messages"),)
        self._do(tool, _UPDATE, tool, "yes" if fresh else "", hints=hints)
