"""The store against a real web server: one download, verified, resumed, cached, and a clear word when it cannot be."""

from __future__ import annotations

import hashlib
import os
import random
import stat
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kubexm_exec.control import Cancel, Deadline
from kubexm_exec.http import attempts
from kubexm_exec.model.errors import CommandCancelled, CommandTimedOut
from kubexm_exec.resources.cache import Cache
from kubexm_exec.resources.source import ResourceError, Source
from kubexm_exec.resources.store import ResourceStore
from tests.resources.server import Web, serve

CONTENT = random.Random(1).randbytes(700_000)
DIGEST = hashlib.sha256(CONTENT).hexdigest()


def source(web: Web, path: str = "/tool.bin", *, sha256: str = DIGEST, **more: Any) -> Source:
    return Source.of_url("tool", web.url(path), sha256=sha256, timeout=more.pop("timeout", 10.0), **more)


def parts(cache: Cache) -> list[Path]:
    return [path for path in (cache.folder / "parts").iterdir() if path.suffix != ".json"]


@pytest.fixture(autouse=True)
def _no_long_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts, "_FIRST_PAUSE", 0.01)


def test_a_file_arrives_verified_under_its_name_in_a_cache_for_its_owner_alone(web: Web) -> None:
    web.add(CONTENT)
    store = ResourceStore()
    found = store.fetch(source(web))
    assert found.path.read_bytes() == CONTENT
    assert (found.path.name, found.sha256, found.size, found.where) == ("tool.bin", DIGEST, len(CONTENT), "fetched")
    assert stat.S_IMODE(store.cache.folder.stat().st_mode) == 0o700
    assert not parts(store.cache)


def test_what_is_in_the_cache_is_not_asked_for_again_by_a_later_run(web: Web) -> None:
    web.add(CONTENT)
    ResourceStore().fetch(source(web))
    again = ResourceStore().fetch(source(web))
    assert (again.path.read_bytes(), again.where, len(web.asked)) == (CONTENT, "cache", 1)


def test_the_same_content_has_each_name_that_is_asked_for(web: Web) -> None:
    web.add(CONTENT)
    store = ResourceStore()
    store.fetch(source(web))
    other = store.fetch(source(web, "/elsewhere/other.tar.gz"))
    assert (other.path.name, other.path.read_bytes(), len(web.asked)) == ("other.tar.gz", CONTENT, 1)


def test_fifty_who_ask_at_once_cause_one_download(web: Web) -> None:
    page = web.add(CONTENT, hold=threading.Event())
    store = ResourceStore()
    with ThreadPoolExecutor(50) as threads:
        waiting = [threads.submit(store.fetch, source(web)) for _ in range(50)]
        assert page.held.wait(10)
        assert page.hold is not None
        page.hold.set()
        found = {one.result(20).path for one in waiting}
    assert (len(found), len(web.asked)) == (1, 1)


PROGRAM = """
import sys, pathlib
from kubexm_exec.resources.cache import Cache
from kubexm_exec.resources.source import Source
from kubexm_exec.resources.store import ResourceStore
url, sha256, home = sys.argv[1:]
print(ResourceStore(Cache(pathlib.Path(home))).fetch(Source.of_url("tool", url, sha256=sha256)).where)
"""


def test_several_processes_share_one_download(web: Web, tmp_path: Path) -> None:
    page = web.add(CONTENT, hold=threading.Event())
    command = [sys.executable, "-c", PROGRAM, web.url(), DIGEST, str(tmp_path / "shared")]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    assert page.held.wait(60)
    assert page.hold is not None
    page.hold.set()
    assert sorted(process.communicate(timeout=60)[0].strip() for process in processes) == ["cache", "cache", "fetched"]
    assert len(web.asked) == 1


@pytest.mark.parametrize("length", [True, False], ids=["with a length", "in chunks"])
def test_a_transfer_that_is_cut_goes_on_where_it_was(web: Web, length: bool) -> None:
    web.add(CONTENT, drops=[300_000, 200_000], length=length)
    seen: list[int] = []
    found = ResourceStore().fetch(source(web), progress=lambda done, total: seen.append(done))
    assert found.path.read_bytes() == CONTENT
    assert web.ranges() == ["", "bytes=300000-", "bytes=500000-"]
    assert seen == sorted(seen)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    size=st.integers(0, 600_000),
    cuts=st.lists(st.integers(0, 600_000), max_size=4),
    named=st.booleans(),
    length=st.booleans(),
    ranges=st.booleans(),
    known=st.booleans(),
)
def test_wherever_it_is_cut_what_arrives_is_the_whole(
    size: int, cuts: list[int], named: bool, length: bool, ranges: bool, known: bool
) -> None:
    content = CONTENT[:size]
    digest = hashlib.sha256(content).hexdigest()
    with serve() as web, tempfile.TemporaryDirectory() as folder:
        web.add(content, drops=list(cuts), etag='"v1"' if named else "", length=length, ranges=ranges)
        found = ResourceStore(Cache(Path(folder))).fetch(source(web, sha256=digest if known else ""))
        assert (found.path.read_bytes(), found.sha256, found.size) == (content, digest, size)


def test_a_later_run_goes_on_with_what_an_earlier_one_left(web: Web) -> None:
    web.add(CONTENT, drops=[300_000], statuses=[])
    store = ResourceStore()
    with pytest.raises(ResourceError, match="the connection ended after 300000 of 700000 bytes"):
        store.fetch(source(web, retries=0))
    assert [path.stat().st_size for path in parts(store.cache)] == [300_000]
    assert ResourceStore().fetch(source(web, retries=0)).path.read_bytes() == CONTENT
    assert web.asked[1][1]["if-range"] == '"v1"'
    assert web.ranges() == ["", "bytes=300000-"]


def test_another_version_on_the_server_is_fetched_from_its_beginning(web: Web) -> None:
    old = os.urandom(400_000)
    page = web.add(old, drops=[100_000])
    with pytest.raises(ResourceError):
        ResourceStore().fetch(source(web, sha256="", retries=0))
    page.content, page.etag = CONTENT, '"v2"'
    assert ResourceStore().fetch(source(web, sha256="", retries=0)).path.read_bytes() == CONTENT


def test_parts_of_two_versions_are_never_taken_for_one_file(web: Web) -> None:
    """A server without names for versions: only the digest tells."""
    page = web.add(os.urandom(700_000), drops=[300_000], etag="")
    with pytest.raises(ResourceError):
        ResourceStore().fetch(source(web, retries=0))
    page.content = CONTENT
    assert ResourceStore().fetch(source(web, retries=0)).path.read_bytes() == CONTENT
    assert web.ranges() == ["", "bytes=300000-", ""]


def test_without_digest_and_version_nothing_is_put_together(web: Web) -> None:
    page = web.add(os.urandom(700_000), drops=[300_000], etag="")
    with pytest.raises(ResourceError):
        ResourceStore().fetch(source(web, sha256="", retries=0))
    page.content = CONTENT
    assert ResourceStore().fetch(source(web, sha256="", retries=0)).path.read_bytes() == CONTENT
    assert web.ranges() == ["", ""]


def test_a_server_that_knows_no_ranges_is_asked_for_the_whole(web: Web) -> None:
    web.add(CONTENT, drops=[300_000], ranges=False)
    assert ResourceStore().fetch(source(web)).path.read_bytes() == CONTENT


def test_a_part_that_is_complete_already_is_only_verified(web: Web) -> None:
    web.add(CONTENT)
    store = ResourceStore()
    part = store.cache.part(source(web))
    part.begin(0, '"v1"')
    part.append(CONTENT)
    part.close()
    assert store.fetch(source(web)).path.read_bytes() == CONTENT
    assert web.ranges() == [f"bytes={len(CONTENT)}-"]


def test_other_content_is_refused_and_kept_aside(web: Web) -> None:
    wrong = b"something else"
    web.add(wrong)
    store = ResourceStore()
    with pytest.raises(ResourceError) as caught:
        store.fetch(source(web))
    got = hashlib.sha256(wrong).hexdigest()
    (aside,) = (store.cache.folder / "rejected").iterdir()
    assert aside.read_bytes() == wrong
    assert caught.value.message == (
        f"resource tool: {web.url()} has the wrong sha256: expected {DIGEST}, got {got}; it is kept as {aside}"
    )
    assert "compare it with what its makers publish" in caught.value.hint
    assert store.known(source(web)) is None
    assert not list((store.cache.folder / "files").iterdir())


def test_a_file_that_was_damaged_in_the_cache_is_not_used_but_fetched_again(web: Web) -> None:
    web.add(CONTENT)
    damaged = ResourceStore().fetch(source(web)).path
    damaged.write_bytes(b"rotten")
    found = ResourceStore().fetch(source(web))
    assert (found.path.read_bytes(), found.where) == (CONTENT, "fetched")
    (aside,) = (ResourceStore().cache.folder / "rejected").iterdir()
    assert aside.read_bytes() == b"rotten"


def test_without_a_digest_the_server_is_asked_once_a_run_whether_there_is_something_newer(web: Web) -> None:
    page = web.add(b"one", etag='"1"')
    bare = source(web, sha256="")
    assert ResourceStore().fetch(bare).path.read_bytes() == b"one"
    second = ResourceStore()
    assert second.fetch(bare).path.read_bytes() == b"one"
    assert second.fetch(bare).path.read_bytes() == b"one"
    assert [headers.get("if-none-match") for _, headers in web.asked] == [None, '"1"']
    page.content, page.etag = b"two", '"2"'
    assert ResourceStore().fetch(bare).path.read_bytes() == b"two"


def test_a_date_serves_as_the_name_of_a_version(web: Web) -> None:
    web.add(b"one", etag="", modified="Sun, 01 Nov 2026 10:00:00 GMT")
    bare = source(web, sha256="")
    assert [ResourceStore().fetch(bare).path.read_bytes() for _ in range(2)] == [b"one", b"one"]
    assert web.asked[1][1]["if-modified-since"] == "Sun, 01 Nov 2026 10:00:00 GMT"


def test_a_cancel_ends_the_wait_at_once_and_keeps_what_has_arrived(web: Web) -> None:
    page = web.add(CONTENT, hold=threading.Event())
    store, cancel = ResourceStore(), Cancel()
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(store.fetch, source(web), cancel=cancel)
        assert page.held.wait(10)
        cancel.set()
        with pytest.raises(CommandCancelled):
            waiting.result(10)
    assert page.hold is not None
    page.hold.set()
    page.hold = None
    assert ResourceStore().fetch(source(web)).path.read_bytes() == CONTENT


def test_one_whose_time_is_over_does_not_spoil_it_for_the_others(web: Web) -> None:
    page = web.add(CONTENT, hold=threading.Event())
    store = ResourceStore()
    with ThreadPoolExecutor(2) as threads:
        patient = threads.submit(store.fetch, source(web))
        assert page.held.wait(10)
        hasty = threads.submit(store.fetch, source(web), deadline=Deadline.after(0.05))
        with pytest.raises(CommandTimedOut):
            hasty.result(10)
        assert page.hold is not None
        page.hold.set()
        assert patient.result(10).path.read_bytes() == CONTENT
    assert len(web.asked) == 1


def test_a_failure_is_told_to_all_who_wait_and_forgotten_by_the_next(web: Web) -> None:
    page = web.add(CONTENT, hold=threading.Event(), drops=[1])
    store = ResourceStore()
    with ThreadPoolExecutor(5) as threads:
        waiting = [threads.submit(store.fetch, source(web, retries=0)) for _ in range(5)]
        assert page.held.wait(10)
        assert page.hold is not None
        page.hold.set()
        errors = [one.exception(10) for one in waiting]
    assert all(isinstance(error, ResourceError) for error in errors)
    assert len({id(error) for error in errors}) == 5
    page.hold = None
    assert store.fetch(source(web, retries=0)).path.read_bytes() == CONTENT


def test_a_cache_that_cannot_be_written_is_named(web: Web, tmp_path: Path) -> None:
    web.add(CONTENT)
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ResourceError, match=r"the cache .* cannot be created: not a directory") as caught:
        ResourceStore(Cache(tmp_path / "file" / "cache")).fetch(source(web))
    assert "XDG_CACHE_HOME" in caught.value.hint


def test_prune_removes_what_nobody_has_used_and_leaves_what_is_new_or_at_work(web: Web) -> None:
    web.add(CONTENT)
    web.add(b"old", "/old")
    store = ResourceStore()
    fresh = store.fetch(source(web)).path
    old = store.fetch(source(web, "/old", sha256="")).path
    busy = store.cache.part(source(web, "/busy"))
    busy.begin(0, "")
    busy.append(b"half")
    busy.close()
    for path in [old, *(store.cache.folder / "records").iterdir(), *parts(store.cache)]:
        os.utime(path, (1, 1))
    with store.cache.locked(source(web, "/busy").key, Cancel()):
        gone = store.cache.prune(3600)
    assert (gone.files, fresh.exists(), old.exists(), busy.path.exists()) == (2, True, False, True)
    assert store.cache.prune(0).files >= 2
    assert not fresh.exists()
