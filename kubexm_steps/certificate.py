"""The step type ``certificate``: a CA, or a certificate that a CA signs, with its key on the host."""

from __future__ import annotations

import ipaddress
import posixpath
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from msgspec import Struct
from msgspec.structs import replace
from pydantic import AfterValidator, Field

from kubexm_exec.step import (
    Diff,
    Duration,
    Forecast,
    HostName,
    Outputs,
    Params,
    Result,
    StepContext,
    StepFailed,
)
from kubexm_exec.step.host import FileState
from kubexm_steps.lib.files import (
    HIDDEN,
    SECRET_FILE,
    Change,
    Content,
    RestoringStep,
    Wanted,
    apply_change,
    compare,
    lacks_folder,
    remember,
    restore,
)
from kubexm_steps.lib.types import (
    ONE_OR_MANY,
    HostPath,
    InspectedPath,
    Line,
    Mode,
    OneFileParams,
    refuse,
    shaped,
)

if TYPE_CHECKING:
    from datetime import datetime

    from kubexm_steps.lib import x509

_LIMIT: Final = 1 << 20
"""Bytes of a file of keys or certificates."""
_YEAR: Final = 365 * 86400.0
_DNS: Final = shaped(
    r"(\*\.)?([A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?\.)*[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?\.?",
    "a name of the DNS; addresses are listed under `ip`",
)
_URI: Final = shaped(r"[A-Za-z][A-Za-z0-9+.-]*:[\x21-\x7e]+", "a URI such as spiffe://example.org/web")
_ALGORITHMS = Literal["ecdsa-p256", "ecdsa-p384", "ecdsa-p521", "rsa-2048", "rsa-3072", "rsa-4096", "ed25519"]


def _address(text: str) -> str:
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        raise ValueError(f"{text!r} is not an IP address; names are listed under `dns`") from None


def _not_an_address(name: str) -> str:
    if re.fullmatch(r"[0-9.]+", name):
        raise ValueError(f"{name!r} is an IP address: list it under `ip`")
    return name


def _path_or_pem(text: str) -> str:
    # The text is not repeated: it may be a key.
    if not text.startswith("/") and "-----BEGIN " not in text:
        raise ValueError("it is neither an absolute path on a host nor a text in PEM format")
    return text


class SubjectParams(Params):
    """Whose certificate it is."""

    common_name: Line = Field(description="Common name (CN).")
    organization: Annotated[list[Line], ONE_OR_MANY] = Field(
        default_factory=list, description="Organization (O), one or several; Kubernetes takes them for groups."
    )
    organizational_unit: Annotated[list[Line], ONE_OR_MANY] = Field(
        default_factory=list, description="Organizational unit (OU), one or several."
    )
    country: Annotated[str, shaped("[A-Z]{2}", "a country of two capital letters, such as DE")] | None = Field(
        None, description="Country (C), two letters."
    )


class SansParams(Params):
    """The names and addresses that the certificate is valid for."""

    dns: Annotated[list[Annotated[str, AfterValidator(_not_an_address), _DNS]], ONE_OR_MANY] = Field(
        default_factory=list, description="Names, such as `api.example.org` or `*.example.org`."
    )
    ip: Annotated[list[Annotated[str, AfterValidator(_address)]], ONE_OR_MANY] = Field(
        default_factory=list, description="IP addresses."
    )
    uri: Annotated[list[Annotated[str, _URI]], ONE_OR_MANY] = Field(default_factory=list, description="URIs.")

    def all(self) -> frozenset[str]:
        """All of them."""
        return frozenset([*(name.lower() for name in self.dns), *self.ip, *self.uri])


class CaParams(Params):
    """The CA that signs."""

    host: Annotated[str, HostName()] | None = Field(
        None, description="Host of the inventory that has the CA's files; by default the step's own host."
    )
    cert: Annotated[str, AfterValidator(_path_or_pem)] = Field(
        description="Certificate of the CA: a path on `host`, or its text in PEM format."
    )
    key: Annotated[str, AfterValidator(_path_or_pem)] = Field(
        description="Key of the CA: a path on `host`, or its text, as `{{ secret('vault:PATH#key') }}`."
    )
    passphrase: str | None = Field(None, description="Passphrase of the key, as `{{ secret('env:NAME') }}`.")


class CertificateParams(OneFileParams):
    """Parameters of ``certificate``."""

    path: InspectedPath = Field(description="File of the certificate on the host, as an absolute path.")
    key_path: InspectedPath | None = Field(
        None, description="File of its key. By default beside the certificate, with the ending `.key`."
    )
    ca_path: HostPath | None = Field(None, description="Writes the CA's certificates to this file too.")
    kind: Literal["leaf", "ca"] = Field("leaf", description="`ca`: a certificate authority, which signs others.")
    subject: SubjectParams = Field(description="Whose certificate it is.")
    sans: SansParams = Field(default_factory=SansParams, description="Names and addresses that it is valid for.")
    usages: Annotated[list[Literal["serverAuth", "clientAuth"]], ONE_OR_MANY] | None = Field(
        None, min_length=1, description="What a leaf is for: `serverAuth` (default), `clientAuth`, or both."
    )
    ca: CaParams | None = Field(
        None, description="CA that signs it; a leaf needs one. A `ca` without one signs itself."
    )
    path_length: int | None = Field(None, ge=0, le=10, description="Of a CA: how many CAs may follow below it.")
    algorithm: _ALGORITHMS = Field("ecdsa-p256", description="Algorithm of the key.")
    validity: Duration | None = Field(
        None, gt=0, description="How long it is valid; 365d by default, 3650d for a CA. Never longer than its CA."
    )
    renew_before: Duration = Field(30 * 86400.0, ge=0, description="It is renewed if it expires sooner than that.")
    new_key: bool = Field(False, description="Make a new key whenever a certificate is issued; by default it is kept.")
    chain: bool = Field(False, description="Let the CA's certificates follow it in the file.")
    key_mode: Mode | None = Field(None, description='Mode of the key\'s file, `"0600"` by default.')
    force: bool = Field(False, description="Issue it anew in every run.")

    def model_post_init(self, context: object) -> None:
        if self.kind == "ca":
            refuse(self, ("usages",), "`kind: ca`")
        elif self.ca is None:
            raise ValueError("a leaf needs `ca`, which signs it: {host, cert, key}")
        else:
            refuse(self, ("path_length",), "`kind: leaf`")
        if self.ca is None:
            refuse(self, ("chain", "ca_path"), "a CA that signs itself: it has no `ca`")
        if "serverAuth" in self.all_usages and not self.sans.all():
            raise ValueError("a certificate of a server needs `sans`: clients do not look at its commonName")
        if self.renew_before >= self.valid_for:
            raise ValueError("renewBefore must be shorter than validity: it would be renewed in every run")
        if len({self.path, self.key_file, self.ca_path}) != 3:
            raise ValueError("path, keyPath and caPath must be different files")
        if (self.key_mode or 0) & 0o007:
            raise ValueError("keyMode must not let everybody read or write the key")

    @property
    def all_usages(self) -> frozenset[str]:
        """What it is for."""
        return frozenset() if self.kind == "ca" else frozenset(self.usages or ["serverAuth"])

    @property
    def valid_for(self) -> float:
        """Seconds."""
        return self.validity or (10 * _YEAR if self.kind == "ca" else _YEAR)

    @property
    def key_file(self) -> str:
        """The path of the key."""
        return self.key_path or posixpath.splitext(self.path)[0] + ".key"


class CertificateOutputs(Outputs):
    path: str = Field(description="File of the certificate.")
    key_path: str = Field(description="File of its key.")
    certificate: str = Field(description="The certificate itself, in PEM format.")
    subject: str = Field(description="Its subject.")
    sans: list[str] = Field(description="All names and addresses that it is valid for.")
    serial: str = Field(description="Its serial number, in hex.")
    fingerprint: str = Field(description="Its sha256.")
    not_after: str = Field(description="When it expires, such as `2027-11-18T09:30:00Z`.")
    days_left: int = Field(description="Days until then; negative afterwards.")


class Seen(Struct, frozen=True):
    """What precheck has found."""

    states: tuple[FileState, ...]
    """Of the certificate, its key and the CA's certificates, if they are wanted."""
    found: tuple[Any, ...]
    """The certificates in the file."""
    leaf: Any
    """The certificate that stays, or that was issued."""
    key: Any
    """The key that stays, or that was made."""
    issued: bool
    made: bool
    """Whether the key is a new one."""
    issuer: Any
    now: Any
    missing: str = ""
    """Why it cannot be issued yet."""


class CertificateStep(RestoringStep[CertificateParams, Seen]):
    """A certificate authority, or a certificate that one signs, with its private key.

    Key and certificate are made on the control node, in memory, and sent to the host. The key of a CA is read from the
    host that has it (`ca.host`), or is a secret. No key is ever in a file of the control node, in the journal, in an
    output or in a message.

    - Nothing is done if the certificate has the subject, names, usages and algorithm that are asked for, is signed by
      the CA, fits its key, and does not expire sooner than `renewBefore`. Otherwise it is issued anew, and `check`
      says why.
    - The key is kept when a certificate is renewed, unless it has another algorithm or `newKey` is set.
    - No certificate is valid longer than its CA. One that expires with its CA is not renewed before the CA is.
    - The files are replaced atomically, one after the other: the key first. Services read them when they start or are
      told to: restart them if the step has changed something.
    - Undo restores the previous files, or removes the new ones. A replaced key is remembered in memory only: an undo in
      a later session (`runs rollback`) of a run that replaced a key restores nothing, and says so.
    """

    outputs_model = CertificateOutputs
    example = """\
- name: etcd-server
  type: certificate
  with:
    path: /etc/etcd/pki/server.crt
    keyPath: /etc/etcd/pki/server.key
    subject: {commonName: "{{ host.name }}"}
    sans: {dns: [web.example.com, localhost], ip: 127.0.0.1}
    usages: [serverAuth, clientAuth]
    ca: {host: control-node, cert: /etc/etcd/pki/ca.crt, key: /etc/etcd/pki/ca.key}
    renewBefore: 60d
"""

    def precheck(self, ctx: StepContext) -> Forecast[Seen]:
        self.params = params = _located(ctx, self.params)
        from kubexm_steps.lib import x509

        now = x509.now()
        paths = [params.path, params.key_file, *([params.ca_path] if params.ca_path else [])]
        states = tuple(ctx.runner.inspect_all(paths))
        issuer, missing = self._issuer(ctx, now)
        found, key, words = self._look(ctx, states, issuer, now)
        leaf = None if words else found[0]
        seen = Seen(states, tuple(found), leaf, key, bool(words), key is None, issuer, now, missing)
        if missing and words:
            return Forecast.unknown(missing, seen=seen, failure=self._lacks_ca(missing))
        if words and params.ca is not None:
            seen = replace(seen, issuer=self._with_key(ctx, issuer, now))
        changes = self._changes(ctx, seen)
        if not any(change.any for change in changes):
            note = ""
            if x509.expires_with_ca(found[0], self._wanted(), issuer, now):
                note = f", with its CA on {x509.day(found[0].not_valid_after_utc)}: renew the CA first"
            left = f"it expires in {x509.days_left(found[0], now)} days{note}"
            return Forecast.satisfied(f"{params.path} is as it should be; {left}", self._outputs(found[0], now))
        for change in changes:
            if change.any and change.before.above and not params.create_parents:
                return lacks_folder(change.before.path, seen)
        diffs = self._diffs(ctx, seen, changes, words)
        verb = "issue" if words else "change"
        why = "; ".join(words) or ", ".join(filter(None, (change.summary() for change in changes if change.any)))
        return Forecast.change(f"would {verb} {params.path} ({why})", diffs, seen=seen)

    def run(self, ctx: StepContext, forecast: Forecast[Seen]) -> Result:
        from kubexm_steps.lib import x509

        params, seen = self.params, forecast.seen
        if seen.missing:
            raise self._lacks_ca(seen.missing)
        if seen.made:
            seen = replace(seen, key=x509.new_key(params.algorithm))
            ctx.hide(*x509.secret_texts(x509.key_pem(seen.key)))
        if seen.issued:
            seen = replace(seen, leaf=x509.issue(self._wanted(), seen.key, seen.issuer, seen.now))
        leaf, changes = seen.leaf, self._changes(ctx, seen)
        folders: dict[str, None] = {}
        if params.create_parents:
            for change in changes:
                if not change.before.folder:
                    folder = posixpath.dirname(change.before.path)
                    folders.update(dict.fromkeys(ctx.runner.missing_folders(folder, change.before)))
        doing = [change for change in changes if change.any]
        remember(ctx, doing, list(folders))
        for folder in folders:
            ctx.runner.mkdir(folder, missing=[folder])
        for change in doing:
            apply_change(ctx, change)
        until = f"valid until {x509.day(leaf.not_valid_after_utc)}"
        message = f"issued {params.path} for {self._subject()}, {until}" if seen.issued else f"changed {params.path}"
        return Result(message=message, outputs=self._outputs(leaf, seen.now))

    def _lacks_ca(self, missing: str) -> StepFailed:
        hint = "make the CA first, with a `certificate` step of `kind: ca`"
        return StepFailed(f"sign {self.params.path}: {missing.removesuffix(' yet')}", hint=hint)

    def rollback(self, ctx: StepContext, undo: Mapping[str, Any]) -> None:
        # All of them or none: an old certificate beside a new key would be of no use.
        for record in undo.get("files", ()):
            if "content" in record:
                ctx.kept(record["content"])
        restore(ctx, undo)

    # what there is

    def _look(
        self, ctx: StepContext, states: tuple[FileState, ...], issuer: x509.Issuer | None, now: datetime
    ) -> tuple[list[x509.Certificate], x509.PrivateKey | None, list[str]]:
        """The certificates that are there, the key that stays, and why a certificate is issued."""
        from kubexm_steps.lib import x509

        params, (path, key_path, *_) = self.params, states
        words: list[str] = []
        found: list[x509.Certificate] = []
        key: x509.PrivateKey | None = None
        if path.kind == "file":
            try:
                found = x509.read_certificates(self._content(ctx, path, key=False))
                words += x509.faults(found[0], self._wanted(), issuer, now)
            except ValueError as error:
                words.append(str(error))
        else:
            words.append(f"certificate of {self._subject()}{self._by(issuer)}")
        if key_path.kind != "file":
            words += ["its key is missing"] if found else []
        else:
            try:
                key = x509.read_key(self._content(ctx, key_path))
            except ValueError as error:
                if "encrypted" in str(error):
                    raise StepFailed(
                        f"certificate {params.path}: the key {params.key_file} is encrypted",
                        hint="decrypt or remove it, or choose another `keyPath`",
                    ) from None
                words.append(f"its key cannot be used: {error}")
        if key is not None and found and not x509.same_key(key.public_key(), found[0].public_key()):
            words.append("its key does not fit")
        if key is not None and (x509.algorithm_of(key.public_key()) != params.algorithm or (words and params.new_key)):
            key = None
        return found, key, words

    def _content(self, ctx: StepContext, state: FileState, *, key: bool = True) -> bytes:
        """The content of a file; keys in it are masked before anybody else sees it."""
        from kubexm_steps.lib import x509

        data = ctx.runner.content(state, limit=_LIMIT)
        ctx.hide(*x509.secret_texts(data, key=key))
        return data

    def _issuer(self, ctx: StepContext, now: datetime) -> tuple[x509.Issuer | None, str]:
        """The CA without its key, and why it cannot be used yet."""
        from kubexm_steps.lib import x509

        ca = self.params.ca
        if ca is None:
            return None, ""
        data = self._of_ca(ctx, ca.cert)
        if data is None:
            return None, f"the CA's certificate {self._place(ctx, ca.cert)} does not exist yet"
        try:
            certificates = x509.read_certificates(data)
            issuer = x509.Issuer(certificates[0], tuple(certificates))
            x509.check_issuer(issuer, now)
        except ValueError as error:
            raise StepFailed(
                f"the CA's certificate {self._place(ctx, ca.cert)}: {error}", hint="check `ca.cert`"
            ) from error
        return issuer, ""

    def _with_key(self, ctx: StepContext, issuer: x509.Issuer | None, now: datetime) -> x509.Issuer:
        """The CA with its key, which is in memory from now on, until the step ends."""
        from kubexm_steps.lib import x509

        ca = self.params.ca
        assert ca is not None
        assert issuer is not None
        what = f"the CA's key {self._place(ctx, ca.key)}"
        data = self._of_ca(ctx, ca.key)
        if data is None:
            raise StepFailed(f"{what} does not exist", hint="check `ca.key` and `ca.host`")
        ctx.hide(*x509.secret_texts(data))
        try:
            issuer = replace(issuer, key=x509.read_key(data, ca.passphrase))
            x509.check_issuer(issuer, now)
        except ValueError as error:
            raise StepFailed(f"{what}: {error}", hint="check `ca.key` and `ca.passphrase`") from error
        return issuer

    def _of_ca(self, ctx: StepContext, written: str) -> bytes | None:
        ca = self.params.ca
        assert ca is not None
        return ctx.read_on(ca.host or ctx.host.name, written) if written.startswith("/") else written.encode()

    def _place(self, ctx: StepContext, written: str) -> str:
        ca = self.params.ca
        assert ca is not None
        return f"{written} on {ca.host or ctx.host.name}" if written.startswith("/") else "in the spec"

    # what there will be

    def _wanted(self) -> x509.Wanted:
        from kubexm_steps.lib import x509

        params, said = self.params, self.params.subject
        parts = [("C", said.country)] if said.country else []
        parts += [("O", name) for name in said.organization] + [("OU", name) for name in said.organizational_unit]
        return x509.Wanted(
            ca=params.kind == "ca",
            subject=(*parts, ("CN", said.common_name)),
            sans=params.sans.all(),
            usages=params.all_usages,
            algorithm=params.algorithm,
            path_length=params.path_length,
            validity=params.valid_for,
            renew_before=params.renew_before,
            force=params.force,
        )

    def _changes(self, ctx: StepContext, seen: Seen) -> list[Change]:
        """What changes of the key, the certificate and the CA's certificates; what is not made yet has no content."""
        from kubexm_steps.lib import x509

        params = self.params
        path, key_path, *more = seen.states
        chain = seen.issuer.chain if seen.issuer is not None and params.chain else ()
        same = seen.found == (seen.leaf, *chain)
        certificates = None if same or seen.leaf is None else x509.certificate_pem(seen.leaf, *chain)
        key = x509.key_pem(seen.key) if seen.made and seen.key is not None else None
        changes = [
            self._file(ctx, key_path, key, seen.made, params.key_mode or SECRET_FILE),
            self._file(ctx, path, certificates, seen.issued),
        ]
        if more and seen.issuer is not None:
            changes.append(self._file(ctx, more[0], x509.certificate_pem(*seen.issuer.chain), False))
        return changes

    def _file(
        self, ctx: StepContext, before: FileState, data: bytes | None, new: bool, mode: int | None = None
    ) -> Change:
        """The change of a file whose content is known, or will be (``new``), or stays."""
        params = self.params
        content = None if data is None else Content.of(data)
        mode = params.mode if mode is None else mode
        wanted = Wanted(before.path, content, mode, params.owner, params.group, params.create_parents)
        change = compare(ctx, wanted, before)
        return replace(change, content=True) if new else change

    def _diffs(self, ctx: StepContext, seen: Seen, changes: list[Change], words: list[str]) -> list[Diff]:
        key, file, *more = changes
        diffs = []
        if key.any:
            notes = key.notes()
            if key.content and not key.created:
                notes = [*notes, "a new key: a later rollback cannot restore the old one"]
            diffs.append(Diff(key.before.path, note=", ".join([*notes, *([HIDDEN] if key.content else [])])))
        if file.any:
            why = words or (["other certificates of the CA follow it"] if file.content else [])
            diffs.append(Diff(file.before.path, note=", ".join([*file.notes(), *why])))
        for change in more:
            if change.any:
                note = ["certificates of the CA"] if change.content else []
                diffs.append(Diff(change.before.path, note=", ".join([*change.notes(), *note])))
        return diffs

    def _subject(self) -> str:
        from kubexm_steps.lib import x509

        return x509.subject_text(self._wanted().subject)

    def _by(self, issuer: x509.Issuer | None) -> str:
        from kubexm_steps.lib import x509

        if issuer is None:
            return " (signs itself)" if self.params.ca is None else ""
        return f" signed by {x509.subject_text(x509.subject_of(issuer.certificate.subject))}"

    def _outputs(self, certificate: x509.Certificate, now: datetime) -> dict[str, Any]:
        from kubexm_steps.lib import x509

        return {
            "path": self.params.path,
            "keyPath": self.params.key_file,
            "certificate": x509.certificate_pem(certificate).decode(),
            "subject": x509.subject_text(x509.subject_of(certificate.subject)),
            "sans": sorted(x509.sans_of(certificate)),
            "serial": f"{certificate.serial_number:x}",
            "fingerprint": x509.fingerprint(certificate),
            "notAfter": certificate.not_valid_after_utc.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "daysLeft": x509.days_left(certificate, now),
        }


def _located(ctx: StepContext, params: CertificateParams) -> CertificateParams:
    """The parameters, with `follow: true` those of the paths that links lead to."""
    if not params.follow:
        return params

    def real(path: str) -> str:
        folder, name = posixpath.split(path)
        return posixpath.join(ctx.runner.follow(folder), name)

    paths = {"path": real(params.path), "key_path": real(params.key_file)}
    return params.model_copy(update={**paths, **({"ca_path": real(params.ca_path)} if params.ca_path else {})})
