"""Passes: variables in files of their own, for all hosts or by host, role or group; and those given from outside."""

from __future__ import annotations

import glob
import itertools
import os
import pathlib
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from msgspec.structs import replace

from kubexm_exec.compile.files import remember_file
from kubexm_exec.compile.hosts import host_layers
from kubexm_exec.compile.params import parse_text
from kubexm_exec.compile.state import State, VarLayer
from kubexm_exec.compile.static import FAILED, render_static, written
from kubexm_exec.compile.templatefiles import find_reference
from kubexm_exec.values.evaluate import CONTROL_NODE
from kubexm_exec.values.expressions import ExpressionError, is_dynamic
from kubexm_spec.diagnostics import SpecError, did_you_mean, shortened, some
from kubexm_spec.models import ParamSpec, ParamType, VarsFileSpec
from kubexm_spec.paths import is_file, is_folder
from kubexm_spec.yaml.source import Place, SourceFile

_NAMES: Final = ("host", "role", "group", "params")
"""What the path of a vars file can refer to."""
_LEVELS: Final = {"role": 1, "group": 2, "host": 3}
_EXPRESSION: Final = re.compile(r"\{\{.*?\}\}|\{%.*?%\}|\{#.*?#\}", re.DOTALL)
_GLOB: Final = re.compile(r"[*?\[]")
_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


def read_vars_files(state: State) -> None:
    """Pass: read the pipeline's ``varsFiles``; those for all hosts join its variables, others those of hosts."""
    pipeline = state.bundle.pipeline
    document = pipeline.document
    state.var_layers = [VarLayer(-1, "pipeline vars", document.vars, pipeline.place("vars"))]
    if not document.vars_files:
        return
    reader, errors = _Reader(state), state.diagnostics.error_count
    for number, spec in enumerate(document.vars_files):
        reader.entry(spec, pipeline.place("varsFiles", number))
    state.vars_known = state.diagnostics.error_count == errors
    root = state.scopes[""]
    values = dict(root.vars)
    for layer in state.var_layers[1:]:
        values.update(layer.values)
        state.var_places.update({("", name): layer.place.child(name) for name in layer.values})
    state.scopes[""] = replace(root, vars=values)
    for host in state.host_var_files:
        merged: dict[str, Any] = {}
        for layer in host_layers(state, host):
            merged.update(layer.values)
        state.hosts[host] = replace(state.hosts[host], vars=merged)


class _Reader:
    """Reads the files of entries, each file once."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.source = state.bundle.pipeline.source
        self._files: dict[pathlib.Path, tuple[SourceFile, Mapping[str, Any]] | None] = {}

    def entry(self, spec: VarsFileSpec, place: Place) -> None:
        """All files that an entry means."""
        where = place.child("path") if isinstance(written(place), Mapping) else place
        names = self._names(spec.path, where)
        if names is None:
            return
        if names.isdisjoint(_LEVELS):
            found = self._rendered(spec, where, CONTROL_NODE, {})
            if found is not None and not self._layers(spec, found, where, self.state.var_layers, -1):
                self._missing(spec, {found: []}, where)
            return
        level = max(_LEVELS[name] for name in names & _LEVELS.keys())
        missing: dict[str, list[str]] = {}
        for host in dict.fromkeys((*self.state.reach.hosts, CONTROL_NODE)):
            before = self.state.diagnostics.error_count
            for more in self._members(host, names):
                found = self._rendered(spec, where, host, more)
                if found is None:
                    break
                layers = self.state.host_var_files.setdefault(host, [])
                if not self._layers(spec, found, where, layers, level) and host in self.state.reach.hosts:
                    missing.setdefault(found, []).append(host)
            if self.state.diagnostics.error_count > before:
                return  # one finding is enough, however many hosts there are
        if missing:
            self._missing(spec, missing, where)

    def _names(self, path: str, place: Place) -> set[str] | None:
        """What a path refers to; None with a finding."""
        if not is_dynamic(path):
            return set()
        try:
            references = self.state.expressions.text(path).references
        except ExpressionError as error:
            summary = f"the path of a vars file: {error.message}"
            self.state.diagnostics.error("bad-expression", summary, place.find(error.fragment))
            return None
        for reference in references:
            if reference.root not in _NAMES:
                summary = f"the path of a vars file cannot refer to {reference.root}"
                hint = did_you_mean(reference.root, _NAMES) or f"it can refer to {', '.join(_NAMES)}"
                self.state.diagnostics.error("bad-vars-file", summary, find_reference(place, reference), hint=hint)
                return None
        return {reference.root for reference in references}

    def _members(self, host: str, names: set[str]) -> Iterator[dict[str, str]]:
        """The names that a path sees besides the host: one of its roles, one of its groups."""
        known = self.state.hosts[host]
        axes = {"role": known.roles, "group": known.groups}
        values = [members if name in names else ("",) for name, members in axes.items()]
        return (dict(zip(axes, several, strict=True)) for several in itertools.product(*values))

    def _rendered(self, spec: VarsFileSpec, place: Place, host: str, more: Mapping[str, str]) -> str | None:
        """The path for a host; None with a finding if it is none, or if a value leads it out of its folder."""
        if not is_dynamic(spec.path):
            return spec.path
        found = render_static(self.state, spec.path, "", place, "the path of a vars file", host, names=more)
        if found is FAILED:
            return None
        literal = _EXPRESSION.sub("", spec.path)
        folder = spec.path[: spec.path.index("{")].rpartition("/")
        start = os.path.normpath(folder[0] + folder[1]) if folder[1] else ""
        path = os.path.normpath(found) if isinstance(found, str) and found.strip() else ""
        inside = path.startswith(f"{start.rstrip('/')}/") if start else not path.startswith(("/", "../"))
        if not path or not inside or path == ".." or "\0" in path or _globs(found) != _globs(literal):
            summary = f"the path of a vars file is {shortened(repr(found))} on {host}"
            hint = "a value in it must stay in the folder, and cannot be empty or a pattern"
            self.state.diagnostics.error("bad-vars-file", summary, place, hint=hint)
            return None
        return str(found)

    def _layers(self, spec: VarsFileSpec, name: str, place: Place, layers: list[VarLayer], level: int) -> bool:
        """Add what the files of a path say; False if there is none, and there must be one."""
        folder = self.source.path.parent
        if _globs(_EXPRESSION.sub("", spec.path)):
            matching = glob.glob(name, root_dir=folder, recursive=True)  # noqa: PTH207 - Path.glob takes no absolute one
            found = sorted(one for one in matching if is_file(folder / one))
            for one in found:
                self._add(one, place, layers, level)
            return bool(found) or spec.optional
        path = folder / name
        if not is_file(path) and not is_folder(path):
            if spec.optional:
                # That it is not there is something that a plan was made from.
                self.state.files.setdefault(pathlib.Path(os.path.normpath(path)), "")
            return spec.optional
        self._add(name, place, layers, level)
        return True

    def _add(self, name: str, place: Place, layers: list[VarLayer], level: int) -> None:
        path = pathlib.Path(os.path.normpath(self.source.path.parent / name))
        if path not in self._files:
            self._files[path] = self._read(path, name, place)
        read = self._files[path]
        if read is not None and read[1]:
            source, values = read
            layers.append(VarLayer(level, "vars file", values, source.place()))

    def _read(self, path: pathlib.Path, name: str, used_by: Place) -> tuple[SourceFile, Mapping[str, Any]] | None:
        """A file with its values; None with findings, or if there is nothing in it."""
        shown = os.path.normpath(pathlib.Path(self.source.name).parent / name)
        try:
            source = SourceFile.load(path, name=shown)
        except SpecError as error:
            if any(finding.code == "empty-file" for finding in error.diagnostics):
                remember_file(self.state, path, used_by)
                return None
            self.state.diagnostics.extend(error.diagnostics, used_by)
            return None
        self.state.bundle.sources[shown] = source
        tell = self.state.diagnostics.error
        data = source.documents[0]
        if len(source.documents) > 1:
            tell("bad-vars-file", f"{shown} has several documents", source.place(1), hint="a vars file has one mapping")
            return None
        if not isinstance(data, dict):
            what = "list" if isinstance(data, list) else "single value"
            summary = f"{shown} is not a mapping of names to values but a {what}"
            tell("bad-vars-file", summary, used_by, hint="write NAME: VALUE, one variable a line")
            return None
        wrong = [key for key in data if not (isinstance(key, str) and _IDENTIFIER.fullmatch(key))]
        for key in wrong:
            # It is not quoted: it may be any file.
            summary = "this key cannot be the name of a variable"
            hint = "use letters, digits and _, and no digit first"
            tell("bad-vars-file", summary, source.place(0, (key,), key=True), hint=hint)
        return None if wrong else (source, data)

    def _missing(self, spec: VarsFileSpec, missing: Mapping[str, list[str]], place: Place) -> None:
        """Say which files are not there, of which hosts, and which one may be meant."""
        name, hosts = next(iter(missing.items()))
        near = ""
        if _globs(_EXPRESSION.sub("", spec.path)):
            summary = f'no file matches "{name}"'
        else:
            summary = f'the vars file "{name}" does not exist'
            folder = (self.source.path.parent / name).parent
            names = sorted(one.name for one in folder.iterdir()) if is_folder(folder) and not hosts else []
            near = did_you_mean(name.rpartition("/")[2], names, name.rpartition("/")[0])
        if len(missing) > 1:
            summary = f"there are no vars files {some(missing, 3)}"
        elif hosts:
            summary += f", for {some(hosts, 3)}"
        hint = near or "if there may be none, write {path: ..., optional: true}"
        self.state.diagnostics.error("file-not-found", summary, place, hint=hint)


def _globs(text: object) -> int:
    return len(_GLOB.findall(text)) if isinstance(text, str) else 0


def bind_vars(state: State) -> None:
    """Pass: values from outside that are no parameters are those of variables, and win over all that is written."""
    options, document = state.options, state.bundle.pipeline.document
    names = [name for name in {**options.values, **options.texts} if name not in document.params]
    if not names:
        return
    known = known_vars(state)
    given: dict[str, Any] = {}
    for name in names:
        if name not in known:
            if state.vars_known:
                _unknown(state, name, known)
        elif name in options.texts:
            text = options.texts[name]
            try:
                given[name] = parse_text(text, ParamSpec.model_validate({"type": _type_of(known[name])}))
            except ValueError as error:
                summary = f'-e {name}: {error}; got "{shortened(text)}"'
                hint = "the value that it overrides is of that type; --vars-file takes a value of any type"
                state.diagnostics.error("bad-param", summary, _place_of(state, name), hint=hint)
        else:
            given[name] = options.values[name]
    root = state.scopes[""]
    # Among the others too, so that it is known wherever the pipeline's variables are.
    state.scopes[""] = replace(root, vars={**root.vars, **given}, given=given)


def known_vars(state: State) -> dict[str, Any]:
    """The variables that the pipeline itself sees on its hosts, each with a value that it has somewhere."""
    known: dict[str, Any] = {}
    for host in reversed(state.hosts.values()):
        known.update(host.vars)
    known.update(state.scopes[""].vars)
    return known


def _type_of(value: Any) -> ParamType:
    """The type of a text that takes the place of a value; what an expression gives is not known, so that it is text."""
    kinds = {bool: ParamType.BOOLEAN, int: ParamType.INTEGER, float: ParamType.NUMBER, list: ParamType.LIST}
    return ParamType.OBJECT if isinstance(value, Mapping) else kinds.get(type(value), ParamType.STRING)


def _place_of(state: State, name: str) -> Place | None:
    """Where a variable is written: that of the pipeline, or else of the first host that has it."""
    if ("", name) in state.var_places:
        return state.var_places["", name]
    for host in state.hosts:
        for layer in reversed(host_layers(state, host)):
            if name in layer.values:
                return layer.place.child(name)
    return None


def _unknown(state: State, name: str, known: Mapping[str, Any]) -> None:
    options, document = state.options, state.bundle.pipeline.document
    text = name in options.texts
    source = "-e" if text else "--vars-file" if name in options.given_at else "values"
    summary = f'pipeline "{document.metadata.name}" has no parameter or variable "{name}" ({source})'
    there = [*document.params, *known]
    hint = did_you_mean(name, there) or (f"it has {some(there, 10)}" if there else "it has none")
    state.diagnostics.error("unknown-param", summary, None if text else options.given_at.get(name), hint=hint)
