"""Reads ansible inventories from the disk: one file or a folder of them, with ``group_vars`` and ``host_vars``."""

from __future__ import annotations

import os
import pathlib
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from kubexm_spec.diagnostics import Diagnostic, Diagnostics, Span, SpecError
from kubexm_spec.inventories.ansible import Found, Group, Host, Var, to_body
from kubexm_spec.inventories.ansible_data import is_ansible, read_data
from kubexm_spec.inventories.ansible_ini import looks_like_ini, read_ini, unquoted
from kubexm_spec.inventories.ansible_yaml import AnsibleFile
from kubexm_spec.inventories.converted import (
    FolderSource,
    Locate,
    MergedSource,
    Part,
    PrintedSource,
    TextSource,
    in_document,
    in_text,
)
from kubexm_spec.inventories.program import is_program, run_program
from kubexm_spec.models.common import IDENTIFIER_PATTERN, NAME_PATTERN
from kubexm_spec.paths import is_folder
from kubexm_spec.yaml.lines import is_spec
from kubexm_spec.yaml.source import MAX_BYTES, Path, SourceFile, read_bytes

_DATA: Final = (".yaml", ".yml", ".json")
_ENDINGS: Final = ("", ".yml", ".yaml", ".json")
_IGNORED: Final = re.compile(
    r"\.|(?:host_vars|group_vars|vars_plugins)\Z"
    r"|.*(?:\.pyc|\.pyo|\.swp|\.bak|~|\.rpm|\.md|\.txt|\.rst|\.orig|\.cfg|\.retry)\Z",
    re.DOTALL,
)
"""What ansible passes over in a folder of inventories."""
_GROUP: Final = re.compile(NAME_PATTERN)
_VARIABLE: Final = re.compile(IDENTIFIER_PATTERN)
_VAULT: Final = b"$ANSIBLE_VAULT;"


def read_ansible(path: pathlib.Path, name: str, diagnostics: Diagnostics) -> MergedSource | None:
    """The inventory of a file or folder; None if it is not ansible's, ``broken`` after findings. Raises SpecError."""
    return _Inventory(path, name).read(diagnostics)


class _Inventory:
    def __init__(self, path: pathlib.Path, name: str) -> None:
        self.path = path
        self.name = name
        self.parts: list[Part] = []
        self.size = 0
        self.ours = True
        """Whether every line was one of an inventory: only then its words are quoted."""
        self.found = Found(Diagnostics(), self._span)

    def read(self, diagnostics: Diagnostics) -> MergedSource | None:
        if is_folder(self.path):
            self._part(FolderSource(self.name, self.path), in_text())
            self._folder(self.path, self.name)
        elif not self._file(self.path, self.name, alone=True):
            return None
        findings = self.found.diagnostics
        body = None
        if not findings.has_errors:
            self._vars()
        if self.ours:
            body = to_body(self.found) if not findings.has_errors else None
            diagnostics.extend(findings)
        else:
            to_body(self.found)
            diagnostics.extend(map(unquoted, findings))
        return MergedSource(self.name, self.path.absolute(), self.parts, None if findings.has_errors else body)

    def _span(self, origin: Path) -> Span | None:
        if not origin:
            return None
        part = self.parts[int(origin[0])]
        return part.source.span_of(part.locate(origin[1:], (), False))

    def _part(self, source: SourceFile, locate: Locate) -> int:
        self.size += len(source.data)
        if self.size > MAX_BYTES:
            summary = f"{self.name} is too large: at most {MAX_BYTES // 1024 // 1024} MiB in total"
            raise SpecError([Diagnostic("file-too-large", summary, hint="split it")])
        self.parts.append(Part(source, locate))
        return len(self.parts) - 1

    # The inventory itself

    def _folder(self, folder: pathlib.Path, name: str, around: frozenset[str] = frozenset()) -> None:
        """All files of a folder and of those in it, by their names."""
        real = os.path.realpath(folder)
        if real in around:  # a link upwards
            return
        for one in sorted(self._names(folder, name)):
            if _IGNORED.match(one):
                continue
            path, shown = folder / one, os.path.join(name, one)  # noqa: PTH118 - "./" of a name stays
            if path.is_dir():
                self._folder(path, shown, around | {real})
                continue
            try:
                self._file(path, shown, alone=False)
            except SpecError as error:
                self.found.diagnostics.extend(error.diagnostics)

    def _names(self, folder: pathlib.Path, name: str) -> list[str]:
        try:
            return [path.name for path in folder.iterdir()]
        except OSError as error:
            reason = error.strerror or str(error)
            self.found.diagnostics.add(Diagnostic("unreadable-file", f"{name} cannot be read: {reason}"))
            return []

    def _file(self, path: pathlib.Path, name: str, *, alone: bool) -> bool:
        """Add a file; whether it is an inventory of ansible's, as one in a folder must be."""
        if is_program(path):
            self._program(path, name)
            return True
        source = TextSource(name, path, read_bytes(path, name))
        if source.data.startswith(_VAULT):
            self._refuse_vault(source)
            return True
        if path.suffix == ".toml":
            from kubexm_spec.inventories.ansible_toml import in_toml, read_toml

            self._data(source, read_toml(source), in_toml(source.text))
            return True
        if path.suffix == ".ini" or (path.suffix not in _DATA and looks_like_ini(source.text)):
            number = self._part(source, in_text())
            self.ours = read_ini(source.text, self.found, number) and self.ours
            return True
        if is_spec(source.text):
            if not alone:
                summary = "this is a kubexm document in a folder of Ansible inventories"
                hint = "use the file instead of the folder, or move it out"
                self.found.diagnostics.error("not-an-inventory", summary, source.span_of((0, 0)), hint=hint)
            return False
        return self._yaml(source, alone=alone)

    def _yaml(self, source: TextSource, *, alone: bool) -> bool:
        try:
            file = AnsibleFile(source.name, source.path, source.data)
        except SpecError:
            if alone:  # reported when it is read as our own
                return False
            raise
        documents = [document for document in file.documents if document is not None]
        if not documents and not alone:
            return True
        document = documents[0] if len(documents) == 1 and documents[0] is file.documents[0] else None
        if isinstance(document, Mapping) and isinstance(document.get("plugin"), str) and "kind" not in document:
            summary = "this configures an Ansible inventory plugin, which kubexm does not support"
            hint = f"save its output and use that file: ansible-inventory -i {source.name} --list >hosts.json"
            self.found.error("inventory-plugin", summary, (self._part(file, in_document(file)), "plugin"), hint)
            return True
        if alone and not is_ansible(document):
            return False
        # Nearly any text is YAML: what has no names of groups may be any file, and is not quoted.
        if not isinstance(document, Mapping) or not all(map(_GROUP.match, document)):
            summary = "this is not an inventory: it should be a mapping of groups"
            self.found.diagnostics.error("not-an-inventory", summary, source.span_of((0, 0)))
            return True
        self._data(file, document, in_document(file))
        return True

    def _program(self, path: pathlib.Path, name: str) -> None:
        printed = PrintedSource(name, path, run_program(path, name), read_bytes(path, name))
        document = printed.documents[0]
        if not isinstance(document, dict):
            raise SpecError([Diagnostic("inventory-program", f"{printed.name} did not print an object of groups")])
        self._data(printed, document, in_document(printed))

    def _data(self, source: SourceFile, document: Mapping[str, Any], locate: Locate) -> None:
        read_data(document, self.found, self._part(source, locate))

    # Variables beside it

    def _vars(self) -> None:
        whole = is_folder(self.path)
        folder = self.path if whole else self.path.parent
        shown = self.name if whole else os.path.dirname(self.name)  # noqa: PTH120 - "" of a name stays
        self._vars_of("group_vars", self.found.groups, folder, shown)
        self._vars_of("host_vars", self.found.hosts, folder, shown)

    def _vars_of(
        self, kind: str, owners: Mapping[str, Group] | Mapping[str, Host], folder: pathlib.Path, shown: str
    ) -> None:
        there = folder / kind
        if not is_folder(there):
            return
        # Listed once: most hosts have no file, and there may be thousands of them.
        names = set(self._names(there, os.path.join(shown, kind)))  # noqa: PTH118
        for name, owner in owners.items():
            for path in self._vars_files(there, name, names):
                try:
                    self._vars_file(path, os.path.join(shown, kind, path.relative_to(there)), owner)  # noqa: PTH118
                except SpecError as error:
                    self.found.diagnostics.extend(error.diagnostics)

    def _vars_files(self, folder: pathlib.Path, name: str, names: set[str]) -> Iterator[pathlib.Path]:
        """The files of one group or host: its own, or those of its folder, also further down, by their names."""
        for ending in _ENDINGS:
            path = folder / f"{name}{ending}"
            if name + ending in names and path.exists():
                yield from self._files_below(path, frozenset()) if path.is_dir() else [path]
                return

    def _files_below(self, folder: pathlib.Path, around: frozenset[str]) -> Iterator[pathlib.Path]:
        real = os.path.realpath(folder)
        if real in around:  # a link upwards
            return
        for name in sorted(self._names(folder, str(folder))):
            path = folder / name
            ending = os.path.splitext(name)[1]  # noqa: PTH122 - as ansible splits it
            if name.startswith(".") or name.endswith("~"):
                continue
            if path.is_dir():
                if not ending:
                    yield from self._files_below(path, around | {real})
            elif path.is_file() and ending in _ENDINGS:
                yield path

    def _vars_file(self, path: pathlib.Path, name: str, owner: Group | Host) -> None:
        data = read_bytes(path, name)
        if data.startswith(_VAULT):
            self._refuse_vault(TextSource(name, path, data))
            return
        file = AnsibleFile(name, path, data)
        number = self._part(file, in_document(file))
        document = file.documents[0] if len(file.documents) == 1 else None
        if isinstance(document, Mapping):
            wrong = next((key for key in document if not _VARIABLE.match(key)), None)
            if wrong is not None:  # not quoted: it may be any file
                summary, where = "this cannot be the name of a variable", file.place(0, (wrong,), key=True)
                hint = "a name has only letters, digits and _, and does not begin with a digit"
                self.found.diagnostics.error("wrong-value", summary, where, hint=hint)
                return
            owner.files.update({key: Var(value, (number, key)) for key, value in document.items()})
        elif any(one is not None for one in file.documents):
            summary = "a file of variables must be a mapping of names to values"
            self.found.diagnostics.error("wrong-type", summary, file.span_of((0, 0)))

    def _refuse_vault(self, source: TextSource) -> None:
        self._part(source, in_text())
        summary = "the file is encrypted with ansible-vault, which kubexm does not decrypt"
        hint = "move it out of here, and give its secrets as references such as env:NAME or file:PATH"
        self.found.diagnostics.error("encrypted-file", summary, source.span_of((0, 0)), hint=hint)
