"""Secrets in HashiCorp Vault (or OpenBao): `vault:PATH#key`, read through hvac."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NoReturn
from urllib.parse import urljoin

from kubexm_exec.http.redirects import MOST_REDIRECTS
from kubexm_exec.secrets import SecretError, SecretProvider, pick

_FORM: Final = "write vault:MOUNT/PATH#key, such as vault:secret/database#password"
_TIMEOUT: Final = 15.0
"""Seconds for each question."""
_SERVICE_ACCOUNT: Final = "/var/run/secrets/kubernetes.io/serviceaccount/token"
_REFERENCE: Final = re.compile(r"vault:/*(?P<path>[^#?]+?)/*(?:\?version=(?P<version>[0-9]+))?(?:#(?P<key>.*))?")
_WAYS: Final = ("token", "approle", "kubernetes")
_LOGIN_HINT: Final = (
    "set VAULT_TOKEN, or VAULT_ROLE_ID and VAULT_SECRET_ID (AppRole), or VAULT_KUBERNETES_ROLE (in a pod)"
)


class VaultSecrets(SecretProvider):
    """Secrets in a KV engine of Vault: ``vault:MOUNT/PATH#key``, version 2 of the engine, or 1 where it is that.

    ``?version=N`` before the key asks for an older version. Address and login come from the environment, as for the
    ``vault`` program: VAULT_ADDR, VAULT_NAMESPACE, VAULT_CACERT, VAULT_CAPATH, VAULT_CLIENT_CERT, VAULT_CLIENT_KEY, and
    a token (VAULT_TOKEN, ~/.vault-token), an AppRole (VAULT_ROLE_ID, VAULT_SECRET_ID) or a pod's service account
    (VAULT_KUBERNETES_ROLE). KUBEXM_VAULT_AUTH says which one if there are several.
    """

    early = True

    def __init__(self, warn: Callable[[str], None], environ: Mapping[str, str] | None = None) -> None:
        super().__init__(warn)
        self._environ = os.environ if environ is None else environ
        self._client: Any = None
        self._read: dict[tuple[str, str], Mapping[str, Any]] = {}

    def resolve(self, reference: str) -> str:
        """The value of the key; a secret with one key only needs none."""
        found = _REFERENCE.fullmatch(reference)
        if found is None or "/" not in found["path"]:
            raise SecretError(reference, "does not name a path in a vault", _FORM)
        path, version, key = found["path"], found["version"] or "", found["key"] or ""
        if (path, version) not in self._read:
            self._read[path, version] = self._ask(reference, path, version)
        data = self._read[path, version]
        if not key:
            if len(data) != 1:
                raise SecretError(reference, f"{path} in the vault has {len(data)} keys", "select one: PATH#key")
            key = next(iter(data))
        value = pick(reference, f"{path} in the vault", key, data)
        if not value:
            raise SecretError(reference, f'"{key}" in {path} in the vault is empty', "put the value there")
        return value

    def _ask(self, reference: str, path: str, version: str) -> Mapping[str, Any]:
        try:
            import hvac.exceptions
            import requests
        except ImportError:
            what = "reading from a vault needs the package hvac"
            raise SecretError(reference, what, "pip install 'kubexm[vault]'") from None
        fresh = self._client is None
        try:
            client = self._login(reference)
            try:
                return _read(client, path, version)
            except (hvac.exceptions.Forbidden, hvac.exceptions.Unauthorized):
                if fresh or self._way() == "token":
                    raise
                # A login does not last as long as a run may.
                self._client = None
                return _read(self._login(reference), path, version)
        except (hvac.exceptions.VaultError, requests.RequestException, OSError) as error:
            _explain(reference, path, self._address(), error)

    # Logging in

    def _address(self) -> str:
        return self._environ.get("VAULT_ADDR", "")

    def _way(self) -> str:
        way = self._environ.get("KUBEXM_VAULT_AUTH", "")
        if way:
            return way
        has = self._environ.get
        if has("VAULT_TOKEN"):
            return "token"
        if has("VAULT_ROLE_ID"):
            return "approle"
        return "kubernetes" if has("VAULT_KUBERNETES_ROLE") else "token"

    def _login(self, reference: str) -> Any:
        if self._client is not None:
            return self._client
        if not self._address():
            raise SecretError(reference, "VAULT_ADDR is not set", "export VAULT_ADDR=https://vault.example.com:8200")
        way = self._way()
        if way not in _WAYS:
            raise SecretError(reference, f'KUBEXM_VAULT_AUTH is "{way}"', f"choose one of {', '.join(_WAYS)}")
        client = self._connect()
        # A failed login must not leave half a client behind.
        token = {"token": self._by_token, "approle": self._by_approle, "kubernetes": self._by_kubernetes}[way](
            reference, client
        )
        self.hidden.add(token)
        client.token = token
        self._client = client
        return client

    def _connect(self) -> Any:
        import hvac
        import requests
        from urllib3.util import Retry

        session = plain_session()
        # 412: another server of the cluster does not know yet what this one was told.
        retry = Retry(
            total=3,
            backoff_factor=0.3,
            status_forcelist=(412, 429, 502, 503),
            raise_on_status=False,
            allowed_methods=None,
        )
        for scheme in ("http://", "https://"):
            session.mount(scheme, requests.adapters.HTTPAdapter(max_retries=retry))
        has = self._environ.get
        session.verify = has("VAULT_CACERT") or has("VAULT_CAPATH") or True
        if certificate := has("VAULT_CLIENT_CERT"):
            key = has("VAULT_CLIENT_KEY")
            session.cert = (certificate, key) if key else certificate
        # verify and cert again: hvac looks into its own environment for what it is not given.
        return hvac.Client(
            url=self._address(),
            token="",
            cert=session.cert,
            verify=session.verify,
            timeout=_TIMEOUT,
            session=session,
            namespace=has("VAULT_NAMESPACE"),
        )

    def _by_token(self, reference: str, client: Any) -> str:
        token = self._environ.get("VAULT_TOKEN", "")
        if not token:
            home = self._environ.get("HOME", "")
            path = Path(home, ".vault-token")
            if home and path.is_file():
                token = path.read_text("utf-8").strip()
        if not token:
            raise SecretError(reference, "there is no login for the vault", _LOGIN_HINT)
        return token

    def _by_approle(self, reference: str, client: Any) -> str:
        role, secret = self._environ.get("VAULT_ROLE_ID", ""), self._environ.get("VAULT_SECRET_ID", "")
        if not role:
            raise SecretError(reference, "VAULT_ROLE_ID is not set", _LOGIN_HINT)
        if secret:
            self.hidden.add(secret)
        mount = self._environ.get("VAULT_APPROLE_MOUNT", "approle")
        answer = client.auth.approle.login(role_id=role, secret_id=secret or None, mount_point=mount, use_token=False)
        return str(answer["auth"]["client_token"])

    def _by_kubernetes(self, reference: str, client: Any) -> str:
        role = self._environ.get("VAULT_KUBERNETES_ROLE", "")
        if not role:
            raise SecretError(reference, "VAULT_KUBERNETES_ROLE is not set", _LOGIN_HINT)
        path = Path(self._environ.get("VAULT_KUBERNETES_TOKEN_PATH", _SERVICE_ACCOUNT))
        try:
            jwt = path.read_text("utf-8").strip()
        except OSError as error:
            raise SecretError(
                reference,
                f"the service account's token {path} cannot be read: {error.strerror}",
                "this login works in a pod; elsewhere use a token or an AppRole",
            ) from None
        self.hidden.add(jwt)
        mount = self._environ.get("VAULT_KUBERNETES_MOUNT", "kubernetes")
        answer = client.auth.kubernetes.login(role=role, jwt=jwt, mount_point=mount, use_token=False)
        return str(answer["auth"]["client_token"])


def plain_session() -> Any:
    """A session with few redirects, none from https to http; a standby server's redirect keeps the token."""
    import requests

    class Session(requests.Session):
        def get_redirect_target(self, resp: requests.Response) -> str | None:
            target = super().get_redirect_target(resp)
            leads = urljoin(resp.url, target) if target else ""
            if resp.url.startswith("https:") and leads and not leads.startswith("https:"):
                raise requests.exceptions.InvalidSchema("the vault redirects to an unencrypted address")
            return target

    session = Session()
    session.max_redirects = MOST_REDIRECTS
    return session


def _read(client: Any, path: str, version: str) -> Mapping[str, Any]:
    mount, engine = _mount(client, path)
    rest = path[len(mount) :].strip("/")
    if engine == 1:
        answer = client.secrets.kv.v1.read_secret(path=rest, mount_point=mount)
        return answer["data"] or {}
    answer = client.secrets.kv.v2.read_secret_version(
        path=rest, mount_point=mount, version=version or None, raise_on_deleted_version=True
    )
    return answer["data"]["data"] or {}


def _mount(client: Any, path: str) -> tuple[str, int]:
    """Where the engine that has the path is mounted, and its version; asked as the ``vault`` program asks it."""
    import hvac.exceptions

    try:
        answer = client.adapter.get(f"/v1/sys/internal/ui/mounts/{path}")
    except (hvac.exceptions.Forbidden, hvac.exceptions.InvalidPath):
        # Old servers, and tokens that may only read the secret itself: the usual engine at the first part of the path.
        return path.partition("/")[0], 2
    data = answer["data"]
    version = (data.get("options") or {}).get("version", "1")
    return str(data["path"]).strip("/"), 1 if version == "1" else 2


def _explain(reference: str, path: str, address: str, error: Exception) -> NoReturn:
    import hvac.exceptions

    # From None: what the libraries raise may hold the whole request.
    if isinstance(error, hvac.exceptions.InvalidPath):
        raise SecretError(reference, f"there is no {path} in the vault", "check the path and its version") from None
    if isinstance(error, hvac.exceptions.Forbidden | hvac.exceptions.Unauthorized):
        what = "the vault refuses: this login has no permission to read it, or has expired"
        raise SecretError(reference, what, f"check its policies: vault token capabilities {path}") from None
    if isinstance(error, hvac.exceptions.VaultDown):
        raise SecretError(reference, "the vault is sealed or in standby", "unseal it, or ask another server") from None
    if isinstance(error, hvac.exceptions.VaultError):
        said = ", ".join(error.errors or []) if isinstance(error.errors, list) else str(error.errors or "")
        raise SecretError(reference, f"the vault answered: {said or type(error).__name__}", "check the login") from None
    name = type(error).__name__
    raise SecretError(reference, f"no answer from the vault at {address} ({name})", "check VAULT_ADDR") from None
