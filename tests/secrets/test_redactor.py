from __future__ import annotations

import base64
import html
import json
import shlex
import urllib.parse
from collections import namedtuple
from collections.abc import Callable

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from kubexm_exec.secrets import MASK, Redactor, StreamMask

AWKWARD = "p$s'w\"o r\\d/é+<&>\U0001f600%41"

# Characters that escaping, quoting and encoding are about come up often; "*" would be found again in the mask.
CHARS = (
    st.sampled_from("abcXYZ019")
    | st.sampled_from(" '\"\\/$`!+%&=<>;|#\n\t-_~\u00e9\u4e2d\U0001f600")
    | st.characters(exclude_categories=["Cs"], exclude_characters="*")
)
SECRETS = st.text(CHARS, min_size=1, max_size=60).map(str.strip).filter(lambda text: len(text) >= 4)
SURROUNDINGS = st.text(st.sampled_from("xyz 0:\n\"'="), max_size=12)


def wrapped(width: int) -> Callable[[str], str]:
    def encode(secret: str) -> str:
        text = base64.b64encode(("config: " + secret + "\n").encode()).decode()
        return "\n".join(text[i : i + width] for i in range(0, len(text), width))

    return encode


FORMS: dict[str, Callable[[str], str]] = {
    "raw": lambda secret: secret,
    "json": json.dumps,
    "json with its own characters": lambda secret: json.dumps(secret, ensure_ascii=False),
    "json in json": lambda secret: json.dumps(json.dumps(secret)),
    "json escaped for html": lambda secret: (
        json.dumps(secret).replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    ),
    "repr": repr,
    "repr of bytes": lambda secret: repr(secret.encode()),
    "url": lambda secret: urllib.parse.quote(secret, safe=""),
    "url path": urllib.parse.quote,
    "url form": urllib.parse.quote_plus,
    "url in small letters": lambda secret: "".join(
        char if char.isascii() and char.isalnum() else "".join(f"%{byte:02x}" for byte in char.encode())
        for char in secret
    ),
    "shell word": shlex.quote,
    "shell word with slashes": lambda secret: "'" + secret.replace("'", "'\\''") + "'",
    "yaml word": lambda secret: "'" + secret.replace("'", "''") + "'",
    "html": html.escape,
    "base64": lambda secret: base64.b64encode(secret.encode()).decode(),
    "base64 behind one byte": lambda secret: base64.b64encode(b"x" + secret.encode()).decode(),
    "base64 behind two bytes": lambda secret: base64.b64encode(b"xy" + secret.encode() + b"z").decode(),
    "base64 for urls": lambda secret: base64.urlsafe_b64encode(secret.encode()).decode(),
    "base64 in lines": wrapped(76),
    "base64 in short lines": wrapped(64),
    "windows line ends": lambda secret: secret.replace("\r\n", "\n").replace("\n", "\r\n"),
}


def core(form: str, secret: str) -> str:
    """What must not be left of the form; the ends of base64 hold bits of other bytes too."""
    return form[4:-4] if len(form) > 12 and base64_like(form, secret) else form


def base64_like(form: str, secret: str) -> bool:
    return secret not in form and form.replace("\n", "").replace("=", "").replace("-", "").replace("_", "").isalnum()


def redactor(*secrets: str) -> Redactor:
    found = Redactor()
    for secret in secrets:
        assert found.add(secret)
    return found


@pytest.mark.parametrize("name", FORMS)
@given(secret=SECRETS, before=SURROUNDINGS, after=SURROUNDINGS)
@example(secret=AWKWARD, before="", after="")
@example(secret="'\"'\"'\\\\\\x", before="\\", after="\\")
@example(secret="a\n  b: c\n\td", before="", after="")
def test_planted_secret_survives_in_no_form(name: str, secret: str, before: str, after: str) -> None:
    form = FORMS[name](secret)
    masked = redactor(secret).mask(before + form + after)
    assert MASK in masked
    assert form not in masked
    assert core(form, secret) not in masked


@pytest.mark.parametrize("name", FORMS)
@given(secret=SECRETS, before=SURROUNDINGS, after=SURROUNDINGS, data=st.data())
def test_planted_secret_survives_no_chunking(
    name: str, secret: str, before: str, after: str, data: st.DataObject
) -> None:
    text = (before + FORMS[name](secret) + after).encode()
    mask = StreamMask(redactor(secret))
    whole = mask.feed(text) + mask.flush()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    chunks = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    assert b"".join([*map(mask.feed, chunks), mask.flush()]) == whole
    assert b"".join([*(mask.feed(bytes([byte])) for byte in text), mask.flush()]) == whole
    assert MASK.encode() in whole
    assert FORMS[name](secret).encode() not in whole


@given(secrets=st.lists(SECRETS, min_size=1, max_size=6), order=st.randoms())
def test_many_secrets_leave_nothing_of_each_other(secrets: list[str], order: object) -> None:
    known = redactor(*secrets)
    for secret in secrets:
        assert known.mask(f"<{secret}>") == f"<{MASK}>"


@given(st.text(max_size=200), st.text(st.characters(codec="ascii", categories=["L"]), min_size=12, max_size=20))
def test_text_without_the_secret_stays_the_very_same(text: str, secret: str) -> None:
    encoded = [base64.b64encode(bytes(offset) + secret.encode()).decode()[4:-4] for offset in range(3)]
    assume(not any(part in text for part in (secret, *encoded)))
    assert redactor(secret).mask(text) is text


@given(st.lists(st.binary(max_size=60), max_size=10), SECRETS)
def test_stream_without_a_secret_comes_out_as_it_went_in(chunks: list[bytes], secret: str) -> None:
    known = redactor(secret)
    assume(known.mask(b"".join(chunks)) == b"".join(chunks))
    mask = StreamMask(known)
    out = b"".join([*map(mask.feed, chunks), mask.flush()])
    assert out == b"".join(chunks) or out.endswith(MASK.encode())


def test_stream_holds_back_only_what_could_become_a_secret() -> None:
    mask = StreamMask(redactor("hunter2hunter2"))
    assert mask.feed(b"password: hun") == b"password: "
    assert mask.feed(b"gry\n") == b"hungry\n"
    assert mask.feed(b"password: hunter2hunter") == b"password: "
    assert mask.feed(b"2\n") == b"***\n"


def test_stream_masks_a_secret_that_its_end_cuts_off() -> None:
    mask = StreamMask(redactor("correct horse battery staple"))
    assert mask.feed(b"pw correct horse bat") + mask.flush() == b"pw ***"
    assert mask.feed(b"pw corr") + mask.flush() == b"pw corr"


@given(name=st.sampled_from(sorted(FORMS)), secret=SECRETS, before=SURROUNDINGS, data=st.data())
def test_text_that_was_shortened_in_the_middle_of_a_secret_does_not_show_its_beginning(
    name: str, secret: str, before: str, data: st.DataObject
) -> None:
    form = FORMS[name](secret)
    known = redactor(secret)
    assume("..." not in form)
    end = data.draw(st.integers(0, len(form)))
    shown = known.mask(f"{before}{form[:end]}... and {form[:end]}…")
    # Eight bytes of a secret are a part of it; what a form puts before it (a quote, a name) may stay.
    core = FORMS["raw"](secret).encode()
    assert (
        name != "raw"
        or end == 0
        or len(form[:end].encode()) < 8
        or core[: len(form[:end].encode())] not in shown.encode()
    )


def test_shortened_secret_is_masked_and_other_shortened_text_stays() -> None:
    known = redactor("correct horse battery staple")
    assert known.mask("run: echo correct horse b... and so on...") == "run: echo ***... and so on..."
    assert known.mask("correct horse b…") == "***…"
    assert known.mask("a correct answer...") == "a correct answer..."
    assert known.mask("correct horse b") == "correct horse b"


def test_stream_without_secrets_passes_everything_at_once() -> None:
    mask = StreamMask(Redactor())
    assert mask.feed(b"abc") == b"abc"
    assert mask.flush() == b""


def test_nothing_registered_gives_back_the_object_itself() -> None:
    data = {"a": ["b"]}
    assert Redactor().mask(data) is data


@pytest.mark.parametrize("value", ["", "abc", "  ab \n", 12, b"x"])
def test_short_value_is_refused_and_flagged(value: object) -> None:
    known = Redactor()
    assert not known.add(value)
    assert known.refused == 1
    assert known.mask("abc ab 12 x") == "abc ab 12 x"


def test_longest_secret_wins() -> None:
    assert redactor("abcd", "abcdefgh", "abcdef").mask("abcdefgh abcdef abcd") == "*** *** ***"


def test_every_long_line_of_a_key_is_masked_by_itself() -> None:
    lines = [base64.b64encode(bytes([i]) * 48).decode() for i in range(5)]
    key = "\n".join(["-----BEGIN PRIVATE KEY-----", *lines, "c2hvcnQ=", "-----END PRIVATE KEY-----", ""])
    known = redactor(key)
    for line in lines:
        assert known.mask(f"line: {line}!") == f"line: {MASK}!"
    assert known.mask("-----BEGIN PRIVATE KEY-----") == "-----BEGIN PRIVATE KEY-----"
    assert known.mask("key:\n    " + key.replace("\n", "\n    ")) == f"key:\n    {MASK}\n    "
    assert known.mask(json.dumps({"key": key})) == f'{{"key": "{MASK}\\n"}}'


@pytest.mark.parametrize("before", range(6))
@pytest.mark.parametrize("width", [64, 76, 10_000])
def test_key_is_masked_in_base64_with_and_without_line_ends(before: int, width: int) -> None:
    key = "\n".join(f"{i:064x}" for i in range(30))
    text = base64.b64encode(b"k" * before + key.encode() + b"\n").decode()
    text = "\n".join(text[i : i + width] for i in range(0, len(text), width))
    masked = redactor(key).mask(text)
    assert MASK in masked
    assert len(masked) < before * 2 + 12


def test_nested_data_is_masked_everywhere_and_otherwise_shared() -> None:
    known = redactor("hunter22", "54321")
    kept = {"plain": [1, 2, None, True]}
    Pair = namedtuple("Pair", "a b")
    data = {"x": ["a hunter22", b"hunter22", ("hunter22",)], "hunter22": 54321, "kept": kept, "n": Pair("hunter22", 1)}
    masked = known.mask(data)
    assert masked == {"x": ["a ***", b"***", ("***",)], "***": "***", "kept": kept, "n": Pair("***", 1)}
    assert masked["kept"] is kept
    assert data["hunter22"] == 54321


def test_values_inside_lists_and_mappings_are_registered() -> None:
    known = Redactor()
    assert known.add({"user": "somebody", "more": ["secret-two", None, True, 998877]})
    assert known.mask("somebody secret-two 998877 True None") == "*** *** *** True None"


def test_secret_that_is_not_utf8_is_masked_in_text_and_bytes() -> None:
    known = redactor(b"\xff\xfepass\xa9".decode("utf-8", "surrogateescape"))
    assert known.mask(b"<\xff\xfepass\xa9>") == b"<***>"
    assert known.mask(b"<\xff\xfepass\xa9>".decode("utf-8", "surrogateescape")) == "<***>"
    assert Redactor().add(b"\xa9abcd")
    late = Redactor()
    late.add(b"\xa9abcd")
    assert late.mask("éabcd").endswith("***")  # cuts a character in two, and must not raise


def test_secret_added_later_is_masked_from_then_on() -> None:
    known = redactor("first-secret")
    assert known.mask("first-secret second-secret") == "*** second-secret"
    known.add("second-secret")
    assert known.mask("first-secret second-secret") == "*** ***"
