"""Makes sources of what specs say: finds a resource by its name, chooses its variant, renders its expressions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from msgspec.structs import replace

from kubexm_exec.model.graph import ExecutionNode, Scope
from kubexm_exec.resources.source import (
    RegistryAccess,
    ResourceError,
    S3Access,
    Source,
    archive_name,
    check_digest,
    check_image,
    check_url,
    filename_of,
    kind_of,
    safe_name,
)
from kubexm_exec.values.evaluate import Evaluator
from kubexm_exec.values.expressions import Expressions, UnknownValueError, is_dynamic, texts
from kubexm_spec.diagnostics import did_you_mean
from kubexm_spec.models.resource import ResourceSpec

VARIANT: Final = "variant"
"""The name of the chosen variant in a resource's expressions."""


def find(scopes: Mapping[str, Scope], scope_id: str, name: str) -> tuple[Scope, ResourceSpec]:
    """A resource as it is seen from a scope: its own first, then those around it; raises ResourceError."""
    known: dict[str, None] = {}
    for scope in around(scopes, scope_id):
        if name in scope.resources:
            return scope, ResourceSpec.model_validate(scope.resources[name])
        known.update(dict.fromkeys(scope.resources))
    there = f"there are {', '.join(sorted(known))}" if known else "the pipeline and its modules declare none"
    raise ResourceError(f'there is no resource "{name}"', did_you_mean(name, known) or there)


def around(scopes: Mapping[str, Scope], scope_id: str) -> Iterator[Scope]:
    """A scope and those around it; unlike variables, resources are seen by used documents too."""
    current: str | None = scope_id
    while current is not None and current in scopes:
        yield scopes[current]
        current = scopes[current].parent


def base_of(scopes: Mapping[str, Scope], scope_id: str) -> Path:
    """The folder that relative paths start in."""
    return Path(next((scope.base for scope in around(scopes, scope_id) if scope.base), "."))


def resolve(evaluator: Evaluator, node: ExecutionNode, host: str, name: str) -> Source:
    """The source of a resource for a node on a host; raises ResourceError, or what its expressions raise."""
    scopes = evaluator.graph.scopes
    scope, spec = find(scopes, node.scope, name)
    # It is the same for every item of a loop, and sees what is around the place that it is written at.
    context = evaluator.context(replace(node, scope=scope.id, has_item=False, item=None), host)
    return render(evaluator, spec, name, base_of(scopes, scope.id), context)


def render(
    evaluator: Evaluator,
    spec: ResourceSpec,
    name: str,
    base: Path,
    context: Mapping[str, Any],
    *,
    variant: str | None = None,
    whole: bool = True,
) -> Source:
    """The source of a resource in a context; without ``whole``, headers and keys, which may be secret, are left out."""
    expressions = evaluator.expressions
    if variant is None:
        variant = choose(spec, name, context, expressions)
    names = {**context, VARIANT: variant}

    def text(value: str) -> str:
        return str(expressions.render(value, names)) if is_dynamic(value) else value

    def one(value: str | dict[str, str] | None, key: str) -> str:
        if isinstance(value, dict):
            if variant not in value:
                raise ResourceError(
                    f'resource {name} has no `{key}` for the variant "{variant}"', f"it has one for {', '.join(value)}"
                )
            value = value[variant]
        return text(value) if value is not None else ""

    # A variant that has a source of its own and no digest is one without a digest.
    bare = isinstance(spec.sha256, dict) and variant not in spec.sha256 and variant in spec.variants
    digest = "" if bare else one(spec.sha256, "sha256")
    shared: dict[str, Any] = {
        "name": name,
        "variant": variant if spec.variants or spec.image is not None else "",
        "sha256": check_digest(name, digest) if digest else "",
        "fetch_on": spec.fetch_on,
        "timeout": spec.timeout,
        "retries": spec.retries,
        "ca_file": str(base / text(spec.ca_file)) if spec.ca_file is not None else "",
    }
    if spec.url is not None:
        location = check_url(name, one(spec.url, "url"))
        kind = kind_of(location)
        if whole:
            shared["headers"] = {key: text(value) for key, value in spec.headers.items()}
        shared["s3"] = _access(spec, text, evaluator.secret if whole else None)
    elif spec.image is not None:
        kind, location = "image", check_image(name, one(spec.image, "image"))
        shared["registry"] = _registry(spec, text, evaluator.secret if whole else None)
    else:
        given = one(spec.path, "path") if spec.path is not None else text(spec.bundle or "")
        kind, location = ("path" if spec.path is not None else "bundle"), str(base / Path(given).expanduser())
    if spec.filename is not None:
        filename = safe_name(text(spec.filename))
    elif kind == "image":
        filename = archive_name(location, variant)
    else:
        filename = safe_name(name) if kind == "bundle" else filename_of(location, kind)
    return Source(kind=kind, location=location, filename=filename, **shared)


def _access(spec: ResourceSpec, text: Callable[[str], str], secret: Callable[[str], str] | None) -> S3Access:
    given = spec.s3
    if given is None:
        return S3Access()

    def hidden(reference: str | None) -> str:
        return "" if reference is None or secret is None else secret(text(reference))

    return S3Access(
        endpoint=text(given.endpoint or "").rstrip("/"),
        region=text(given.region or ""),
        access_key_id=hidden(given.access_key_id),
        secret_access_key=hidden(given.secret_access_key),
        session_token=hidden(given.session_token),
        anonymous=given.anonymous,
    )


def _registry(spec: ResourceSpec, text: Callable[[str], str], secret: Callable[[str], str] | None) -> RegistryAccess:
    given = spec.registry
    if given is None:
        return RegistryAccess()
    password = "" if given.password is None or secret is None else secret(text(given.password))
    return RegistryAccess(
        tuple(map(text, given.mirrors)), text(given.host or ""), text(given.username or ""), password, given.insecure
    )


def choose(spec: ResourceSpec, name: str, context: Mapping[str, Any], expressions: Expressions) -> str:
    """The variant for a host: what `variant` says, or the one named like its architecture; empty if none matters."""
    if spec.variant is not None:
        return str(expressions.render(spec.variant, context))
    variants = spec.variants
    if not variants and spec.image is None and not _mentions_variant(spec, expressions):
        return ""
    facts = context["facts"]
    architecture, machine = str(facts["architecture"]), str(facts["machine"])
    if not variants or architecture in variants:
        return architecture
    if machine in variants:
        return machine
    raise ResourceError(
        f"resource {name} has no variant for the architecture {architecture} ({machine})",
        f"it has {', '.join(variants)}; select one with `variant`",
    )


def _mentions_variant(spec: ResourceSpec, expressions: Expressions) -> bool:
    return any(
        reference.root == VARIANT
        for _, text in texts(spec.model_dump(mode="json", by_alias=True, exclude_unset=True))
        if is_dynamic(text)
        for reference in expressions.text(text).references
    )


def identity(data: Mapping[str, Any]) -> dict[str, Any]:
    """What makes a resource what it is: its source and its digest; not how it is asked for."""
    names = ("path", "url", "image", "bundle", "sha256", "variant", "filename")
    kept = {key: data[key] for key in names if key in data}
    endpoint = (data.get("s3") or {}).get("endpoint")
    return {**kept, "endpoint": endpoint} if endpoint else kept


class ArchitectureOnly(Mapping[str, Any]):
    """The facts of a host of which nothing is known but its architecture."""

    def __init__(self, variant: str) -> None:
        from kubexm_exec.runner.facts import ARCHITECTURES

        machines = {architecture: machine for machine, architecture in reversed(ARCHITECTURES.items())}
        architecture = ARCHITECTURES.get(variant, variant)
        self._known = {"architecture": architecture, "machine": machines.get(architecture, variant)}

    def __getitem__(self, name: str) -> Any:
        if name not in self._known:
            raise UnknownValueError(f"facts.{name}", "no host has been contacted")
        return self._known[name]

    def __contains__(self, name: object) -> bool:
        return True

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)
