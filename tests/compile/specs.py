"""Valid specs that the tests of the compiler share."""

from __future__ import annotations

import pathlib

MAIN = """\
apiVersion: kubexm.io/v1
kind: Pipeline
metadata: {name: site, labels: {team: web}}
params:
  version: {type: string, default: "1.2"}
  count: {type: integer, default: 2, enum: [1, 2, 3]}
  extra: {type: list, default: [a, b]}
  token: {type: secret, default: "env:TOKEN"}
vars:
  home: "/srv/{{ host.name }}"
  release: "{{ params.version }}-{{ vars.suffix }}"
  suffix: final
inventory:
  vars: {region: eu, path: "{{ vars.home }}/x"}
  defaults: {connector: local}
  roles: {web: {vars: {port: 80}}}
  groups: {front: {hosts: ["web*"], vars: {tier: 1}, labels: {edge: "yes"}}}
  hosts:
    - {name: "web[1:3]", roles: [web], labels: {zone: a}, vars: {disks: [sda, sdb]}}
    - {name: db1, address: 10.0.0.9, roles: [db], vars: {disks: [vda], port: 5432}}
failurePolicy: continue
locks: {registry: 2}
hooks:
  pre: [{name: hello, type: message, with: {text: "{{ params.version }}"}}]
  always: [{name: bye, type: message, with: {text: bye}, runOn: {roles: [db], runOnce: true}}]
modules:
  - name: base
    vars: {mode: "0644"}
    tasks:
      - name: files
        strategy: linear
        tags: [files]
        steps:
          - name: home
            type: directory
            with: {path: "{{ vars.home }}", mode: "0755"}
          - name: write
            type: file
            retry: &patient {attempts: 3, delay: 2s, backoff: exponential, maxDelay: 1m, on: [failed, timedOut]}
            timeout: 30s
            when: vars.port > 1 and host.name != 'x'
            with: {path: "{{ vars.home }}/a", content: "{{ vars.release }}\\n", mode: "{{ vars.mode }}"}
            onFailure: [{name: undo, type: command, with: {argv: [rm, -f, "{{ vars.home }}/a"]}}]
          - name: disks
            type: command
            forEach: "{{ vars.disks }}"
            with: {argv: [echo, "{{ item }}"], changedWhen: "exitCode == 9"}
            resources: {globalLimit: 2, locks: registry}
            retry: {<<: *patient, attempts: 2}
      - name: probe
        needs: [files]
        align: host
        outputs: {up: "{{ steps.up.outputs.stdout }}"}
        runOn: {roles: [web], exclude: web3}
        steps:
          - {name: up, type: command, with: {argv: [uptime]}, ignoreErrors: true}
          - {name: conf, type: template, with: {src: conf.j2, path: /etc/conf, vars: {title: hi}}}
  - name: web
    needs: [base]
    uses: web.yaml
    with: {port: "{{ vars.web_port | default(8080) }}", names: ["{{ params.version }}", b]}
  - name: last
    tasks:
      - name: roll
        batch: {size: 2, pause: 1s, maxFailures: 1}
        maxFailures: 50%
        runOn: all
        steps:
          - {name: one, type: message, with: {text: "{{ steps['base/files/write'].changed }}"}}
          - {name: two, type: message, needs: [], with: {text: "{{ modules.web.outputs.url }}"}}
          - name: matrix
            type: message
            forEach: {matrix: {a: [1, 2], b: "{{ params.extra }}"}, key: item.a ~ item.b, parallel: true}
            with: {text: "{{ item.a }}{{ item.b }}"}
"""

WEB = """\
apiVersion: kubexm.io/v1
kind: Module
metadata: {name: web}
params:
  port: {type: integer}
  names: {type: list, default: []}
  root: {default: /var/www}
vars: {conf: "{{ params.root }}/conf"}
outputs: {url: "http://localhost:{{ params.port }}"}
tasks:
  - name: install
    runOn: {labels: {edge: "yes"}}
    hooks:
      post: [{name: check, type: message, with: {text: "{{ vars.conf }}"}}]
    steps:
      - {name: copy, type: copy, with: {src: files/index.html, path: "{{ params.root }}/index.html"}}
  - name: start
    uses: start.yaml
    with: {service: web}
"""

START = """\
apiVersion: kubexm.io/v1
kind: Task
metadata: {name: start}
params:
  service: {type: string, pattern: "[a-z]+"}
runOn: {roles: [web]}
steps:
  - {name: start, type: command, with: {shell: "systemctl start {{ params.service | quote }}"}}
"""

FILES = {
    "main.yaml": MAIN,
    "web.yaml": WEB,
    "start.yaml": START,
    "files/index.html": "<h1>hi</h1>\n",
    "templates/conf.j2": "{% include 'part.j2' %}\nport {{ vars.port }} {{ title }}\n",
    "templates/part.j2": "# {{ host.name }} {{ vars.release }}\n",
}


def write(folder: pathlib.Path, files: dict[str, str] | None = None) -> pathlib.Path:
    """The files of a valid spec that uses a bit of everything; the path of its pipeline."""
    for name, text in (files or FILES).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    return folder / "main.yaml"
