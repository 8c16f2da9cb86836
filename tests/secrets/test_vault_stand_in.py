"""Secrets from Vault. The server is a stand-in that speaks the parts of its API that are used: no Vault can be had."""

from __future__ import annotations

import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kubexm_exec.secrets import Redactor, SecretError, Secrets
from kubexm_exec.secrets.vault import VaultSecrets
from tests.secrets.vault import JWT, ROLE_ID, SECRET_ID, TOKEN, StandIn, stand_in


@pytest.fixture
def vault() -> Iterator[StandIn]:
    with stand_in() as server:
        server.put("secret/db", password="hunter22", user="app")
        yield server


def provider(vault: StandIn, **environ: str) -> VaultSecrets:
    if not environ:
        environ = {"VAULT_TOKEN": TOKEN}
    return VaultSecrets(pytest.fail, {"VAULT_ADDR": vault.url, **environ})


def refused(provider: VaultSecrets, reference: str) -> str:
    with pytest.raises(SecretError) as caught:
        provider.resolve(reference)
    return str(caught.value)


def test_reference_to_the_stand_in_gives_the_value_of_the_key_and_reads_each_path_once(vault: StandIn) -> None:
    secrets = provider(vault)
    assert secrets.resolve("vault:secret/db#password") == "hunter22"
    assert secrets.resolve("vault:secret/db#user") == "app"
    assert vault.asked == ["GET sys/internal/ui/mounts/secret/db", "GET secret/data/db"]


def test_an_older_version_can_be_asked_for(vault: StandIn) -> None:
    vault.put("secret/db", password="newer-one")
    assert provider(vault).resolve("vault:secret/db#password") == "newer-one"
    assert provider(vault).resolve("vault:secret/db?version=1#password") == "hunter22"


def test_engine_with_slashes_in_its_mount_and_one_of_version_1_are_read(vault: StandIn) -> None:
    vault.put("team/kv/app/db", password="deep-value")
    vault.put("old/app", password="old-value")
    assert provider(vault).resolve("vault:team/kv/app/db#password") == "deep-value"
    assert provider(vault).resolve("vault:old/app#password") == "old-value"


def test_login_that_may_not_see_the_mounts_takes_the_first_part_of_the_path(vault: StandIn) -> None:
    vault.hide_mounts = True
    assert provider(vault).resolve("vault:secret/db#password") == "hunter22"


def test_only_key_of_a_secret_needs_no_name(vault: StandIn) -> None:
    vault.put("secret/one", token="just-this")
    assert provider(vault).resolve("vault:secret/one") == "just-this"
    assert "has 2 keys; select one: PATH#key" in refused(provider(vault), "vault:secret/db")


def test_key_with_dots_goes_into_nested_data(vault: StandIn) -> None:
    vault.put("secret/nested", db={"password": "inner-value"})
    assert provider(vault).resolve("vault:secret/nested#db.password") == "inner-value"


def test_approle_logs_in_once_and_again_when_its_token_has_run_out(vault: StandIn) -> None:
    vault.put("secret/other", password="other-value")
    secrets = provider(vault, VAULT_ROLE_ID=ROLE_ID, VAULT_SECRET_ID=SECRET_ID)
    assert secrets.resolve("vault:secret/db#password") == "hunter22"
    vault.tokens.clear()
    assert secrets.resolve("vault:secret/other#password") == "other-value"
    assert vault.asked.count("POST auth/approle/login") == 2


def test_pod_logs_in_with_its_service_account(vault: StandIn, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(JWT + "\n")
    environ = {"VAULT_KUBERNETES_ROLE": "deployer", "VAULT_KUBERNETES_TOKEN_PATH": str(token)}
    assert provider(vault, **environ).resolve("vault:secret/db#password") == "hunter22"
    token.unlink()
    assert "this login works in a pod" in refused(provider(vault, **environ), "vault:secret/db#password")


def test_token_is_taken_from_the_file_that_the_vault_program_writes(vault: StandIn, tmp_path: Path) -> None:
    (tmp_path / ".vault-token").write_text(TOKEN)
    assert provider(vault, HOME=str(tmp_path)).resolve("vault:secret/db#password") == "hunter22"


@pytest.mark.parametrize(
    ("environ", "reference", "says"),
    [
        ({"HOME": "/nowhere"}, "vault:secret/db#password", "there is no login for the vault; set VAULT_TOKEN"),
        (
            {"VAULT_TOKEN": "wrong-token"},
            "vault:secret/db#password",
            "this login has no permission to read it, or has expired",
        ),
        ({"VAULT_ROLE_ID": "x", "VAULT_SECRET_ID": "y"}, "vault:secret/db#password", "invalid role or secret ID"),
        ({"KUBEXM_VAULT_AUTH": "ldap"}, "vault:secret/db#password", "choose one of token, approle, kubernetes"),
        ({"VAULT_TOKEN": TOKEN}, "vault:secret/dbs#password", "there is no secret/dbs in the vault"),
        ({"VAULT_TOKEN": TOKEN}, "vault:secret/db?version=9#password", "there is no secret/db in the vault"),
        ({"VAULT_TOKEN": TOKEN}, "vault:secret/db#pasword", 'did you mean "password"?'),
        ({"VAULT_TOKEN": TOKEN}, "vault:secret/number#password", "is not text but a number"),
        ({"VAULT_TOKEN": TOKEN}, "vault:secret/empty#password", "is empty"),
        ({"VAULT_TOKEN": TOKEN}, "vault:db", "write vault:MOUNT/PATH#key"),
        ({"VAULT_TOKEN": TOKEN}, "vault:", "write vault:MOUNT/PATH#key"),
    ],
)
def test_what_gives_no_secret_says_what_to_do_and_shows_none(
    vault: StandIn, environ: dict[str, str], reference: str, says: str
) -> None:
    vault.put("secret/number", password=123456)
    vault.put("secret/empty", password="")
    message = refused(provider(vault, **environ), reference)
    assert says in message
    assert "hunter22" not in message
    assert "wrong-token" not in message


def test_vault_that_is_sealed_or_gone_or_nowhere_is_told_apart(vault: StandIn) -> None:
    vault.sealed = True
    assert "the vault is sealed or in standby" in refused(provider(vault), "vault:secret/db#password")
    gone = VaultSecrets(pytest.fail, {"VAULT_ADDR": "http://127.0.0.1:9", "VAULT_TOKEN": TOKEN})
    assert "no answer from the vault at http://127.0.0.1:9" in refused(gone, "vault:secret/db#password")
    nowhere = VaultSecrets(pytest.fail, {"VAULT_TOKEN": TOKEN})
    assert "VAULT_ADDR is not set" in refused(nowhere, "vault:secret/db#password")


def test_certificate_of_the_vault_is_checked_against_the_given_authority(tmp_path: Path) -> None:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate = own_certificate(tmp_path)
    tls.load_cert_chain(certificate)
    with stand_in(tls) as vault:
        vault.put("secret/db", password="hunter22")
        assert "no answer from the vault" in refused(provider(vault), "vault:secret/db#password")
        trusting = provider(vault, VAULT_TOKEN=TOKEN, VAULT_CACERT=str(certificate))
        assert trusting.resolve("vault:secret/db#password") == "hunter22"


def own_certificate(folder: Path) -> Path:
    """Key and certificate of 127.0.0.1 in one file, signed by itself."""
    path = folder / "vault.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=vault"]
    names = ["-addext", "subjectAltName=IP:127.0.0.1"]
    parts = [folder / "key", folder / "certificate"]
    files = ["-keyout", str(parts[0]), "-out", str(parts[1])]
    subprocess.run([*command, *names, *files], check=True, capture_output=True)
    path.write_text("".join(part.read_text() for part in parts))
    return path


def test_vault_that_is_busy_for_a_moment_is_asked_again(vault: StandIn) -> None:
    vault.busy = 2
    assert provider(vault).resolve("vault:secret/db#password") == "hunter22"


def test_what_opens_the_vault_is_masked_too(vault: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VAULT_ADDR", vault.url)
    monkeypatch.setenv("VAULT_TOKEN", TOKEN)
    secrets = Secrets(Redactor())
    secrets.resolve("vault:secret/db#password")
    assert secrets.redactor.mask(f"{TOKEN} and hunter22") == "*** and ***"


def test_without_the_extra_the_message_says_what_to_install(vault: StandIn) -> None:
    code = (
        "import sys; sys.modules['hvac'] = None\n"
        "from kubexm_exec.secrets.vault import VaultSecrets\n"
        "try: VaultSecrets(print, {'VAULT_ADDR': 'x', 'VAULT_TOKEN': 'y'}).resolve('vault:a/b#c')\n"
        "except Exception as error: print(error)\n"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'kubexm[vault]'" in said.stdout
