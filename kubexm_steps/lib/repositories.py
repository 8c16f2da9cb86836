"""How a package repository is written down for each package manager: files and their text, nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct, field

from kubexm_steps.formats.openpgp import NotAKey, armor, dearmor, fingerprints

HEAD = "# Written by kubexm: what is changed here is lost at its next run."


class Repository(Struct, frozen=True):
    """A repository as the step's parameters describe it."""

    name: str
    urls: Sequence[str] = ()
    suites: Sequence[str] = ()
    components: Sequence[str] = ()
    architectures: Sequence[str] = ()
    description: str = ""
    enabled: bool = True
    trusted: bool = False
    options: Mapping[str, str] = field(default_factory=dict)
    key: bytes | None = None
    key_name: str = ""


class Written(Struct, frozen=True):
    """The files of a repository on a host."""

    path: str
    text: str
    key_path: str
    key: bytes | None
    """As the package manager wants it."""
    fingerprints: tuple[str, ...] = ()


def paths(manager: str, name: str, key_name: str = "") -> tuple[str, str]:
    """Where the repository and its key are written."""
    match manager:
        case "apt":
            return f"/etc/apt/sources.list.d/{name}.sources", f"/etc/apt/keyrings/{name}.gpg"
        case "dnf":
            return f"/etc/yum.repos.d/{name}.repo", f"/etc/pki/rpm-gpg/RPM-GPG-KEY-{name}"
        case "zypper":
            return f"/etc/zypp/repos.d/{name}.repo", f"/etc/pki/rpm-gpg/RPM-GPG-KEY-{name}"
        case _:
            return f"/etc/apk/repositories.d/{name}.list", f"/etc/apk/keys/{key_name or f'{name}.rsa.pub'}"


def write(manager: str, repository: Repository) -> Written:
    """The files; NotAKey if the key is none."""
    path, key_path = paths(manager, repository.name, repository.key_name)
    if manager == "apk":
        if repository.key is not None and b"-----BEGIN PUBLIC KEY-----" not in repository.key:
            raise NotAKey('it does not begin with "-----BEGIN PUBLIC KEY-----", as keys of apk do')
        return Written(path, _apk(repository), key_path, repository.key)
    key: bytes | None = None
    marks: tuple[str, ...] = ()
    if repository.key is not None:
        binary = dearmor(repository.key)
        marks = tuple(fingerprints(binary))
        key = binary if manager == "apt" else armor(binary)
    text = _apt(repository, key_path) if manager == "apt" else _rpm(repository, key_path)
    return Written(path, text, key_path, key, marks)


def _apt(repository: Repository, key_path: str) -> str:
    flat = all(suite.endswith("/") for suite in repository.suites)
    fields = {
        "Enabled": "" if repository.enabled else "no",
        "Types": "deb",
        "URIs": " ".join(repository.urls),
        "Suites": " ".join(repository.suites),
        "Components": "" if flat else " ".join(repository.components),
        "Architectures": " ".join(repository.architectures),
        "Signed-By": key_path if repository.key is not None else "",
        "Trusted": "yes" if repository.trusted else "",
    }
    lines = [HEAD, *([f"# {repository.description}"] if repository.description else [])]
    lines.extend(f"{key}: {value}" for key, value in _merged(fields, repository.options).items() if value)
    return "\n".join(lines) + "\n"


def _rpm(repository: Repository, key_path: str) -> str:
    fields = {
        "name": repository.description or repository.name,
        "baseurl": "\n        ".join(repository.urls),
        "enabled": str(int(repository.enabled)),
        "gpgcheck": str(int(not repository.trusted)),
        "repo_gpgcheck": "0" if repository.trusted else "",
        "gpgkey": f"file://{key_path}" if repository.key is not None else "",
    }
    lines = [HEAD, f"[{repository.name}]"]
    lines.extend(f"{key}={value}" for key, value in _merged(fields, repository.options).items() if value)
    return "\n".join(lines) + "\n"


def _apk(repository: Repository) -> str:
    tag = repository.options.get("tag", "")
    lines = [f"@{tag} {url}" if tag else url for url in repository.urls]
    off = "" if repository.enabled else "#"
    lines = [
        HEAD,
        *([f"# {repository.description}"] if repository.description else []),
        *(off + each for each in lines),
    ]
    return "\n".join(lines) + "\n"


def _merged(fields: Mapping[str, str], options: Mapping[str, str]) -> dict[str, str]:
    """The fields with the user's own in their place, whatever their case."""
    merged = dict(fields)
    names = {name.lower(): name for name in fields}
    for key, value in options.items():
        merged[names.get(key.lower(), key)] = value
    return merged
