"""The step ``certificate``: what others make of its certificates, when it renews them, and that nobody sees a key."""

from __future__ import annotations

import base64
import json
import os
import shutil
import socket
import ssl
import subprocess
import textwrap
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from pydantic import ValidationError

from kubexm_exec.model.graph import GraphHost
from kubexm_exec.model.result import ForecastState
from kubexm_exec.secrets import Redactor
from kubexm_exec.step import StepFailed
from kubexm_exec.testing import StepTest, snapshot
from kubexm_steps.certificate import CertificateParams
from kubexm_steps.lib import x509
from tests.lab.sshd import MISSING, SSHD, SshHost, ssh_host

DAY = 86400.0
ALGORITHMS = ("ecdsa-p256", "ecdsa-p384", "ecdsa-p521", "ed25519", "rsa-2048", "rsa-3072")
OPENSSL = shutil.which("openssl")
CA = {"kind": "ca", "subject": {"commonName": "Test CA"}}


def leaf_of(folder: Path, **more: Any) -> dict[str, Any]:
    return {
        "path": f"{folder}/web.crt",
        "subject": {"commonName": "web"},
        "sans": {"dns": ["localhost"], "ip": ["127.0.0.1"]},
        "ca": {"cert": f"{folder}/ca.crt", "key": f"{folder}/ca.key"},
        **more,
    }


def make_ca(folder: Path, **more: Any) -> None:
    with StepTest(folder, "certificate", {"path": f"{folder}/ca.crt", **CA, **more}) as step:
        step.run()


@pytest.fixture
def ca(tmp_path: Path) -> Path:
    make_ca(tmp_path)
    return tmp_path


def read(path: Path) -> x509.Certificate:
    return x509.read_certificates(path.read_bytes())[0]


def aged(folder: Path, *, made: float, validity: float) -> None:
    """A certificate that was made some days ago, as the step makes it."""
    key = x509.new_key("ecdsa-p256")
    issuer = x509.Issuer(read(folder / "ca.crt"), (), x509.read_key((folder / "ca.key").read_bytes()))
    wanted = x509.Wanted(
        ca=False, subject=(("CN", "web"),), sans=frozenset({"localhost", "127.0.0.1"}),
        usages=frozenset({"serverAuth"}), algorithm="ecdsa-p256", path_length=None, validity=validity * DAY,
        renew_before=0.0,
    )  # fmt: skip
    then = x509.now() - timedelta(days=made)
    (folder / "web.crt").write_bytes(x509.certificate_pem(x509.issue(wanted, key, issuer, then)))
    (folder / "web.key").write_bytes(x509.key_pem(key))
    (folder / "web.key").chmod(0o600)


# renewal


def test_a_certificate_is_renewed_before_it_expires_with_its_key(ca: Path) -> None:
    aged(ca, made=353, validity=365)
    before, key = read(ca / "web.crt"), (ca / "web.key").read_bytes()
    with StepTest(ca, "certificate", leaf_of(ca)) as step:
        forecast = step.forecast()
        day = x509.day(before.not_valid_after_utc)
        assert forecast.message == f"would issue {ca}/web.crt (it expires in 12 days ({day}), renewed before 30d)"
        result = step.run()
        assert result.outputs["daysLeft"] == 365
        assert (ca / "web.key").read_bytes() == key
        assert read(ca / "web.crt").serial_number != before.serial_number
        again = step.forecast()
        assert again.state is ForecastState.SATISFIED
        assert again.message == f"{ca}/web.crt is as it should be; it expires in 365 days"
        assert again.outputs["daysLeft"] == 365


def test_the_threshold_decides(ca: Path) -> None:
    aged(ca, made=353, validity=365)
    with StepTest(ca, "certificate", leaf_of(ca, renewBefore="10d")) as step:
        assert step.forecast().state is ForecastState.SATISFIED
    with StepTest(ca, "certificate", leaf_of(ca, renewBefore="13d")) as step:
        assert "renewed before 13d" in step.forecast().message


def test_one_that_expires_with_its_ca_waits_for_the_ca(tmp_path: Path) -> None:
    make_ca(tmp_path, validity="20d", renewBefore="1d")
    with StepTest(tmp_path, "certificate", leaf_of(tmp_path)) as step:
        step.run()
        leaf, issuer = read(tmp_path / "web.crt"), read(tmp_path / "ca.crt")
        assert leaf.not_valid_after_utc == issuer.not_valid_after_utc
        again = step.forecast()
        assert again.state is ForecastState.SATISFIED
        assert "with its CA on" in again.message
        assert "renew the CA first" in again.message
    # The CA keeps its key: what it has signed stays valid, and can be renewed now.
    make_ca(tmp_path, validity="400d", renewBefore="30d")
    with StepTest(tmp_path, "certificate", leaf_of(tmp_path)) as step:
        assert "renewed before 30d" in step.forecast().message


def test_a_ca_with_a_new_key_has_its_leaves_signed_anew(ca: Path) -> None:
    with StepTest(ca, "certificate", leaf_of(ca)) as step:
        step.run()
        make_ca(ca, newKey=True, force=True)
        assert step.forecast().message == f"would issue {ca}/web.crt (it is not signed by CN=Test CA)"


# what others make of it


@pytest.mark.skipif(OPENSSL is None, reason="no openssl here")
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_openssl_takes_ca_intermediate_and_leaf(tmp_path: Path, algorithm: str) -> None:
    assert OPENSSL is not None
    make_ca(tmp_path, algorithm=algorithm)
    sub = {"path": f"{tmp_path}/sub.crt", "kind": "ca", "subject": {"commonName": "Sub"}, "pathLength": 0}
    of = {"cert": f"{tmp_path}/ca.crt", "key": f"{tmp_path}/ca.key"}
    with StepTest(tmp_path, "certificate", {**sub, "ca": of, "algorithm": algorithm}) as step:
        step.run()
    of = {"cert": f"{tmp_path}/sub.crt", "key": f"{tmp_path}/sub.key"}
    more = {"ca": of, "chain": True, "algorithm": algorithm, "usages": ["clientAuth", "serverAuth"]}
    with StepTest(tmp_path, "certificate", leaf_of(tmp_path, **more)) as step:
        outputs = step.run().outputs
    for purpose in ("sslserver", "sslclient"):
        subprocess.run(
            [OPENSSL, "verify", "-x509_strict", "-purpose", purpose, "-verify_ip", "127.0.0.1", "-CAfile",
             f"{tmp_path}/ca.crt", "-untrusted", f"{tmp_path}/web.crt", f"{tmp_path}/web.crt"],
            check=True, capture_output=True,
        )  # fmt: skip
    told = subprocess.run(
        [OPENSSL, "x509", "-in", f"{tmp_path}/web.crt", "-noout", "-fingerprint", "-sha256", "-serial"],
        check=True, capture_output=True, text=True,
    ).stdout.lower().replace(":", "")  # fmt: skip
    assert f"fingerprint={outputs['fingerprint']}" in told
    assert f"serial={outputs['serial'].zfill(len(outputs['serial']) + len(outputs['serial']) % 2)}" in told


def test_a_server_and_a_client_speak_tls_with_it(ca: Path) -> None:
    with StepTest(ca, "certificate", leaf_of(ca, usages=["serverAuth", "clientAuth"])) as step:
        step.run()
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(ca / "ca.crt"))
    server.load_cert_chain(ca / "web.crt", ca / "web.key")
    server.verify_mode = ssl.CERT_REQUIRED
    client = ssl.create_default_context(cafile=str(ca / "ca.crt"))
    client.load_cert_chain(ca / "web.crt", ca / "web.key")
    ours, theirs = socket.socketpair()
    said: list[bytes] = []

    def serve() -> None:
        with server.wrap_socket(theirs, server_side=True) as wrapped:
            said.append(wrapped.recv(10))
            wrapped.sendall(b"heard")

    thread = threading.Thread(target=serve)
    thread.start()
    with client.wrap_socket(ours, server_hostname="127.0.0.1") as wrapped:
        wrapped.sendall(b"hello")
        assert wrapped.recv(10) == b"heard"
    thread.join()
    assert said == [b"hello"]


# nobody sees a key


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_keys_are_masked_however_they_are_written_and_certificates_are_not(algorithm: str) -> None:
    for _ in range(3 if algorithm.startswith("rsa") else 20):
        key = x509.new_key(algorithm)
        pem = x509.key_pem(key).decode()
        redactor = Redactor()
        for text in x509.secret_texts(pem.encode()):
            redactor.add_token(text)
        wanted = x509.Wanted(
            ca=True, subject=(("CN", "x"),), sans=frozenset(), usages=frozenset(), algorithm=algorithm,
            path_length=None, validity=DAY, renew_before=0.0,
        )  # fmt: skip
        certificate = x509.certificate_pem(x509.issue(wanted, key, None, x509.now())).decode()
        assert redactor.mask(certificate) == certificate
        body = "".join(pem.splitlines()[1:-1])
        secret, folded, *_ = x509.secret_texts(pem.encode())
        assert secret in body
        for shown in (pem, json.dumps(pem), body, textwrap.fill(body, 48), textwrap.indent(pem, "    ")):
            masked = redactor.mask(shown).replace("\\n", "")
            plain = "".join(masked.split())
            assert not [at for at in range(len(secret) - 24) if secret[at : at + 24] in plain]
        data = base64.b64encode(pem.encode()).decode()
        start = pem.index(folded) * 4 // 3 + 8
        masked = redactor.mask(data)
        ends = start + len(folded) * 4 // 3 - 24
        assert not [at for at in range(start, ends) if data[at : at + 24] in masked]


def test_every_line_of_a_key_is_masked_by_itself() -> None:
    pem = x509.key_pem(x509.new_key("rsa-2048"))
    redactor = Redactor()
    [text, *_] = x509.secret_texts(pem)
    redactor.add_token(text)
    lines = pem.decode().splitlines()[1:-1]
    first = next(at for at, line in enumerate(lines) if line in text)
    assert [redactor.mask(line) for line in lines[first:-1]] == ["***"] * len(lines[first:-1])


def test_no_key_is_in_undo_data_events_outputs_or_messages(ca: Path) -> None:
    seen: list[str] = []
    keys = [(ca / "ca.key").read_text()]
    for more in ({}, {"newKey": True, "force": True}, {"algorithm": "rsa-2048"}):
        with StepTest(ca, "certificate", leaf_of(ca, **more)) as step:
            forecast = step.forecast()
            result = step.run()
            keys.append((ca / "web.key").read_text())
            said = [forecast.message, *(f"{diff}" for diff in forecast.diffs), result.message, json.dumps(step.undo)]
            seen += [*said, json.dumps(dict(result.outputs)), *(f"{event}" for event in step.events)]
    assert len(set(keys)) == 4
    for key in keys:
        secret = next(x509.secret_texts(key.encode()))
        assert not [text for text in seen if secret[:40] in text or secret[-40:] in text]


def test_a_replaced_key_is_kept_in_memory_whatever_else_is_kept(ca: Path) -> None:
    with StepTest(ca, "certificate", leaf_of(ca)) as step:
        step.run()
    before = snapshot(ca)
    with StepTest(ca, "certificate", leaf_of(ca, newKey=True, force=True)) as step:
        # Others have used up the memory that there is for this.
        step.runtime.blobs._held = 1 << 40
        step.run()
        assert snapshot(ca) != before
        [folder] = [step.runtime.blobs._folder]
        kept = b"" if folder is None else b"".join(path.read_bytes() for path in folder.iterdir())
        assert b"PRIVATE KEY" not in kept
        step.rollback()
        assert snapshot(ca) == before


def test_an_undo_that_does_not_have_the_old_key_changes_nothing(ca: Path) -> None:
    with StepTest(ca, "certificate", leaf_of(ca)) as step:
        step.run()
    with StepTest(ca, "certificate", leaf_of(ca, newKey=True, force=True)) as step:
        step.run()
        undo = step.undo
    left = snapshot(ca)
    with StepTest(ca, "certificate", leaf_of(ca)) as later:
        later.undo = undo
        # As in a later session, in which nothing of the first one is in memory, and the key is not in the journal.
        with pytest.raises((StepFailed, KeyError)):
            later.rollback()
    assert snapshot(ca) == left


# where the CA is


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshHost]:
    if SSHD is None:
        pytest.skip(MISSING)
    with ssh_host(tmp_path_factory.mktemp("box")) as host:
        yield host


def there(box: SshHost) -> GraphHost:
    return replace(box.host(), name="ca1")


def test_the_ca_may_be_on_another_host(box: SshHost, tmp_path: Path) -> None:
    make_ca(box.prefix)
    of = {"host": "ca1", "cert": f"{box.prefix}/ca.crt", "key": f"{box.prefix}/ca.key"}
    with StepTest(tmp_path, "certificate", leaf_of(tmp_path, ca=of), others=[there(box)]) as step:
        step.run()
        assert step.forecast().state is ForecastState.SATISFIED
    assert sorted(path.name for path in tmp_path.iterdir()) == ["web.crt", "web.key"]
    read(tmp_path / "web.crt").verify_directly_issued_by(read(box.prefix / "ca.crt"))


@pytest.mark.parametrize(
    ("of", "message"),
    [
        ({"host": "ca2", "cert": "/x/ca.crt", "key": "/x/ca.key"}, 'read /x/ca.crt on ca2: there is no host "ca2"'),
        ({"host": "gone", "cert": "/x/ca.crt", "key": "/x/ca.key"}, "read /x/ca.crt on gone: host gone cannot be"),
        ({"host": "ca1", "cert": "/etc", "key": "/x/ca.key"}, "read /etc on ca1: is a directory"),
    ],
)
def test_a_ca_that_cannot_be_read_is_named(box: SshHost, tmp_path: Path, of: Any, message: str) -> None:
    gone = GraphHost("gone", address="127.0.0.1", connector="ssh", port=1, options={"connectTimeout": 3})
    with StepTest(tmp_path, "certificate", leaf_of(tmp_path, ca=of), others=[there(box), gone]) as step:
        with pytest.raises(StepFailed) as caught:
            step.forecast()
        assert caught.value.message.startswith(message)


def test_the_ca_may_be_a_secret(ca: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KX_CA_KEY", (ca / "ca.key").read_text())
    (ca / "ca.key").unlink()
    of = {"cert": (ca / "ca.crt").read_text(), "key": "{{ secret('env:KX_CA_KEY') }}"}
    with StepTest(ca, "certificate", leaf_of(ca, ca=of)) as step:
        step.run()
        assert step.forecast().state is ForecastState.SATISFIED


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has something to lose to another user")
@pytest.mark.parametrize("parameter", ["keyPath", "caPath", "ca"])
def test_no_file_of_it_is_reached_through_a_link_of_another_user(ca: Path, parameter: str) -> None:
    theirs, victim = ca / "theirs", ca / "victim"
    victim.mkdir()
    theirs.mkdir()
    shutil.copy(ca / "ca.crt", victim / "ca.crt")
    (theirs / "way").symlink_to(victim)
    os.lchown(theirs / "way", 54321, 54321)
    os.chown(theirs, 54321, 54321)
    path = f"{theirs}/way/ca.crt"
    more = {"ca": {"cert": path, "key": f"{ca}/ca.key"}} if parameter == "ca" else {parameter: path}
    before = snapshot(victim)
    with StepTest(ca, "certificate", leaf_of(ca, **more)) as step:
        for call in (step.forecast, step.run):
            with pytest.raises(StepFailed, match=r"is a link to .*, in a folder that user \S+ may write"):
                call()
    assert snapshot(victim) == before


# parameters


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"ca": None}, "a leaf needs `ca`, which signs it"),
        ({"sans": {}}, "needs `sans`"),
        ({"renewBefore": "365d"}, "renewBefore must be shorter than validity"),
        ({"validity": "10d"}, "renewBefore must be shorter than validity"),
        ({"keyPath": "/pki/web.crt"}, "must be different files"),
        ({"caPath": "/pki/web.key"}, "must be different files"),
        ({"keyMode": "0644"}, "must not let everybody read"),
        ({"sans": {"dns": ["10.0.0.1"]}}, "is an IP address: list it under `ip`"),
        ({"sans": {"ip": ["localhost"]}}, "is not an IP address; names are listed under `dns`"),
        ({"sans": {"dns": ["a b"]}}, "is not a name of the DNS"),
        ({"sans": {"uri": ["web"]}}, "is not a URI such as"),
        ({"usages": ["codeSigning"]}, "'serverAuth' or 'clientAuth'"),
        ({"algorithm": "rsa-1024"}, "rsa-2048"),
        ({"pathLength": 1}, "pathLength cannot be used with `kind: leaf`"),
        ({"subject": {"commonName": " "}}, "it must not be empty"),
        ({"ca": {"cert": "ca.crt", "key": "/ca.key"}}, "neither an absolute path on a host nor a text in PEM format"),
        ({"kind": "ca"}, ""),
        ({"kind": "ca", "usages": ["serverAuth"]}, "usages cannot be used with `kind: ca`"),
        ({"kind": "ca", "ca": None, "chain": True}, "chain cannot be used with a CA that signs itself"),
    ],
)
def test_parameters_that_make_no_sense_are_refused(more: dict[str, Any], message: str) -> None:
    given = leaf_of(Path("/pki"), **more)
    if not message:
        CertificateParams.model_validate(given)
        return
    with pytest.raises(ValidationError) as caught:
        CertificateParams.model_validate(given)
    assert message in str(caught.value)
    assert "PRIVATE KEY" not in str(caught.value)
