"""Clusters for tests: a small document as text, and what the checks make of it."""

from __future__ import annotations

import pathlib
import textwrap

from kubexm_exec.compile.params import is_reference
from kubexm_spec.clusters.checks import CheckedCluster, check_cluster
from kubexm_spec.clusters.hosts import find_hosts
from kubexm_spec.diagnostics import Diagnostics
from kubexm_spec.documents.loader import Loaded, Loader
from kubexm_spec.models.cluster import ClusterDocument

SMALLEST = """\
apiVersion: kubexm.io/v1
kind: Cluster
metadata: {name: lab}
kubernetes: {version: 1.36.4}
hosts:
  - {name: cp1, address: 10.0.0.1, roles: [controlPlane]}
"""
HIGHLY_AVAILABLE = """\
apiVersion: kubexm.io/v1
kind: Cluster
metadata: {name: lab}
kubernetes: {version: 1.36.4}
hosts:
  - {name: "cp[1:3]", address: "10.0.0.[1:3]", roles: [controlPlane, etcd]}
  - {name: "worker[1:2]", address: "10.0.0.[11:12]", roles: [worker]}
"""


def checked(folder: pathlib.Path, text: str, more: str = "") -> CheckedCluster:
    """A cluster from its text and more of it; raises SpecError if it is wrong."""
    path = folder / "cluster.yaml"
    path.write_text(text + textwrap.dedent(more), "utf-8")
    loader = Loader(Diagnostics())
    source = loader.source(path, path.name)
    loaded = loader.document(source, 0) if source is not None else None
    found = None
    if loaded is not None and isinstance(loaded.document, ClusterDocument):
        cluster = Loaded(loaded.document, loaded.source, loaded.index)
        found = check_cluster(cluster, find_hosts(cluster, loader), loader, is_reference)
    loader.diagnostics.raise_if_errors()
    assert found is not None
    return found
