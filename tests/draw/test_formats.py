"""What each format looks like. ``KUBEXM_GOLDEN=write pytest tests/draw`` writes the golden files anew."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from msgspec.structs import replace

from kubexm_exec.draw import FORMATS, draw
from kubexm_exec.model.graph import ExecutionGraph, ExecutionNode
from tests.draw.graphs import M, T, build, cluster, small, steps, wide

GOLDEN = Path(__file__).parent / "golden"
SVG = "{http://www.w3.org/2000/svg}"
NASTY = "</title></script><script>alert(1)</script>\"'`&amp;\x00\u202e--> ]]>\\"


def parse(text: str) -> ET.Element:
    return ET.fromstring(text)  # noqa: S314  it is what we wrote ourselves


def compare(name: str, text: str) -> None:
    path = GOLDEN / name
    if os.environ.get("KUBEXM_GOLDEN") == "write":
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, "utf-8")
    assert text == path.read_text("utf-8"), f"{name} changed; KUBEXM_GOLDEN=write writes it anew"


def branches() -> ExecutionGraph:
    """Side by side, a join, a loop, hooks: everything on one small page."""
    side = [T(f"t{i}", steps("x:file"), needs=()) for i in range(3)]
    return build("branches", [M("first", side), M("second", side)])


def nasty() -> ExecutionGraph:
    """A graph whose every name tries to break out."""
    graph = small()
    nodes = []
    for node in graph.nodes.values():
        ident = node.id + NASTY
        nodes.append(
            replace(
                node,
                id=ident,
                module=node.module and node.module + NASTY,
                task=node.task and node.task + NASTY,
                step_name=node.step_name and NASTY,
                hosts=tuple(host + NASTY for host in node.hosts),
                with_={NASTY: NASTY},
                when=NASTY,
                tags=(NASTY,),
                origin=replace(node.origin, file=NASTY),
                dependencies=tuple(replace(dep, node=dep.node + NASTY) for dep in node.dependencies),
            )
        )
    return replace(graph, name=NASTY).with_nodes(nodes)


@pytest.mark.parametrize("name", ["small", "branches", "cluster"])
@pytest.mark.parametrize(("fmt", "ending"), [("mermaid", "mmd"), ("dot", "dot"), ("svg", "svg")])
def test_small_graphs_look_as_they_did(name: str, fmt: str, ending: str) -> None:
    graph = {"small": small, "branches": branches, "cluster": cluster}[name]()
    compare(f"{name}.{ending}", draw(graph, fmt))


def test_a_finished_run_looks_as_it_did() -> None:
    statuses = dict(
        zip((node.id for node in small().steps()), ("Success", "Unchanged", "Failed", "Skipped"), strict=False)
    )
    for fmt, ending in (("mermaid", "mmd"), ("dot", "dot"), ("svg", "svg")):
        compare(f"small-statuses.{ending}", draw(small(), fmt, statuses=statuses, title="Run 7"))


def test_an_unknown_format_is_refused_with_those_that_exist() -> None:
    with pytest.raises(ValueError, match="mermaid, dot, json, svg, html"):
        draw(small(), "png")


def test_json_holds_the_whole_graph_and_what_is_drawn_of_it() -> None:
    data = json.loads(draw(cluster(), "json", statuses={"verify/nodes/ready": "Failed"}))
    assert ExecutionGraph.from_json(data).nodes == cluster().nodes
    assert {
        "from": "verify/nodes/ready",
        "to": "verify/smoke/deploy",
        "barrier": True,
        "on": "success",
        "hook": False,
    } in (data["drawing"]["edges"])
    assert data["drawing"]["statuses"] == {"verify/nodes/ready": "Failed"}


@pytest.mark.parametrize("fmt", FORMATS)
def test_an_empty_graph_can_be_drawn(fmt: str) -> None:
    assert draw(ExecutionGraph("nothing", {}, {}, {}), fmt)


@pytest.mark.parametrize("fmt", FORMATS)
def test_a_node_without_hosts_module_or_task_can_be_drawn(fmt: str) -> None:
    node = ExecutionNode(id="alone")
    assert "alone" in draw(ExecutionGraph("x", {"alone": node}, {}, {}), fmt)


def test_svg_has_a_tooltip_with_id_type_hosts_and_place() -> None:
    root = parse(draw(small(), "svg"))
    tips = [title.text for title in root.iter(f"{SVG}title")]
    assert "greet/say/write\ntype: file\n3 hosts: node1, node2, node3\nsite.yaml:10:9" in tips


def test_svg_tells_outcomes_by_shape_and_word_not_by_colour_alone() -> None:
    text = draw(small(), "svg", statuses={"greet/say/write": "Failed", "greet/say/show": "Success"})
    root = parse(text)
    assert {use.get("href") for use in root.iter(f"{SVG}use")} == {"#kx-failed", "#kx-ok", "#kx-pending"}
    assert {symbol.get("id") for symbol in root.iter(f"{SVG}symbol")} == {"kx-failed", "kx-ok", "kx-pending"}
    tips = "\n".join(title.text or "" for title in root.iter(f"{SVG}title"))
    assert "✘ failed" in tips
    assert "✔ ok" in tips


def test_a_folded_loop_shows_the_worst_of_its_items() -> None:
    statuses = {node.id: "Success" for node in cluster().steps()} | {"prepare/packages/install[4]": "Failed"}
    line = next(line for line in draw(cluster(), "mermaid", statuses=statuses).splitlines() if "9 items" in line)
    assert "✘" in line


def test_svg_is_light_and_dark_and_needs_nothing_from_outside() -> None:
    text = draw(cluster(), "svg")
    assert "prefers-color-scheme:dark" in text
    assert text.count("http") == text.count("http://www.w3.org/2000/svg") + text.count("http ·") + text.count(": http")


@pytest.mark.parametrize("fmt", ["svg", "html"])
def test_names_that_try_to_break_out_stay_text(fmt: str) -> None:
    text = draw(nasty(), fmt, statuses={node.id: NASTY for node in nasty().steps()}, title=NASTY)
    assert "<script>alert" not in text
    assert "\x00" not in text
    assert "\u202e" not in text


def test_svg_of_nasty_names_is_well_formed_and_shows_them() -> None:
    root = parse(draw(nasty(), "svg"))
    assert not list(root.iter(f"{SVG}script"))
    assert any("<script>alert(1)</script>" in (title.text or "") for title in root.iter(f"{SVG}title"))


def test_mermaid_labels_cannot_end_their_quotes_or_open_tags() -> None:
    text = draw(nasty(), "mermaid")
    for line in text.splitlines()[3:]:
        assert line.count('"') in (0, 2)
        assert "<" not in line.replace("<br/>", "")


def test_dot_strings_cannot_end_their_quotes() -> None:
    text = draw(nasty(), "dot")
    bare = text.replace("\\\\", "").replace('\\"', "")
    assert all(line.count('"') % 2 == 0 for line in bare.splitlines())


@pytest.mark.skipif(not shutil.which("dot"), reason="Graphviz is not installed")
@pytest.mark.parametrize("graph", [small(), cluster(), nasty()], ids=["small", "cluster", "nasty"])
def test_graphviz_reads_dot(graph: ExecutionGraph) -> None:
    subprocess.run(["dot", "-Tsvg"], input=draw(graph, "dot"), text=True, check=True, capture_output=True, timeout=60)


def test_sensitive_parameters_are_named_but_not_shown() -> None:
    graph = small()
    nodes = [
        replace(node, with_={"content": "hunter2", "path": "/x"}, sensitive=node.id == "greet/say/write")
        if not node.is_gate and node.id == "greet/say/write"
        else node
        for node in graph.nodes.values()
    ]
    text = draw(graph.with_nodes(nodes), "html")
    assert "hunter2" not in text
    assert "content: (sensitive)" in text


def test_five_hundred_steps_stay_small_enough_to_mail() -> None:
    assert len(draw(wide(), "html")) < 1_000_000
