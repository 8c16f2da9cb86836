"""Users, groups and the keys that let users in."""

from __future__ import annotations

from kubexm_exec.runner.system.keys import KeyFile
from kubexm_exec.runner.system.users import Accounts, Group, User, UserChange

__all__ = ["Accounts", "Group", "KeyFile", "User", "UserChange"]
