"""Plans: a compiled graph saved with the digests of all it was made from, and refused when one of them changed."""

from __future__ import annotations

import json
import os
import pathlib
from collections.abc import Iterable
from typing import Any

from msgspec import Struct, convert, field
from msgspec.structs import asdict, replace

from kubexm_exec.model.graph import ExecutionGraph, digest
from kubexm_exec.plugins import Registry, RegistryError
from kubexm_exec.safepaths import at, replacing
from kubexm_spec.paths import exists

KIND = "kubexm.io/plan"
_MAKE = "create one with: kubexm plan SPEC -o plan.json"
"""Never with the name of the file: what is no plan may be anything, a spec for instance."""


class PlanError(Exception):
    """The file is no plan, or cannot be read; the message says what to do."""


class StalePlanError(Exception):
    """What the plan was made from has changed; ``changes`` says what."""

    def __init__(self, changes: list[str]) -> None:
        super().__init__("; ".join(changes))
        self.changes = changes


class Plan(Struct, frozen=True):
    """A saved graph and where its files are."""

    graph: ExecutionGraph
    spec: str
    root: str
    packages: dict[str, dict[str, str]]
    choice: dict[str, Any]
    """The values, inventory, hosts and tags that were chosen besides the spec; files by their absolute paths."""

    @property
    def place(self) -> str:
        """Its spec by the absolute path."""
        return self.spec if self.spec.startswith("kubexm:") else os.path.join(self.root, os.path.basename(self.spec))  # noqa: PTH118, PTH119

    def spec_from(self, folder: str = "") -> str:
        """The path of its spec from a folder, which need not be the one it was made in."""
        return self.place if self.place == self.spec else os.path.relpath(self.place, folder or None)

    def to_json(self) -> dict[str, Any]:
        """Plain data with a digest of all of it, so that an edited plan is not run."""
        data = {
            "kind": KIND,
            "spec": self.spec,
            "root": self.root,
            "packages": self.packages,
            "choice": self.choice,
            "target": self.graph.target,
            "graph": self.graph.to_json(),
        }
        return {**data, "hash": digest(data)}


class _Package(Struct):
    distribution: str
    version: str


class _Saved(Struct):
    spec: str
    root: str
    packages: dict[str, _Package]
    target: str
    graph: dict[str, Any]
    choice: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for text in (self.spec, self.root, self.target):
            os.fsencode(text)
            if "\0" in text:
                raise ValueError("a path with a NUL")


def make_plan(
    graph: ExecutionGraph, spec: str, steps: Registry[Any], folder: str = "", choice: dict[str, Any] | None = None
) -> Plan:
    """The plan of a graph compiled from a spec, whose name starts in a folder, and of what was chosen besides."""
    root = pathlib.Path(folder, spec).parent.absolute()
    packages = packages_of(sorted({node.step_name for node in graph.steps()}), steps)
    return Plan(graph, spec, str(root), packages, choice or {})


def packages_of(types: Iterable[str], steps: Registry[Any]) -> dict[str, dict[str, str]]:
    """The package and version behind each step type."""
    found: dict[str, dict[str, str]] = {}
    for name in types:
        info = steps.info(name)
        found[name] = {"distribution": info.distribution, "version": info.version}
    return found


def save_plan(plan: Plan, path: str | os.PathLike[str]) -> None:
    """Write the plan for its owner alone (it holds values of parameters); a plan that was there is replaced whole."""
    text = json.dumps(plan.to_json(), indent=2, ensure_ascii=False) + "\n"
    try:
        with at(os.fspath(path)) as (folder, name), replacing(folder, name) as file:
            file.write(text.encode())
    except OSError as error:
        raise PlanError(f"the plan cannot be written to {path}: {error.strerror}") from error


def load_plan(path: str | os.PathLike[str], folder: str = "") -> Plan:
    """The plan in a file, whose name starts in a folder; raises PlanError."""
    try:
        data = json.loads(pathlib.Path(folder, path).read_text("utf-8"))
    except OSError as error:
        raise PlanError(f"the plan {path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise PlanError(f"{path} is not a plan; {_MAKE}") from error
    if not isinstance(data, dict) or data.get("kind") != KIND or not isinstance(data.get("graph"), dict):
        raise PlanError(f"{path} is not a plan; {_MAKE}")
    if data.pop("hash", None) != digest(data):
        raise PlanError(f"{path} was edited or is damaged; {_MAKE}")
    try:
        saved = convert(data, _Saved)
        graph = replace(ExecutionGraph.from_json(saved.graph), target=saved.target)
        packages = {name: asdict(package) for name, package in saved.packages.items()}
        return Plan(graph, saved.spec, saved.root, packages, saved.choice)
    except ValueError as error:  # that of a wrong type, and of text that is none, are such
        raise PlanError(f"{path} cannot be used by this version of kubexm: {error}; {_MAKE}") from error


def check_plan(plan: Plan, steps: Registry[Any], folder: str = "") -> None:
    """Raise StalePlanError if a file or a package has changed since; it names files by their path from a folder."""
    from kubexm_exec.compile.files import file_digest

    changes: list[str] = []
    for name, expected in plan.graph.sources.items():
        path = pathlib.Path(plan.root, name)
        if not expected and not exists(path):
            continue  # it was not there, and may be missing
        try:
            actual = file_digest(path)
        except OSError as error:
            changes.append(f"{os.path.relpath(path, folder or None)}: {error.strerror}")
            continue
        if actual != expected:
            changes.append(f"{os.path.relpath(path, folder or None)} has changed")
    for name, package in plan.packages.items():
        try:
            info = steps.info(name)
        except RegistryError as error:
            changes.append(error.message)
            continue
        if (info.distribution, info.version) != (package["distribution"], package["version"]):
            was, now = f"{package['distribution']} {package['version']}", f"{info.distribution} {info.version}"
            changes.append(f"step type {name} was {was}, now {now}")
    if changes:
        raise StalePlanError(changes)
