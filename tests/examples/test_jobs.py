"""The examples for single hosts do their jobs on a full one: killed, resumed, repeated, checked, mended, taken back."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.examples.kit import Example, dismiss, welcome
from tests.lab.machines import Machine
from tests.steps.server import serve

pytestmark = pytest.mark.xdist_group("machines")


@dataclass(frozen=True)
class Job:
    """An example, and what the tests do to it."""

    name: str
    role: str
    kill_at: str
    """The node during which the first run is killed."""
    shows: str
    """A script for the host that prints what the job is about."""
    first: str
    """What it prints after the first run."""
    change: str
    """A variable with another value, as for `-e`."""
    diff: str
    """A line of what `check` shows of it."""
    second: str
    """What it prints after the changed run."""
    breaks: str
    """A script for the host that makes the changed run fail in the middle."""
    fails: str
    """The node that fails then."""
    mends: str
    """A script that takes away what broke it."""
    at_work: str = ":"
    """A script that succeeds on the host while that node is at work there."""
    env: Mapping[str, str] = field(default_factory=dict)
    variables: Mapping[str, Any] = field(default_factory=dict)


NGINX = Job(
    name="nginx",
    role="web",
    kill_at="nginx/install/package",
    at_work="pgrep -x dpkg",
    # How much may be sent is what the running nginx says, not its files.
    shows="""
curl -s -H 'Host: example.com' http://127.0.0.1/ | grep h1
curl -s -H 'Host: docs.example.com' http://127.0.0.1/ | grep h1
head -c 9000000 /dev/zero | curl -s -o /dev/null -w '%{http_code}\\n' --data-binary @- -H 'Host: example.com' http://127.0.0.1/
""",
    first="<h1>www.example.com</h1>\n<h1>docs.example.com</h1>\n413\n",
    change="maxBodySize=16m",
    diff="+client_max_body_size 16m;",
    second="<h1>www.example.com</h1>\n<h1>docs.example.com</h1>\n405\n",
    breaks="echo 'nonsense;' >/etc/nginx/conf.d/broken.conf",
    fails="nginx/sites/verify",
    mends="rm /etc/nginx/conf.d/broken.conf",
)
POSTGRESQL = Job(
    name="postgresql",
    role="database",
    kill_at="postgresql/databases/password[app]",
    env={"APP_PASSWORD": "correct-horse", "REPORTS_PASSWORD": "battery-staple"},
    shows="""
PGPASSWORD=correct-horse psql -h 127.0.0.1 -U app -tAc 'select current_user' app
PGPASSWORD=battery-staple psql -h 127.0.0.1 -U reports -tAc 'select current_user' reports
PGPASSWORD=correct-horse psql -h 127.0.0.1 -U app -tAc 'show max_connections' app
""",
    first="app\nreports\n100\n",
    change="maxConnections=50",
    diff="+max_connections = 50",
    second="app\nreports\n50\n",
    breaks="echo 'nonsense = on' >/etc/postgresql/15/main/conf.d/zz.conf",
    fails="postgresql/configure/read-now/restart",
    mends="rm /etc/postgresql/15/main/conf.d/zz.conf",
)
HARDENING = Job(
    name="hardening",
    role="server",
    kill_at="ssh/configure/sshd",
    # Who may log in is what the running sshd says, not its files.
    shows="""
for user in root admin; do
  ssh -i /root/lab-key -o BatchMode=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null $user@127.0.0.1 \\
    whoami 2>/dev/null || echo "$user may not"
done
sshd -T | grep '^maxauthtries'; sysctl -n net.ipv4.conf.all.accept_redirects
""",
    first="root may not\nadmin\nmaxauthtries 3\n0\n",
    change="maxAuthTries=2",
    diff="+MaxAuthTries 2",
    second="root may not\nadmin\nmaxauthtries 2\n0\n",
    breaks="echo 'Nonsense yes' >/etc/ssh/sshd_config.d/99-broken.conf",
    fails="ssh/configure/verify",
    mends="rm /etc/ssh/sshd_config.d/99-broken.conf",
)
NODE_EXPORTER = Job(
    name="node-exporter",
    role="server",
    kill_at="exporter/install/program",
    shows="for port in 9100 9101; do curl -s http://127.0.0.1:$port/metrics | grep -c ^node_uname_info; done || :",
    first="1\n0\n",
    change="port=9101",
    diff="--web.listen-address=:9101",
    second="0\n1\n",
    breaks="systemd-run -q --unit=squatter python3 -m http.server 9101",
    fails="exporter/service/unit",
    mends="systemctl stop squatter",
)

# All that is installed, and every file of the system's configuration and of the jobs'; Debian's nginx leaves its page.
STATE = """
dpkg-query -W -f '${Package} ${Version} ${db:Status-Status}\n' | grep ' installed$'
find /etc /opt /srv /var/www -xdev ! -type d ! -path /etc/ld.so.cache ! -path '/var/www/html/*' ! -name '*-' \\
  -exec sha256sum {} + | sort -k 2
getent passwd; getent group
"""


@pytest.fixture
def box(machine: Machine) -> Iterator[Machine]:
    """The shared machine, as the host of an example."""
    welcome(machine)
    yield machine
    dismiss(machine)


def do(job: Job, box: Machine, folder: Path, **variables: Any) -> None:
    """The whole story of a job."""
    before = box.sh(STATE)
    example = Example(job.name, folder, {"box": (box, job.role)}, job.env, **variables)

    first = example.kill_at(job.kill_at, "box", at_work=lambda: box.sh(f"({job.at_work}) && echo yes || :") != "")
    example.resume(first)
    assert box.sh(job.shows) == job.first
    assert example.run().changed() == set()

    shown = example.check("-e", job.change)
    assert job.diff in shown
    assert box.sh(job.shows) == job.first

    box.sh(job.breaks)
    broken = example.run("-e", job.change, code=1)
    assert broken.failed() == {job.fails}
    box.sh(job.mends)
    example.resume(broken.run_id)
    assert box.sh(job.shows) == job.second

    example.roll_back(broken.run_id)
    example.roll_back(first)
    assert box.sh(STATE) == before


def test_nginx_with_virtual_hosts(box: Machine, tmp_path: Path) -> None:
    do(NGINX, box, tmp_path)


def test_postgresql_with_users_and_tuning(box: Machine, tmp_path: Path) -> None:
    do(POSTGRESQL, box, tmp_path)


def test_hardening_of_ssh_and_sysctl(box: Machine, tmp_path: Path) -> None:
    shutil.copy(box.key, box.root / "root" / "lab-key")
    assert box.sh(HARDENING.shows).startswith("root\nadmin\n")
    do(HARDENING, box, tmp_path)
    box.sh("rm /root/lab-key")


def test_node_exporter_of_debian_as_a_service(box: Machine, tmp_path: Path) -> None:
    # The program itself is the real one, packed as its makers do.
    packed = "/root/node_exporter.tar.gz"
    box.sh(
        """cd /root && dpkg-deb -x /usr/share/lab/debs/prometheus-node-exporter_*.deb unpacked
install -D unpacked/usr/bin/prometheus-node-exporter node_exporter-1.5.0/node_exporter
tar -czf "$1" node_exporter-1.5.0 && rm -r unpacked node_exporter-1.5.0""",
        packed,
    )
    content = (box.root / packed.lstrip("/")).read_bytes()
    box.sh('rm "$1"', packed)
    architecture = box.sh("dpkg --print-architecture").strip()
    with serve() as site:
        site.pages[f"/v1.5.0/node_exporter-1.5.0.linux-{architecture}.tar.gz"] = (200, {}, content)
        digests = {"amd64": "0" * 64, "arm64": "0" * 64, architecture: hashlib.sha256(content).hexdigest()}
        do(NODE_EXPORTER, box, tmp_path, source=site.url().rstrip("/"), version="1.5.0", sha256=digests)
