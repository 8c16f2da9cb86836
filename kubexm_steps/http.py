"""The step type ``http``: a request from the control node or the host, with expectations."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, Field

from kubexm_exec.step import (
    Duration,
    Forecast,
    HttpError,
    LocalFile,
    Outputs,
    Params,
    Reply,
    Result,
    Step,
    StepContext,
    StepFailed,
    Undo,
    check_url,
)
from kubexm_steps.lib.http import failed, request
from kubexm_steps.lib.types import HostPath, Text, refuse

_SAFE: Final = ("GET", "HEAD", "OPTIONS")
_SHOWN: Final = 300


class HttpExpect(Params):
    """What the answer must be like."""

    status: list[int] | None = Field(None, min_length=1, description="Accepted status codes; any 2xx by default.")
    body_contains: str | None = Field(None, description="Text that the body must contain.")
    json_: Any = Field(
        None,
        alias="json",
        description="Values that the JSON body must have. Objects can have additional keys.",
    )


class HttpParams(Params):
    """Parameters of ``http``."""

    url: Annotated[str, AfterValidator(check_url)] = Field(description="Address, with http:// or https://.")
    method: Literal["GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"] = Field("GET", description="Method.")
    headers: dict[str, Text] = Field(default_factory=dict, description="Headers of the request.")
    body: Text | None = Field(None, description="Request body as text.")
    json_: Any = Field(None, alias="json", description="Request body as a value to send as JSON, instead of `body`.")
    timeout: Duration = Field(30.0, description="Time limit for the whole response.")
    expect: HttpExpect = Field(default_factory=HttpExpect, description="Expectations of the response.")
    ca_file: Annotated[str | None, LocalFile()] = Field(
        None, description="File on the control node with the CA certificates (PEM) for the server's certificate."
    )
    from_: Literal["control", "host"] = Field(
        "control", alias="from", description="Who sends it: the control node, or the host, with its own tools."
    )
    host_ca_file: HostPath | None = Field(
        None, description="File on the host with the CA certificates (PEM), with `from: host`."
    )
    insecure: bool = Field(False, description="Do not verify the server's certificate. For tests only.")
    follow_redirects: bool = Field(True, description="Follow redirects.")

    def model_post_init(self, context: object) -> None:
        if self.body is not None and self.json_ is not None:
            raise ValueError("body and json exclude each other")
        if self.from_ == "host":
            refuse(self, ("ca_file",), "`from: host`, whose file of CA certificates is given as hostCaFile")
        else:
            refuse(self, ("host_ca_file",), "`from: control`")


class HttpOutputs(Outputs):
    status: int = Field(description="Status code.")
    headers: dict[str, str] = Field(description="Headers, names in lower case.")
    body: str = Field(description="Body as text (its first 1 MiB).")
    json_: Any = Field(None, alias="json", description="Body as a value, if it is JSON.")


class HttpStep(Step[HttpParams, Reply | HttpError | None]):
    """A request to a server, sent from the control node, with expectations of the response.

    Use it for health checks and APIs. To wait until something responds at all, use `wait` with `url`, or give this step
    a `retry`.

    - GET, HEAD and OPTIONS never count as a change; `check` sends them too. All others always count as one.
    - GET, HEAD, OPTIONS and PUT are repeatable. For an API that takes the same POST twice, set `repeatable: true`.
    - With `from: host` the host sends it, for what only the host can reach: by its `curl`, `python3` or GNU `wget`,
      the first of them that it has. Address, headers and body appear in no process list and no file there.
    - Certificates are verified, with the system's CAs or those in `caFile` (on the host: `hostCaFile`).
    - Up to 5 redirects are followed, never from https to http. Another server (host, port or scheme) gets none of the
      `headers` and no body; requests other than GET, HEAD and OPTIONS are not sent on to it.
    - Proxies come from `http_proxy`, `https_proxy` and `no_proxy` in the environment of whoever sends it; they are
      never used for that machine itself.
    """

    outputs_model = HttpOutputs
    example = """\
- name: health
  type: http
  with:
    url: https://{{ host.address }}:2379/health
    caFile: ./pki/ca.pem
    expect: {status: [200], json: {health: "true"}}
  retry: {attempts: 5, delay: 2s}
"""

    def is_repeatable(self) -> bool:
        return self.params.method in _SAFE or self.params.method == "PUT"

    @classmethod
    def undo_of(cls, params: Mapping[str, Any]) -> Undo:
        return Undo.NEEDLESS if params.get("method", "GET") in _SAFE else cls.undo

    def precheck(self, ctx: StepContext) -> Forecast[Reply | HttpError | None]:
        if self.params.method not in _SAFE:
            return Forecast.always(f"would send {self._what(ctx)}")
        try:
            reply = self._send(ctx)
        except HttpError as error:
            return Forecast.unknown(f"{self._what(ctx)}: {error.reason}", seen=error)
        wrong = self._wrong(reply)
        if wrong:
            said = "not as expected" if ctx.sensitive else wrong
            return Forecast.unknown(f"{self._what(ctx)}: {said}", seen=reply)
        return Forecast.satisfied(f"{self._what(ctx)}: {reply.status}", _outputs(reply))

    def run(self, ctx: StepContext, forecast: Forecast[Reply | HttpError | None]) -> Result:
        what = self._what(ctx)
        try:
            reply = forecast.seen or self._send(ctx)
        except HttpError as error:
            reply = error
        if isinstance(reply, HttpError):
            raise failed(what, reply) from reply
        wrong = self._wrong(reply)
        if wrong:
            if ctx.sensitive:
                raise StepFailed(
                    f"{what}: the answer is not as expected (hidden: the step is sensitive)", outputs=_outputs(reply)
                )
            text = reply.text()
            raise StepFailed(f"{what}: {wrong}", stdout=_short(text), outputs=_outputs(reply))
        return Result(
            changed=self.params.method not in _SAFE, message=f"{what}: {reply.status}", outputs=_outputs(reply)
        )

    def _send(self, ctx: StepContext) -> Reply:
        params = self.params
        own: dict[str, str] = {}
        body = None if params.body is None else params.body.encode("utf-8", "surrogateescape")
        if params.json_ is not None:
            body = json.dumps(params.json_).encode()
            own["Content-Type"] = "application/json"
        left = ctx.time_left()
        timeout = params.timeout if left is None else min(params.timeout, left)
        return request(
            ctx,
            params.method,
            params.url,
            headers=params.headers,
            own=own,
            body=body,
            timeout=max(timeout, 0.001),
            ca_file=params.host_ca_file or ("" if params.ca_file is None else str(ctx.local_path(params.ca_file))),
            insecure=params.insecure,
            follow=params.follow_redirects,
            on_host=params.from_ == "host",
        )

    def _wrong(self, reply: Reply) -> str:
        """What is not as expected; empty if all is."""
        expect = self.params.expect
        if expect.status is None and not 200 <= reply.status < 300:
            return f"status {reply.status}, expected 2xx"
        if expect.status is not None and reply.status not in expect.status:
            return f"status {reply.status}, expected {' or '.join(map(str, expect.status))}"
        if expect.body_contains is not None and expect.body_contains not in reply.text():
            return f"the body does not contain {expect.body_contains!r}"
        if expect.json_ is not None:
            try:
                actual = json.loads(reply.body)
            except ValueError:
                return "the body is not JSON"
            return first_difference(expect.json_, actual, "json")
        return ""

    def _what(self, ctx: StepContext) -> str:
        place = " from the host" if self.params.from_ == "host" else ""
        return f"{self.params.method} {'(hidden)' if ctx.sensitive else self.params.url}{place}"


def first_difference(expected: Any, actual: Any, place: str) -> str:
    """Where the actual value lacks something of the expected one; empty if it has all of it."""
    if isinstance(expected, dict) and isinstance(actual, dict):
        for key, value in expected.items():
            if key not in actual:
                return f"{place}.{key} is missing"
            if difference := first_difference(value, actual[key], f"{place}.{key}"):
                return difference
        return ""
    if isinstance(expected, list) and isinstance(actual, list):
        if len(expected) != len(actual):
            return f"{place} has {len(actual)} items, expected {len(expected)}"
        for index, (one, other) in enumerate(zip(expected, actual, strict=True)):
            if difference := first_difference(one, other, f"{place}[{index}]"):
                return difference
        return ""
    # In JSON true is not 1, in Python it is.
    if expected == actual and isinstance(expected, bool) == isinstance(actual, bool):
        return ""
    return f"{place} is {_short(json.dumps(actual))}, expected {_short(json.dumps(expected))}"


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."


def _outputs(reply: Reply) -> dict[str, Any]:
    try:
        value = json.loads(reply.body) if reply.body else None
    except ValueError:
        value = None
    return {"status": reply.status, "headers": dict(reply.headers), "body": reply.text(), "json": value}
