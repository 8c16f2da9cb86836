"""What a run changes: shown as it happens with ``--diff``, and kept in the journal for ``runs show --diff``."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kubexm_exec.engine.entries import bounded
from kubexm_exec.service.local import LocalService
from tests.e2e.program import run
from tests.e2e.site import Site, Sites

SPEC = """
inventory: {hosts: [{name: "n[1:2]", connector: local}]}
modules:
  - name: m
    tasks:
      - name: t
        runOn: {hosts: ["n[1:2]"]}
        steps:
          - {name: conf, type: file, with: {path: "FOLDER/{{ host.name }}.conf", content: "port=80\\nname=x\\n"}}
          - {name: asks, type: command, with: {shell: "true", readOnly: true}}
MORE
"""
HUNK = ["@@ -0,0 +1,2 @@", "+port=80", "+name=x"]


def diffs(said: str, host: str = "n1", node: str = "m/t/conf") -> list[str]:
    """What stands on the lines about a diff on a host."""
    rows = [line for line in said.splitlines() if line[8:].split()[:3] == ["diff", node, host]]
    return [row.partition(" | ")[2] for row in rows]


def shown(site: Site, *options: str) -> str:
    return site.run("kubexm", "runs", "show", "--diff", *options, code=0)


def changes(site: Site, *options: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(shown(site, "--output", "json", *options))["changes"]
    return found


def test_a_run_shows_what_it_changes_as_it_happens_if_that_is_asked_for(sites: Sites) -> None:
    site = sites(SPEC.replace("MORE", ""))
    said = site.run("kubexm-run", "spec.yaml", "--diff", "--output", "plain", code=0)
    assert diffs(said) == [f"{site.host}/n1.conf  (created, 0644)", *HUNK]
    assert diffs(said, "n2") == [f"{site.host}/n2.conf  (created, 0644)", *HUNK]
    assert diffs(said, node="m/t/asks") == []
    again = site.run("kubexm-run", "spec.yaml", "--diff", "--output", "plain", code=0)
    assert diffs(again) == []
    (site.host / "n1.conf").unlink()
    assert diffs(site.run("kubexm-run", "spec.yaml", "--output", "plain", code=0)) == []
    (site.host / "n1.conf").unlink()
    assert " | " not in site.run("kubexm-run", "spec.yaml", "--diff", "--output", "quiet", code=0)


def test_a_long_diff_is_cut_on_the_screen_and_says_where_the_rest_is(sites: Sites) -> None:
    site = sites(SPEC.replace("MORE", "").replace("port=80", "\\n".join(f"line{number}" for number in range(100))))
    said = site.run("kubexm-run", "spec.yaml", "-D", "--output", "plain", code=0)
    found = diffs(said)
    assert len(found) == 62
    newest = site.runs()[0]["id"]
    assert found[-1] == f"… 42 more lines of this diff: kubexm runs show {newest} --diff"
    assert "    +line99\n" in shown(site)


def test_the_journal_tells_what_a_run_changed_on_each_host(sites: Sites) -> None:
    site = sites(SPEC.replace("MORE", ""))
    site.run("kubexm-run", "spec.yaml", "--output", "quiet", code=0)
    (site.host / "n2.conf").write_text("port=81\nname=x\n")
    site.run("kubexm-run", "spec.yaml", "--output", "quiet", code=0)
    assert shown(site).splitlines() == [
        f"~ m/t/conf  n2  {site.host}/n2.conf", "    @@ -1,2 +1,2 @@", "    -port=81", "    +port=80", "     name=x",
        "Changes: 1 action on 1 host.",
    ]  # fmt: skip
    [change] = changes(site)
    assert (change["node"], change["host"], change["session"], change["sure"]) == ("m/t/conf", "n2", 1, True)
    assert [one["path"] for one in change["diffs"]] == [f"{site.host}/n2.conf"]
    site.run("kubexm-run", "spec.yaml", "--output", "quiet", code=0)
    assert shown(site) == "nothing was changed\n"


def test_hosts_and_nodes_can_be_chosen_and_what_means_nothing_is_an_error(sites: Sites) -> None:
    site = sites(SPEC.replace("MORE", ""))
    site.run("kubexm-run", "spec.yaml", "--output", "quiet", code=0)
    assert [each["host"] for each in changes(site)] == ["n1", "n2"]
    assert [each["host"] for each in changes(site, "--host", "n2")] == ["n2"]
    assert [each["host"] for each in changes(site, "--node", "m/t", "--host", "!n2")] == ["n1"]
    assert changes(site, "--node", "m/t/asks") == []
    said = site.run("kubexm", "runs", "show", "--diff", "--node", "m/t/cnf", code=2)
    assert said.startswith('error: there is no node "m/t/cnf" in run ')
    assert 'did you mean "m/t/conf"?' in said
    assert '"n9" is not a host' in site.run("kubexm", "runs", "show", "--diff", "--host", "n9", code=2)
    said = site.run("kubexm", "runs", "show", "--host", "n1", code=2)
    assert said == "error: --host and --node choose changes\n  → add --diff, or see `kubexm runs logs`\n"


def test_every_session_of_a_run_counts_and_what_was_undone_is_marked(sites: Sites) -> None:
    more = """          - {name: last, type: command, with: {shell: "test -e FOLDER/ok", readOnly: true}}"""
    site = sites(SPEC.replace("MORE", more))
    site.run("kubexm-run", "spec.yaml", "--output", "quiet", code=1)
    (site.host / "n1.conf").write_text("port=1\n")
    (site.host / "ok").touch()
    resume = ("kubexm", "runs", "resume", "last", "--from", "m/t/conf")
    said = site.run(*resume, "--diff", "--output", "plain", code=0)
    assert diffs(said) == [f"{site.host}/n1.conf", "@@ -1 +1,2 @@", "-port=1", "+port=80", "+name=x"]
    assert [(each["host"], each["session"]) for each in changes(site)] == [("n1", 1), ("n1", 2), ("n2", 1)]
    site.run("kubexm", "runs", "rollback", "last", "--yes", "--overwrite", "--output", "quiet", code=0)
    assert shown(site, "--host", "n2").splitlines()[0].endswith(f"{site.host}/n2.conf  (created, 0644)  [undone since]")
    assert [each["undo"] for each in changes(site)] == ["undone"] * 3


def test_secrets_are_masked_and_sensitive_steps_have_no_content(sites: Sites) -> None:
    more = """
          - {name: key, type: file, with: {path: "FOLDER/{{ host.name }}.key", content: "a\\nkey={{ secret('env:KEY') }}\\n"}}
          - {name: hush, type: file, sensitive: true, with: {path: "FOLDER/{{ host.name }}.hush", content: "quiet words"}}
"""  # noqa: E501
    site = sites(SPEC.replace("MORE", more), KEY="opensesame-4711")
    said = site.run("kubexm-run", "spec.yaml", "--diff", "--output", "plain", code=0)
    said += shown(site) + shown(site, "--output", "json") + json.dumps(site.entries(), default=str)
    said += site.run("kubexm", "runs", "report", "-o", "-", code=0)
    assert "opensesame-4711" not in said
    assert "quiet words" not in said
    assert (site.host / "n1.key").read_text() == "a\nkey=opensesame-4711\n"
    hush = [each for each in changes(site) if each["node"] == "m/t/hush"]
    assert [one["text"] for each in hush for one in each["diffs"]] == ["", ""]


def test_a_check_is_told_once_and_steps_through_the_debugger_are_too(sites: Sites) -> None:
    site = sites(SPEC.replace("MORE", ""))
    plain = site.run("kubexm-run", "spec.yaml", "--executor", "check", "--output", "plain", code=0)
    asked = site.run("kubexm-run", "spec.yaml", "--executor", "check", "--diff", "--output", "plain", code=0)
    assert plain.count("+port=80") == asked.count("+port=80") == 2
    assert "+port=80" not in site.run("kubexm-run", "spec.yaml", "--executor", "dry-run", "--diff", code=0)
    debug = ("kubexm-run", "spec.yaml", "--executor", "debug", "--diff", "--output", "plain")
    said = run(*debug, cwd=site.folder, stdin="c\n", env=site.env).stdout
    assert diffs(said) == [f"{site.host}/n1.conf  (created, 0644)", *HUNK]


def test_the_service_tells_it_too(sites: Sites) -> None:
    site = sites(SPEC.replace("MORE", ""))
    site.run("kubexm-run", "spec.yaml", "--output", "quiet", code=0)
    service = LocalService(state=site.state)
    assert [(each.node, each.host, len(each.diffs)) for each in service.changes("last", hosts="n2")] == [
        ("m/t/conf", "n2", 1)
    ]


def test_what_is_recorded_of_many_or_long_diffs_is_bounded_and_every_place_is_named() -> None:
    def diff(path: str, size: int, note: str = "") -> dict[str, Any]:
        return {"path": path, "text": "+x\n" * (size // 3), "note": note}

    short = [diff("/a", 30), diff("/b", 30)]
    assert bounded(short) is short
    kept = bounded([diff("/a", 30_000), diff("/b", 60_000, "0644"), diff("/c", 30_000)])
    assert [(one["path"], len(one["text"])) for one in kept] == [("/a", 30_000), ("/b", 0), ("/c", 30_000)]
    assert kept[1]["note"] == "0644, a diff of 20001 lines, which was too long to be recorded"
    many = bounded([diff(f"/{number}", 3) for number in range(700)])
    assert len(many) == 501
    assert many[-1] == {"path": "", "text": "", "note": "and 200 more places"}


REFUSED = """
inventory: {hosts: [{name: n1, connector: local}]}
modules:
  - name: m
    tasks:
      - name: t
        runOn: {hosts: [n1]}
        steps:
          - name: conf
            type: TYPE
            with: {path: "FOLDER/n1.conf", WITH, validate: [sh, -c, "echo bad >&2; false", x, "%s"]}
            SENSITIVE
"""


@pytest.mark.parametrize(
    ("kind", "params", "added"),
    [
        ("file", 'content: "port=9\\n"', "+port=9"),
        ("line-in-file", 'line: "port=9", match: "^port="', "+port=9"),
        ("template", "src: new.conf", "+port=9"),
        ("copy", "src: new.conf", "+port=9"),
        ("block-in-file", 'content: "port=9"', "+port=9"),
    ],
)
def test_content_that_a_program_refuses_is_shown_with_what_it_said_and_is_no_change(
    sites: Sites, kind: str, params: str, added: str
) -> None:
    site = sites(REFUSED.replace("TYPE", kind).replace("WITH", params).replace("SENSITIVE", ""))
    (site.folder / "new.conf").write_text("port=9\n")
    (site.host / "n1.conf").write_text("port=80\n")
    said = site.run("kubexm-run", "spec.yaml", "--output", "plain", "--result", "r.json", code=1)
    assert "exit code 1: bad\n" in said
    block = said[said.index("  refused, and not written: ") :]
    assert block.startswith(f"  refused, and not written: {site.host}/n1.conf")
    assert f"    {added}\n" in block
    action = json.loads((site.folder / "r.json").read_text())["nodeResults"]["m/t/conf"]["hostResults"]["n1"]
    assert added in action["refused"][0]["text"].splitlines()
    assert "diffs" not in action
    assert added in site.run("kubexm", "runs", "show", code=0)
    assert changes(site) == []
    assert (site.host / "n1.conf").read_text() == "port=80\n"


@pytest.mark.parametrize(("hidden", "content"), [("sensitive: true", "{{ 7 * 191 }}"), ("", "{{ secret('env:KEY') }}")])
def test_refused_content_that_is_secret_is_not_shown(sites: Sites, hidden: str, content: str) -> None:
    spec = REFUSED.replace("TYPE", "file").replace("WITH", f'content: "port {content}"')
    site = sites(spec.replace("SENSITIVE", hidden))
    said = site.run("kubexm-run", "spec.yaml", "--output", "plain", "--result", "r.json", code=1, KEY="secret-1337")
    assert "refused, and not written: " in said
    assert "1337" not in said + (site.folder / "r.json").read_text()
