"""Laws of changing values in texts of data, and what is written in which style."""

from __future__ import annotations

import copy
import difflib
import io
import json
import tomllib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
import tomlkit
from hypothesis import given
from hypothesis import strategies as st
from ruamel.yaml import YAML

from kubexm_steps.formats import ini, keypaths
from kubexm_steps.formats.jsontext import JsonText
from kubexm_steps.formats.keypaths import EditError, KeyPath
from kubexm_steps.formats.tomltext import TomlText
from kubexm_steps.formats.yamltext import YamlText

Values = Mapping[KeyPath, Any]
NAMES = st.sampled_from(["a", "b", "c", "long name", "x.y", "yes", "8080", "é", "-", "#", '"', "a: b"])
TEXTS = st.one_of(
    st.sampled_from(
        ["", "plain", "two words", "yes", "null", "1", "0644", "1.5", "a: b", "a #b", "- x", "it's", '"q"']
    ),
    st.sampled_from(
        ["two\nlines", "two\nlines\n", " \n", "\ttab", "é", "{{ x }}", "\u2028", "*x", "&x", "!x", "a\n\n"]
    ),
    # ruamel.yaml writes texts with colons in braces as libyaml does not read them.
    st.text(max_size=6).filter(lambda text: text.isprintable() and ":" not in text),
)
SCALARS = st.one_of(TEXTS, st.booleans(), st.integers(-5, 5), st.sampled_from([0.5, 1e20, -2.0]))
DATA = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3), max_leaves=8
)
MAPS = st.dictionaries(NAMES, DATA, max_size=4)


def paths_of(data: Any, above: KeyPath = ()) -> list[KeyPath]:
    """All paths in data, and the ones next to them."""
    found: list[KeyPath] = []
    if isinstance(data, dict):
        found = [(*above, name) for name in (*data, "new")]
    elif isinstance(data, list):
        found = [(*above, number) for number in range(len(data) + 1)]
    inner = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    return [*found, *(path for key, value in inner for path in paths_of(value, (*above, key)))]


def yaml_text(data: Any, flow: bool, offset: int) -> str:
    yaml = YAML()
    yaml.default_flow_style = flow
    yaml.indent(mapping=2 + offset, sequence=2 + offset, offset=offset)
    made = io.StringIO()
    yaml.dump(data, made)
    return made.getvalue()


DUMPS: dict[str, Callable[[Any, int], str]] = {
    "json": lambda data, style: json.dumps(data, indent=[None, 2, "\t"][style], ensure_ascii=style == 0),
    "yaml in lines": lambda data, style: yaml_text(data, False, 2 * (style % 2)),
    "yaml in braces": lambda data, style: yaml_text(data, True, 0),
    "json as yaml": lambda data, style: json.dumps(data, indent=[None, 2, 4][style], ensure_ascii=False),
    "toml": lambda data, style: tomlkit.dumps(data),
}
FORMATS: dict[str, Callable[[], Any]] = {
    "json": JsonText, "yaml in lines": YamlText, "yaml in braces": YamlText, "json as yaml": YamlText,
    "toml": TomlText,
}  # fmt: skip


@pytest.mark.parametrize("kind", DUMPS)
@given(data=st.data(), before=MAPS, style=st.integers(0, 2))
def test_only_that_value_is_another_one_and_a_second_time_changes_nothing(
    kind: str, data: st.DataObject, before: dict[str, Any], style: int
) -> None:
    text = DUMPS[kind](before, style)
    form = FORMATS[kind]()
    assert keypaths.same(form.read(text), before), "the test writes what it means"
    path = data.draw(st.sampled_from(paths_of(before)))
    value = data.draw(DATA)
    wanted = copy.deepcopy(before)
    keypaths.put(wanted, path, value)
    try:
        changed = form.edited(text, {path: value}, [])
    except EditError:
        assert kind == "toml", "only an array of tables takes no other items"
        assert isinstance(path[-1], int)
        return
    assert keypaths.same(FORMATS[kind]().read(changed), wanted)
    assert form.edited(changed, {path: value}, []) == changed
    if keypaths.same(before, wanted):
        assert changed == text
    if isinstance(path[-1], int):
        return
    keypaths.drop(wanted, path)
    removed = form.edited(changed, {}, [path])
    assert keypaths.same(FORMATS[kind]().read(removed), wanted)
    assert form.edited(removed, {}, [path]) == removed


def test_table_stays_whose_only_table_is_removed() -> None:
    assert TomlText().edited("x = 1\n\n[a.b]\nc = 1\n\n[d]\n", {}, [("a", "b")]) == "x = 1\n\n[a]\n\n[d]\n"


@given(before=MAPS, data=st.data())
def test_other_programs_read_the_same_from_yaml(before: dict[str, Any], data: st.DataObject) -> None:
    path = data.draw(st.sampled_from(paths_of(before)))
    value = data.draw(DATA)
    wanted = copy.deepcopy(before)
    keypaths.put(wanted, path, value)
    changed = YamlText().edited(yaml_text(before, False, 2), {path: value}, [])
    assert keypaths.same(keypaths.plain(YAML(typ="safe", pure=True).load(changed) or {}), wanted)


PLAIN = st.recursive(
    st.integers(0, 9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(NAMES, PLAIN, max_size=4), st.integers(0, 2), st.data())
def test_comments_stay_where_something_is_set_beside_them(
    before: dict[str, Any], offset: int, data: st.DataObject
) -> None:
    lines: list[str] = []
    for number, line in enumerate(yaml_text(before, False, offset).splitlines()):
        if data.draw(st.booleans()):
            lines.append(" " * (len(line) - len(line.lstrip())) + f"# before {number}")
        lines.append(f"{line}  # behind {number}" if data.draw(st.booleans()) else line)
    text = "".join(f"{line}\n" for line in (*lines, "# end"))
    paths = [path for path in paths_of(before) if not isinstance(look(before, path), dict | list)]
    path = data.draw(st.sampled_from(paths))
    value = data.draw(PLAIN)
    changed = YamlText().edited(text, {path: value}, [])
    assert _comments(changed) == _comments(text)


def _comments(text: str) -> list[str]:
    return [line.partition("# ")[2] for line in text.splitlines() if "# " in line]


def look(data: Any, path: KeyPath) -> Any:
    for key in path:
        try:
            data = data[key]
        except LookupError:
            return None
    return data


LINES = st.lists(
    st.sampled_from(
        ["# why", "; why", "", "[a]", "[b]", "[a] ; x", "x = 1", "x=2", "y: 3", "\tx = 4", "bare", "z = 1 ; c"]
    ),
    max_size=8,
)
WHERE = st.sampled_from([("x",), ("a", "x"), ("b", "y"), ("new", "z"), ("a", "bare")])


@given(LINES, st.sampled_from(["\n", "\r\n"]), WHERE, st.sampled_from(["v", "", None, "1"]), st.booleans())
def test_a_value_of_an_ini_file_is_set_once_and_removed(
    lines: list[str], end: str, path: KeyPath, value: str | None, inline: bool
) -> None:
    text = "".join(line + end for line in lines)
    changed = ini.edited(text, {path: value}, [], inline=inline)
    assert ini.edited(changed, {path: value}, [], inline=inline) == changed
    assert [line.rstrip("\r") for line in changed.split("\n") if line[:1] in ("#", ";", "[")] == [
        *(line for line in lines if line[:1] in ("#", ";", "[")),
        *([f"[{path[0]}]"] if len(path) > 1 and not any(line.startswith(f"[{path[0]}]") for line in lines) else []),
    ]
    removed = ini.edited(changed, {}, [path], inline=inline)
    assert ini.edited(removed, {}, [path], inline=inline) == removed
    assert ini.edited(removed, {path: value}, [], inline=inline) != removed


@given(st.lists(NAMES | st.integers(0, 9), min_size=1, max_size=4))
def test_a_path_is_read_as_it_is_shown(path: list[str | int]) -> None:
    assert keypaths.parse(keypaths.show(path)) == tuple(path)


@pytest.mark.parametrize("wrong", ["", ".a", "a.", "a..b", "a[", "a[x]", "a]b", 'a."b', 'a"b"', "a[0]b", "[-1]"])
def test_what_is_no_path_is_refused(wrong: str) -> None:
    with pytest.raises(ValueError, match="is not a path of keys"):
        keypaths.parse(wrong)


YAML_TEXT = """\
# head
kind:   Config   # eol

# about server
server:
    port: 80     # the port
    hosts:
      - a
      - "b"   # second
    tls: {enabled: false, cert: 'x'}
    # at the end of server
# about users
users:
- name: joe
  roles: [a,b]
- name: ann   # ann's
  # about her age
  age: 5
text: |
  # no comment
  line

last: 0x10
"""
JSON_TEXT = """\
{
    "a": [1, 2, 3],
    "b": {"c": 1.50, "u": "\\u00e9\\/"},
    "last": {
        "x": true
    }
}
"""
TOML_TEXT = """\
# top
title = "x"   # eol

[server]
port = 80
hosts = [
  "a",
  "b", # second
]

# about tools
[[tool]]
name = "a"
"""
INI_TEXT = """\
; head
global = 1

[mysqld]
# about the port
port = 3306 ; why
skip-networking
user=mysql

[remote "origin"]
\turl = x
[supervisor]
environment=A="1",
    B="2"
cmd=z
"""


def edit(text: str, values: Mapping[str, Any], removed: Sequence[str] = (), inline: bool = False) -> str:
    by_path = {keypaths.parse(name): value for name, value in values.items()}
    gone = [keypaths.parse(name) for name in removed]
    if text is INI_TEXT:
        return ini.edited(text, by_path, gone, inline=inline)
    forms: dict[str, Callable[[], Any]] = {YAML_TEXT: YamlText, JSON_TEXT: JsonText, TOML_TEXT: TomlText}
    changed: str = forms[text]().edited(text, by_path, gone)
    return changed


@pytest.mark.parametrize(
    ("text", "values", "removed", "minus", "plus"),
    [
        (YAML_TEXT, {"server.port": 8080}, [], ["    port: 80     # the port"], ["    port: 8080     # the port"]),
        (YAML_TEXT, {"kind": "Other"}, [], ["kind:   Config   # eol"], ["kind:   Other   # eol"]),
        (YAML_TEXT, {"server.hosts[1]": "c"}, [], ['      - "b"   # second'], ["      - c   # second"]),
        (YAML_TEXT, {"server.hosts[2]": "c"}, [], [], ["      - c"]),
        (YAML_TEXT, {"server.tls.cert": "y", "server.tls.key": "k"}, [],
         ["    tls: {enabled: false, cert: 'x'}"], ["    tls: {enabled: false, cert: 'y', key: k}"]),
        (YAML_TEXT, {"users[1].name": "0644"}, [], ["- name: ann   # ann's"], ["- name: '0644'   # ann's"]),
        (YAML_TEXT, {"users[2]": {"name": "eve", "roles": ["a"]}}, [], [], ["- name: eve", "  roles:", "  - a"]),
        (YAML_TEXT, {"server.deep.er": {"a": [1, {"b": "on"}]}}, [], [],
         ["    deep:", "        er:", "            a:", "            - 1", "            - b: 'on'"]),
        (YAML_TEXT, {"text": "one\ntwo"}, [], ["text: |", "  # no comment", "  line"],
         ["text: |-", "    one", "    two"]),
        (YAML_TEXT, {"server": 5}, [],
         ["server:", "    port: 80     # the port", "    hosts:", "      - a", '      - "b"   # second',
          "    tls: {enabled: false, cert: 'x'}"], ["server: 5"]),
        (YAML_TEXT, {"last": None}, [], ["last: 0x10"], ["last: null"]),
        (YAML_TEXT, {"last": 16}, [], [], []),
        (YAML_TEXT, {}, ["server.hosts", "nothing.there"],
         ["    hosts:", "      - a", '      - "b"   # second'], []),
        (YAML_TEXT, {}, ["server.tls", "users"],
         ["    tls: {enabled: false, cert: 'x'}", "users:", "- name: joe", "  roles: [a,b]", "- name: ann   # ann's",
          "  # about her age", "  age: 5"], []),
        (YAML_TEXT, {}, ["users[0].name"], ["- name: joe", "  roles: [a,b]"], ["- roles: [a,b]"]),
        (YAML_TEXT, {}, ["users[1].name"], ["- name: ann   # ann's"], ["-"]),
        (YAML_TEXT, {}, ["server.tls.enabled"],
         ["    tls: {enabled: false, cert: 'x'}"], ["    tls: {cert: 'x'}"]),
        (JSON_TEXT, {"b.c": 2, "last.y": "é"}, [],
         ['    "b": {"c": 1.50, "u": "\\u00e9\\/"},', '        "x": true'],
         ['    "b": {"c": 2, "u": "\\u00e9\\/"},', '        "x": true,', '        "y": "é"']),
        (JSON_TEXT, {"a[3]": 4}, ["last.x"],
         ['    "a": [1, 2, 3],', '    "last": {', '        "x": true', "    }"],
         ['    "a": [1, 2, 3, 4],', '    "last": {}']),
        (JSON_TEXT, {"new": {"m": [1]}}, [], [],
         ["    },", '    "new": {', '        "m": [', "            1", "        ]"]),
        (TOML_TEXT, {"server.port": 8080, "server.hosts[2]": "c", "tool[0].name": "b"}, ["title"],
         ['title = "x"   # eol', "port = 80", 'name = "a"'], ["port = 8080", '  "c",', 'name = "b"']),
        (TOML_TEXT, {"new.section.a": 1.5}, [], [], ["", "[new.section]", "a = 1.5"]),
        (INI_TEXT, {"mysqld.port": 3307, "mysqld.new": True}, [], ["port = 3306 ; why"], ["port = 3307", "new = true"]),
        (INI_TEXT, {'"remote \\"origin\\"".fetch': "y", "global": 2, "other.x": 1}, [],
         ["global = 1"], ["global = 2", "\tfetch = y", "", "[other]", "x = 1"]),
        (INI_TEXT, {"mysqld.skip-networking": None}, ["supervisor.environment"],
         ['environment=A="1",', '    B="2"'], []),
    ],
)  # fmt: skip
def test_only_the_lines_change_that_have_to(
    text: str, values: dict[str, Any], removed: list[str], minus: list[str], plus: list[str]
) -> None:
    changed = edit(text, values, removed)
    lines = list(difflib.unified_diff(text.splitlines(), changed.splitlines(), lineterm="", n=0))[2:]
    assert sorted(line[1:] for line in lines if line[0] == "-") == sorted(minus)
    assert sorted(line[1:] for line in lines if line[0] == "+") == sorted(plus)


def test_a_comment_behind_a_value_of_an_ini_file_is_kept_where_the_spec_says_that_it_is_one() -> None:
    changed = edit(INI_TEXT, {"mysqld.port": 3307}, inline=True)
    assert "port = 3307 ; why\n" in changed
    assert ini.edited('a = "x ; y" ; z\n', {("a",): '"x ; y"'}, [], inline=True) == 'a = "x ; y" ; z\n'


@pytest.mark.parametrize(
    ("form", "text", "values", "line", "reason"),
    [
        (JsonText, '{"a": 1,\n "b": }', {"a": 2}, 2, "expecting value, column 7"),
        (JsonText, '{"a": 1, "a": 2}', {"a": 3}, None, "the key 'a' is in one map twice"),
        (JsonText, '{"a": NaN}', {"a": 3}, None, "NaN is no value of JSON"),
        (JsonText, "[1]", {"a": 3}, None, "the file is a list, not a map"),
        (JsonText, '{"a": "x"}', {"a.b": 3}, None, "a is a text, not a map"),
        (JsonText, '{"a": [1]}', {"a[3]": 3}, None, r"a has 1 items: the next one is \[1\]"),
        (JsonText, '{"a": 1}', {"a": float("inf")}, None, "a value cannot be written: .*"),
        (JsonText, "[" * 5000 + "]" * 5000, {"a": 1}, None, "it is nested too deeply"),
        (YamlText, "a: [1\nb: 2\n", {"a": 3}, 2, "did not find expected ',' or ']'"),
        (YamlText, "a: 1\nb: 2\na: 3\n", {"a": 3}, 3, "the key 'a' is in one map twice"),
        (YamlText, "a: 1\n---\nb: 2\n", {"a": 3}, 2, "it has several documents, .*"),
        (YamlText, "a: 1\n\tb: 2\n", {"a": 3}, 2, ".*"),
        (YamlText, "a: &x {b: 1}\nc: *x\n", {"c.b": 3}, None, r"c is an alias \(\*x\), not a map"),
        (YamlText, "a: &x 1\nc: *x\n", {"a": 3}, None, r"a is used in several places \(&x\)"),
        (YamlText, "a: &x {b: 1}\nc: *x\n", {"a.b": 3}, None, r"a is used in several places \(&x\)"),
        (YamlText, "a: &x {b: 1}\nc: *x\n", {"a.d": 3}, None, r"a is used in several places \(&x\)"),
        (YamlText, "a: &x\n  b: [1]\nc:\n  <<: *x\n", {"a.b[0]": 3}, None, r"a is used in several places \(&x\)"),
        (YamlText, "text\n", {"a": 3}, None, "the file is a text, not a map"),
        (YamlText, "[" * 200, {"a": 3}, 1, "it is nested too deeply"),
        (TomlText, "a = 1\nb = \n", {"a": 3}, 2, "invalid value, column 5"),
        (TomlText, "a = 1\n", {"a.b": 3}, None, "a is a number, not a map"),
    ],
)
def test_what_cannot_be_changed_is_an_error_with_its_line(
    form: Callable[[], Any], text: str, values: dict[str, Any], line: int | None, reason: str
) -> None:
    with pytest.raises(EditError, match=rf"^{reason}$") as caught:
        form().edited(text, {keypaths.parse(name): value for name, value in values.items()}, [])
    assert caught.value.line == line


def test_what_others_refer_to_is_not_removed_from() -> None:
    with pytest.raises(EditError, match=r"a is used in several places \(&x\)"):
        YamlText().edited("a: &x {b: 1}\nc: *x\n", {}, [("a", "b")])


@pytest.mark.parametrize(("text", "line"), [("a = 1\n[b\n", 2), ("= 1\n", 1)])
def test_a_broken_ini_file_is_an_error_with_its_line(text: str, line: int) -> None:
    with pytest.raises(EditError) as caught:
        ini.edited(text, {("a",): "2"}, [])
    assert caught.value.line == line


@pytest.mark.parametrize("text", ["\ufeffa: 1\r\nb:\r\n  c: 2\r\n", "a: 1\r\nb:\r\n  c: 2\r\n"])
def test_line_ends_and_the_mark_of_the_byte_order_are_kept(text: str) -> None:
    assert YamlText().edited(text, {("b", "d"): 3}, []) == f"{text}  d: 3\r\n"


def test_tags_and_merges_of_yaml_are_kept() -> None:
    text = "a: !vault x\nbase: &b {x: 1}\nd:\n  <<: *b\n  y: !Ref {z: 1}\n8080: p\n"
    changed = YamlText().edited(text, {("d", "x"): 5, ("d", "y", "z"): 2, ("8080",): "q", ("a",): "open"}, [])
    assert changed == "a: open\nbase: &b {x: 1}\nd:\n  <<: *b\n  y: !Ref {z: 2}\n  x: 5\n8080: q\n"


def test_the_library_that_writes_toml_keeps_what_it_does_not_change() -> None:
    assert tomlkit.dumps(tomlkit.parse(TOML_TEXT)) == TOML_TEXT
    assert tomllib.loads(TOML_TEXT)["server"]["port"] == 80
