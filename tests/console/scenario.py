"""Runs to look at: good ones, failed ones, large ones, previews."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kubexm_exec.model import events as ev
from kubexm_exec.model.graph import ExecutionGraph, ExecutionNode, Origin
from kubexm_exec.model.result import FailureKind, ForecastState, RunMode, SkipReason, Status
from tests.console.script import Script, gate, graph, step

HOSTS = ("node1", "node2", "node3")


def etcd_graph() -> ExecutionGraph:
    """Three modules: prepare everywhere, etcd in three tasks, health at the end."""
    return graph(
        [
            step("prepare/os/packages", HOSTS),
            step("prepare/os/sysctl", HOSTS, "prepare/os/packages"),
            gate("prepare/os#end", "prepare/os/packages", "prepare/os/sysctl"),
            gate("prepare#end", "prepare/os#end"),
            step("etcd/certificates/make", HOSTS, "prepare#end"),
            gate("etcd/certificates#end", "etcd/certificates/make"),
            step(
                "etcd/install/download",
                HOSTS,
                "etcd/certificates#end",
                type="http",
                with_={"url": "https://example.org/etcd-3.5.16.tar.gz"},
            ),
            step("etcd/install/unpack", HOSTS, "etcd/install/download", type="archive", with_={"path": "/opt/etcd"}),
            gate("etcd/install#end", "etcd/install/download", "etcd/install/unpack"),
            step(
                "etcd/configure/env",
                HOSTS,
                "etcd/certificates#end",
                type="file",
                attempts=3,
                with_={"path": "/etc/etcd.env", "mode": "0600"},
                origin=Origin("specs/etcd.yaml", 31, 15),
            ),
            gate("etcd/configure#end", "etcd/configure/env"),
            step("etcd/start/unit", HOSTS, "etcd/install#end", "etcd/configure#end"),
            gate("etcd#end", "etcd/install#end", "etcd/configure#end", "etcd/start/unit"),
            step("health/members/list", HOSTS[:1], "etcd#end"),
            step(
                "health/members/say",
                HOSTS[:1],
                "health/members/list",
                type="message",
                speaks=True,
                with_={"text": "3 members"},
            ),
        ],
        HOSTS,
    )


def failed_run() -> Script:
    """A run in which one host may not write a file, with a retry that helped elsewhere and output."""
    run = Script(etcd_graph())
    run.do("prepare/os/packages", seconds=12.4).satisfied("prepare/os/sysctl")
    run.do("etcd/certificates/make", seconds=1.1)
    run.start("etcd/install/download").start("etcd/configure/env")
    run.say(ev.ACTION_PROGRESS, "etcd/install/download", "node3", message="etcd-3.5.16", done=12.1e6, total=18.4e6)
    run.wait(0.3).end("etcd/configure/env", "node1", "node3", changed=True)
    denied = "open /etc/etcd.env: permission denied (user deploy, no become)"
    retry: Mapping[str, Any] = {"attempts": 3, "delay": 2.0, "message": denied, "kind": "failed"}
    run.say(ev.ACTION_RETRY, "etcd/configure/env", "node2", attempt=1, **retry)
    run.wait(2).start("etcd/configure/env", "node2", attempt=2)
    run.say(ev.ACTION_RETRY, "etcd/configure/env", "node2", attempt=2, **retry)
    run.wait(2).start("etcd/configure/env", "node2", attempt=3).wait(0.4)
    run.fail(
        "etcd/configure/env",
        "node2",
        message=denied,
        attempts=3,
        command="tee /etc/etcd.env",
        exit_code=1,
        stderr="tee: /etc/etcd.env: Permission denied\n",
        hint="the step has no `become`; node2's user cannot write there",
    )
    run.say(ev.ACTION_OUTPUT, "etcd/install/download", "node1", stream="stdout", text="200 OK\nsaved\n")
    run.end("etcd/install/download", changed=True).do("etcd/install/unpack", seconds=0.8)
    for node in ("etcd/start/unit", "health/members/list", "health/members/say"):
        run.skip(node, "etcd/configure/env")
    return run


def large_run(modules: int = 40, hosts: int = 50) -> Script:
    """Many modules with three tasks each: eight are done (one failed), four run side by side, the others wait."""
    everywhere = tuple(f"host{index:03d}" for index in range(hosts))
    nodes: list[ExecutionNode] = []
    for index in range(modules):
        name = f"module{index:02d}"
        before = [f"module{(index - 4):02d}#end"] if index >= 4 else []
        for task in ("first", "second", "third"):
            nodes.append(step(f"{name}/{task}/one", everywhere, *before))
            nodes.append(step(f"{name}/{task}/two", everywhere, f"{name}/{task}/one"))
            nodes.append(gate(f"{name}/{task}#end", f"{name}/{task}/one", f"{name}/{task}/two"))
            before = [f"{name}/{task}#end"]
        nodes.append(gate(f"{name}#end", *before))
    run = Script(graph(nodes, everywhere, "large"))
    for index in range(8):
        for task in ("first", "second", "third"):
            for each in ("one", "two"):
                if index == 3 and task == "third":
                    run.start(f"module03/third/{each}", *everywhere[:2]).wait(0.1)
                    run.fail(f"module03/third/{each}", *everywhere[:2], message="no space left on device")
                    run.do(f"module03/third/{each}", *everywhere[2:], seconds=0.1)
                else:
                    run.do(f"module{index:02d}/{task}/{each}", seconds=0.1)
    for index in range(8, 12):
        run.do(f"module{index:02d}/first/one", seconds=0.1)
        run.start(f"module{index:02d}/first/two", *everywhere[: 12 + index])
    run.say(ev.ACTION_PROGRESS, "module08/first/two", "host001", message="copying", done=3, total=12)
    return run.wait(8)


def good_run() -> Script:
    """Everything works; a condition is not met somewhere, and a message is said at the end."""
    run = Script(etcd_graph())
    run.do("prepare/os/packages", seconds=12.4).satisfied("prepare/os/sysctl").do("etcd/certificates/make", seconds=1.1)
    run.do("etcd/install/download", seconds=4.7).do("etcd/install/unpack", seconds=0.8)
    run.do("etcd/configure/env", "node1", "node2", seconds=0.3)
    run.start("etcd/configure/env", "node3")
    unmet = "condition not met: host.name != 'node3'"
    run.end("etcd/configure/env", "node3", status=Status.SKIPPED, reason=SkipReason.CONDITION, message=unmet)
    run.do("etcd/start/unit", seconds=2.5).do("health/members/list", seconds=0.1, changed=False)
    run.start("health/members/say").say(
        ev.ACTION_OUTPUT, "health/members/say", "node1", stream="stdout", text="3 members\nall well\n"
    )
    return run.end("health/members/say", message="3 members")


def wide_run(hosts: int = 120) -> Script:
    """Many hosts: the same failure on seven of them, two that do not answer, one failure that is ignored."""
    everywhere = tuple(f"host{index:03d}" for index in range(hosts))
    run = Script(
        graph(
            [
                step("base/ping/ping", everywhere),
                step("base/disk/free", everywhere, "base/ping/ping", with_={"argv": ["df", "-h", "/var"]}),
                step("base/disk/tidy", everywhere, "base/disk/free"),
                step("last/say/done", everywhere[:1], "base/disk/tidy", type="set", with_={"values": {"a": 1}}),
            ],
            everywhere,
            "wide",
        )
    )
    down, full = ("host010", "host011"), tuple(f"host{index:03d}" for index in range(20, 27))
    well = tuple(host for host in everywhere if host not in down)
    run.start("base/ping/ping").wait(1).end("base/ping/ping", *well)
    for host in down:
        address = run.graph.hosts[host].address
        message = f"{host} ({address}) does not answer: connection timed out"
        run.fail("base/ping/ping", host, message=message, kind=FailureKind.UNREACHABLE, hint="is it switched on?")
    run.skip("base/disk/free", "base/ping/ping", *down).skip("base/disk/tidy", "base/ping/ping", *down)
    fine = tuple(host for host in well if host not in full)
    run.start("base/disk/free", *well).wait(0.5).end("base/disk/free", *fine, changed=True).wait(0.5)
    stderr = "".join(f"line {number}\n" for number in range(1, 25)) + "df: no space left on device\n"
    for host in full:
        message = f"exit code 3 on {host}"
        run.fail("base/disk/free", host, message=message, exit_code=3, command="df -h /var", stderr=stderr)
    run.skip("base/disk/tidy", "base/disk/free", *full)
    run.do("base/disk/tidy", *fine[1:], seconds=0.2)
    run.start("base/disk/tidy", fine[0]).fail("base/disk/tidy", fine[0], message="nothing to tidy", ignored=True)
    return run.do("last/say/done", changed=False)


def rolled_back_run() -> Script:
    """A step breaks by itself, and what was done before it is undone."""
    run = Script(etcd_graph())
    run.do("prepare/os/packages", seconds=12.4).do("prepare/os/sysctl", seconds=0.2)
    trace = 'Traceback (most recent call last):\n  File "step.py", line 3, in run\n  File "lib.py", line 7, in make\n'
    run.start("etcd/certificates/make", "node1").wait(0.1)
    run.fail("etcd/certificates/make", "node1", message="KeyError: 'x'", kind=FailureKind.ERRORED, traceback=trace)
    run.say(ev.RUN_STOPPING, reason="rollback", message="a step failed: what was done is undone")
    for host, undo in (("node1", "undone"), ("node2", "undone"), ("node3", "undoFailed: disk full")):
        run.result.node_results["prepare/os/sysctl"].host_results[host].undo = undo
        result, _, message = undo.partition(": ")
        run.say(ev.ACTION_UNDONE, "prepare/os/sysctl", host, result=result, message=message)
    run.say(ev.ACTION_UNDONE, "prepare/os/packages", "node1", result="notReversible", message="")
    run.result.not_reversible = ["prepare/os/packages"]
    run.end("etcd/certificates/make", "node2", "node3", status=Status.CANCELLED, message="Cancelled")
    return run


def odd_run() -> Script:
    """Everything that is not a plain start or end: pauses, log lines, more nodes, a stop, hostile output."""
    run = Script(
        graph(
            [
                step("a/roll/one", ("n1", "n2")),
                gate("a/roll#batch2", "a/roll/one", pause=30.0),
                step("a/roll/more", ("n1",), "a/roll/one", type="fragment"),
                step("hooks/always/bye", ("n1",), module="", task=""),
            ],
            ("n1", "n2"),
            "odd",
        )
    )
    run.do("a/roll/one", "n1").say(ev.GATE_PAUSE, "a/roll#batch2", seconds=30.0).wait(30)
    run.start("a/roll/one", "n2").say(
        ev.ACTION_OUTPUT,
        "a/roll/one",
        "n2",
        stream="stderr",
        text="10%\r50%\r100%\n\x1b[2J\x1b]0;owned\x07 red \x1b[31malert\x1b[0m\x07\n\u202etxt.exe\ttab\n",
    )
    run.say(ev.LOG, "a/roll/one", "n2", level="warning", message="slow disk", seconds=3)
    run.say(ev.LOG, "a/roll/one", "n2", level="debug", message="not worth it")
    run.end("a/roll/one", "n2", changed=True).start("a/roll/more")
    run.extend("a/roll/more", step("a/roll/more+extra", ("n1",), "a/roll/more", task="roll"))
    run.end("a/roll/more", changed=True).do("a/roll/more+extra")
    run.say(ev.RUN_STOPPING, reason="cancel", message="cancelled: running actions are stopped, always hooks run")
    return run.do("hooks/always/bye", seconds=0.1, changed=False)


def checked_run() -> Script:
    """A check: a file differs on one host, two others alike, some things cannot be known, most is well."""
    run = Script(etcd_graph(), executor="check", mode=RunMode.LOOK)
    run.satisfied("prepare/os/packages").satisfied("prepare/os/sysctl").satisfied("etcd/certificates/make")
    diff = {
        "path": "/etc/etcd.env",
        "text": "@@ -1,2 +1,2 @@\n ETCD_NAME=node\n-ETCD_STATE=new\n+ETCD_STATE=existing",
        "note": "0640 -> 0600",
    }
    small = {"path": "/opt/etcd", "text": "", "note": "created"}
    change, unknown = ForecastState.CHANGE, ForecastState.UNKNOWN
    run.end("etcd/configure/env", "node1", forecast=change, message="would write /etc/etcd.env", diffs=[diff])
    run.end("etcd/configure/env", "node2", "node3", forecast=change, message="would write", diffs=[diff, small])
    run.end(
        "etcd/install/download",
        forecast=ForecastState.NOT_LOOKED_AT,
        message="would run: GET https://example.org/etcd.tar.gz",
    )
    run.end("etcd/install/unpack", forecast=unknown, message="depends on etcd/install/download")
    run.end("etcd/start/unit", "node1", "node2", forecast=unknown, message="depends on etcd/configure/env")
    run.fail("etcd/start/unit", "node3", message="connection refused", kind=FailureKind.UNREACHABLE)
    run.end("health/members/list", status=Status.SKIPPED, reason=SkipReason.CONDITION, message="condition not met")
    return run.end("health/members/say", forecast=unknown, message="only says something")


def dry_run() -> Script:
    """A dry run: parameters are known for most, differ from host to host for one, are secret for one."""
    hosts = ("node1", "node2")
    run = Script(
        graph(
            [
                step("etcd/configure/dir", hosts, type="directory", with_={"path": "/etc/etcd", "mode": "0755"}),
                step("etcd/configure/env", hosts, type="file", with_={"path": "/etc/{{ host.name }}"}),
                step("etcd/configure/key", hosts, type="file", with_={"path": "/etc/key"}, sensitive=True),
                step("etcd/start/unit", hosts[:1], with_={"shell": "systemctl start etcd"}),
            ],
            hosts,
        ),
        executor="dry-run",
        mode=RunMode.OFFLINE,
    )
    text = "".join(f"LINE_{number}=x\n" for number in range(20))
    for host in hosts:
        planned: tuple[tuple[str, Any], ...] = (
            ("etcd/configure/dir", {"path": "/etc/etcd", "mode": "0755", "owners": ["root", 0]}),
            ("etcd/configure/env", {"path": f"/etc/{host}", "content": text, "backup": False}),
            ("etcd/configure/key", "(hidden: the step is sensitive)"),
        )
        for node, params in planned:
            run.say(ev.ACTION_FORECAST, node, host, state="change", message="would run", diffs=[], params=params)
            run.end(node, host, forecast=ForecastState.CHANGE, message="would run")
    waits = "would run command (not known yet: steps.env.outputs)"
    run.say(ev.ACTION_FORECAST, "etcd/start/unit", "node1", state="unknown", message=waits, params={"shell": "start"})
    return run.end("etcd/start/unit", forecast=ForecastState.UNKNOWN, message=waits)
