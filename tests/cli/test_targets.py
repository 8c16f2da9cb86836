"""What commands write: nothing that a call reads, and nothing of anybody else's, is replaced without --force."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from kubexm_exec.cli.main import main
from kubexm_exec.cli.run import RunCommand
from kubexm_exec.cli.run import command as run_command
from kubexm_exec.resources.bundle import INDEX
from tests.cli.kit import Folder

WRITES = {
    "plan": ("plan", "main.yaml", "-o"),
    "graph as mermaid": ("graph", "main.yaml", "-o"),
    "graph as dot": ("graph", "main.yaml", "--format", "dot", "-o"),
    "graph as json": ("graph", "main.yaml", "--format", "json", "-o"),
    "graph as svg": ("graph", "main.yaml", "--format", "svg", "-o"),
    "graph as html": ("graph", "main.yaml", "--format", "html", "-o"),
    "schema": ("schema", "-o"),
    "runs report": ("runs", "report", "last", "-o"),
    "exec --result": ("exec", "all", "-i", "hosts.yaml", "--output", "quiet", "--shell", "true", "--result"),
    "run --result": ("kubexm-run", "main.yaml", "--vars-file", "vars.yaml", "--output", "quiet", "--result"),
    "run --report": ("kubexm-run", "main.yaml", "--vars-file", "vars.yaml", "--output", "quiet", "--report"),
    "run --plan --result": ("kubexm-run", "--plan", "planned.json", "--output", "quiet", "--result"),
}
"""Every option that names a file to write: a call that ends with it, before the name."""
OPTIONS = {
    "plan --out", "graph --out", "schema --out", "runs report --out", "exec --result", "kubexm-run --result",
    "kubexm-run --report", "resources bundle --out", "cluster build --out", "cluster render --out",
    "cluster convert --out", "cluster kubeconfig --out", "cluster bundle --out",
}  # fmt: skip
READS = {"--inventory", "--vars-file", "--templates", "--plan", "--bundle", "--journal", "--spec", "--file"}
"""Options that name what is only read, or, as the journal, is ours by its own mark; or, as the document that
`versions add` extends, is read as well and kept but for the lines that are added."""
FILES = {
    "main.yaml": """\
        apiVersion: kubexm.io/v1
        kind: Pipeline
        metadata: {name: site}
        inventory: hosts.yaml
        params: {word: {type: string, default: hi}}
        modules:
          - name: used
            uses: module.yaml
        """,
    "module.yaml": """\
        apiVersion: kubexm.io/v1
        kind: Module
        metadata: {name: used}
        tasks:
          - name: t
            steps:
              - {name: s, type: message, with: {text: hi}}
              - {name: conf, type: template, when: false, with: {src: conf.j2, path: /nonexistent/conf}}
        """,
    "templates/conf.j2": "x\n",
    "hosts.yaml": """\
        apiVersion: kubexm.io/v1
        kind: Inventory
        metadata: {name: hosts}
        hosts: [{name: n1, connector: local}]
        """,
    "vars.yaml": "word: hello\n",
    "foreign.txt": "mine\n",
}


@pytest.fixture
def site(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> Folder:
    monkeypatch.setenv("XDG_STATE_HOME", str(folder.path / "state"))
    for name, text in FILES.items():
        folder.file(name, text)
    call(folder, "plan", "main.yaml", "-o", "planned.json")
    assert call(folder, "kubexm-run", "main.yaml", "--output", "quiet").exit_code == 0
    return folder


def call(folder: Folder, *arguments: str) -> Result:
    if arguments[0] != "kubexm-run":
        return folder.run(*arguments)
    result = CliRunner().invoke(run_command, list(arguments[1:]))
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result


def kind_of(way: str) -> str:
    return next((kind for kind in ("result", "report", "graph") if kind in way), way)


def options(command: click.Command, path: str) -> Iterator[str]:
    """Every option below a command that takes the name of a file or a folder."""
    if isinstance(command, click.Group):
        for name in command.list_commands(click.Context(command)):
            below = command.get_command(click.Context(command), name)
            assert below is not None
            yield from options(below, f"{path} {name}".strip())
    for each in command.params:
        if isinstance(each, click.Option) and each.metavar in ("FILE", "DIR", "FOLDER", "PATH", "URL|FILE", "DIR|FILE"):
            yield f"{path} {each.opts[-1]}".strip()


def test_every_option_that_names_a_file_is_known_as_read_or_written() -> None:
    found = {*options(main, ""), *options(run_command, "kubexm-run")}
    written = {each for each in found if each.rpartition(" ")[2] not in READS}
    # They take all options of kubexm-run.
    clusters = main.get_command(click.Context(main), "cluster")
    assert isinstance(clusters, click.Group)
    flows = tuple(f"cluster {name} " for name, each in clusters.commands.items() if isinstance(each, RunCommand))
    runs = {each for each in written if each.startswith(("run ", *flows))}
    assert written - runs == OPTIONS


@pytest.mark.parametrize(
    "name", ["main.yaml", "module.yaml", "hosts.yaml", "vars.yaml", "templates/conf.j2", "foreign.txt"]
)
@pytest.mark.parametrize("way", WRITES)
def test_what_is_not_an_earlier_one_is_not_replaced(site: Folder, way: str, name: str) -> None:
    path = site.path / name
    before = path.read_bytes()
    result = call(site, *WRITES[way], name)
    assert (result.exit_code, path.read_bytes()) == (2, before)
    assert "overwrite it with --force" in result.stderr


@pytest.mark.parametrize("way", WRITES)
@pytest.mark.parametrize("kind", ["hard link", "link", "roundabout"])
def test_the_spec_is_recognised_by_any_name(site: Folder, way: str, kind: str) -> None:
    spec = site.path / "main.yaml"
    other = site.path / "other"
    if kind == "hard link":
        os.link(spec, other)
    elif kind == "link":
        other.symlink_to(spec)
    name = str(site.path / "state" / ".." / "main.yaml") if kind == "roundabout" else "other"
    before = spec.read_bytes()
    result = call(site, *WRITES[way], name)
    assert (result.exit_code, spec.read_bytes()) == (2, before)
    reading = way not in ("schema", "runs report", "exec --result")
    assert ("this command reads it" in result.stderr) is reading


@pytest.mark.parametrize("way", WRITES)
def test_an_earlier_one_is_replaced_and_anything_else_only_with_force(site: Folder, way: str) -> None:
    first = call(site, *WRITES[way], "out")
    assert first.exit_code == 0, first.output
    made = (site.path / "out").read_bytes()
    (site.path / "out").write_bytes(made + b"\n")
    assert call(site, *WRITES[way], "out").exit_code == 0
    assert (site.path / "out").read_bytes() != made + b"\n"
    for other, arguments in WRITES.items():
        if kind_of(other) != kind_of(way):
            assert call(site, *arguments, "out").exit_code == 2, f"{other} has replaced what {way} made"
    (site.path / "out").write_text("mine")
    assert call(site, *WRITES[way], "out").exit_code == 2
    assert call(site, *WRITES[way], "out", "--force").exit_code == 0
    assert (site.path / "out").read_bytes() != b"mine"
    assert not [each for each in site.path.iterdir() if each.name.endswith(".tmp")]


def test_a_result_and_a_report_are_not_one_file(site: Folder) -> None:
    for force in ((), ("--force",)):
        result = call(site, "kubexm-run", "main.yaml", "--result", "out", "--report", "./out", *force)
        assert result.exit_code == 2
        assert "both the result and the report" in result.stderr
    assert not (site.path / "out").exists()


def test_nothing_runs_before_that_is_decided(site: Folder) -> None:
    site.file("touch.yaml", FILES["main.yaml"].replace("module.yaml", "touching.yaml"))
    step = "{name: s, type: command, with: {argv: [touch, {path}]}}".replace("{path}", str(site.path / "ran"))
    site.file("touching.yaml", FILES["module.yaml"].replace("{name: s, type: message, with: {text: hi}}", step))
    assert call(site, "kubexm-run", "touch.yaml", "--report", "foreign.txt").exit_code == 2
    assert not (site.path / "ran").exists()


@pytest.mark.parametrize("way", ["plan", "run --result", "run --report", "runs report"])
def test_what_may_hold_values_is_its_owners_alone(site: Folder, way: str) -> None:
    call(site, *WRITES[way], "out")
    assert (site.path / "out").stat().st_mode & 0o777 == 0o600


def test_a_planted_link_is_not_written_through(site: Folder) -> None:
    """In a folder that others may write, they could have guessed the name of the file that becomes the new one."""
    for number in range(os.getpid() - 2, os.getpid() + 3):
        (site.path / f".out.{number}.tmp").symlink_to(site.path / "victim")
    assert call(site, *WRITES["graph as svg"], "out").exit_code == 0
    assert not (site.path / "victim").exists()


def test_a_bundle_does_not_replace_what_is_none(site: Folder) -> None:
    (site.path / "folder").mkdir()
    index = site.path / "folder" / INDEX
    for text in ("{}", "mine"):
        index.write_text(text)
        result = site.run("resources", "bundle", "main.yaml", "-o", "folder")
        assert (result.exit_code, index.read_text()) == (2, text)
    assert site.run("resources", "bundle", "main.yaml", "-o", "main.yaml").exit_code == 2


def test_the_hint_of_what_is_no_plan_does_not_lead_to_its_loss(site: Folder) -> None:
    result = call(site, "kubexm-run", "--plan", "main.yaml")
    assert result.exit_code == 2
    assert "-o main.yaml" not in result.stderr
    assert "kubexm plan SPEC -o plan.json" in result.stderr


def test_a_pipe_is_written_to(site: Folder) -> None:
    assert call(site, *WRITES["graph as svg"], os.devnull).exit_code == 0
    assert Path(os.devnull).is_char_device()


@pytest.fixture
def shared(site: Folder) -> Path:
    """A folder such as /tmp, in which another user was before us."""
    if os.geteuid() != 0:
        pytest.skip("only root can give files to another user")
    shared = site.path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    return shared


@pytest.mark.parametrize("way", WRITES)
@pytest.mark.parametrize("kind", ["file", "link", "dangling link", "link to a folder"])
def test_what_another_user_put_in_a_shared_folder_is_not_written(
    site: Folder, shared: Path, way: str, kind: str
) -> None:
    planted, private = shared / "planted", site.path / "private"
    private.mkdir()
    name = planted
    if kind == "file":
        planted.touch(0o666)
    elif kind == "link to a folder":
        planted.symlink_to(private)
        name = planted / "new"
    else:
        planted.symlink_to(private / "target")
        if kind == "link":
            (private / "target").touch()
    os.chown(planted, 65534, 65534, follow_symlinks=False)
    before = sorted(private.iterdir())
    result = call(site, *WRITES[way], str(name), *(() if way == "runs report" else ("--force",)))
    assert result.exit_code == 2, result.output
    assert "everybody may write" in result.output.replace("\n", " ")
    assert sorted(private.iterdir()) == before
    assert all(path.stat().st_size == 0 for path in (*before, *([planted] if kind == "file" else [])))


def test_fmt_writes_through_no_link_of_another_user(site: Folder, shared: Path) -> None:
    target = site.file("private/spec.yaml", "apiVersion: kubexm.io/v1\nkind:   Pipeline\nmetadata:   {name: x}\n")
    before = target.read_bytes()
    (shared / "spec.yaml").symlink_to(target)
    os.chown(shared / "spec.yaml", 65534, 65534, follow_symlinks=False)
    result = call(site, "fmt", str(shared / "spec.yaml"))
    assert result.exit_code != 0
    assert target.read_bytes() == before


def test_a_private_file_does_not_get_the_mode_of_another_users_file(site: Folder) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give files to another user")
    target = site.path / "result.json"
    target.touch()
    target.chmod(0o666)
    os.chown(target, 65534, 65534)
    assert call(site, *WRITES["run --result"], "result.json").exit_code == 0
    assert (target.stat().st_uid, target.stat().st_mode & 0o777) == (0, 0o600)


def test_links_of_our_own_and_pipes_are_still_written_to(site: Folder, shared: Path) -> None:
    (site.path / "private").mkdir()
    (shared / "mine").symlink_to(site.path / "private" / "result.json")
    assert call(site, *WRITES["run --result"], str(shared / "mine")).exit_code == 0
    assert (site.path / "private" / "result.json").stat().st_size
    reading, writing = os.pipe()
    try:
        assert call(site, *WRITES["run --result"], f"/dev/fd/{writing}").exit_code == 0
        assert os.read(reading, 65536).startswith(b"{")
    finally:
        os.close(reading)
        os.close(writing)


def test_the_document_of_a_cluster_is_not_replaced_by_the_pipeline_that_is_built_from_it(site: Folder) -> None:
    document = site.file(
        "cluster.yaml",
        """\
        apiVersion: kubexm.io/v1
        kind: Cluster
        metadata: {name: demo}
        kubernetes: {version: 1.36.4}
        hosts: [{name: one, address: 10.0.0.1, roles: [controlPlane, worker]}]
        """,
    )
    before = document.read_bytes()
    result = site.run("cluster", "build", "-f", "cluster.yaml", "-o", "cluster.yaml")
    assert (result.exit_code, document.read_bytes()) == (2, before)
    assert "this command reads it" in result.stderr
    for _ in range(2):
        assert site.run("cluster", "build", "-f", "cluster.yaml", "-o", "built.yaml").exit_code == 0
    assert (site.path / "built.yaml").read_text().startswith("# Made by `kubexm cluster build`")
