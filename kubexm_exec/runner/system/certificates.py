"""The certificates that a host trusts, kept where its distribution wants them."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from kubexm_exec.runner.commands import execute
from kubexm_exec.runner.files.probe import TOOLS, Held, look, refused
from kubexm_exec.runner.quote import script
from kubexm_exec.runner.session import Session

# Folder for one's own certificates, the end of their names, the bundle that is made of all, and the tool that makes it.
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
_LOOK: Final = (
    _LAYOUTS
    + r"""
part folder; printf %s "$folder"
part tool; printf %s "$tool"
[ -n "$folder" ] || exit 0
file "$folder/$1.$end"
if [ -n "$2" ] && [ -r "$bundle" ] && grep -qxF -e "$2" "$bundle"; then part trusted; fi
:
"""
)
_UPDATE: Final = (
    TOOLS
    + r"""
case $1 in
  update-ca-trust) update-ca-trust extract ;;
  # Without --fresh, Debian's leaves links to certificates that are gone.
  *) [ -n "$2" ] && update-ca-certificates --fresh || update-ca-certificates ;;
esac
"""
)


class Anchor(Struct, frozen=True):
    """A certificate of one's own in a host's trust."""

    held: Held
    tool: str
    trusted: bool
    """Whether the bundle that programs read has it."""


class Trust:
    """The certificates that a host trusts."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def look(self, name: str, line: str) -> Anchor | None:
        """The certificate of that name; ``line`` is a line of its PEM that no other has. None: no trust to be kept."""
        seen = look(self._session, (), _LOOK, name, line, what=f"look at trusted certificate {name}", more=True)
        if not seen.text("folder"):
            return None
        (held,) = seen.files.values()
        return Anchor(held, seen.text("tool"), "trusted" in seen.parts)

    def update(self, tool: str, *, fresh: bool) -> None:
        """Make the bundle anew, from what is in the folder now; ``fresh`` if something has gone from there."""
        result = execute(self._session, script(_UPDATE, tool, "yes" if fresh else ""), check=False, live=False)
        if result.exit_code != 0:
            raise refused(self._session, tool, result, hint="run it on the host to see what it does not like")
