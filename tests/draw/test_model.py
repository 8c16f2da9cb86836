from __future__ import annotations

from hypothesis import given
from msgspec.structs import replace

from kubexm_exec.draw.model import Drawing, model, summary
from kubexm_exec.model.graph import ExecutionGraph, ExecutionNode, Hook
from tests.draw.graphs import M, S, T, build, cluster, fan, small, steps
from tests.draw.shapes import pipelines


def links(drawing: Drawing) -> set[tuple[str, str]]:
    return {(link.source, link.target) for link in drawing.links}


def test_gates_are_drawn_through_and_only_from_the_last_steps_of_a_task() -> None:
    drawing = model(small())
    assert links(drawing) == {
        ("greet/say/write", "greet/say/show"),
        ("greet/say/show", "greet/check/read"),
        ("greet/check/read", "greet/check/compare"),
        ("greet/check/compare", "later/tidy/remove"),
    }
    assert not drawing.dots


def test_steps_wait_host_by_host_inside_a_task_and_for_all_hosts_between_tasks() -> None:
    barrier = {(link.source, link.target): link.barrier for link in model(small()).links}
    assert not barrier["greet/say/write", "greet/say/show"]
    assert barrier["greet/say/show", "greet/check/read"]


def test_a_linear_task_waits_for_all_hosts_between_its_steps() -> None:
    drawing = model(build("x", [M("m", [T("t", steps("a:file", "b:file"), linear=True)])]))
    assert [(link.source, link.target, link.barrier) for link in drawing.links] == [("m/t/a", "m/t/b", True)]


def test_a_join_of_many_with_many_is_a_dot() -> None:
    side = [T(f"t{i}", steps("x:file"), needs=()) for i in range(3)]
    drawing = model(build("x", [M("first", side), M("second", side)]))
    assert list(drawing.dots) == ["first#end"]
    assert len(drawing.links) == 6


def test_many_tasks_that_need_the_same_many_share_a_dot_though_there_is_no_gate_for_it() -> None:
    drawing = model(fan(5))
    (dot,) = (dot for dot in drawing.dots.values() if dot.id not in fan(5).nodes)
    assert dot.group == "main"
    assert sum(link.target == dot.id for link in drawing.links) == 5
    assert sum(link.source == dot.id for link in drawing.links) == 3


def test_loops_up_to_six_items_are_drawn_item_by_item() -> None:
    drawing = model(build("x", [M("m", [T("t", [S("s", "file", items=6)])])]))
    assert [box.label for box in drawing.boxes.values()] == [f"s[{i}]" for i in range(6)]


def test_longer_loops_are_one_box() -> None:
    loop = [S("before", "file"), S("s", "file", items=12), S("after", "file")]
    drawing = model(build("x", [M("m", [T("t", loop)])]))
    assert [box.label for box in drawing.boxes.values()] == ["before", "s [12 items]", "after"]
    assert links(drawing) == {("m/t/before", "m/t/s[]"), ("m/t/s[]", "m/t/after")}
    assert len(drawing.boxes["m/t/s[]"].nodes) == 12


def test_hooks_are_marked_and_have_frames_of_their_own_unless_they_are_a_tasks() -> None:
    drawing = model(cluster())
    kinds = {group.id: group.title for group in drawing.groups.values() if group.kind == "hooks"}
    assert kinds == {
        "#hooks/pre": "pre hooks",
        "#hooks/always": "always hooks",
        "etcd#hooks/pre": "pre hooks",
        "etcd#hooks/onFailure": "onFailure hooks",
    }
    box = drawing.boxes["etcd/configure/hooks/always/forget-keys"]
    assert (box.group, box.hook, box.label) == ("etcd/configure", Hook.ALWAYS, "forget-keys")
    assert all(link.hook for link in drawing.links if box.id in (link.source, link.target))


def test_the_main_line_is_drawn_past_hooks_for_bad_days() -> None:
    assert ("etcd/configure/data", "etcd/start/enable") in links(model(cluster()))


def test_a_hook_of_a_step_names_the_step() -> None:
    node = ExecutionNode(
        id="m/t/s/hooks/onFailure/tidy", step_name="file", module="m", task="t", hosts=("h",), hook=Hook.ON_FAILURE
    )
    graph = build("x", [M("m", [T("t", steps("s:file"))])])
    drawing = model(graph.with_nodes([*graph.nodes.values(), node]))
    assert drawing.boxes[node.id].label == "s: tidy"
    assert drawing.boxes[node.id].group == "m/t"


def test_batches_are_a_note_and_not_a_cycle() -> None:
    drawing = model(cluster())
    assert drawing.groups["kubernetes/workers"].note == "3 batches"
    assert summary(drawing, "kubernetes/workers") == "2 steps · 9 hosts · 3 batches"
    assert ("kubernetes/workers/label", "kubernetes/workers/join") not in links(drawing)


def test_a_need_that_others_imply_is_not_drawn() -> None:
    one = T("t", steps("s:file"))
    drawing = model(build("x", [M("a", [one]), M("b", [one]), M("c", [one], needs=("a", "b"))]))
    assert links(drawing) == {("a/t/s", "b/t/s"), ("b/t/s", "c/t/s")}


def test_names_with_slashes_do_not_mix_up_groups() -> None:
    nodes = [
        ExecutionNode(id="1", step_name="x", module="a/b", task="c", hosts=("h",)),
        ExecutionNode(id="2", step_name="x", module="a", task="b/c", hosts=("h",)),
        ExecutionNode(id="3", step_name="x", module="", task="", hosts=("h",)),
    ]
    drawing = model(ExecutionGraph("x", {node.id: node for node in nodes}, {}, {}))
    homes = {box.id: drawing.path(box.group) for box in drawing.boxes.values()}
    assert len({path[-1] for path in homes.values()}) == 3
    assert len({path[1] for path in homes.values()}) == 3


def test_a_dependency_on_nothing_is_left_out() -> None:
    graph = small()
    without = [node for node in graph.nodes.values() if node.id != "greet/say/write"]
    assert "greet/say/write" not in {link.source for link in model(graph.with_nodes(without)).links}


def test_an_empty_graph_has_an_empty_drawing() -> None:
    drawing = model(ExecutionGraph("nothing", {}, {}, {}))
    assert not drawing.boxes
    assert not drawing.links


@given(pipelines())
def test_the_drawing_shows_every_node_once_and_says_the_same_about_what_comes_before_what(
    graph: ExecutionGraph,
) -> None:
    free = [
        replace(node, dependencies=tuple(dep for dep in node.dependencies if "#batch" not in dep.node))
        for node in graph.nodes.values()
        if "#batch" not in node.id
    ]
    drawing = model(graph)
    shown = [node.id for box in drawing.boxes.values() for node in box.nodes]
    assert sorted(shown) == sorted(node.id for node in graph.steps())
    held = [box for group in drawing.groups.values() for box in group.boxes]
    assert sorted(held) == sorted(drawing.boxes)
    box_of = {node.id: box.id for box in drawing.boxes.values() for node in box.nodes}
    before = _closure({node.id: {dep.node for dep in node.dependencies} for node in free})
    drawn: dict[str, set[str]] = {item: set() for item in [*drawing.boxes, *drawing.dots]}
    for link in drawing.links:
        drawn[link.target].add(link.source)
    after = _closure(drawn)
    for node in graph.steps():
        mine = box_of[node.id]
        real = {box_of[other] for other in before[node.id] if other in box_of} - {mine}
        assert real <= after[mine]


def _closure(waits: dict[str, set[str]]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}

    def of(vertex: str) -> set[str]:
        if vertex not in found:
            found[vertex] = set()
            for other in waits[vertex]:
                found[vertex] |= {other} | of(other)
        return found[vertex]

    for vertex in waits:
        of(vertex)
    return found
