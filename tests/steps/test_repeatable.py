"""Which of the built-in step types may simply be run again when nobody knows how far they came."""

from __future__ import annotations

from typing import Any

import pytest

from kubexm_exec.plugins import step_registry
from kubexm_exec.step import AnyStep, Undo, load_step

# They bring the host into a state, whatever it was in before: also into that of a run that broke off anywhere.
REPEATABLE = {
    "archive", "authorized-key", "block-in-file", "ca-certificate", "certificate", "container-image", "copy", "cron",
    "directory", "download", "etcd-member", "fetch", "file", "firewall-port", "git", "group", "helm", "host-entry",
    "hostname", "kernel-module", "kube-apply", "kube-node", "line-in-file", "mount", "package", "repository",
    "service", "set-value", "swap", "symlink", "sync", "sysctl", "systemd-unit", "template", "timer", "user",
}  # fmt: skip
# Only who wrote them knows what they do; a second reboot is a second outage.
NOT = {"command", "script", "http", "reboot"}


def types() -> dict[str, type[AnyStep]]:
    registry = step_registry()
    return {info.name: load_step(registry, info.name) for info in registry.infos() if info.distribution == "kubexm"}


def test_every_type_that_changes_something_was_judged() -> None:
    changing = {name: step.repeatable for name, step in types().items() if step.undo is not Undo.NEEDLESS}
    assert {name for name, repeatable in changing.items() if repeatable} == REPEATABLE
    assert {name for name, repeatable in changing.items() if not repeatable} == NOT


@pytest.mark.parametrize(
    ("method", "repeatable"),
    [("GET", True), ("HEAD", True), ("OPTIONS", True), ("PUT", True), ("POST", False), ("PATCH", False),
     ("DELETE", False)],
)  # fmt: skip
def test_whether_a_request_may_be_sent_again_depends_on_its_method(method: str, repeatable: bool) -> None:
    step: Any = types()["http"]
    params = step.params_model.model_validate({"url": "http://127.0.0.1/", "method": method})
    assert step(params).is_repeatable() is repeatable


def test_a_type_must_say_yes_or_no(plug_in: Any) -> None:
    code = (
        "from kubexm_exec.step import Params, Step\n"
        "class Plain(Step[Params]):\n"
        "    repeatable = 'sometimes'\n"
        "    def run(self, ctx, forecast): ...\n"
    )
    plug_in("kubexm.steps", code)
    from kubexm_exec.plugins import RegistryError

    with pytest.raises(RegistryError, match=r"Plain\.repeatable must be True or False, not 'sometimes'"):
        load_step(step_registry(), "plain")
