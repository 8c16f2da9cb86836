"""What the steps that change a system take and refuse."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from kubexm_exec.plugins import step_registry


@pytest.mark.parametrize(
    ("step", "wrong", "message"),
    [
        ("block-in-file", {"path": "/x"}, "what should be in the block"),
        ("block-in-file", {"path": "/x", "state": "absent", "content": "a"}, "content cannot be used"),
        ("block-in-file", {"path": "/x", "content": "a\n# END kubexm block\n"}, "marker of its own block"),
        ("block-in-file", {"path": "/x", "content": "a", "name": "a\nb"}, "one line"),
        ("block-in-file", {"path": "/x", "content": "a", "insertAfter": "a", "insertBefore": "b"}, "exclude"),
        ("sysctl", {"values": {}}, "at least 1"),
        ("sysctl", {"values": {"net": 1}}, "not the name of a kernel setting"),
        ("sysctl", {"values": {"net.ipv4/../../etc": 1}}, "not the name of a kernel setting"),
        ("sysctl", {"values": {"net.ipv4.*": 1}}, "not the name of a kernel setting"),
        ("sysctl", {"values": {"a.b": "1\n2"}}, "one line"),
        ("sysctl", {"values": {"a.b": ""}}, "not empty"),
        ("sysctl", {"values": {"a.b": 1}, "file": "../x.conf"}, "not a name for a file"),
        ("sysctl", {"values": {"a.b": 1}, "file": "x"}, "ends with .conf"),
        ("kernel-module", {"name": "../x"}, "not the name of a kernel module"),
        ("kernel-module", {"name": "-r"}, "not the name of a kernel module"),
        ("kernel-module", {"name": "x", "options": "a\nb"}, "one line"),
        ("kernel-module", {"name": "x", "options": "a", "state": "absent"}, "options cannot be used"),
        ("mount", {"path": "/x"}, "what is mounted"),
        ("mount", {"path": "/", "state": "absent"}, "stays mounted"),
        ("mount", {"path": "/x", "src": "-a"}, "can be mounted"),
        ("mount", {"path": "/x", "src": "a", "options": "a b"}, "no blanks"),
        ("swap", {}, "which file or device"),
        ("swap", {"path": "/x", "size": "2X"}, "not a size"),
        ("swap", {"path": "/x", "size": "100K"}, "whole mebibytes"),
        ("swap", {"path": "/x", "size": "1G", "state": "off"}, "size cannot be used"),
        ("hostname", {"name": "a_b c"}, "not the name of a host"),
        ("hostname", {"name": "localhost"}, "cannot be the name"),
        ("hostname", {"name": "a" * 65}, "64 characters"),
        ("host-entry", {}, "which names belong"),
        ("host-entry", {"entries": {"10.0.0": "a"}}, "not an IP address"),
        ("host-entry", {"entries": {"10.0.0.1": []}}, "at least 1"),
        ("host-entry", {"entries": {"10.0.0.1": "a b#c"}}, "not the name of a host"),
        ("host-entry", {"block": "a\nb"}, "one line"),
        ("host-entry", {"block": "a", "state": "absent", "entries": {"10.0.0.1": "a"}}, "entries cannot be used"),
        ("ca-certificate", {"name": "a"}, "either as content or as src"),
        ("ca-certificate", {"name": "../a", "content": "x"}, "not a name for a certificate"),
        ("ca-certificate", {"name": "a", "content": "x", "state": "absent"}, "content cannot be used"),
        ("firewall-port", {"port": 0}, "not a port"),
        ("firewall-port", {"port": 65536}, "not a port"),
        ("firewall-port", {"port": "9-1"}, "not a port"),
        ("firewall-port", {"port": "ssh"}, "not a port"),
        ("firewall-port", {"port": 1, "source": "10.0.0.1/8"}, "host bits"),
        ("firewall-port", {"port": 1, "zone": "a", "backend": "ufw"}, "only firewalld has zones"),
        ("git", {"repo": "-x", "path": "/x"}, "not the address"),
        ("git", {"repo": "ext::sh -c x", "path": "/x"}, "run a program"),
        ("git", {"repo": "https://me:word@git.example/x", "path": "/x"}, "password in it"),
        ("git", {"repo": "a", "path": "/"}, "root folder"),
        ("git", {"repo": "a", "path": "/x", "ref": "-f"}, "not the name of a branch"),
        ("git", {"repo": "a", "path": "/x", "ref": "a..b"}, "not the name of a branch"),
        ("git", {"repo": "a", "path": "/x", "username": "a"}, "goes with a password"),
        ("git", {"repo": "a", "path": "/x", "password": "a\nb"}, "one line"),
    ],
)
def test_parameters_that_make_no_sense_are_refused_with_the_reason(
    step: str, wrong: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValidationError, match=message):
        step_registry().load(step).params_model.model_validate(wrong)


@pytest.mark.parametrize(
    ("step", "written", "read"),
    [
        ("sysctl", {"values": {"a.b": True, "c.d": 2}}, {"values": {"a.b": "1", "c.d": "2"}}),
        ("sysctl", {"values": {"a.b": "1 \t 2"}}, {"values": {"a.b": "1 2"}}),
        ("kernel-module", {"name": "br-netfilter"}, {"name": "br_netfilter"}),
        ("mount", {"path": "/x/", "src": "a", "options": ["ro", "bind"]}, {"path": "/x", "options": "ro,bind"}),
        ("swap", {"path": "/x", "size": "2G"}, {"size": 2 << 30}),
        ("swap", {"path": "/x", "size": 1048576}, {"size": 1 << 20}),
        ("swap", {"state": False}, {"state": "off"}),
        ("host-entry", {"entries": {"FD00::0:1": "a b"}}, {"entries": {"fd00::1": ["a", "b"]}}),
        ("ca-certificate", {"name": "a.crt", "state": "absent"}, {"name": "a"}),
        ("firewall-port", {"port": 80}, {"port": "80"}),
        ("firewall-port", {"port": "1:2", "source": "10.0.0.1/32"}, {"port": "1-2", "source": "10.0.0.1"}),
    ],
)
def test_parameters_are_taken_as_people_write_them(step: str, written: dict[str, Any], read: dict[str, Any]) -> None:
    params = step_registry().load(step).params_model.model_validate(written).model_dump()
    assert {key: params[key] for key in read} == read
