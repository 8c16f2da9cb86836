from __future__ import annotations

import re
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

from kubexm_exec.secrets import EnvSecrets, FileSecrets, Redactor, SecretError, Secrets

Write = Callable[..., str]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def make(text: str | bytes, name: str = "secret.yaml", mode: int = 0o600) -> str:
        path = tmp_path / name
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        path.chmod(mode)
        return f"file:{path}"

    return make


def from_file(reference: str) -> str:
    return FileSecrets(pytest.fail).resolve(reference)


def test_env_reference_gives_the_variable() -> None:
    assert EnvSecrets(pytest.fail, {"DB": "hunter22"}).resolve("env:DB") == "hunter22"


@pytest.mark.parametrize(
    ("reference", "says"),
    [
        ("env:DB_PASSWROD", 'did you mean "DB_PASSWORD"?'),
        ("env:OTHER", "the environment variable OTHER is not set; export OTHER=..."),
        ("env:EMPTY", "the environment variable EMPTY is empty"),
        ("env:", "does not name an environment variable; write env:NAME"),
    ],
)
def test_env_reference_without_a_value_says_what_to_do(reference: str, says: str) -> None:
    with pytest.raises(SecretError) as caught:
        EnvSecrets(pytest.fail, {"DB_PASSWORD": "hunter22", "EMPTY": ""}).resolve(reference)
    assert says in str(caught.value)
    assert f'secret "{reference}": ' in str(caught.value)
    assert "hunter22" not in str(caught.value)


def test_file_reference_gives_the_text_without_its_last_line_end(write: Write) -> None:
    assert from_file(write(" two\nlines \n")) == " two\nlines "
    assert from_file(write("windows\r\n")) == "windows"


def test_file_reference_with_a_key_looks_into_yaml_and_json(write: Write) -> None:
    yaml = write('a.b: dotted\ndb:\n  password: "0123"\n')
    assert from_file(f"{yaml}#db.password") == "0123"
    assert from_file(f"{yaml}#a.b") == "dotted"
    assert from_file(write('{"db": {"password": "x#y"}}', "s.json") + "#db.password") == "x#y"


def test_relative_path_starts_at_the_current_folder(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("hunter22")
    monkeypatch.chdir(tmp_path)
    assert from_file("file:secret.yaml") == "hunter22"
    with pytest.raises(SecretError, match="there is no file other; relative paths start at "):
        from_file("file:other")


@pytest.mark.parametrize(
    ("text", "key", "says"),
    [
        ("db: {password: 123456}", "db.password", "is not text but a number; write the value in quotes"),
        ("db: {password: true}", "db.password", "is not text but a boolean"),
        ("db: {password: s3cr3t99}", "db", "is not text but a mapping"),
        ("db:", "db", "is empty"),
        ('db: ""', "db", "is empty"),
        ("password: s3cr3t99", "pasword", 'did you mean "password"?'),
        ("password: s3cr3t99", "password.x", '"password.x" in'),
        ("- s3cr3t99", "a", "is not a mapping"),
        ("s3cr3t99: [", "a", "is not YAML"),
        ("a: 1\na: s3cr3t99\n", "a", "yaml:2:1 is not YAML"),
        ("a: !!python/object:os.system s3cr3t99", "a", "is not YAML"),
    ],
)
def test_file_reference_that_gives_no_text_says_what_and_never_the_content(
    write: Write, text: str, key: str, says: str
) -> None:
    with pytest.raises(SecretError) as caught:
        from_file(f"{write(text)}#{key}")
    assert says in str(caught.value)
    assert "s3cr3t99" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


def test_broken_json_says_where_and_never_the_content(write: Write) -> None:
    with pytest.raises(SecretError, match=r"s\.json:2:9 is not JSON") as caught:
        from_file(write('{"a":\n  "s3c" "r3t"}', "s.json") + "#a")
    assert "s3c" not in str(caught.value)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda folder: folder, "is not a file"),
        (lambda folder: folder / "missing", "there is no file"),
        (lambda folder: folder / "bin", "is not UTF-8 text"),
        (lambda folder: folder / "big", "is larger than 1 MiB"),
        (lambda folder: f"{folder}/nul\0", "not a path"),
        (lambda folder: "~nobody-of-this-name/x", "not a path"),
        (lambda folder: "", "does not name a file"),
    ],
)
def test_file_that_cannot_be_used_is_a_clear_error(tmp_path: Path, make: Callable[[Path], object], says: str) -> None:
    (tmp_path / "bin").write_bytes(b"s3cr3t\xff")
    (tmp_path / "big").write_bytes(b"x" * (1024 * 1024 + 1))
    with pytest.raises(SecretError) as caught:
        FileSecrets(lambda message: None).resolve(f"file:{make(tmp_path)}")
    assert says in str(caught.value)


def test_resolved_value_is_masked_from_then_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DB", "hunter22")
    secrets = Secrets(Redactor())
    assert secrets.redactor.mask("hunter22") == "hunter22"
    assert secrets.resolve("env:DB") == "hunter22"
    assert secrets.redactor.mask("hunter22") == "***"


def test_reference_is_resolved_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DB", "hunter22")
    secrets = Secrets(Redactor())
    secrets.resolve("env:DB")
    monkeypatch.setenv("DB", "changed-since")
    assert secrets.resolve("env:DB") == "hunter22"


def test_warnings_are_told_once(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    secrets = Secrets(Redactor(), told.append)
    reference = write("a: hunter22\nb: abc\n", mode=0o644)
    secrets.resolve(f"{reference}#a")
    secrets.resolve(f"{reference}#b")
    assert [("can be read by everybody" in text, "too short to be masked" in text) for text in told] == [
        (True, False),
        (False, True),
    ]
    assert secrets.warnings == told
    assert "abc" not in told[1]


@pytest.mark.parametrize("reference", ["hunter2-plain", "", ":x", "Hunter2:plain", "hunter2hunter2hunter2:x"])
def test_password_in_place_of_a_reference_is_not_repeated(reference: str) -> None:
    with pytest.raises(SecretError, match="this is not a reference to a secret; write env:NAME") as caught:
        Secrets(Redactor()).resolve(reference)
    assert not reference.strip(":x") or reference not in str(caught.value)


def test_unknown_provider_names_the_installed_ones() -> None:
    with pytest.raises(SecretError, match='there is no secret provider "evn"; did you mean "env"') as caught:
        Secrets(Redactor()).resolve("evn:hunter22")
    assert "hunter22" not in str(caught.value)


def _made(body: str) -> str:
    """A provider with that body, which gives a text unless the body says otherwise."""
    head = "from kubexm_exec.secrets import SecretProvider\nclass Plain(SecretProvider):\n"
    return f"{head}    def resolve(self, reference): return 'hunter22'\n    {body}\n"


@pytest.mark.parametrize(
    ("code", "wrong"),
    [
        ("class Plain:\n    pass\n", "is no SecretProvider class"),
        (
            "from kubexm_exec.secrets import SecretProvider\nclass Plain(SecretProvider):\n    pass\n",
            "has no method resolve",
        ),
        (_made("def __init__(self): self.x = 1"), "cannot be called: .*__init__.* takes 1 positional argument"),
        (_made("def __init__(self, warn): self.x = 1"), "does not call super"),
        (_made("def resolve(self): return 'x'"), "cannot be called: .*resolve.* takes 1 positional argument"),
        (_made("def resolve(self, reference): raise KeyError('hunter22')"), r"raised KeyError in .*acme_plain.py:4$"),
        (_made("def resolve(self, reference): raise SystemExit('hunter22')"), "raised SystemExit in "),
        (_made("def resolve(self, reference): return None"), "returned NoneType, not text"),
        (_made("def resolve(self, reference): return 5"), "returned a number, not text"),
        (_made("def resolve(self, reference): return ''"), "returned an empty text"),
    ],
)
def test_what_is_installed_as_a_provider_and_is_none_is_refused(
    code: str, wrong: str, plug_in: Callable[[str, str], None]
) -> None:
    plug_in("kubexm.secrets", code)
    with pytest.raises(SecretError) as caught:
        Secrets(Redactor()).resolve("plain:x")
    assert re.search(f"of package acme-plain {wrong}", caught.value.what)
    assert "hunter22" not in "".join(traceback.format_exception(caught.value))
    assert caught.value.hint == "repair or remove the package acme-plain"
