"""How the environment of a command gets to the far side without ever being part of a command line there."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import Final

_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LINE: Final = 200
"""Bytes of a line: some terminals take no more than 255 at once."""
_UNSAFE: Final = re.compile(rb"[^ -\[\]-~]")
"""What a terminal might act upon, what ends a line, and the backslash."""

# A new shell gets it through its own environment, which only its user can read.
USE: Final = 'eval "unset kx_v; $kx_v"; '
"""What the launcher of a command says where its environment is to be set; ``kx_v`` holds the text of `setting`."""
# Shells read byte by byte what is no file, so what comes next is left for the command.
READ: Final = """kx_v=
while IFS= read -r kx_x || exit; [ "$kx_x" != "$e" ]; do kx_v=$kx_v$kx_x; done
kx_v=$(printf '%b;' "$kx_v")
"""
"""How a shell takes the lines of `lines`, up to the word in ``e``."""


def has_odd(env: Mapping[str, str]) -> bool:
    """Whether there is a name that no shell can hold, so that `env` has to set it."""
    return any(not _IDENTIFIER.fullmatch(name) for name in env)


def setting(env: Mapping[str, str]) -> str:
    """Shell text that sets it for the command in ``"$@"``."""
    odd = [f"{name}={value}" for name, value in env.items() if not _IDENTIFIER.fullmatch(name)]
    said = [f"export {name}={shlex.quote(value)}" for name, value in env.items() if _IDENTIFIER.fullmatch(name)]
    if odd:
        said.append(f'set -- env {shlex.join(odd)} "$@"')
    return "; ".join(said)


def lines(text: bytes) -> bytes:
    """A text as short lines of plain characters, which any terminal leaves as they are and `printf %b` reads."""
    plain = _UNSAFE.sub(lambda found: b"\\0%03o" % found[0][0], text)
    return b"".join(plain[at : at + _LINE] + b"\n" for at in range(0, len(plain), _LINE))
