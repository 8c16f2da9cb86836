from __future__ import annotations

import base64
import hashlib
import html
import json
import re
import shlex
import time
import urllib.parse
from collections import namedtuple
from collections.abc import Callable
from functools import partial
from pathlib import Path

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


URLS: list[tuple[Callable[..., str], dict[str, str]]] = [
    (urllib.parse.quote, {"safe": ""}),
    (urllib.parse.quote, {}),
    (urllib.parse.quote_plus, {}),
]
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
    "hex": lambda secret: secret.encode().hex(),
    "hex in capitals": lambda secret: secret.encode().hex().upper(),
    "hex with colons": lambda secret: secret.encode().hex(":"),
    "base32": lambda secret: base64.b32encode(secret.encode()).decode(),
    "base32 behind three bytes": lambda secret: base64.b32encode(b"xyz" + secret.encode() + b"z").decode(),
    "every byte in a url": lambda secret: "".join(f"%{byte:02X}" for byte in secret.encode()),
    "every byte in a url in small letters": lambda secret: "".join(f"%{byte:02x}" for byte in secret.encode()),
    "every byte escaped": lambda secret: "".join(f"\\x{byte:02x}" for byte in secret.encode()),
    "capitals": str.upper,
    "small letters": str.lower,
    "capitals in a shell word": lambda secret: shlex.quote(secret.upper()),
    "small letters in JSON": lambda secret: json.dumps(secret.lower()),
    "shell word in a shell word": lambda secret: shlex.quote(shlex.quote(secret)),
    "shell word in JSON": lambda secret: json.dumps(shlex.quote(secret)),
    "json three deep": lambda secret: json.dumps(json.dumps(json.dumps(secret))),
    "base64 in base64": lambda secret: base64.b64encode(base64.b64encode(secret.encode())).decode(),
    "base64 of UTF-16": lambda secret: base64.b64encode(secret.encode("utf-16-le")).decode(),
    "hex of base64": lambda secret: base64.b64encode(secret.encode()).hex(),
    "base64 of json": lambda secret: base64.b64encode(json.dumps({"password": secret}).encode()).decode(),
    "url of base64": lambda secret: urllib.parse.quote(base64.b64encode(secret.encode()).decode(), safe=""),
    "windows line ends": lambda secret: secret.replace("\r\n", "\n").replace("\n", "\r\n"),
}


def as_text(encode: Callable[[str], str]) -> Callable[[bytes], bytes]:
    return lambda data: encode(data.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")


SPELLINGS: dict[str, list[Callable[[bytes], bytes]]] = {
    "base64": [
        lambda data: base64.b64encode(data).rstrip(b"="),
        lambda data: base64.urlsafe_b64encode(data).rstrip(b"="),
    ],
    "base32": [lambda data: base64.b32encode(data).rstrip(b"=")],
    "hex": [lambda data: data.hex().encode()],
    "UTF-16": [lambda data: data.decode("utf-8", "surrogateescape").encode("utf-16-le", "surrogatepass")],
    "URL": [as_text(partial(quote, errors="surrogateescape", **how)) for quote, how in URLS],
    "JSON": [as_text(json.dumps), as_text(partial(json.dumps, ensure_ascii=False))],
    "quoted": [as_text(shlex.quote), as_text(html.escape)],
    "upper case": [as_text(str.upper), as_text(str.lower)],
}
"""All that docs/security.md names, each as it is commonly done."""


@pytest.mark.parametrize(
    "secret", ["p@ss w0rd/Qx+77%y", AWKWARD, "it's \\\\ <b>", "Zm9v-_~/bar", "s3cr3tPassw0rd", "Pa$5"]
)
@pytest.mark.parametrize("outer", SPELLINGS)
@pytest.mark.parametrize("inner", SPELLINGS)
def test_every_spelling_is_masked_inside_every_other_and_itself(inner: str, outer: str, secret: str) -> None:
    known = redactor(secret)
    for first in SPELLINGS[inner]:
        for second in SPELLINGS[outer]:
            form = second(first(secret.encode()))
            stream = StreamMask(known)
            parts = [*(stream.feed(bytes([byte])) for byte in b"<" + form + b">"), stream.flush()]
            for shown in (known.mask(b"<" + form + b">"), b"".join(parts)):
                # The last characters of an encoding may hold less than a character of the secret.
                left = max(len(piece) for piece in shown.split(MASK.encode()))
                assert left <= LEFT, (form, shown)


LEFT = 12
"""So many characters around a spelling may be of the one it is in (quotes, padding), and of its last byte."""


def test_docs_name_the_spellings_that_are_tried() -> None:
    page = (Path(__file__).parents[2] / "docs/security.md").read_text("utf-8")
    (named,) = re.findall(r"Nor in another encoding: (.+), one inside another", page)
    assert named.split(", ") == list(SPELLINGS)


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
@given(secret=SECRETS | st.just("\"''0"), before=SURROUNDINGS, after=SURROUNDINGS, data=st.data())
def test_planted_secret_survives_no_chunking(
    name: str, secret: str, before: str, after: str, data: st.DataObject
) -> None:
    text = (before + FORMS[name](secret) + after).encode()
    mask = StreamMask(redactor(secret))
    whole = mask.feed(text) + mask.flush()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    chunks = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    in_chunks = b"".join([*map(mask.feed, chunks), mask.flush()])
    in_bytes = b"".join([*(mask.feed(bytes([byte])) for byte in text), mask.flush()])
    assert unquoted(in_chunks) == unquoted(in_bytes) == unquoted(whole)
    for shown in (whole, in_chunks, in_bytes):
        assert MASK.encode() in shown
        assert FORMS[name](secret).encode() not in shown


def unquoted(shown: bytes) -> bytes:
    """Of a secret that is little but quotes, how many of those around it are masked too depends on the chunks."""
    return re.sub(rb"""['"\\\\]+""", b"", shown)


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


@pytest.mark.parametrize("order", ["utf-16", "utf-16-le", "utf-16-be"])
@given(secret=SECRETS, cut=st.integers(1, 60))
def test_secret_in_utf16_is_masked_however_it_arrives(order: str, secret: str, cut: int) -> None:
    known = redactor(secret)
    text = b"key=" + secret.encode(order) + b";"
    core = secret.encode("utf-16-le")[1:-1]
    assert core not in known.mask(text)
    mask = StreamMask(known)
    shown = b"".join([*(mask.feed(text[i : i + cut]) for i in range(0, len(text), cut)), mask.flush()])
    assert shown == known.mask(text)


KEY = "\n".join(
    [
        "-----BEGIN PRIVATE KEY-----",
        *(base64.b64encode(bytes(range(i, i + 48))).decode() for i in range(9)),
        "-----END PRIVATE KEY-----",
    ]
)


@pytest.mark.parametrize("between", ["", " ", "\\n", "\\\\n", "\n    ", "\r\n", "\t"])
@pytest.mark.parametrize("width", [16, 17, 20, 24, 32, 64, 76, 10_000])
def test_a_key_that_was_folded_anew_is_masked(between: str, width: int) -> None:
    body = "".join(KEY.splitlines()[1:-1])
    text = between.join(body[i : i + width] for i in range(0, len(body), width))
    known = redactor(KEY)
    shown = known.mask(f"key: {text};")
    assert not [i for i in range(len(body) - 16) if body[i : i + 16] in shown]
    for size in (1, 7, 100):
        mask = StreamMask(known)
        data = f"key: {text};".encode()
        parts = [*(mask.feed(data[i : i + size]) for i in range(0, len(data), size)), mask.flush()]
        assert not [i for i in range(len(body) - 16) if body[i : i + 16].encode() in b"".join(parts)]
    assert redactor(KEY).mask("-----BEGIN PRIVATE KEY-----") == "-----BEGIN PRIVATE KEY-----"


def folded(text: str, width: int) -> str:
    """The text as ``fold -w`` gives it: lines that were there stay apart."""
    lines = (line[i : i + width] for line in text.splitlines() for i in range(0, len(line), width))
    return "\n".join(lines)


@pytest.mark.parametrize("width", [16, 17, 20, 24, 33, 50])
def test_a_key_is_masked_in_lines_of_sixteen_characters_and_more(width: int) -> None:
    body = base64.b64encode(hashlib.shake_256(b"key").digest(300)).decode()
    lines = [body[i : i + 70] for i in range(0, len(body), 70)]
    key = "\n".join(["-----BEGIN OPENSSH PRIVATE KEY-----", *lines, "-----END OPENSSH PRIVATE KEY-----"])
    together = "".join(redactor(key).mask(folded(key, width)).split())
    assert MASK in together
    assert not [i for i in range(len(body) - 7) if body[i : i + 8] in together]


TOKEN = hashlib.shake_256(b"token").hexdigest(2000)


@pytest.mark.parametrize("size", [100, 4000])
@pytest.mark.parametrize(
    "shown",
    [
        lambda token: "\n".join(token[i : i + 76] for i in range(0, len(token), 76)),
        lambda token: "\n".join(token[i : i + 76] + " |" for i in range(0, len(token), 76)),
        lambda token: token[:200],
        lambda token: token[:40],
        lambda token: token[30:70],
        lambda token: token[-30:],
    ],
    ids=["folded", "folded with a border", "cut", "cut early", "middle", "end"],
)
def test_a_long_token_that_was_folded_or_cut_off_is_masked(shown: Callable[[str], str], size: int) -> None:
    token = TOKEN[:size]
    text = f"token: {shown(token)};\n"
    known = redactor(token)
    stream = StreamMask(known)
    fed = b"".join([*(stream.feed(text[i : i + 7].encode()) for i in range(0, len(text), 7)), stream.flush()])
    for masked in (known.mask(text), fed.decode()):
        assert MASK in masked
        assert not [i for i in range(len(token) - SHOWN) if token[i : i + SHOWN] in masked]


SHOWN = 24
"""So many characters of a token may be left of it where it was cut into pieces."""


@pytest.mark.parametrize("case", [str.upper, str.lower], ids=["capitals", "small letters"])
@pytest.mark.parametrize("long", [False, True], ids=["short", "long"])
def test_every_line_and_piece_of_a_secret_is_masked_in_capitals_and_small_letters(
    case: Callable[[str], str], long: bool
) -> None:
    quoted = "s3cr3t/with spaces/and'quote\"dq Zq9xW"
    lines = ["First l1ne of it", quoted, "Third-Line/0f it"] + [
        f"Line number {i:05} of Many" for i in range(200 * long)
    ]
    known = redactor("\n".join(lines), quoted)
    for line in lines:
        assert known.mask(f"<{case(line)}>") == f"<{MASK}>"
    assert "Q9XW" not in known.mask(shlex.quote(case(quoted))).upper()
    assert case("l1ne of") not in known.mask(case("\n".join(lines)))
    key = redactor(KEY)
    for line in KEY.splitlines()[1:-1]:
        assert key.mask(f"<{case(line)}>") == f"<{MASK}>"


@pytest.mark.parametrize(
    ("secret", "said"),
    [
        ("pa55/w0rd x9", "invalid port: 'w0rd x9'"),
        ("tok3n-a/b c-0ther", "no such folder: tok3n-a"),
        ("one@tw0two:thr33#f0urf0ur", "unknown host f0urf0ur"),
    ],
)
def test_pieces_of_a_secret_in_errors_of_libraries_are_masked(secret: str, said: str) -> None:
    assert MASK in redactor(secret).mask(said)


def test_plain_words_of_a_secret_are_no_secret() -> None:
    known = redactor("host=db.example.com user=postgres password=Tr0ub4dor")
    text = "the password of postgres on db.example.com is wrong"
    assert known.mask(text) == text
    assert known.mask("Tr0ub4dor") == MASK


def test_a_secret_of_a_megabyte_is_learned_and_masked_in_linear_time() -> None:
    noise = base64.b85encode(hashlib.shake_256(b"x").digest(800_000)).decode()
    known = Redactor()
    began = time.monotonic()
    known.add(noise)
    assert known.mask(f"before {noise} after") == f"before {MASK} after"
    assert known.mask(noise.encode().hex()) == MASK
    assert len(known.mask(base64.b64encode(noise.encode()).decode())) < 10
    stream = StreamMask(known)
    data = b"before " + noise.encode() + b" after"
    shown = b"".join([*(stream.feed(data[i : i + 65536]) for i in range(0, len(data), 65536)), stream.flush()])
    assert shown == b"before *** after"
    plain = b"a line of output like any other, with numbers 12345\n" * 100_000
    assert known.mask(plain) == plain
    assert time.monotonic() - began < 30  # it took 40 s for the first of these


def test_a_long_piece_of_a_long_secret_is_masked() -> None:
    noise = base64.b85encode(hashlib.shake_256(b"y").digest(80_000)).decode()
    shown = redactor(noise).mask(f"before {noise[50_000:60_000]} after")
    assert shown == f"before {MASK} after"


def test_tokens_are_masked_whole_folded_cut_and_encoded_and_need_no_new_pattern() -> None:
    redactor = Redactor()
    redactor.add("another secret")
    redactor.mask("x")
    known = redactor._patterns()
    tokens = [base64.b64encode(hashlib.sha512(f"{at}".encode()).digest()).decode() for at in range(200)]
    for token in tokens:
        redactor.add_token(token)
    assert redactor._patterns() is known
    for token in tokens:
        assert redactor.mask(f"key: {token}.") == f"key: {MASK}."
        assert redactor.mask(f"  {token[:40]}\n  {token[40:]}\n").split() == [MASK]
        assert redactor.mask(token[30:60]) == MASK
        coded = base64.b64encode(f"xy{token}z".encode()).decode()
        assert re.fullmatch(rf"[^*]{{0,4}}{re.escape(MASK)}[^*]{{0,6}}", redactor.mask(coded))
    assert redactor.mask("nothing of them") == "nothing of them"
    redactor.add_token("short")
    assert redactor.mask("a short one") == f"a {MASK} one"
