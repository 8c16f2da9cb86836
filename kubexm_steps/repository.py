"""The step type ``repository``: a repository of packages with its key, or none."""

from __future__ import annotations

import contextlib
import hashlib
import posixpath
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal, NamedTuple
from urllib.parse import urlsplit

from msgspec import Struct
from pydantic import AfterValidator, Field

from kubexm_exec.step import (
    Diff,
    Duration,
    Forecast,
    HttpError,
    LocalFile,
    Outputs,
    Params,
    Result,
    StepContext,
    StepFailed,
    check_url,
)
from kubexm_exec.step.packages import ManagerName
from kubexm_spec.models.common import no_items
from kubexm_steps.formats.openpgp import NotAKey, armor, dearmor, fingerprints, rpm_id
from kubexm_steps.lib.files import (
    Change,
    Content,
    RestoringStep,
    Wanted,
    apply_change,
    compare,
    file_diff,
    read_local,
    remember,
    removal,
    restore,
)
from kubexm_steps.lib.http import failed, request
from kubexm_steps.lib.types import ONE_OR_MANY, Setting, shaped, unbroken

_HEAD: Final = "# Written by kubexm: what is changed here is lost at its next run."
_KEY_TIMEOUT: Final = 30.0
_OTHER_KEY: Final = "nothing was written; find out whether the key was changed on purpose"


def _plain_fingerprint(text: str) -> str:
    plain = re.sub(r"[\s:]", "", text).upper().removeprefix("0X")
    if not re.fullmatch(r"[0-9A-F]{40}|[0-9A-F]{64}", plain):
        raise ValueError(f"{text!r} is not a fingerprint: it has 40 (or 64) hexadecimal digits; key ids are too short")
    return plain


Words = Annotated[list[Annotated[str, shaped(r"\S+", "one word")]], ONE_OR_MANY]
_Url = Annotated[
    str,
    shaped(r"[a-z][a-z0-9+.-]*:\S+|/\S+", "an address such as https://example.com/packages or file:///srv/packages"),
]
_OptionName = Annotated[str, shaped(r"[A-Za-z][A-Za-z0-9_-]*", "the name of an option: letters, digits, `-` and `_`")]


class RepositoryParams(Params):
    """Parameters of ``repository``."""

    name: str = Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", description="Name on the host; its files have this name."
    )
    url: Annotated[list[_Url], ONE_OR_MANY] = Field(
        default_factory=no_items, description="Address, or several with the same content."
    )
    suites: Words = Field(
        default_factory=no_items,
        description="apt: suites, such as `bookworm`, or a folder with a trailing slash (`./`) for a flat "
        "repository. By default the host's own release.",
    )
    components: Words = Field(default_factory=lambda: ["main"], description="apt: components.")
    architectures: Words = Field(default_factory=no_items, description="apt: only these architectures.")
    description: Annotated[str, AfterValidator(unbroken)] = Field("", description="Description.")
    enabled: bool = Field(True, description="`false` adds it as disabled.")
    key: str | None = Field(None, description="Public key of its signatures, as text.")
    key_file: Annotated[str | None, LocalFile()] = Field(
        None, description="File on the control node with the key, as text or binary."
    )
    key_url: Annotated[str, AfterValidator(check_url)] | None = Field(
        None,
        description="Address from which the control node fetches the key; requires `fingerprint` or `keySha256`.",
    )
    key_sha256: str | None = Field(
        None, pattern="^[0-9a-fA-F]{64}$", description="Expected digest of the key, as it is given or fetched."
    )
    key_name: str | None = Field(
        None,
        pattern=r"^[A-Za-z0-9@][A-Za-z0-9@._+-]*\.pub$",
        description="apk: file name of the key as in its signatures; by default that of `keyFile` or `keyUrl`.",
    )
    fingerprint: Annotated[list[Annotated[str, AfterValidator(_plain_fingerprint)]], ONE_OR_MANY] = Field(
        default_factory=no_items, description="Expected fingerprint of the key; several for several keys."
    )
    trusted: bool = Field(
        False, description="Use it without signatures. Anyone who controls its content then controls the host."
    )
    options: dict[_OptionName, Setting] = Field(
        default_factory=dict,
        description="Additional lines of its file, such as `module_hotfixes: 1` (dnf), `Signed-By` (apt; a key that "
        "the host has) or `tag` (apk).",
    )
    state: Literal["present", "absent"] = Field("present", description="`absent` removes it and its key.")
    refresh: bool = Field(True, description="Fetch its index after a change; if that fails, the change is reverted.")
    manager: ManagerName = Field(
        "auto", description="Package manager: by default the host's own. `yum` is taken as dnf."
    )
    lock_timeout: Duration = Field(120.0, description="How long to wait for another package manager on the host.")

    def model_post_init(self, context: object) -> None:
        keys = [name for name in ("key", "key_file", "key_url") if getattr(self, name) is not None]
        if self.state == "present" and not self.url:
            raise ValueError("say where it is: `url`")
        if len(keys) > 1:
            raise ValueError("key, keyFile and keyUrl exclude each other")
        if keys and self.trusted:
            raise ValueError("`trusted: true` uses no key; remove one of the two")
        if self.key_url is not None and not self.key_sha256 and not self.fingerprint:
            raise ValueError(
                "a key that is fetched needs `fingerprint` or `keySha256`: otherwise anyone could replace it"
            )
        if not keys and (self.fingerprint or self.key_sha256):
            raise ValueError("fingerprint and keySha256 need a key: `key`, `keyFile` or `keyUrl`")
        if len({suite.endswith("/") for suite in self.suites}) > 1:
            raise ValueError("suites are either all folders (with a slash at the end) or all names")


class RepositoryOutputs(Outputs):
    path: str = Field(description="File that defines it on the host.")
    key_path: str = Field("", description="File with its key; empty without one.")
    fingerprints: list[str] = Field(default_factory=no_items, description="Fingerprints of its keys.")


class Written(Struct, frozen=True):
    """The files of a repository on a host."""

    path: str
    text: str
    key_path: str
    key: bytes | None
    """As the package manager wants it."""
    fingerprints: tuple[str, ...] = ()


class Seen(NamedTuple):
    """The host's package manager, the repository as it is written for it, and what is missing of that."""

    manager: str
    written: Written
    changes: list[Change]
    untrusted: list[str]
    """The ids of the keys that rpm has still to be told."""


class RepositoryStep(RestoringStep[RepositoryParams, Seen]):
    """A package repository with its signing key, or its absence.

    - apt: a `.sources` file whose `Signed-By` names its own key file in `/etc/apt/keyrings`, so that the key is
      trusted for this repository only.
    - dnf and zypper: a `.repo` file with `gpgcheck=1`, and the key in `/etc/pki/rpm-gpg`. zypper trusts only keys in
      rpm's database, so the key is added there too.
    - apk: a file in `/etc/apk/repositories.d`, and the key in `/etc/apk/keys`.
    - Keys can be armoured or binary; the host needs no gpg. With `fingerprint`, every key in the file must be one of
      those listed.
    - After a change the index of this repository is fetched. If that fails (address, signature), the
      files are restored: a broken repository is never kept.
    - Without a key, the keys that the host already trusts apply.
    - Undo restores the files, and rpm's trust in the key.
    """

    outputs_model = RepositoryOutputs
    example = """\
- name: our-packages
  type: repository
  with:
    name: ours
    url: https://packages.example.com/debian
    components: stable
    keyUrl: https://packages.example.com/key.asc
    fingerprint: 0123 4567 89AB CDEF 0123  4567 89AB CDEF 0123 4567
"""

    def precheck(self, ctx: StepContext) -> Forecast[Seen]:
        manager = ctx.runner.packages.manager_name(self.params.manager)
        written = self._written(ctx, manager)
        changes = self._changes(ctx, written)
        untrusted = self._untrusted(ctx, manager, written)
        if not changes and not untrusted:
            word = "does not exist" if self.params.state == "absent" else "is as it should be"
            return Forecast.satisfied(f"repository {self.params.name} {word}", self._outputs(written))
        verb = "remove" if self.params.state == "absent" else "write"
        removed = self.params.state == "absent"
        diffs = [Diff(each.wanted.path, note="removed") if removed else file_diff(ctx, each) for each in changes]
        if not changes:
            diffs = [Diff(written.key_path, note="rpm would trust this key")]
        seen = Seen(manager, written, changes, untrusted)
        return Forecast.change(f"would {verb} the repository {self.params.name}", diffs, seen=seen)

    def run(self, ctx: StepContext, forecast: Forecast[Seen]) -> Result:
        params = self.params
        manager, written, changes, untrusted = forecast.seen
        if params.state == "absent":
            self._remove(ctx, manager, written, changes)
            return Result(message=f"removed the repository {params.name}", outputs=self._outputs(written))
        folders = [
            folder
            for path in dict.fromkeys(posixpath.dirname(change.wanted.path) for change in changes)
            for folder in ctx.runner.missing_folders(path)
        ]
        undo = remember(ctx, changes, folders, manager=manager, trusted=untrusted)
        for folder in folders:
            ctx.runner.mkdir(folder, missing=[folder])
        for change in changes:
            apply_change(ctx, change)
        try:
            if untrusted:
                ctx.runner.packages.trust_key(written.key or b"")
            if params.refresh and params.enabled:
                ctx.progress(f"fetching the index of {params.name}")
                packages = ctx.runner.packages
                worker = packages.manager(params.manager, wait=params.lock_timeout)
                packages.refresh_repository(worker, params.name, written.path, trusted=params.trusted)
        except StepFailed:
            self.rollback(ctx, undo)
            raise
        return Result(message=f"wrote the repository {params.name}", outputs=self._outputs(written))

    def rollback(self, ctx: StepContext, undo: Mapping[str, Any]) -> None:
        restore(ctx, undo)
        ctx.runner.packages.forget_keys(undo.get("trusted", ()))
        for token in undo.get("forgotten", ()):
            ctx.runner.packages.trust_key(ctx.kept(token))

    def _remove(self, ctx: StepContext, manager: str, written: Written, changes: list[Change]) -> None:
        """Remove the files; with dnf and zypper also rpm's trust in the key, unless another repository has it too."""
        forgotten: list[str] = []
        ids: set[str] = set()
        if manager in ("dnf", "zypper") and any(change.wanted.path == written.key_path for change in changes):
            key = ctx.runner.read_bytes(written.key_path)
            with contextlib.suppress(NotAKey):
                ids = {rpm_id(mark) for mark in fingerprints(dearmor(key))} & ctx.runner.packages.trusted_keys()
            if ids and ctx.runner.packages.same_keys(written.key_path):
                ids = set()
            forgotten = [ctx.keep(key)] if ids else []
        remember(ctx, changes, [], manager=manager, forgotten=forgotten)
        for change in changes:
            ctx.runner.remove(change.wanted.path)
        ctx.runner.packages.forget_keys(ids)

    # the files

    def _written(self, ctx: StepContext, manager: str) -> Written:
        params = self.params
        if params.state == "absent":
            path, key_path = paths(manager, params)
            return Written(path, "", key_path, None)
        if manager == "apk" and params.trusted:
            raise StepFailed(
                "apk cannot trust one repository without a signature",
                hint="sign it (`abuild-sign`), or install its packages as files",
            )
        if manager == "apk" and params.fingerprint:
            raise StepFailed("keys of apk have no fingerprint", hint="use `keySha256` instead")
        key = load_key(ctx, params)
        try:
            written = write(manager, params, params.suites or self._release(ctx, manager), key)
        except NotAKey as error:
            raise StepFailed(
                f"the key of {params.name} cannot be used: {error}",
                hint="use the public key as its owner publishes it: a text block, or the binary file",
            ) from error
        self._check_fingerprints(written)
        return written

    def _release(self, ctx: StepContext, manager: str) -> list[str]:
        if manager != "apt":
            return []
        codename = str(ctx.facts.get("os", {}).get("codename", ""))
        if not codename:
            raise StepFailed(
                f"repository {self.params.name}: the host does not report the name of its release",
                hint="set `suites`",
            )
        return [codename]

    def _check_fingerprints(self, written: Written) -> None:
        wanted = self.params.fingerprint
        others = [mark for mark in written.fingerprints if mark not in wanted]
        if wanted and others:
            raise StepFailed(
                f"the key of {self.params.name} has the fingerprint {others[0]}, which is not the one that was named",
                hint=_OTHER_KEY,
            )

    def _changes(self, ctx: StepContext, written: Written) -> list[Change]:
        """What has to change; the key first, so that there is no moment in which the repository has none."""
        key, main = ctx.runner.inspect_all([written.key_path, written.path])
        if self.params.state == "absent":
            return [removal(state) for state in (main, key) if state.exists]
        # The key is public, and apt reads it as a user of its own.
        wanted = [(Wanted(written.key_path, Content.of(written.key), 0o644), key)] if written.key is not None else []
        wanted.append((Wanted(written.path, Content.of(written.text)), main))
        return [change for each, state in wanted if (change := compare(ctx, each, state)).any]

    def _untrusted(self, ctx: StepContext, manager: str, written: Written) -> list[str]:
        """The ids of the keys that rpm has still to be told."""
        if manager != "zypper" or written.key is None:
            return []
        return sorted({rpm_id(mark) for mark in written.fingerprints} - ctx.runner.packages.trusted_keys())

    def _outputs(self, written: Written) -> dict[str, Any]:
        return {
            "path": written.path,
            "keyPath": written.key_path if written.key is not None else "",
            "fingerprints": list(written.fingerprints),
        }


def paths(manager: str, params: RepositoryParams) -> tuple[str, str]:
    """Where the repository and its key are written."""
    name = params.name
    match manager:
        case "apt":
            return f"/etc/apt/sources.list.d/{name}.sources", f"/etc/apt/keyrings/{name}.gpg"
        case "dnf":
            return f"/etc/yum.repos.d/{name}.repo", f"/etc/pki/rpm-gpg/RPM-GPG-KEY-{name}"
        case "zypper":
            return f"/etc/zypp/repos.d/{name}.repo", f"/etc/pki/rpm-gpg/RPM-GPG-KEY-{name}"
    # The signatures of apk name the key as it is called where it comes from.
    source = params.key_file or (urlsplit(params.key_url).path if params.key_url else "")
    key_name = params.key_name or posixpath.basename(source) or f"{name}.rsa.pub"
    return f"/etc/apk/repositories.d/{name}.list", f"/etc/apk/keys/{key_name}"


def write(manager: str, params: RepositoryParams, suites: Sequence[str], key: bytes | None) -> Written:
    """The files; NotAKey if the key is none."""
    path, key_path = paths(manager, params)
    if manager == "apk":
        if key is not None and b"-----BEGIN PUBLIC KEY-----" not in key:
            raise NotAKey('it does not begin with "-----BEGIN PUBLIC KEY-----", as apk keys do')
        return Written(path, _apk(params), key_path, key)
    signer, marks = "", tuple[str, ...]()
    if key is not None:
        key = dearmor(key)
        signer, marks = key_path, tuple(fingerprints(key))
        key = key if manager == "apt" else armor(key)
    text = _apt(params, suites, signer) if manager == "apt" else _rpm(params, signer)
    return Written(path, text, key_path, key, marks)


def _apt(params: RepositoryParams, suites: Sequence[str], key_path: str) -> str:
    flat = all(suite.endswith("/") for suite in suites)
    fields = {
        "Enabled": "" if params.enabled else "no",
        "Types": "deb",
        "URIs": " ".join(params.url),
        "Suites": " ".join(suites),
        "Components": "" if flat else " ".join(params.components),
        "Architectures": " ".join(params.architectures),
        "Signed-By": key_path,
        "Trusted": "yes" if params.trusted else "",
    }
    return _text(params, [f"{name}: {value}" for name, value in _merged(fields, params.options)])


def _rpm(params: RepositoryParams, key_path: str) -> str:
    fields = {
        "name": params.description or params.name,
        "baseurl": "\n        ".join(params.url),
        "enabled": str(int(params.enabled)),
        "gpgcheck": str(int(not params.trusted)),
        "repo_gpgcheck": "0" if params.trusted else "",
        "gpgkey": f"file://{key_path}" if key_path else "",
    }
    lines = [_HEAD, f"[{params.name}]", *(f"{name}={value}" for name, value in _merged(fields, params.options))]
    return "\n".join(lines) + "\n"


def _apk(params: RepositoryParams) -> str:
    tag = f"@{params.options['tag']} " if params.options.get("tag") else ""
    return _text(params, [f"{'' if params.enabled else '#'}{tag}{url}" for url in params.url])


def _text(params: RepositoryParams, lines: Sequence[str]) -> str:
    about = [f"# {params.description}"] if params.description else []
    return "\n".join([_HEAD, *about, *lines]) + "\n"


def _merged(fields: Mapping[str, str], options: Mapping[str, str]) -> list[tuple[str, str]]:
    """The fields that have a value, with the user's own in their place, whatever their case."""
    merged = dict(fields)
    names = {name.lower(): name for name in fields}
    for key, value in options.items():
        merged[names.get(key.lower(), key)] = value
    return [(key, value) for key, value in merged.items() if value]


def load_key(ctx: StepContext, params: RepositoryParams) -> bytes | None:
    """The key of the repository, as it was given or fetched; another digest than it must have fails."""
    if params.key is not None:
        key = params.key.encode("utf-8")
    elif params.key_file is not None:
        key = read_local(ctx.local_path(params.key_file))
    elif params.key_url is not None:
        key = _fetched(ctx, params.name, params.key_url)
    else:
        return None
    digest = hashlib.sha256(key).hexdigest()
    if params.key_sha256 and digest != params.key_sha256.lower():
        raise StepFailed(
            f"the key of {params.name} has the sha256 {digest}, not {params.key_sha256.lower()}", hint=_OTHER_KEY
        )
    return key


def _fetched(ctx: StepContext, name: str, url: str) -> bytes:
    """The key from the web: once a run, whatever the number of hosts."""
    cache = ctx.cache("run")
    mark = f"repository-key {url}"
    if mark not in cache:
        what = f"fetch the key of {name} from {url}"
        try:
            reply = request(ctx, "GET", url, timeout=_KEY_TIMEOUT)
        except HttpError as error:
            raise failed(what, error) from error
        if reply.status != 200:
            raise StepFailed(f"{what}: the server answered {reply.status}", hint="check `keyUrl`")
        cache[mark] = reply.body
    key: bytes = cache[mark]
    return key
