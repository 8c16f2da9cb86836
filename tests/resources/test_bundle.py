"""Bundles: what is put in comes out again by digest, by source and by name, and nothing else does."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kubexm_exec.resources.bundle import Bundle, write_bundle
from kubexm_exec.resources.source import LocalResource, ResourceError, Source
from kubexm_exec.resources.store import ResourceStore

CONTENT = b"content of the tool"
DIGEST = hashlib.sha256(CONTENT).hexdigest()
URL = "https://nowhere.invalid/tool-1.2.tar.gz"


def source(sha256: str = DIGEST, **more: Any) -> Source:
    return Source.of_url("tool", URL, sha256=sha256, **more)


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    (tmp_path / "original").write_bytes(CONTENT)
    local = LocalResource(tmp_path / "original", DIGEST, len(CONTENT))
    write_bundle(tmp_path / "bundle", [(source(), local)])
    return tmp_path / "bundle"


def test_a_bundle_is_looked_at_before_anybody_is_asked(bundle: Path) -> None:
    found = ResourceStore(bundle=bundle).fetch(source())
    assert (found.path.read_bytes(), found.path.name, found.where) == (CONTENT, "tool-1.2.tar.gz", "bundle")


def test_without_a_digest_it_is_found_by_its_source(bundle: Path) -> None:
    found = ResourceStore(bundle=bundle).fetch(source(""))
    assert (found.sha256, found.where) == (DIGEST, "bundle")
    assert ResourceStore(bundle=bundle).known(Source.of_url("tool", "https://nowhere.invalid/other")) is None


def test_a_resource_may_name_its_bundle_and_is_found_by_its_own_name(bundle: Path) -> None:
    named = Source(name="tool", kind="bundle", location=str(bundle))
    assert ResourceStore().fetch(named).path.read_bytes() == CONTENT
    with pytest.raises(ResourceError, match="resource other: it is not in the bundle"):
        ResourceStore().fetch(Source(name="other", kind="bundle", location=str(bundle), filename="other"))


@pytest.mark.parametrize("name", [DIGEST, "tool-1.2.tar.gz"])
def test_files_that_somebody_put_there_by_digest_or_by_name_are_found(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(CONTENT)
    assert ResourceStore(bundle=tmp_path).fetch(source()).path == tmp_path / name


def test_a_file_with_another_digest_is_not_used(bundle: Path) -> None:
    assert ResourceStore(bundle=bundle).known(source("1" * 64)) is None


@pytest.mark.parametrize(
    "wanted", [source(), source(""), Source(name="tool", kind="bundle", location="set below")], ids=lambda one: one.kind
)
def test_a_file_that_is_not_what_the_index_says_is_named_and_not_used(bundle: Path, wanted: Source) -> None:
    if wanted.kind == "bundle":
        wanted = replace(wanted, location=str(bundle))
    (damaged,) = bundle.glob("files/*/*")
    damaged.write_bytes(b"rotten")
    with pytest.raises(ResourceError) as caught:
        ResourceStore(bundle=bundle).known(wanted)
    assert f"{damaged} of the bundle is damaged" in caught.value.message
    assert DIGEST in caught.value.message
    assert "create it again" in caught.value.hint


def test_a_second_spec_adds_to_a_bundle_and_an_update_replaces(bundle: Path, tmp_path: Path) -> None:
    newer = b"newer"
    (tmp_path / "newer").write_bytes(newer)
    digest = hashlib.sha256(newer).hexdigest()
    local = LocalResource(tmp_path / "newer", digest, len(newer))
    write_bundle(bundle, [(Source.of_url("other", "https://nowhere.invalid/other"), local), (source(""), local)])
    entries = {entry.name: entry.sha256 for entry in Bundle(bundle).entries}
    assert entries == {"tool": digest, "other": digest}
    found = Bundle(bundle).find(source(""))
    assert found is not None
    assert found.path.read_bytes() == newer


def test_a_bundle_does_not_hold_tokens(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(CONTENT)
    signed = Source.of_url("tool", f"{URL}?token=s3cret")
    write_bundle(tmp_path / "bundle", [(signed, LocalResource(tmp_path / "file", DIGEST, 1))])
    assert "s3cret" not in (tmp_path / "bundle" / "index.json").read_text()


@pytest.mark.parametrize("file", ["../../etc/passwd", "/etc/passwd"])
def test_an_index_that_leads_elsewhere_is_refused(bundle: Path, file: str) -> None:
    index = json.loads((bundle / "index.json").read_text())
    index["resources"][0]["file"] = file
    (bundle / "index.json").write_text(json.dumps(index))
    with pytest.raises(ResourceError, match="which is not in the bundle"):
        ResourceStore(bundle=bundle).known(source())


@pytest.mark.parametrize("text", ["", "[]", '{"format": 2, "resources": []}', '{"format": 1, "resources": [{}]}'])
def test_a_damaged_index_is_said_to_be_one(bundle: Path, text: str) -> None:
    (bundle / "index.json").write_text(text)
    with pytest.raises(ResourceError, match=r"index\.json is (not the index of a bundle|damaged)"):
        ResourceStore(bundle=bundle).known(source())


def test_a_bundle_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ResourceError, match="there is no bundle"):
        ResourceStore(bundle=tmp_path / "none").known(source())
