"""Files as ansible reads YAML: version 1.1, where ``yes`` is true and ``0644`` is 420, or JSON."""

from __future__ import annotations

import json
import pathlib
import re
from typing import Any, Final

from kubexm_spec.diagnostics import SpecError
from kubexm_spec.inventories.converted import TextSource
from kubexm_spec.yaml.load import Dialect, load_documents, unquoted

_BOOLS: Final = {
    spelled: value
    for word, value in (("yes", True), ("on", True), ("true", True), ("no", False), ("off", False), ("false", False))
    for spelled in (word, word.capitalize(), word.upper())
}
_INT: Final = re.compile(r"[-+]?(?:0b[01_]+|0x[0-9a-fA-F_]+|0[0-7_]+|0|[1-9][0-9_]*(?::[0-5]?[0-9])+|[1-9][0-9_]*)")
_FLOAT: Final = re.compile(
    r"[-+]?[0-9][0-9_]*\.[0-9_]*(?:[eE][-+][0-9]+)?|\.[0-9][0-9_]*(?:[eE][-+][0-9]+)?"
    r"|[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+\.[0-9_]*"
)
_OTHER_FLOAT: Final = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_NULLS: Final = ("", "~", "null", "Null", "NULL")


class Encrypted:
    """Stands for a value that only ansible-vault can read."""


ENCRYPTED: Final = Encrypted()
_TAGS: Final = {
    "!vault": lambda text: ENCRYPTED,
    "!vault-encrypted": lambda text: ENCRYPTED,
    "!unsafe": lambda text: text,
}


def _resolve(text: str) -> object:
    if text in _NULLS:
        return None
    if text in _BOOLS:
        return _BOOLS[text]
    if _INT.fullmatch(text):
        return _integer(text.replace("_", ""))
    if _FLOAT.fullmatch(text):
        return _sixties(text.replace("_", "")) if ":" in text else float(text.replace("_", ""))
    return float(text.replace(".", "")) if _OTHER_FLOAT.fullmatch(text) else text


def _integer(text: str) -> int:
    sign = -1 if text.startswith("-") else 1
    digits = text.lstrip("+-")
    if ":" in digits:
        return sign * int(_sixties(digits))
    base = {"0b": 2, "0x": 16}.get(digits[:2], 8 if digits.startswith("0") else 10)
    return sign * int(digits[2:] if base in (2, 16) else digits or "0", base)


def _sixties(text: str) -> float:
    value: float = 0
    for piece in text.lstrip("+-").split(":"):
        value = value * 60 + (float(piece) if "." in piece else int(piece))
    return -value if text.startswith("-") else value


_YAML: Final = Dialect(frozenset("~nNtTfFyYoO+-.0123456789"), _resolve, _TAGS, any_key=True)
_JSON: Final = Dialect(tags=_TAGS, any_key=True)


class AnsibleFile(TextSource):
    """A file of ansible's as data; what is wrong with it is told without a word of it, since it may be any file."""

    def __init__(self, name: str, path: pathlib.Path, data: bytes) -> None:
        super().__init__(name, path, data)
        try:
            self.documents = load_documents(self.text, name, _JSON if _is_json(self.text) else _YAML)
        except SpecError as error:
            raise SpecError(map(unquoted, error.diagnostics)) from None


def is_encrypted(value: Any) -> bool:
    """Whether there is anything in a value that only ansible-vault can read."""
    if isinstance(value, dict):
        return any(map(is_encrypted, value.values()))
    return any(map(is_encrypted, value)) if isinstance(value, list) else value is ENCRYPTED


def _is_json(text: str) -> bool:
    if not text.lstrip().startswith(("{", "[")):
        return False
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
