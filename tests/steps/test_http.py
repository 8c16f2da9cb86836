"""The step ``http`` against a real server: what is sent, what is expected, whom it trusts, and how it ends early."""

from __future__ import annotations

import shutil
import ssl
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from kubexm_exec.model.errors import CommandCancelled, CommandTimedOut
from kubexm_exec.model.result import ForecastState
from kubexm_exec.step import StepFailed
from kubexm_exec.testing import StepTest
from kubexm_steps.http import HttpParams, first_difference
from tests.steps.server import Site, serve


@pytest.fixture
def site() -> Iterator[Site]:
    with serve() as site:
        site.pages["/"] = (200, {"X-Test": "yes"}, b"hello")
        site.pages["/health"] = (
            200,
            {"Content-Type": "application/json"},
            b'{"health": "true", "more": [1, {"a": 2}]}',
        )
        yield site


def world(tmp_path: Path, url: str, **more: Any) -> StepTest:
    options = {key: more.pop(key) for key in ("sensitive", "timeout") if key in more}
    if "timeout_" in more:
        more["timeout"] = more.pop("timeout_")
    return StepTest(tmp_path, "http", {"url": url, **more}, **options)


def test_a_request_that_changes_nothing_is_sent_by_precheck_and_satisfied(site: Site, tmp_path: Path) -> None:
    forecast = world(tmp_path, site.url()).forecast()
    assert forecast.state is ForecastState.SATISFIED
    assert forecast.message == f"GET {site.url()}: 200"
    assert forecast.outputs["status"] == 200
    assert forecast.outputs["body"] == "hello"
    assert forecast.outputs["json"] is None
    assert forecast.outputs["headers"]["x-test"] == "yes"
    assert [asked[:2] for asked in site.asked] == [("GET", "/")]


def test_an_answer_that_is_not_as_expected_is_unknown_before_and_a_failure_in_the_run(
    site: Site, tmp_path: Path
) -> None:
    site.pages["/"] = (503, {}, b"starting")
    asks = world(tmp_path, site.url())
    forecast = asks.forecast()
    assert (forecast.state, forecast.message) == (
        ForecastState.UNKNOWN,
        f"GET {site.url()}: status 503, expected 2xx",
    )
    with pytest.raises(StepFailed) as caught:
        asks.run()
    assert caught.value.message == f"GET {site.url()}: status 503, expected 2xx"
    assert caught.value.stdout == "starting"


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_other_methods_are_a_change_and_not_looked_at_by_precheck(site: Site, tmp_path: Path, method: str) -> None:
    asks = world(tmp_path, site.url(), method=method, body="text é")
    assert asks.forecast().state is ForecastState.NOT_LOOKED_AT
    assert site.asked == []
    assert asks.run().changed is True
    assert site.asked[0][0] == method
    assert site.asked[0][3] == "text é".encode()


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS"])
def test_asking_is_no_change_in_the_run_either(site: Site, tmp_path: Path, method: str) -> None:
    assert world(tmp_path, site.url(), method=method).run().changed is False


def test_a_value_is_sent_as_json(site: Site, tmp_path: Path) -> None:
    world(tmp_path, site.url(), method="POST", json={"a": [1, None]}).run()
    _, _, headers, body = site.asked[0]
    assert headers["content-type"] == "application/json"
    assert body == b'{"a": [1, null]}'


def test_headers_are_sent(site: Site, tmp_path: Path) -> None:
    world(tmp_path, site.url(), headers={"Authorization": "Bearer x", "X-Number": 1}).run()
    headers = site.asked[0][2]
    assert (headers["authorization"], headers["x-number"], headers["user-agent"]) == ("Bearer x", "1", "kubexm")


@pytest.mark.parametrize(
    ("expect", "problem"),
    [
        ({"status": [200]}, ""),
        ({"status": [404, 410]}, "status 200, expected 404 or 410"),
        ({"bodyContains": "true"}, ""),
        ({"bodyContains": "false"}, "the body does not contain 'false'"),
        ({"json": {"health": "true"}}, ""),
        ({"json": {"more": [1, {"a": 3}]}}, "json.more[1].a is 2, expected 3"),
        ({"json": {"missing": 1}}, "json.missing is missing"),
    ],
)
def test_expectations_are_checked(site: Site, tmp_path: Path, expect: Any, problem: str) -> None:
    asks = world(tmp_path, site.url("/health"), expect=expect)
    if not problem:
        assert asks.run().outputs["json"]["health"] == "true"
        return
    with pytest.raises(StepFailed) as caught:
        asks.run()
    assert caught.value.message.endswith(f": {problem}")


def test_a_body_that_is_not_json_is_named(site: Site, tmp_path: Path) -> None:
    with pytest.raises(StepFailed, match="the body is not JSON"):
        world(tmp_path, site.url(), expect={"json": {"a": 1}}).run()


def test_true_is_not_one() -> None:
    assert first_difference({"a": True}, {"a": 1}, "json") == "json.a is 1, expected true"
    assert first_difference([1, 2], [1], "json") == "json has 1 items, expected 2"
    assert first_difference({"a": {}}, {"a": {"b": 1}}, "json") == ""


def test_a_large_body_is_cut(site: Site, tmp_path: Path) -> None:
    site.pages["/big"] = (200, {}, b"x" * (3 << 20))
    assert len(world(tmp_path, site.url("/big")).run().outputs["body"]) == 1 << 20


def test_nobody_listening_says_what_to_look_at(site: Site, tmp_path: Path) -> None:
    url = site.url()
    with serve() as gone:
        url = gone.url()
    with pytest.raises(StepFailed) as caught:
        world(tmp_path, url).run()
    assert caught.value.message == f"GET {url}: connection refused"
    assert "is the service up" in caught.value.hint


def test_redirects_are_followed_without_telling_secrets_to_another_host(site: Site, tmp_path: Path) -> None:
    with serve() as other:
        other.pages["/there"] = (200, {}, b"arrived")
        site.pages["/go"] = (302, {"Location": other.url("/there")}, b"")
        result = world(tmp_path, site.url("/go"), headers={"Authorization": "Bearer x", "X-Other": "y"}).run()
        assert result.outputs["body"] == "arrived"
        headers = other.asked[0][2]
        assert headers.keys().isdisjoint({"authorization", "x-other"}), "any header may be a secret"


def test_redirects_to_files_are_refused(site: Site, tmp_path: Path) -> None:
    site.pages["/go"] = (302, {"Location": "file:///etc/passwd"}, b"")
    with pytest.raises(StepFailed):
        world(tmp_path, site.url("/go")).run()


def test_redirects_can_be_left_alone(site: Site, tmp_path: Path) -> None:
    site.pages["/go"] = (302, {"Location": "/"}, b"")
    asks = world(tmp_path, site.url("/go"), followRedirects=False, expect={"status": [302]})
    assert asks.run().outputs["headers"]["location"] == "/"


def test_its_own_timeout_is_a_failure(site: Site, tmp_path: Path) -> None:
    with pytest.raises(StepFailed, match="no answer in time"):
        world(tmp_path, site.url("/hold"), timeout_="200ms").run()


def test_the_steps_timeout_ends_it(site: Site, tmp_path: Path) -> None:
    with pytest.raises((CommandTimedOut, StepFailed)):
        world(tmp_path, site.url("/hold"), timeout=0.3).run()


def test_cancel_ends_it_while_the_server_is_silent(site: Site, tmp_path: Path) -> None:
    asks = world(tmp_path, site.url("/hold"))

    def stop() -> None:
        site.held.wait(30)
        asks.cancel.set()

    stopper = threading.Thread(target=stop)
    stopper.start()
    with pytest.raises(CommandCancelled):
        asks.run()
    stopper.join()


def test_a_sensitive_request_shows_neither_address_nor_answer(site: Site, tmp_path: Path) -> None:
    site.pages["/token-s3cret"] = (500, {}, b"s3cret")
    asks = world(tmp_path, site.url("/token-s3cret"), sensitive=True)
    assert "s3cret" not in asks.forecast().message
    with pytest.raises(StepFailed) as caught:
        asks.run()
    assert "s3cret" not in caught.value.message + caught.value.stdout


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"url": "file:///etc/passwd"}, "starts with http"),
        ({"url": "http://"}, "starts with http"),
        ({"url": "http://user:password@host/"}, "Authorization header"),
        ({"url": "http://host:99999/"}, "ort"),
        ({"url": "http://x/", "body": "a", "json": {}}, "exclude each other"),
        ({"url": "http://x/", "method": "FETCH"}, "GET"),
    ],
)
def test_wrong_parameters_are_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        HttpParams.model_validate(wrong)


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate that signs itself, with its key in the same file."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("there is no openssl to make a certificate with")
    folder = tmp_path_factory.mktemp("tls")
    subprocess.run(
        f"{openssl} req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=127.0.0.1"
        " -addext subjectAltName=IP:127.0.0.1 -keyout key.pem -out cert.pem".split(),
        cwd=folder,
        check=True,
        capture_output=True,
    )
    both = folder / "both.pem"
    both.write_bytes((folder / "key.pem").read_bytes() + (folder / "cert.pem").read_bytes())
    return both


@pytest.fixture
def secure(certificate: Path) -> Iterator[Site]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with serve(context) as site:
        site.pages["/"] = (200, {}, b"secure")
        yield site


def test_a_certificate_that_nobody_vouches_for_is_refused_with_what_to_do(secure: Site, tmp_path: Path) -> None:
    with pytest.raises(StepFailed) as caught:
        world(tmp_path, secure.url(scheme="https")).run()
    assert "certificate is not trusted" in caught.value.message
    assert "caFile" in caught.value.hint
    assert secure.asked == []


def test_a_ca_of_ones_own_is_trusted(secure: Site, tmp_path: Path, certificate: Path) -> None:
    shutil.copy(certificate.with_name("cert.pem"), tmp_path / "ca.pem")
    result = world(tmp_path, secure.url(scheme="https"), caFile="ca.pem").run()
    assert result.outputs["body"] == "secure"


def test_insecure_trusts_anybody(secure: Site, tmp_path: Path) -> None:
    assert world(tmp_path, secure.url(scheme="https"), insecure=True).run().outputs["body"] == "secure"


def test_a_ca_file_without_certificates_is_named(secure: Site, tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("nothing")
    with pytest.raises(StepFailed, match=r"caFile .*/ca.pem"):
        world(tmp_path, secure.url(scheme="https"), caFile="ca.pem").run()
