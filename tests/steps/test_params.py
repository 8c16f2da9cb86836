"""What step types take, refuse and say about themselves."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError
from ruamel.yaml import YAML

from kubexm_exec.plugins import step_registry
from kubexm_exec.step import AnyStep
from kubexm_steps.lib.types import parse_mode

STEPS: dict[str, type[AnyStep]] = {
    info.name: step_registry().load(info.name)
    for info in step_registry().infos()
    if info.value.startswith("kubexm_steps.")
}


@pytest.mark.parametrize(
    ("written", "mode"),
    [
        ("0644", 0o644),
        ("644", 0o644),
        ("0o755", 0o755),
        ("1777", 0o1777),
        ("04755", 0o4755),
        ("0000", 0),
        (0o644, 0o644),
        (0o600, 0o600),
        (0o755, 0o755),
        (0o700, 0o700),
        (0o640, 0o640),
        (0o400, 0o400),
        (0o1777, 0o1777),
    ],
)
def test_modes_are_octal_texts_or_octal_numbers(written: object, mode: int) -> None:
    assert parse_mode(written) == mode


@pytest.mark.parametrize("digits", ["644", "600", "755", "700", "640", "400", "444", "440", "750", "777", "664"])
def test_a_number_that_yaml_read_as_decimal_is_refused(digits: str) -> None:
    with pytest.raises(ValueError, match="write it in quotes"):
        parse_mode(int(digits))


@pytest.mark.parametrize("wrong", ["", "9", "0888", "u=rw", "rwxr-xr-x", "06", "077777", True, None, 6.4, -1, 99999])
def test_other_modes_are_refused(wrong: object) -> None:
    with pytest.raises(ValueError, match="mode"):
        parse_mode(wrong)


@pytest.mark.parametrize("name", sorted(STEPS))
def test_the_example_of_a_step_type_is_valid(name: str) -> None:
    (step,) = YAML(typ="safe").load(STEPS[name].example)
    assert step["type"] == name
    STEPS[name].params_model.model_validate(step.get("with", {}))


@pytest.mark.parametrize("name", sorted(STEPS))
def test_everything_about_a_step_type_is_documented(name: str) -> None:
    step = STEPS[name]
    assert step.__doc__
    assert "\n" in step.__doc__.strip(), "a summary line, then what it is for"
    for model in (step.params_model, step.outputs_model):
        silent = [field for field, info in model.model_fields.items() if not info.description]
        assert not silent, f"{model.__name__}: no description of {silent}"


@pytest.mark.parametrize("name", sorted(STEPS))
def test_unknown_parameters_are_refused(name: str) -> None:
    (step,) = YAML(typ="safe").load(STEPS[name].example)
    with pytest.raises(ValidationError, match="Extra inputs"):
        STEPS[name].params_model.model_validate({**step.get("with", {}), "kxUnknown": 1})


@pytest.mark.parametrize("name", sorted(STEPS))
def test_the_schema_of_a_step_type_names_its_parameters_in_camel_case(name: str) -> None:
    schema = STEPS[name].params_model.model_json_schema(by_alias=True)
    assert not [key for key in schema["properties"] if "_" in key]


@pytest.mark.parametrize(
    ("step", "wrong", "message"),
    [
        ("file", {"path": "relative"}, 'starts with "/"'),
        ("file", {"path": "/x\0y"}, "NUL"),
        ("file", {"path": "/x", "content": ["a"]}, "string"),
        ("file", {"path": "/x", "content": True}, "string"),
        ("file", {"path": "/x", "state": "absent", "content": "a"}, "content cannot be used with `state: absent`"),
        ("file", {"path": "/x", "owner": "a:b"}, "not the name or number"),
        ("file", {"path": "/x", "content": "a", "validate": "visudo -cf %s"}, "list of arguments, not a line of shell"),
        ("file", {"path": "/x", "content": "a", "validate": ["visudo", "-cf"]}, "`%s` must stand in the command"),
        ("file", {"path": "/x", "content": "a", "validate": []}, "the command is empty"),
        ("file", {"path": "/x", "validate": ["visudo", "-cf", "%s"]}, "validate needs `content`"),
        ("file", {"path": "/x", "state": "absent", "validate": ["a", "%s"]}, "validate cannot be used with"),
        ("file", {"path": "/x", "state": "absent", "createOnly": True}, "createOnly cannot be used with"),
        ("template", {"path": "/x", "src": "y", "createOnly": True, "backup": True}, "which replaces nothing"),
        ("directory", {"path": "/x", "state": "absent", "mode": "0755"}, "mode cannot be used"),
        ("directory", {"path": "/x", "recursive": True}, "recursive needs `state: absent`"),
        ("directory", {"path": "/", "state": "absent"}, "root folder"),
        ("symlink", {"path": "/x"}, "needs a target"),
        ("line-in-file", {"path": "/x"}, "which line"),
        ("line-in-file", {"path": "/x", "state": "absent"}, "which lines"),
        ("line-in-file", {"path": "/x", "line": "a\nb"}, "no line break"),
        ("line-in-file", {"path": "/x", "line": "a", "match": "("}, "not a regular expression"),
        ("line-in-file", {"path": "/x", "line": "a", "match": "(?=a)"}, "so that a search takes linear time"),
        ("line-in-file", {"path": "/x", "line": "a", "insertAfter": r"(a)\1"}, "so that a search takes linear time"),
        ("line-in-file", {"path": "/x", "line": "a", "insertAfter": "a", "insertBefore": "b"}, "exclude"),
        (
            "line-in-file",
            {"path": "/x", "line": "a", "state": "absent", "createFile": True},
            "createFile cannot be used",
        ),
        ("command", {}, "either argv"),
        ("command", {"argv": ["a"], "shell": "b"}, "either argv"),
        ("command", {"argv": []}, "names no program"),
        ("command", {"shell": "  "}, "shell is empty"),
        ("command", {"argv": ["a"], "undo": {}}, "undo takes either"),
        ("command", {"argv": ["a"], "unless": ""}, "the command is empty"),
        ("command", {"argv": ["a"], "expect": []}, "at least 1"),
        ("script", {}, "either src"),
        ("script", {"content": "x", "interpreter": "'"}, "cannot be read"),
        ("archive", {"path": "/x"}, "either src"),
        ("archive", {"path": "/x", "src": "/y.zip", "stripComponents": 1}, "tar archives only"),
        ("archive", {"path": "/x.zip", "src": "/y", "action": "pack"}, "not packed"),
        (
            "archive",
            {"path": "/x.tar", "localSrc": "y", "action": "pack"},
            "localSrc cannot be used with `action: pack`",
        ),
        ("archive", {"path": "/x", "src": "/y.tar", "mode": "0600"}, "with `action: pack` only"),
        ("archive", {"path": "/x", "src": "/y.tar", "sha256": "abc"}, "pattern"),
        ("etcd-member", {"state": "voter"}, "needs the `name` of the member"),
        ("etcd-member", {"state": "learner", "name": "a"}, "needs `peerUrls`"),
        ("etcd-member", {"state": "status", "name": "a"}, "name cannot be used with `state: status`"),
        ("etcd-member", {"state": "absent", "name": "a", "cert": "/c"}, "set both `cert` and `key`"),
        ("etcd-member", {"state": "absent", "name": "a", "endpoints": "10.0.0.1:2379"}, "endpoints"),
        ("container-image", {}, "say which `images`, or give an archive"),
        ("container-image", {"images": "nginx:1"}, "not the whole name of an image"),
        ("container-image", {"images": "docker.io/library/nginx"}, "neither a tag nor a digest"),
        ("container-image", {"state": "list", "images": "a.b/c:1"}, "images cannot be used with `state: list`"),
        ("container-image", {"src": "/a", "localSrc": "b"}, "either src or localSrc"),
        ("container-image", {"src": "/a", "client": "crictl"}, "src cannot be used with `client: crictl`"),
        ("kube-node", {"name": "a"}, "say what should be true"),
        ("kube-node", {"name": "A_b", "drained": True}, "not the name of an object"),
        ("kube-node", {"drained": True, "schedulable": True}, "a drained node is not schedulable"),
        ("kube-node", {"schedulable": False, "force": True}, "force cannot be used with a node that is not drained"),
        ("kube-node", {"state": "absent", "drained": True}, "drained cannot be used with `state: absent`"),
        ("kube-node", {"labels": {"a b": "c"}}, "not the key of a label"),
        ("kube-node", {"labels": {"a": "b c"}}, "not the value of a label"),
        ("kube-node", {"taints": [{"key": "a", "effect": "NoExecute"}] * 2}, "a taint is listed twice"),
        ("kube-apply", {}, "exactly one of content, objects, src and localSrc"),
        ("kube-apply", {"content": "a", "src": "/a"}, "exactly one of content, objects, src and localSrc"),
        ("kube-apply", {"content": "a", "state": "absent", "prune": {"a": "b"}}, "prune cannot be used with"),
        ("kube-apply", {"content": "a", "pruneKinds": "ConfigMap"}, "pruneKinds cannot be used with no `prune`"),
        ("helm", {"name": "a"}, "a release needs a `chart`"),
        ("helm", {"name": "A"}, "not the name of a release"),
        ("helm", {"name": "a", "state": "absent", "values": {"b": 1}}, "values cannot be used with `state: absent`"),
        ("assert", {"that": []}, "nothing to assert"),
        ("assert", {"that": ["a", " "]}, "nothing to assert"),
        ("gate", {"question": ""}, "at least 1"),
        ("set", {"values": {}}, "at least 1"),
        ("set-value", {"path": "/x.json"}, "say which values to set or to remove"),
        ("set-value", {"path": "/x", "values": {"a": 1}}, "the name x does not tell the format"),
        ("set-value", {"path": "/x.json", "values": {"a..b": 1}}, "a name belongs at position 3"),
        ("set-value", {"path": "/x.json", "values": {"a": 1}, "remove": ["b[0]"]}, "would remove the next item"),
        ("set-value", {"path": "/x.json", "values": {"a": 1}, "inlineComments": True}, "for ini files only"),
        ("set-value", {"path": "/x.json", "remove": ["a"], "createFile": True}, "createFile needs `values`"),
        ("set-value", {"path": "/x.toml", "values": {"a": [None]}}, "a: TOML has no null"),
        ("set-value", {"path": "/x.ini", "values": {"a.b.c": 1}}, "a path is KEY or SECTION.KEY"),
        ("set-value", {"path": "/x.ini", "values": {"a.b": [1]}}, "the value is a list, not one text"),
        ("set-value", {"path": "/x.ini", "values": {"a.b": "x\ny"}}, "the value must be one line"),
        ("set-value", {"path": "/x.ini", "values": {'a."b=c"': 1}}, "no ini file can have a key of this name"),
        ("stat", {"path": "relative"}, 'starts with "/"'),
    ],
)
def test_parameters_that_make_no_sense_are_refused_with_the_reason(
    step: str, wrong: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValidationError, match=message):
        STEPS[step].params_model.model_validate(wrong)


def test_numbers_are_taken_as_owners() -> None:
    params = STEPS["file"].params_model.model_validate({"path": "/x", "owner": 0, "group": "0"})
    assert params.model_dump()["owner"] == params.model_dump()["group"] == "0"
