"""A PKI of a cluster in one spec: one host has the CA, others get leaves; the program keeps no key anywhere."""

from __future__ import annotations

import json
from pathlib import Path

from kubexm_steps.lib import x509
from tests.e2e.site import Site, Sites

SPEC = """
inventory:
  hosts:
    - {name: ca1, connector: local, roles: [ca], vars: {pki: FOLDER/ca1}}
    - {name: "etcd[1:2]", connector: local, roles: [etcd], vars: {pki: "FOLDER/{{ host.name }}"}}
modules:
  - name: pki
    tasks:
      - name: authority
        runOn: {roles: [ca]}
        steps:
          - name: ca
            type: certificate
            with:
              path: "{{ vars.pki }}/ca.crt"
              kind: ca
              subject: {commonName: etcd-ca}
              createParents: true
      - name: members
        runOn: {roles: [etcd]}
        steps:
          - name: leaf
            type: certificate
            forEach:
              key: "{{ item.name }}"
              items:
                - {name: server, usages: [serverAuth]}
                - {name: peer, usages: [serverAuth, clientAuth]}
                - {name: client, usages: [clientAuth]}
            with:
              path: "{{ vars.pki }}/{{ item.name }}.crt"
              caPath: "{{ vars.pki }}/{{ item.name }}-ca.crt"
              subject: {commonName: "{{ host.name }}-{{ item.name }}", organization: etcd}
              sans: {dns: ["{{ host.name }}", localhost], ip: 127.0.0.1}
              usages: "{{ item.usages }}"
              ca: {host: ca1, cert: FOLDER/ca1/ca.crt, key: FOLDER/ca1/ca.key}
              createParents: true
              # MORE
"""


def secrets_of(site: Site) -> dict[str, str]:
    found = {}
    for path in sorted(site.host.rglob("*.key")):
        found[str(path.relative_to(site.host))] = next(x509.secret_texts(path.read_bytes()))
    return found


def assert_nowhere(site: Site, secrets: dict[str, str], *said: str) -> None:
    """No key is in what was said, or in any file of the program."""
    files = [path for path in site.state.rglob("*") if path.is_file()]
    assert files
    for data in [*(text.encode() for text in said), *(path.read_bytes() for path in files)]:
        assert not [name for name, secret in secrets.items() if secret[:30].encode() in data]


def test_a_ca_and_leaves_on_other_hosts_are_made_checked_and_undone(sites: Sites) -> None:
    site = sites(SPEC)
    checked = site.run("kubexm-run", "spec.yaml", "--executor", "check", "--output", "plain", code=0)
    assert "created, 0644, certificate of CN=etcd-ca (signs itself)" in checked
    assert "does not exist yet" in checked
    assert list(site.host.iterdir()) == []
    said = site.run("kubexm-run", "spec.yaml", "--output", "json", "-v", code=0)
    secrets = secrets_of(site)
    assert len(secrets) == 7
    ca = x509.read_certificates((site.host / "ca1/ca.crt").read_bytes())[0]
    for path in site.host.glob("etcd*/*.crt"):
        found = x509.read_certificates(path.read_bytes())[0]
        assert path.name.endswith("-ca.crt") == (found == ca)
        found.verify_directly_issued_by(ca)
    assert {path.stat().st_mode & 0o777 for path in site.host.rglob("*.key")} == {0o600}
    outputs = [json.loads(line).get("outputs") for line in said.splitlines()]
    assert [each for each in outputs if each and each.get("daysLeft") == 365]
    assert "7 actions: 7 unchanged" in site.run("kubexm-run", "spec.yaml", "--output", "plain", code=0)
    site.run("kubexm", "drift", "spec.yaml", code=0)
    key = site.host / "etcd1/server.key"
    kept = key.read_bytes()
    key.unlink()
    assert "its key is missing" in site.run("kubexm", "drift", "spec.yaml")
    key.write_bytes(kept)
    key.chmod(0o600)
    site.run("kubexm-run", "spec.yaml", "--executor", "dry-run", "--output", "plain", code=0)
    shown = site.run("kubexm", "runs", "show", site.runs()[1]["id"], "--output", "json", code=0)
    assert_nowhere(site, secrets, checked, said, shown)
    site.run("kubexm", "runs", "rollback", site.runs()[1]["id"], "--yes", "--output", "quiet", code=0)
    assert list(site.host.iterdir()) == []


def test_a_renewed_ca_and_new_names_change_what_they_must_and_a_later_rollback_brings_it_back(sites: Sites) -> None:
    site = sites(SPEC)
    site.run("kubexm-run", "spec.yaml", "--output", "quiet", code=0)
    before = files_of(site)
    text = (site.folder / "spec.yaml").read_text()
    (site.folder / "spec.yaml").write_text(text.replace("ip: 127.0.0.1}", "ip: [127.0.0.1, 10.0.0.2]}"))
    checked = site.run("kubexm-run", "spec.yaml", "--executor", "check", "--output", "plain", code=0)
    assert checked.count("(SAN +10.0.0.2)") == 6
    site.run("kubexm-run", "spec.yaml", "--output", "quiet", code=0)
    after = files_of(site)
    changed = {name for name in before if before[name] != after[name]}
    assert changed == {f"etcd{host}/{name}.crt" for host in (1, 2) for name in ("server", "peer", "client")}
    site.run("kubexm", "runs", "rollback", "last", "--yes", "--output", "quiet", code=0)
    assert files_of(site) == before


def test_check_does_not_trust_a_ca_that_would_be_replaced_on_its_own_host(sites: Sites) -> None:
    site = sites(SPEC)
    site.run("kubexm-run", "spec.yaml", "--output", "quiet", code=0)
    site.write(SPEC.replace("commonName: etcd-ca", "commonName: other-ca"))
    said = site.run("kubexm-run", "spec.yaml", "--executor", "check", "--output", "plain", code=0)
    assert "1 would change, 6 unknown, 0 unchanged" in said
    assert "unknown: depends on pki/authority/ca" in said
    for name in ("ca.crt", "ca.key"):
        (site.host / "ca1" / name).unlink()
    alone = ("--limit", "etcd1", "--executor", "check", "--output", "plain")
    said = site.run("kubexm-run", "spec.yaml", *alone, code=1)
    assert f"the CA's certificate {site.host}/ca1/ca.crt on ca1 does not exist" in said


def test_a_replaced_key_is_not_in_the_journal_and_a_later_rollback_restores_nothing_and_says_so(sites: Sites) -> None:
    site = sites(SPEC)
    site.run("kubexm-run", "spec.yaml", "--output", "quiet", code=0)
    old = secrets_of(site)
    text = (site.folder / "spec.yaml").read_text()
    (site.folder / "spec.yaml").write_text(text.replace("# MORE", "algorithm: rsa-2048"))
    checked = site.run("kubexm-run", "spec.yaml", "--executor", "check", "--output", "plain", code=0)
    assert "a new key: a later rollback cannot restore the old one" in checked
    site.run("kubexm-run", "spec.yaml", "--output", "quiet", code=0)
    new = secrets_of(site)
    assert [name for name in old if old[name] == new[name]] == ["ca1/ca.key"]
    left = files_of(site)
    preview = site.run("kubexm", "runs", "rollback", "last", code=3)
    assert ": 0 actions can be undone" in preview
    assert "cannot be undone: pki/members/leaf[server] on etcd1: what it replaced contains a secret" in preview
    said = site.run("kubexm", "runs", "rollback", "last", "--yes", "--output", "plain")
    assert "the replaced content was not recorded, because it contains a secret" in said
    assert files_of(site) == left
    assert_nowhere(site, {**{f"old {name}": text for name, text in old.items()}, **new}, said, checked)


def test_a_failed_run_that_is_rolled_back_has_the_old_key_still_in_memory(sites: Sites) -> None:
    site = sites(SPEC)
    site.run("kubexm-run", "spec.yaml", "--output", "quiet", code=0)
    before = files_of(site)
    text = (site.folder / "spec.yaml").read_text()
    text = text.replace("# MORE", "algorithm: ed25519").replace("modules:", "failurePolicy: rollback\nmodules:")
    text += "      - {name: fails, steps: [{name: f, type: command, with: {argv: ['false']}}]}\n"
    (site.folder / "spec.yaml").write_text(text)
    site.run("kubexm-run", "spec.yaml", "--output", "quiet", code=1)
    assert files_of(site) == before


def files_of(site: Site) -> dict[str, bytes]:
    return {
        str(path.relative_to(site.host)): path.read_bytes() for path in site.host.rglob("*") if Path(path).is_file()
    }
