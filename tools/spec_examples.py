"""The examples of the spec reference, by the model they show."""

from __future__ import annotations

EXAMPLES: dict[str, tuple[str, str]] = {
    "PipelineDocument": (
        "whole",
        """\
apiVersion: kubexm.io/v1
kind: Pipeline
metadata: {name: motd}
params:
  greeting: {type: string, default: hello}
modules:
  - name: greet
    tasks:
      - name: say
        steps:
          - name: show
            type: message
            with: {text: "{{ params.greeting }}"}
""",
    ),
    "ModuleDocument": (
        "whole",
        """\
apiVersion: kubexm.io/v1
kind: Module
metadata: {name: greet}
params:
  greeting: {type: string}
tasks:
  - name: say
    steps:
      - name: show
        type: message
        with: {text: "{{ params.greeting }}"}
""",
    ),
    "TaskDocument": (
        "whole",
        """\
apiVersion: kubexm.io/v1
kind: Task
metadata: {name: say}
params:
  greeting: {type: string}
steps:
  - name: show
    type: message
    with: {text: "{{ params.greeting }}"}
""",
    ),
    "InventoryDocument": (
        "whole",
        """\
apiVersion: kubexm.io/v1
kind: Inventory
metadata: {name: lab}
defaults: {connector: local}
roles:
  web: {vars: {port: 8080}}
groups:
  north: {hosts: ["web[01:02]"], labels: {zone: north}}
hosts:
  - {name: "web[01:04]", roles: [web]}
""",
    ),
    "ClusterDocument": (
        "whole",
        """\
apiVersion: kubexm.io/v1
kind: Cluster
metadata: {name: lab}
kubernetes: {version: 1.36.4}
hosts:
  - {name: cp1, address: 10.0.0.1, roles: [controlPlane]}
  - {name: "worker[1:3]", address: "10.0.0.[11:13]", roles: [worker]}
""",
    ),
    "VersionsDocument": (
        "whole",
        """\
apiVersion: kubexm.io/v1
kind: Versions
metadata: {name: ours}
mirrors:
  https://dl.k8s.io: https://files.example.org/k8s
""",
    ),
    "ParamSpec": (
        "pipeline",
        """\
params:
  version: {type: string, pattern: 'v\\d+\\.\\d+', default: v1.2}
  size: {type: integer, default: 3, description: How many there are.}
  mode: {type: string, enum: [new, existing], default: new}
  token: {type: secret, default: "env:TOKEN"}
""",
    ),
    "HooksSpec": (
        "tasks",
        """\
- name: update
  hooks:
    pre:
      - {name: begin, type: message, with: {text: "begin on {{ host.name }}"}}
    onFailure:
      - {name: alarm, type: message, with: {text: "failed"}, runOn: control-node}
    always:
      - {name: finish, type: message, with: {text: "end"}}
  steps:
    - {name: work, type: command, with: {argv: ["true"]}}
""",
    ),
    "HandlerSpec": (
        "tasks",
        """\
- name: web
  handlers:
    - {name: restart, type: command, with: {argv: [systemctl, restart, nginx]}}
  steps:
    - {name: config, type: file, notify: restart, with: {path: /etc/nginx/nginx.conf, content: "events {}\\n"}}
    - {name: now, flush: true}
    - {name: health, type: wait, with: {port: 80}}
""",
    ),
    "RunOnSpec": (
        "tasks",
        """\
- name: everywhere
  runOn: all
  steps: [{name: show, type: message, with: {text: hello}}]
- name: some
  runOn: {roles: [web], exclude: [web2]}
  steps: [{name: show, type: message, with: {text: hello}}]
- name: once
  runOn: {roles: [web], runOnce: true}
  steps: [{name: show, type: message, with: {text: hello}}]
""",
    ),
    "ForEachSpec": (
        "steps",
        """\
- name: greet
  type: message
  forEach: [ann, bob]
  with: {text: "hello {{ item }}"}
- name: combine
  type: message
  forEach: {matrix: {size: [1, 2], color: [red, blue]}}
  with: {text: "{{ item.size }} {{ item.color }}"}
""",
    ),
    "DelegateToSpec": (
        "steps",
        """\
- name: ask
  type: command
  delegateTo: control-node
  with: {argv: [ping, -c1, "{{ origin.address }}"]}
""",
    ),
    "BatchSpec": (
        "tasks",
        """\
- name: restart
  batch: {size: [1, 20%], pause: 30s, maxFailures: 1}
  steps: [{name: restart, type: command, with: {argv: ["true"]}}]
""",
    ),
    "RetrySpec": (
        "steps",
        """\
- name: connect
  type: command
  with: {argv: ["true"]}
  retry: {attempts: 5, delay: 1s, backoff: exponential, maxDelay: 10s, "on": [failed, timedOut]}
""",
    ),
    "ResourcesSpec": (
        "steps",
        """\
- name: download
  type: command
  with: {argv: ["true"]}
  resources: {globalLimit: 5, locks: [mirror]}
""",
    ),
    "ResourceSpec": (
        "pipeline",
        """\
resources:
  tool:
    url: "https://example.com/tool-1.2-{{ variant }}.tar.gz"
    sha256:
      amd64: b414b27a5ad05f7cb01395c447c85d3227e3fb1c176e51757a283b817f645ccc
      arm64: 8e68c55e6d72b791a9e98591c755af36f6f55aa9eca63767822cd8a3817fdb23
""",
    ),
    "S3Spec": (
        "pipeline",
        """\
resources:
  tool:
    url: s3://releases/tool-1.2.tar.gz
    sha256: b414b27a5ad05f7cb01395c447c85d3227e3fb1c176e51757a283b817f645ccc
    s3: {endpoint: "https://minio.example.com", accessKeyId: "env:S3_KEY", secretAccessKey: "env:S3_SECRET"}
""",
    ),
    "RegistryAccessSpec": (
        "pipeline",
        """\
resources:
  pause:
    image: registry.k8s.io/pause:3.10.2
    registry: {mirrors: ["https://mirror.example.com"], username: deploy, password: "env:REGISTRY_PASSWORD"}
""",
    ),
}
"""What the example is a part of (a whole document, the keys of a pipeline, or a list of tasks or steps) and its text.

The tests complete each part to a whole document and check it.
"""
