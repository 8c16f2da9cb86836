from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from kubexm_exec.runner.packages import Ask
from kubexm_steps.package import PackageParams
from kubexm_steps.repository import RepositoryParams
from tests.steps.test_openpgp import FINGERPRINT, KEY


@pytest.mark.parametrize(
    ("names", "asks"),
    [
        ("nginx", [Ask("nginx")]),
        (["nginx=1.24.*", "g++"], [Ask("nginx", "1.24.*"), Ask("g++")]),
        ({"name": "nginx", "version": "1.24"}, [Ask("nginx", "1.24")]),
        ([{"name": "libc6:i386", "version": 3}], [Ask("libc6:i386", "3")]),
        ("/srv/my packages/a=b.deb", [Ask(file="/srv/my packages/a=b.deb")]),
    ],
)
def test_packages_are_named_in_several_forms(names: Any, asks: list[Ask]) -> None:
    assert [each.ask() for each in PackageParams.model_validate({"names": names}).names] == asks


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"names": []}, "at least 1"),
        ({"names": "-y"}, "not the name of a package"),
        ({"names": "a b"}, "not the name of a package"),
        ({"names": "a;reboot"}, "not the name of a package"),
        ({"names": "a=$(x)"}, "not a version"),
        ({"names": "a="}, "not a version"),
        ({"names": {"name": "a", "version": 1.1}}, '"1.1" or "1.10"'),
        ({"names": "/srv/a.tar"}, "ends in .deb, .rpm or .apk"),
        ({"names": {"name": "/srv/a.deb", "version": "1"}}, "its version cannot be chosen"),
        ({"names": ["a", "a=1"]}, "named twice"),
        ({"names": "a=1", "state": "absent"}, "names alone"),
        ({"names": "a", "state": "absent", "hold": True}, "cannot be held"),
        ({"names": "a", "purge": True}, "state: absent"),
        ({"names": "a", "update": "sometimes"}, "update"),
        ({"names": "a", "manager": "pacman"}, "manager"),
    ],
)
def test_packages_that_cannot_be_meant_are_refused(params: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError) as caught:
        PackageParams.model_validate(params)
    assert message in str(caught.value)


URL = "https://packages.example.com/debian"


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"name": "../x", "url": URL}, "name"),
        ({"name": "x"}, "say where it is"),
        ({"name": "x", "url": "packages"}, "not an address"),
        ({"name": "x", "url": f"{URL}\nEvil: yes"}, "not an address"),
        ({"name": "x", "url": URL, "key": KEY, "keyFile": "a"}, "exclude each other"),
        ({"name": "x", "url": URL, "key": KEY, "trusted": True}, "uses no key"),
        ({"name": "x", "url": URL, "keyUrl": URL}, "`fingerprint` or `keySha256`"),
        ({"name": "x", "url": URL, "fingerprint": FINGERPRINT}, "need a key"),
        ({"name": "x", "url": URL, "key": KEY, "fingerprint": "F85D83D7"}, "too short"),
        ({"name": "x", "url": URL, "suites": ["a", "b/"]}, "either all folders"),
        ({"name": "x", "url": URL, "suites": "a b"}, "not one word"),
        ({"name": "x", "url": URL, "description": "a\nb"}, "one line"),
        ({"name": "x", "url": URL, "options": {"a": "b\nc"}}, "one line"),
        ({"name": "x", "url": URL, "options": {"a\nb": "c"}}, "not the name of an option"),
        ({"name": "x", "url": URL, "keyName": "../x.pub", "key": KEY}, "key"),
    ],
)
def test_repositories_that_cannot_be_meant_are_refused(params: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError) as caught:
        RepositoryParams.model_validate(params)
    assert message in str(caught.value)


def test_fingerprints_are_taken_as_they_are_printed() -> None:
    spaced = "397C 891C A847 1974 D7B1  D253 4100 38E2 F85D 83D7"
    params = RepositoryParams.model_validate({"name": "x", "url": URL, "key": KEY, "fingerprint": spaced})
    assert params.fingerprint == [FINGERPRINT]
