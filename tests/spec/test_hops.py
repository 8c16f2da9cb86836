"""Hosts to go through, as people write them."""

from __future__ import annotations

import pytest

from kubexm_spec.models import ConnectionSpec
from kubexm_spec.models.hops import parse_hops


@pytest.mark.parametrize(
    ("text", "hops"),
    [
        ("bastion", ("bastion",)),
        ("me@bastion:22, inner", ("me@bastion:22", "inner")),
        ("me@home@bastion", ("me@home@bastion",)),
        ("fe80::1", ("fe80::1",)),
        ("None", ()),
    ],
)
def test_hops_are_given_in_their_order(text: str, hops: tuple[str, ...]) -> None:
    assert parse_hops(text) == hops


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "lacks the name"),
        (",,", '",," lacks the name'),
        ("a,", '"a," lacks the name'),
        ("me@", "lacks the name"),
        (":22", "lacks the name"),
        ("a b", '"a b" is not a gateway'),
        ("ssh://a", '"ssh://a" is not a gateway'),
        ("a,root@127.0.0.11:notaport", '"root@127.0.0.11:notaport" has the port "notaport"'),
        ("a:", 'has the port ""'),
        ("a:0", 'has the port "0"'),
        ("a:65536", 'has the port "65536"'),
        ("a:٢٢", 'has the port "٢٢"'),
    ],
)
def test_what_is_no_hop_is_said_with_an_example(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=r"write for example user@bastion:22") as caught:
        parse_hops(text)
    assert words in str(caught.value)


def test_an_inventory_keeps_them_as_ssh_itself_would_take_them() -> None:
    assert ConnectionSpec.model_validate({"proxyJump": "a, b:1"}).proxy_jump == "a,b:1"
    assert ConnectionSpec.model_validate({"proxyJump": "none"}).proxy_jump == "none"
