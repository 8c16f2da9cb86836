"""A store of secrets: what is asked for, spelled backwards."""

from __future__ import annotations

from collections.abc import Callable

from kubexm_exec.secrets import SecretError, SecretProvider


class BackwardsSecrets(SecretProvider):
    """Secrets by ``acme:WORD``."""

    def __init__(self, warn: Callable[[str], None]) -> None:
        super().__init__(warn)
        self.hidden = {"the-master-key-of-acme"}

    def resolve(self, reference: str) -> str:
        """The word backwards."""
        word = reference.partition(":")[2]
        if not word.isalpha():
            raise SecretError(reference, "is no word", "write acme:WORD")
        return word[::-1]
