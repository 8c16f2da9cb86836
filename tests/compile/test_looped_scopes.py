"""Tasks and modules with forEach: one for each item, in their order, with their values, outputs and needs."""

from __future__ import annotations

from msgspec.structs import replace

from kubexm_exec.compile.static import static_evaluator
from kubexm_exec.model.graph import ExecutionGraph
from kubexm_exec.model.result import Status
from kubexm_exec.scheduler import Outcome, Scheduler
from tests.compile.kit import Spec

SPEC = """
vars: {{sites: [{{name: one, port: {port}}}, {{name: two, port: 81}}], regions: [eu, us]}}
modules:
  - name: web
    forEach: {{items: "{{{{ vars.regions }}}}", parallel: {parallel}}}
    vars: {{region: "{{{{ item }}}}"}}
    outputs: {{done: "{{{{ item }}}}!"}}
    tasks:
      - {{name: prep, steps: [{{name: s, type: message, with: {{text: "prep {{{{ item }}}}"}}}}]}}
      - name: site
        forEach: {{items: "{{{{ vars.sites }}}}", parallel: {parallel}}}
        when: item.port > 1
        vars: {{site: "{{{{ item.name }}}}"}}
        env: {{PORT: "{{{{ item.port }}}}"}}
        outputs: {{url: "{{{{ vars.region }}}}/{{{{ item.name }}}}"}}
        hooks: {{pre: [{{name: p, type: message, with: {{text: "{{{{ item.name }}}}"}}}}]}}
        steps:
          - {{name: s, type: message, notify: h, with: {{text: "{{{{ vars.region }}}} {{{{ vars.site }}}}"}}}}
          - {{name: port, type: message, with: {{text: "{{{{ item.port }}}}"}}}}
          - {{name: inner, type: message, forEach: [a, b], with: {{text: "{{{{ vars.site }}}} {{{{ item }}}}"}}}}
        handlers: [{{name: h, type: message, with: {{text: "{{{{ item.name }}}}"}}}}]
      - name: after
        steps:
          - name: s
            type: message
            with: {{text: "{{{{ tasks['site[one]'].outputs.url }}}} {{{{ tasks.site.items.two.outputs.url }}}}"}}
  - name: used
    needs: [web]
    tasks:
      - {{name: t, uses: u.yaml, forEach: "{{{{ vars.sites }}}}", with: {{port: "{{{{ item.port }}}}"}}}}
      - {{name: none, forEach: [], steps: [{{name: s, type: message, with: {{text: x}}}}]}}
      - name: last
        needs: [none, web/site]
        steps: [{{name: s, type: message, with: {{text: "{{{{ modules.web.items.us.outputs.done }}}}"}}}}]
"""
USED = """\
apiVersion: kubexm.io/v1
kind: Task
metadata: {name: u}
params: {port: {type: integer}}
steps: [{name: s, type: message, with: {text: "port {{ params.port }}"}}]
"""


def write(spec: Spec, *, port: int = 80, parallel: bool = False) -> Spec:
    return spec.write(SPEC.format(port=port, parallel=str(parallel).lower()), u__yaml=USED)


def waves(graph: ExecutionGraph) -> list[set[str]]:
    """The nodes that run at the same time, one wave after another."""
    hosts = {name: replace(host, per_host_limit=100) for name, host in graph.hosts.items()}
    scheduler = Scheduler(replace(graph, hosts=hosts))
    found: list[set[str]] = []
    while not scheduler.done:
        ready = scheduler.ready()
        found.append({action.node for action in ready})
        for action in ready:
            scheduler.start(action)
            scheduler.finish(action, Outcome(Status.SUCCESS))
    return found


def test_there_is_one_for_each_item_and_one_follows_the_other(spec: Spec) -> None:
    order = [node for wave in waves(write(spec).graph()) for node in sorted(wave)]
    of_site = ["hooks/pre/p", "s", "port", "inner[a]", "inner[b]"]
    expected = []
    for region in ("eu", "us"):
        expected += [f"web[{region}]/prep/s"]
        expected += [f"web[{region}]/site[{name}]/{step}" for name in ("one", "two") for step in of_site]
        expected += [f"web[{region}]/after/s"]
    assert order == [*expected, "used/t[one]/s", "used/t[two]/s", "used/last/s"]


def test_parallel_ones_run_at_once_and_who_needs_them_waits_for_all(spec: Spec) -> None:
    found = waves(write(spec, parallel=True).graph())
    both = [{f"web[{region}]/{task}" for region in ("eu", "us")} for task in ("prep/s", "after/s")]
    assert found[0] == both[0]
    assert found[1] == {f"web[{r}]/site[{n}]/hooks/pre/p" for r in ("eu", "us") for n in ("one", "two")}
    assert both[1] in found
    assert found.index(both[1]) < found.index({"used/t[one]/s"})
    assert found[-1] == {"used/last/s"}


def test_values_see_the_item_of_the_loop_that_they_are_written_in(spec: Spec) -> None:
    write(spec)
    assert spec.params("web[us]/site[two]/s")["text"] == "us two"
    assert spec.params("web[us]/site[two]/inner[a]")["text"] == "two a", "the step's own item is the nearest"
    assert spec.params("web[us]/prep/s")["text"] == "prep us"
    assert spec.params("used/t[two]/s")["text"] == "port 81"
    assert spec.params("web[eu]/site[one]/hooks/pre/p")["text"] == "one"
    assert spec.params("web[eu]/site[one]/handlers/h")["text"] == "one"
    assert spec.params("web[eu]/after/s")["text"] == "eu/one eu/two"
    assert spec.params("used/last/s")["text"] == "us!"


def test_a_condition_of_the_task_is_judged_with_the_item_of_the_task(spec: Spec) -> None:
    result = write(spec, port=1).compile()
    assert result.state is not None
    assert result.graph is not None
    evaluator = static_evaluator(result.state, result.graph.nodes)
    met = {
        name: evaluator.unmet(result.graph.nodes[name], "control-node")
        for name in ("web[eu]/site[one]/inner[a]", "web[eu]/site[two]/inner[a]")
    }
    assert met == {"web[eu]/site[one]/inner[a]": "item.port > 1", "web[eu]/site[two]/inner[a]": None}
    assert evaluator.env(result.graph.nodes["web[eu]/site[two]/inner[a]"], "control-node") == {"PORT": "81"}


def test_a_changed_item_changes_the_nodes_that_refer_to_it(spec: Spec) -> None:
    before, after = write(spec).graph(), write(spec, port=8080).graph()
    changed = {name for name in after.nodes if after.nodes[name].content_hash() != before.nodes[name].content_hash()}
    assert {f"web[{region}]/site[one]/port" for region in ("eu", "us")} <= changed
    assert "used/t[one]/s" in changed
    assert not any("[two]" in name or "/prep/" in name for name in changed)


def test_a_saved_graph_is_the_same(spec: Spec) -> None:
    graph = write(spec).graph()
    assert ExecutionGraph.from_json(graph.to_json()).content_hash() == graph.content_hash()


def test_nothing_but_empty_loops_is_nothing_to_do(spec: Spec) -> None:
    text = """
    modules:
      - {name: a, forEach: [], tasks: [{name: t, steps: [{name: s, type: message, with: {text: x}}]}]}
      - {name: b, tasks: [{name: t, forEach: [], steps: [{name: s, type: message, with: {text: x}}]}]}
    """
    assert not list(spec.write(text).graph().steps())
