"""The example of a rolling deploy on full hosts: who asks the balancer all the time sees no failed request."""

from __future__ import annotations

import contextlib
import http.client
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.examples.kit import Example, welcome
from tests.lab.machines import Machine

pytestmark = pytest.mark.xdist_group("machines")
WEB = ("web1", "web2", "web3")


class Client:
    """Asks the balancer one question after another."""

    def __init__(self, address: str) -> None:
        self.versions: list[str] = []
        """What it was answered, in order."""
        self.failures: list[str] = []
        self._address = address
        self._over = threading.Event()

    def ask(self) -> None:
        """Ask until it is over."""
        while not self._over.is_set():
            connection = http.client.HTTPConnection(self._address, timeout=30)
            try:
                connection.request("GET", "/")
                answer = connection.getresponse()
                body = answer.read()
                if answer.status == http.HTTPStatus.OK:
                    self.versions.append(json.loads(body)["version"])
                else:
                    self.failures.append(f"{answer.status} {body!r}")
            except OSError as error:
                self.failures.append(repr(error))
            finally:
                connection.close()

    def stop(self) -> None:
        """It was the last question."""
        self._over.set()


@contextlib.contextmanager
def asking(balancer: Machine) -> Iterator[Client]:
    """While somebody asks; no request may fail."""
    client = Client(balancer.address)
    thread = threading.Thread(target=client.ask)
    thread.start()
    try:
        yield client
    finally:
        client.stop()
        thread.join()
    assert client.failures == []
    assert client.versions


def servers(balancer: Machine) -> dict[str, str]:
    """How the balancer sees each server."""
    stat = "echo show stat | socat - /run/haproxy/admin.sock | awk -F, '$1 == \"app\" && $2 ~ /^web/ {print $2, $18}'"
    return dict(line.split() for line in balancer.sh(stat).splitlines())


def running(machines: list[Machine]) -> list[str]:
    """The version that each server itself answers with."""
    return [json.loads(each.sh("curl -s http://127.0.0.1:8080/"))["version"] for each in machines]


def test_rolling_deploy_behind_haproxy_fails_no_request(
    machines: Callable[[int], list[Machine]], tmp_path: Path
) -> None:
    balancer, *web = made = machines(4)
    for each in made:
        welcome(each)
    hosts = {"lb1": (balancer, "balancer"), **{name: (each, "web") for name, each in zip(WEB, web, strict=True)}}
    example = Example("deploy", tmp_path, hosts, {})
    first = example.run()
    assert running(web) == ["1.0.0"] * 3
    assert servers(balancer) == dict.fromkeys(WEB, "UP")

    two = ("-e", "version=2.0.0")
    with asking(balancer) as client:
        assert example.run().changed() == set()
        shown = example.check(*two)
        assert "/opt/app/current" in shown
        assert running(web) == ["1.0.0"] * 3

        # The second of them does not come up: it is not asked any more, and the third is not touched.
        web[1].sh("mkdir -p /etc/systemd/system/app.service.d; cd /etc/systemd/system/app.service.d\n"
                  "printf '[Service]\\nExecStartPre=/bin/false\\n' >broken.conf; systemctl daemon-reload")  # fmt: skip
        broken = example.run(*two, code=1)
        assert broken.failed() == {"app/deploy/restart-now/restart"}
        assert running([web[0], web[2]]) == ["2.0.0", "1.0.0"]
        web[1].sh("rm -r /etc/systemd/system/app.service.d; systemctl daemon-reload")
        example.resume(broken.run_id)
        assert running(web) == ["2.0.0"] * 3
        assert servers(balancer) == dict.fromkeys(WEB, "UP")

        # Killed while a server is out: the resume puts it back.
        killed = example.kill_at("app/deploy/restart-now/restart", "web2", "-e", "version=3.0.0")
        assert servers(balancer)["web2"] == "DRAIN"
        example.resume(killed)
        assert running(web) == ["3.0.0"] * 3
        assert servers(balancer) == dict.fromkeys(WEB, "UP")
    assert set(client.versions) == {"1.0.0", "2.0.0", "3.0.0"}

    for run in (killed, broken.run_id, first.run_id):
        example.roll_back(run)
    for each in web:
        assert each.sh("ls -A /opt; systemctl is-active app || :; getent passwd app || :") == "inactive\n"
    assert balancer.sh("dpkg-query -W -f '${db:Status-Status}\\n' haproxy 2>&1 || :") != "installed\n"
