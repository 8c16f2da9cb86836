from __future__ import annotations

import shutil
import subprocess
from itertools import permutations

import pytest

from kubexm_exec.runner.packages.versions import compare_apk, compare_deb, compare_rpm, matches, newest
from tests.lab.machines import Machine

DEB = [
    "1.0",
    "1.0-1",
    "1.0-2",
    "1.0~rc1-1",
    "1.0+b1",
    "1:0.5",
    "1.0a",
    "1.10",
    "1.9.9",
    "2.0-1~bpo1",
    "2.0-1",
    "1.0-1ubuntu1",
]
RPM = [
    "1.0-1",
    "1.0-2",
    "1.0~rc1-1",
    "1.0^git1-1",
    "1:0.5-1",
    "1.0a-1",
    "1.10-1",
    "1.9.9-1",
    "1.01-1",
    "2.0-1.el9",
    "2.0-1",
]


@pytest.mark.parametrize(
    ("pattern", "version", "expected"),
    [
        ("1.24.0-2", "1.24.0-2", True),
        ("1.24.0-2", "1.24.0-3", False),
        ("1.24.0", "1.24.0-3", True),
        ("1.24.0", "1.24.0", True),
        ("1.24.0", "1.24.01-1", False),
        ("1.24", "1.24.0-1", False),
        ("1.24.*", "1.24.0-1", True),
        ("1.24.*", "1.25.0-1", False),
        ("1.24.0", "2:1.24.0-1", True),
        ("2:1.24.0", "2:1.24.0-1", True),
        ("1:1.24.0", "2:1.24.0-1", False),
        ("*", "anything-1", True),
        ("1.24.0", "1.24.0-r7", True),
        ("1.2-3", "1.2-3-1", False),
    ],
)
def test_a_pattern_means_versions_with_any_release_and_epoch_unless_it_names_them(
    pattern: str, version: str, expected: bool
) -> None:
    assert matches(pattern, version) is expected


def test_the_newest_is_by_version_not_by_text() -> None:
    assert newest(["1.9-1", "1.10-1", "1.2-1"], compare_deb) == "1.10-1"
    assert newest([], compare_deb) == ""


@pytest.mark.skipif(shutil.which("dpkg") is None, reason="no dpkg here to compare with")
def test_debian_versions_are_compared_as_dpkg_does() -> None:
    for one, two in permutations(DEB, 2):
        answer = subprocess.run(["dpkg", "--compare-versions", one, "lt", two], check=False, timeout=60).returncode == 0
        assert (compare_deb(one, two) < 0) is answer, (one, two)
        assert (compare_deb(two, one) > 0) is answer, (one, two)


@pytest.mark.xdist_group("machines")
def test_rpm_versions_are_compared_as_rpm_does(machine: Machine) -> None:
    pairs = list(permutations([version.partition("-")[0] for version in RPM if ":" not in version], 2))
    body = "".join(f'%{{lua:print(rpm.vercmp("{one}","{two}"))}} ' for one, two in pairs)
    answers = machine.sh('rpm --eval "$1"', body).split()
    assert len(answers) == len(pairs)
    for (one, two), answer in zip(pairs, answers, strict=True):
        assert compare_rpm(one, two) == int(answer), (one, two)


def test_epoch_and_release_of_rpms_count() -> None:
    assert compare_rpm("1:0.5-1", "2.0-1") > 0
    assert compare_rpm("1.0-2", "1.0-10") < 0
    assert compare_rpm("1.0", "1.0-10") == 0


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("1.0-r0", "1.0-r1"),
        ("1.9-r0", "1.10-r0"),
        ("1.0_rc1-r0", "1.0-r0"),
        ("1.0_alpha2-r0", "1.0_beta1-r0"),
        ("1.0-r5", "1.0_p1-r0"),
        ("1.0-r0", "1.0a-r0"),
        ("1.0-r0", "1.0.1-r0"),
        ("1.0_git20240101-r0", "1.0_git20240201-r0"),
    ],
)
def test_alpine_versions_are_compared_by_its_rules(older: str, newer: str) -> None:
    assert compare_apk(older, newer) < 0 < compare_apk(newer, older)
    assert compare_apk(older, older) == 0
