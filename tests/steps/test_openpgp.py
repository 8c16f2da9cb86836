from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubexm_steps.formats.openpgp import NotAKey, armor, dearmor, fingerprints, rpm_id

FINGERPRINT = "397C891CA8471974D7B1D253410038E2F85D83D7"
KEY = """\
-----BEGIN PGP PUBLIC KEY BLOCK-----

mDMEavqhxRYJKwYBBAHaRw8BAQdAxu692ZXU1Gq3OHro1Gsxbcx3NmZjbq0Wl8Sk
35l+p+60GUV4YW1wbGUgPGtleUBleGFtcGxlLmNvbT6IkAQTFggAOBYhBDl8iRyo
Rxl017HSU0EAOOL4XYPXBQJq+qHFAhsDBQsJCAcCBhUKCQgLAgQWAgMBAh4BAheA
AAoJEEEAOOL4XYPX2FsBAOAp5zLZphHrF1D1YSbSm3dr4bf4yGos5gBqUisAZi5w
AP4gEi29Goesy3VRz7MbCMQMx+ogxSHau2mSk8TGQLdjBA==
=7jU0
-----END PGP PUBLIC KEY BLOCK-----
"""
"""Made by gpg, with that fingerprint."""


def test_a_key_has_the_fingerprint_that_gpg_shows() -> None:
    assert fingerprints(dearmor(KEY.encode())) == [FINGERPRINT]
    assert rpm_id(FINGERPRINT) == "f85d83d7"


def test_armour_can_be_taken_off_and_put_on_again() -> None:
    assert armor(dearmor(KEY.encode())) == KEY.encode()


def test_a_binary_key_is_taken_as_it_is() -> None:
    binary = dearmor(KEY.encode())
    assert dearmor(binary) == binary


def test_several_keys_in_one_file_are_all_seen() -> None:
    assert fingerprints(dearmor((KEY + "some words between\n" + KEY).encode())) == [FINGERPRINT] * 2


@pytest.mark.parametrize(
    "text",
    [
        KEY.replace("\n", "\r\n"),
        KEY.replace("BLOCK-----\n\nmDM", "BLOCK-----\nVersion: GnuPG v2\nComment: a: b\n\nmDM"),
        KEY.replace("=7jU0\n", ""),
        "Words before it.\n" + KEY + "Words after it.\n",
    ],
    ids=["windows lines", "headers", "no checksum", "words around"],
)
def test_armour_in_the_forms_that_are_around_is_read(text: str) -> None:
    assert fingerprints(dearmor(text.encode())) == [FINGERPRINT]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (KEY.replace("mDME", "mDMF").encode(), "checksum"),
        (KEY.replace("=7jU0", "=AAAA").encode(), "checksum"),
        (KEY.replace("mDME", "m").encode(), "damaged"),
        (b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "no public key block"),
        (b"<html>not found</html>", "not in OpenPGP format"),
        (b"", "no OpenPGP public key"),
        (dearmor(KEY.encode())[:40], "truncated"),
    ],
)
def test_what_is_no_key_says_why(data: bytes, reason: str) -> None:
    with pytest.raises(NotAKey, match=reason):
        fingerprints(dearmor(data))


@given(st.binary(max_size=80))
def test_any_bytes_are_a_key_or_are_none(data: bytes) -> None:
    try:
        assert fingerprints(dearmor(data))
    except NotAKey as error:
        assert str(error)  # noqa: PT017  # a reason is all that may come
