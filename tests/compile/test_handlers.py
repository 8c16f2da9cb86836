"""What handlers compile to: on the hosts of the steps that notify them, at the end of their scope or at a flush."""

from __future__ import annotations

import pytest

from kubexm_exec.compile.loops import TAG_SKIPPED
from kubexm_exec.model.graph import ExecutionGraph, Hook, Mode
from tests.compile.kit import Spec

SITE = """
inventory:
  hosts:
    - {name: "web[1:3]", connector: local, roles: [web]}
    - {name: "db[1:2]", connector: local, roles: [db]}
handlers:
  - {name: tell, type: message, with: {text: told}}
modules:
  - name: app
    handlers:
      - {name: restart, type: message, tags: [slow], with: {text: module}, notify: tell}
    tasks:
      - name: web
        runOn: {roles: [web]}
        handlers:
          - {name: reload, type: message, with: {text: "{{ steps.conf.changed }}"}}
        steps:
          - {name: conf, type: message, tags: [conf], with: {text: x}, notify: [reload, restart]}
          - {name: other, type: message, with: {text: x}}
      - name: db
        runOn: {roles: [db]}
        steps:
          - {name: conf, type: message, tags: [conf], with: {text: x}, notify: tell}
"""


def order(graph: ExecutionGraph, node: str) -> list[tuple[str, Mode]]:
    return [(dep.node, dep.mode) for dep in graph.nodes[node].dependencies]


def test_handler_has_the_hosts_of_the_steps_that_notify_it(spec: Spec) -> None:
    graph = spec.write(SITE).graph()
    assert graph.nodes["app/web/handlers/reload"].hosts == ("web1", "web2", "web3")
    assert graph.nodes["app/handlers/restart"].hosts == ("web1", "web2", "web3")
    assert graph.nodes["handlers/tell"].hosts == ("web1", "web2", "web3", "db1", "db2"), "by way of restart, too"
    assert graph.nodes["app/web/conf"].notifies == ("app/web/handlers/reload", "app/handlers/restart")
    assert graph.nodes["app/handlers/restart"].notifies == ("handlers/tell",)
    handlers = [node for node in graph.steps() if node.handler]
    assert all(node.handler == node.id and node.hook is Hook.HANDLER for node in handlers)


def test_handlers_are_like_the_last_step_the_last_task_and_the_last_module(spec: Spec) -> None:
    graph = spec.write(SITE).graph()
    assert order(graph, "app/web/handlers/reload") == [("app/web/other", Mode.HOST)]
    assert order(graph, "app/handlers/restart") == [("app#handlers", Mode.BARRIER)]
    assert order(graph, "app#handlers") == [("app/web#end", Mode.BARRIER), ("app/db#end", Mode.BARRIER)]
    assert order(graph, "handlers/tell") == [("#handlers", Mode.BARRIER)]
    assert ("app/web/handlers/reload", Mode.BARRIER) in order(graph, "app/web#end")


def test_name_is_looked_up_from_the_inside_out(spec: Spec) -> None:
    inner = SITE.replace("name: reload", "name: restart").replace("notify: [reload, restart]", "notify: [restart]")
    graph = spec.write(inner).graph()
    assert graph.nodes["app/web/conf"].notifies == ("app/web/handlers/restart",)
    assert graph.nodes["app/handlers/restart"].hosts == ()


def test_limit_leaves_handlers_on_the_hosts_that_are_left(spec: Spec) -> None:
    graph = spec.write(SITE).graph(limit=("web2",))
    assert graph.nodes["handlers/tell"].hosts == ("web2",)
    graph = spec.write(SITE).graph(limit=("db1",))
    assert graph.nodes["app/handlers/restart"].hosts == ()
    assert graph.nodes["app/handlers/restart"].skip == "--limit excludes all its hosts"


def test_tags_choose_steps_and_leave_handlers_to_notifications(spec: Spec) -> None:
    graph = spec.write(SITE).graph(tags=frozenset({"conf"}))
    assert [node.skip for node in graph.steps() if node.handler] == ["", "", ""]
    assert graph.nodes["app/web/other"].skip
    graph = spec.write(SITE).graph(skip_tags=frozenset({"slow"}))
    assert graph.nodes["app/handlers/restart"].skip == TAG_SKIPPED


def test_handlers_of_a_used_document_come_first_and_see_its_values(spec: Spec) -> None:
    module = """
        apiVersion: kubexm.io/v1
        kind: Module
        metadata: {name: m}
        params: {word: {default: inner}}
        handlers: [{name: theirs, type: message, with: {text: "{{ params.word }}"}}]
        tasks:
          - name: t
            steps: [{name: a, type: message, with: {text: x}, notify: [theirs, ours]}]
    """
    text = """
        inventory: {hosts: [{name: n1, connector: local}]}
        vars: {here: outer}
        modules:
          - name: m
            uses: m.yaml
            handlers: [{name: ours, type: message, with: {text: "{{ vars.here }}"}}]
    """
    spec.write(text).file("m.yaml", module)
    graph = spec.graph()
    assert graph.nodes["m/t/a"].notifies == ("m/handlers/theirs", "m/handlers/ours")
    assert order(graph, "m/handlers/ours") == [("m/handlers/theirs", Mode.HOST)]
    assert spec.params("m/handlers/theirs") == {"text": "inner"}
    assert spec.params("m/handlers/ours") == {"text": "outer"}


FLUSH = """
inventory: {hosts: [{name: "n[1:2]", connector: local}]}
modules:
  - name: m
    handlers: [{name: late, type: message, with: {text: x}}]
    tasks:
      - name: t
        handlers:
          - {name: one, type: message, forEach: [a, b], with: {text: "{{ item }}"}}
          - {name: two, type: message, with: {text: x}}
        steps:
          - {name: a, type: message, with: {text: x}, notify: [two, one, late]}
          - {name: now, flush: FLUSH}
          - {name: b, type: message, with: {text: x}, needs: [now]}
          - {name: c, type: message, with: {text: x}, needs: [a]}
"""


def test_flush_runs_handlers_in_their_order_and_steps_can_wait_for_it(spec: Spec) -> None:
    graph = spec.write(FLUSH.replace("FLUSH", "true")).graph()
    flushed = {node.id: node.handler for node in graph.steps() if node.id.startswith("m/t/now/")}
    assert flushed == {
        "m/t/now/one[a]": "m/t/handlers/one[a]",
        "m/t/now/one[b]": "m/t/handlers/one[b]",
        "m/t/now/two": "m/t/handlers/two",
        "m/t/now/late": "m/handlers/late",
    }
    assert order(graph, "m/t/now/one[a]") == [("m/t/a", Mode.HOST)]
    assert order(graph, "m/t/b") == [("m/t/now/late", Mode.HOST)]
    assert order(graph, "m/t/c") == [("m/t/a", Mode.HOST)]
    assert sorted(order(graph, "m/t/handlers/one[a]")) == [("m/t/b", Mode.HOST), ("m/t/c", Mode.HOST)]


def test_flush_of_some_handlers(spec: Spec) -> None:
    graph = spec.write(FLUSH.replace("FLUSH", "[late, two]")).graph()
    flushed = [node.id for node in graph.steps() if node.id.startswith("m/t/now/")]
    assert flushed == ["m/t/now/two", "m/t/now/late"], "in the order they are declared"


def test_flush_before_anything_is_notified_there_is_no_node(spec: Spec) -> None:
    text = FLUSH.replace("FLUSH", "true").replace(", notify: [two, one, late]", "")
    graph = spec.write(text).graph()
    assert not [node.id for node in graph.nodes.values() if node.id.startswith("m/t/now")]
    assert order(graph, "m/t/b") == [("m/t/a", Mode.HOST)]
    assert graph.nodes["m/handlers/late"].skip == "no step notifies it"


@pytest.mark.parametrize("strategy", ["free", "linear"])
def test_every_batch_ends_with_its_handlers(spec: Spec, strategy: str) -> None:
    text = FLUSH.replace("FLUSH", "[late]").replace(
        "- name: t\n", f"- name: t\n        batch: 1\n        strategy: {strategy}\n"
    )
    graph = spec.write(text).graph()
    waits = {dep.node: dep.hosts for dep in graph.nodes["m/t#batch2"].dependencies}
    assert waits["m/t/handlers/two"] == waits["m/t/now/late"] == ("n1",)


def test_reference_of_a_flushed_handler_is_judged_at_the_flush(spec: Spec) -> None:
    handler = 'handlers: [{name: one, type: message, with: {text: "{{ steps.b.changed }}"}}]'
    text = f"""
        inventory: {{hosts: [{{name: n1, connector: local}}]}}
        modules:
          - name: m
            tasks:
              - name: t
                {handler}
                steps:
                  - {{name: a, type: message, with: {{text: x}}, notify: [one]}}
                  - {{name: b, type: message, with: {{text: x}}}}
    """
    assert spec.write(text).codes() == []
    early = text.replace("- {name: b", "- {name: now, flush: true}\n                  - {name: b")
    assert spec.write(early).codes() == ["later-step"]


def test_step_of_a_fragment_notifies_what_its_step_notifies(spec: Spec) -> None:
    from kubexm_exec.compile.fragment import compile_fragment
    from kubexm_exec.plugins import step_registry
    from kubexm_exec.values.expressions import Expressions
    from kubexm_spec.diagnostics import SpecError

    graph = spec.write(FLUSH.replace("FLUSH", "true")).graph()

    def compiled(notify: list[str]) -> tuple[str, ...]:
        data = [{"name": "x", "type": "message", "with": {"text": "x"}, "notify": notify}]
        node = graph.nodes["m/t/a"]
        made = compile_fragment(graph, node, "n1", data, registry=step_registry(), expressions=Expressions())
        return made.nodes[0].notifies

    assert compiled(["one"]) == ("m/t/handlers/one[a]", "m/t/handlers/one[b]")
    with pytest.raises(SpecError, match='notifies "noe"'):
        compiled(["noe"])
