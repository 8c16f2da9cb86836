"""The step type ``ca-certificate``: a certification authority that the host trusts, or does not."""

from __future__ import annotations

import hashlib
import re
import ssl
import time
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, NamedTuple

from msgspec import Struct
from pydantic import AfterValidator, Field

from kubexm_exec.step import Forecast, LocalFile, Outputs, Params, Result, StepContext, StepFailed
from kubexm_exec.step.system import Anchor
from kubexm_steps.lib.edits import Edit, apply, diffs, save
from kubexm_steps.lib.files import RestoringStep, read_local, restore
from kubexm_steps.lib.types import refuse, shaped

_SOON: Final = 30 * 86400
_BLOCK: Final = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----.*?-----END \1-----", re.DOTALL)


class Certificate(Struct, frozen=True):
    """A certificate that is fit to be trusted."""

    pem: str
    fingerprint: str
    subject: str
    not_after: str
    ends: float
    begins: float

    def line(self) -> str:
        """A line of it that no other certificate has: it is in the middle of its signature."""
        return self.pem.splitlines()[-3]

    def note(self, now: float) -> str:
        """What is odd about its dates."""
        if self.ends < now:
            return f"; it expired on {self.not_after}"
        if self.begins > now:
            return "; it is not valid yet"
        return f"; it expires on {self.not_after}" if self.ends < now + _SOON else ""


def read_certificate(text: str) -> Certificate:
    """The one CA certificate in a PEM text; ValueError says what is wrong with it."""
    blocks = [(found[1], found[0]) for found in _BLOCK.finditer(text)]
    if any("PRIVATE KEY" in kind for kind, _ in blocks):
        raise ValueError("it contains a private key: hosts that trust a CA need only its certificate")
    certificates = [block for kind, block in blocks if kind in ("CERTIFICATE", "X509 CERTIFICATE")]
    if len(certificates) != 1:
        if not certificates:
            raise ValueError("it contains no certificate in PEM format")
        raise ValueError(f"it contains {len(certificates)} certificates: use one step for each")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        der = ssl.PEM_cert_to_DER_cert(certificates[0].replace("X509 CERTIFICATE", "CERTIFICATE"))
        context.load_verify_locations(cadata=der)
    except (ssl.SSLError, ValueError) as error:
        raise ValueError("it is not a certificate in PEM format, or it is damaged") from error
    found = context.get_ca_certs()
    if not found:
        raise ValueError("it is not the certificate of a CA (its basicConstraints do not say CA:TRUE)")
    said: Mapping[str, Any] = found[0]
    subject = ", ".join(f"{key}={value}" for part in said["subject"] for key, value in part)
    return Certificate(
        pem=ssl.DER_cert_to_PEM_cert(der),
        fingerprint=hashlib.sha256(der).hexdigest(),
        subject=subject,
        not_after=str(said["notAfter"]),
        ends=ssl.cert_time_to_seconds(str(said["notAfter"])),
        begins=ssl.cert_time_to_seconds(str(said["notBefore"])),
    )


class CaCertificateParams(Params):
    """Parameters of ``ca-certificate``."""

    name: Annotated[
        str,
        AfterValidator(lambda name: name.removesuffix(".crt").removesuffix(".pem")),
        shaped(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", "a name for a certificate: letters, digits, `-`, `_` and dots"),
    ] = Field(description="Name of its file on the host, such as `site-ca`.")
    content: str | None = Field(None, description="The certificate, in PEM format.")
    src: Annotated[str, LocalFile()] | None = Field(
        None, description="File on the control node with the certificate in PEM format, relative to the spec's file."
    )
    state: Literal["present", "absent"] = Field(
        "present", description="`absent`: the host does not trust the certificate."
    )

    def model_post_init(self, context: object) -> None:
        if self.state == "present" and (self.content is None) == (self.src is None):
            raise ValueError("give the certificate either as content or as src")
        if self.state == "absent":
            refuse(self, ("content", "src"), "`state: absent`")


class CaCertificateOutputs(Outputs):
    path: str = Field(description="Its file on the host.")
    fingerprint: str = Field("", description="Its sha256; empty if it is absent.")
    subject: str = Field("", description="Subject of the certificate.")
    not_after: str = Field("", description="Expiry date.")


class Seen(NamedTuple):
    """The certificate, and the host's trust in it; None if the host cannot be told whom to trust."""

    wanted: Certificate | None
    now: Anchor | None


class CaCertificateStep(RestoringStep[CaCertificateParams, Seen]):
    """A certificate authority that all programs of the host trust, or no longer trust.

    The certificate is stored where the distribution expects it, and the distribution's own tool updates the bundle:
    Debian, Ubuntu and Alpine (`/usr/local/share/ca-certificates`), Fedora and Red Hat, SUSE, Arch.

    - It is examined first: a damaged file, a certificate of a non-CA and a file with a private key are refused. An
      expired certificate is accepted, with a message.
    - It counts as present only if the bundle contains it too.
    - Running programs keep the certificates they have read; restart them.
    - Undo removes it, or restores the previous one.
    """

    outputs_model = CaCertificateOutputs
    example = """\
- name: trust
  type: ca-certificate
  with: {name: site-ca, src: files/site-ca.pem}
"""

    def precheck(self, ctx: StepContext) -> Forecast[Seen]:
        wanted = self._wanted(ctx)
        now = self._look(ctx, wanted)
        if now is None:
            return Forecast.unknown(
                "update-ca-certificates or update-ca-trust is not installed yet", seen=Seen(wanted, None)
            )
        edit = self._edit(now, wanted)
        if not edit.any and (now.trusted or wanted is None):
            message = f"{self.params.name} is {'trusted' if wanted else 'not trusted'}{_note(wanted)}"
            return Forecast.satisfied(message, self._outputs(now, wanted))
        verb = "trust" if wanted else "no longer trust"
        return Forecast.change(
            f"would {verb} {self.params.name}{_note(wanted)}", diffs(ctx, [edit]), seen=Seen(wanted, now)
        )

    def run(self, ctx: StepContext, forecast: Forecast[Seen]) -> Result:
        wanted, now = forecast.seen
        if now is None:
            raise StepFailed(
                f"trust {self.params.name}: the host has neither update-ca-certificates nor update-ca-trust",
                hint="install the package ca-certificates first",
            )
        edit = self._edit(now, wanted)
        save(ctx, [edit], tool=now.tool)
        apply(ctx, [edit])
        ctx.runner.trust.update(now.tool, fresh=wanted is None)
        if wanted is not None:
            after = self._look(ctx, wanted)
            if after is None or not after.trusted:
                raise StepFailed(
                    f"trust {self.params.name}: {now.tool} did not accept it",
                    hint=f"run {now.tool} on the host to see why",
                )
        verb = "trusted" if wanted else "no longer trusted"
        return Result(message=f"{self.params.name} is {verb}{_note(wanted)}", outputs=self._outputs(now, wanted))

    def rollback(self, ctx: StepContext, undo: Mapping[str, Any]) -> None:
        restore(ctx, undo)
        ctx.runner.trust.update(undo["tool"], fresh=True)

    def _wanted(self, ctx: StepContext) -> Certificate | None:
        params = self.params
        if params.state == "absent":
            return None
        text = params.content or ""
        if params.src is not None:
            text = read_local(ctx.local_path(params.src)).decode("utf-8", "replace")
        try:
            return read_certificate(text)
        except ValueError as error:
            where = params.src or "content"
            raise StepFailed(
                f"trust {params.name}: {where}: {error}", hint="`openssl x509 -text` shows what is in a certificate"
            ) from error

    def _look(self, ctx: StepContext, wanted: Certificate | None) -> Anchor | None:
        return ctx.runner.trust.look(self.params.name, wanted.line() if wanted else "")

    def _edit(self, now: Anchor, wanted: Certificate | None) -> Edit:
        return Edit(now.held, wanted.pem if wanted else None)

    def _outputs(self, now: Anchor, wanted: Certificate | None) -> dict[str, Any]:
        outputs: dict[str, Any] = {"path": now.held.path}
        if wanted is not None:
            outputs |= {"fingerprint": wanted.fingerprint, "subject": wanted.subject, "notAfter": wanted.not_after}
        return outputs


def _note(wanted: Certificate | None) -> str:
    return wanted.note(time.time()) if wanted else ""
