"""What names of hosts, addresses and users can be: no part of a command line, a path or a terminal's language."""

from __future__ import annotations

import re
from typing import Final

_HOST: Final = re.compile(r"\w[\w.:@%-]*")
_ADDRESS: Final = re.compile(r"[\w:][\w.:%-]*")
# As OpenSSH takes them, users of directories (DOMAIN\name, name@domain) and machine accounts (name$) too.
_USER: Final = re.compile(r"[\w#](?:[\w.@+\\~-]*[\w.@+~-])?\$?")

HOST_RULE: Final = "letters, digits and . _ - : @ %, with a letter, a digit or _ at the beginning"
"""What the name of a host can be, in words."""
ADDRESS_RULE: Final = "a name such as web1.example.org, or an address such as 10.0.0.1, fe80::1 or fe80::1%eth0"
"""What an address can be, in words."""
USER_RULE: Final = "letters, digits and . _ - @ + \\ ~, with a letter, a digit or _ at the beginning"
"""What a login user can be, in words."""


def is_host_name(text: str) -> bool:
    """Whether a host can be called so."""
    return _HOST.fullmatch(text) is not None


def is_address(text: str) -> bool:
    """Whether it can be connected to."""
    return _ADDRESS.fullmatch(text) is not None


def is_user(text: str) -> bool:
    """Whether a user can be called so."""
    return _USER.fullmatch(text) is not None
