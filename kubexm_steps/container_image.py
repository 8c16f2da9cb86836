"""The step type ``container-image``: images in the store of containerd, pulled or imported."""

from __future__ import annotations

import tarfile
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Struct
from pydantic import AfterValidator, Field

from kubexm_exec.step import Forecast, LocalFile, Outputs, Params, Result, Standing, StepContext, StepFailed, Undo
from kubexm_spec.diagnostics import plural
from kubexm_spec.imagenames import image_problem
from kubexm_steps.lib.attributes import attribute_diff, listed
from kubexm_steps.lib.files import local_failure
from kubexm_steps.lib.programs import Program, Unavailable
from kubexm_steps.lib.standing import LookingStep
from kubexm_steps.lib.types import ONE_OR_MANY, HostPath, Line, refuse

_HINTS: Final = (
    (
        "no such host|connection refused|i/o timeout|network is unreachable",
        "check the name, and `hostsDir` for mirrors",
    ),
    ("not found", "check the name and the tag"),
    ("authorization|unauthorized|denied", "give the registry's credentials in its hosts.toml"),
    (
        "permission denied|dial|cannot access socket",
        "containerd must run, and its socket be open to the step's user: `become: true`",
    ),
)
_LISTS: Final = ("index.json", "manifest.json")
"""What is in an archive, of OCI and of docker."""
_READ: Final = """
[ -f "$1" ] || exit 66
for name in index.json manifest.json; do
  tar -xOf "$1" "$name" 2>/dev/null || tar -xOf "$1" "./$name" 2>/dev/null
  printf '\\0'
done
"""
_NO_FILE: Final = 66


def _image(name: str) -> str:
    if problem := image_problem(name):
        raise ValueError(problem)
    return name


class ContainerImageParams(Params):
    """Parameters of ``container-image``."""

    state: Literal["present", "absent", "list"] = Field(
        "present", description="`absent` removes images; `list` only looks what there is."
    )
    images: Annotated[list[Annotated[str, AfterValidator(_image)]], ONE_OR_MANY] = Field(
        default_factory=list,
        description="Whole names with a tag or a digest, such as `registry.k8s.io/pause:3.10.2`. They are pulled if "
        "missing. With an archive: what must be in it; by default, all that is in it is imported.",
    )
    src: HostPath | None = Field(None, description="Archive on the host to import (OCI, or of `docker save`).")
    local_src: Annotated[str | None, LocalFile()] = Field(
        None, description="Archive on the control node (or `resource:NAME`), instead of `src`; sent only if needed."
    )
    namespace: Line = Field("k8s.io", description="Namespace of containerd; Kubernetes uses `k8s.io`.")
    client: Literal["ctr", "crictl"] = Field(
        "ctr",
        description="What talks to containerd. `crictl` pulls as the kubelet would, with mirrors and credentials of "
        "containerd's own configuration; it cannot import.",
    )
    hosts_dir: HostPath | None = Field(
        None, description="With `ctr`: folder of `hosts.toml` files for mirrors, such as `/etc/containerd/certs.d`."
    )
    platform: Line | None = Field(
        None, description="With `ctr`: platform such as `linux/arm64`; by default the host's."
    )
    address: HostPath = Field("/run/containerd/containerd.sock", description="Socket of containerd.")
    program: Line | None = Field(None, description="Name or path of the client on the host; by default `client`.")

    def model_post_init(self, context: object) -> None:
        if self.src is not None and self.local_src is not None:
            raise ValueError("give either src or localSrc")
        archive = self.src or self.local_src
        if self.state != "present":
            refuse(self, ("src", "local_src", "hosts_dir", "platform"), f"`state: {self.state}`")
        if self.state == "list":
            refuse(self, ("images",), "`state: list`, which lists all")
        elif not self.images and not archive:
            raise ValueError("say which `images`, or give an archive: `src` or `localSrc`")
        if self.client == "crictl":
            refuse(self, ("src", "local_src", "hosts_dir", "platform", "namespace"), "`client: crictl`")
        if archive:
            refuse(self, ("hosts_dir",), "an archive: nothing is pulled")


class ContainerImageOutputs(Outputs):
    images: dict[str, str] = Field(
        description="Digest of each image by its name: of those that were asked for; with `list`, of all."
    )


class Seen(Struct, frozen=True):
    """What precheck has found."""

    there: dict[str, str]
    """Digests of all images by name."""
    wanted: dict[str, str]
    """Images that must be there, with the digest if it is known."""

    @property
    def missing(self) -> list[str]:
        """Those that are not there, or are others."""
        return [name for name, digest in self.wanted.items() if not self.is_there(name, digest)]

    def is_there(self, name: str, digest: str = "") -> bool:
        """Whether an image is there, with that digest if one is given."""
        found = self.there.get(name)
        return found is not None and digest in ("", found)


class ContainerImageStep(LookingStep[ContainerImageParams, Seen | None]):
    """Images in the store of containerd: pulled from their registries, imported from an archive, or removed.

    The step runs `ctr` (or `crictl`) on its host. An image that is there is not pulled again, even if its tag means
    another one in the registry by now: name it by its digest for that.

    - An archive is imported if an image in it is missing, or is there with another digest. Archives of `docker save`
      without OCI parts hold no digests; then only names are compared.
    - `ctr` does not read containerd's configuration of registries: set `hostsDir` for mirrors, or use `crictl`.
    - `list` reads only, also in a check.
    - Undo removes images that were not there before. A name that meant another image before, and a removed image,
      cannot be brought back.
    """

    outputs_model = ContainerImageOutputs
    example = """\
- name: pause
  type: container-image
  with:
    images: registry.k8s.io/pause:3.10.2
    hostsDir: /etc/containerd/certs.d
"""

    @classmethod
    def undo_of(cls, params: Mapping[str, Any]) -> Undo:
        match params.get("state"):
            case "absent":
                return Undo.IMPOSSIBLE
            case "list":
                return Undo.NEEDLESS
        return cls.undo

    def precheck(self, ctx: StepContext) -> Forecast[Seen | None]:
        params = self.params
        if params.state == "list":
            return Forecast.reads("only lists images")
        try:
            seen = self._look(ctx)
        except Unavailable as error:
            return Forecast.unknown(error.message)
        if params.state == "absent":
            there = [name for name in params.images if seen.is_there(name)]
            if not there:
                return Forecast.satisfied(f"there is no {listed(params.images)}", {"images": {}})
            diffs = [attribute_diff(ctx, f"image {name}", {"digest": seen.there[name]}, None) for name in there]
            return Forecast.change(f"would remove {_some(there)}", diffs, seen=seen)
        missing = seen.missing
        if not missing:
            return Forecast.satisfied(f"{_some(list(seen.wanted))} there", self._outputs(seen))
        diffs = [
            attribute_diff(ctx, f"image {name}", _digest(seen.there.get(name)), _digest(seen.wanted[name] or "new"))
            for name in missing
        ]
        return Forecast.change(f"would {self._verb} {_some(missing)}", diffs, seen=seen)

    def run(self, ctx: StepContext, forecast: Forecast[Seen | None]) -> Result:
        params = self.params
        seen = forecast.seen or self._look(ctx)
        if params.state == "list":
            return Result(changed=False, message=_some(list(seen.there)), outputs={"images": dict(seen.there)})
        if params.state == "absent":
            there = [name for name in params.images if seen.is_there(name)]
            for name in there:
                self._client(ctx).do(f"remove {name}", *self._words("rm", "rmi"), name)
            return Result(changed=bool(there), message=f"removed {_some(there)}", outputs={"images": {}})
        missing = seen.missing
        if not missing:
            return Result(changed=False, message=f"{_some(list(seen.wanted))} there", outputs=self._outputs(seen))
        before = {name: seen.there.get(name) for name in missing}
        ctx.save_undo({"before": before})
        if params.src or params.local_src:
            self._import(ctx)
        else:
            self._pull(ctx, missing)
        now = self._look(ctx)
        ctx.save_undo({"before": before, "left": {name: now.there.get(name) for name in missing}})
        if absent := now.missing:
            raise StepFailed(
                f"{self._verb} {listed(absent)}: it ended well, but the image is not there",
                hint="see whether the archive has an image for this platform",
            )
        done = "imported" if self._verb == "import" else "pulled"
        return Result(message=f"{done} {_some(missing)}", outputs=self._outputs(now))

    def standing(self, ctx: StepContext, undo: Mapping[str, Any]) -> Standing:
        there, before = self._images(ctx), undo["before"]
        if there.items() >= {name: digest for name, digest in before.items() if digest}.items() and not any(
            name in there for name, digest in before.items() if not digest
        ):
            return Standing(before=True)
        left = undo.get("left", {})
        others = [name for name, digest in left.items() if there.get(name) not in (None, digest, before[name])]
        return Standing(changed=tuple(f"image {name}" for name in others))

    def rollback(self, ctx: StepContext, undo: Mapping[str, Any]) -> None:
        there = self._images(ctx)
        for name, digest in undo["before"].items():
            if digest is None and name in there:
                self._client(ctx).do(f"remove {name}", *self._words("rm", "rmi"), name)
        if lost := [name for name, digest in undo["before"].items() if digest and there.get(name) != digest]:
            raise StepFailed(
                f"{listed(lost)} meant another image before, which cannot be brought back",
                hint="pull or import that one again",
            )

    # what there is

    @property
    def _verb(self) -> str:
        return "import" if self.params.src or self.params.local_src else "pull"

    def _client(self, ctx: StepContext) -> Program:
        params = self.params
        program = params.program or params.client
        if params.client == "crictl":
            return Program(ctx, program, f"--runtime-endpoint=unix://{params.address}", hints=_HINTS)
        options = (f"--address={params.address}", f"--namespace={params.namespace}", "--connect-timeout=3s")
        return Program(ctx, program, *options, hints=_HINTS)

    def _words(self, ctr: str, crictl: str) -> tuple[str, ...]:
        return (crictl,) if self.params.client == "crictl" else ("images", ctr)

    def _look(self, ctx: StepContext) -> Seen:
        there = self._images(ctx)
        if self.params.state != "present":
            return Seen(there, {})
        wanted = dict.fromkeys(self.params.images, "")
        for name in wanted:
            # The same image under its tag and its digest: containerd knows it by the whole of what was asked for.
            wanted[name] = name.partition("@")[2]
        if self._verb == "import":
            wanted = self._of_archive(ctx, wanted)
        return Seen(there, wanted)

    def _images(self, ctx: StepContext) -> dict[str, str]:
        client = self._client(ctx)
        if self.params.client == "crictl":
            found: dict[str, str] = {}
            for image in client.look("list images", "images", "-o", "json").get("images") or ():
                digests = {each.partition("@")[0]: each.partition("@")[2] for each in image.get("repoDigests") or ()}
                for tag in image.get("repoTags") or ():
                    found[tag] = digests.get(tag.rpartition(":")[0], image["id"])
                found |= {f"{name}@{digest}": digest for name, digest in digests.items()}
            return found
        done = client.ask("images", "ls")
        if done.exit_code != 0:
            raise client.failure("list images", ["images", "ls"], done, kind=Unavailable)
        lines = [line.split() for line in done.out.splitlines()[1:]]
        return {words[0]: words[2] for words in lines if len(words) > 2 and not words[0].startswith("sha256:")}

    def _of_archive(self, ctx: StepContext, asked: dict[str, str]) -> dict[str, str]:
        """The images that must be there, with digests as far as the archive has them."""
        place = self.params.src or self.params.local_src or ""
        held = _held(place, *(self._lists_here(ctx) if self.params.local_src else self._lists_on_host(ctx)))
        if absent := [name for name in asked if name not in held]:
            raise StepFailed(
                f"import {place}: {listed(absent)} is not in it, but {listed(list(held)[:5])}",
                hint="check `images`, which are whole names",
            )
        return {name: held[name] for name in asked} if asked else held

    def _lists_on_host(self, ctx: StepContext) -> tuple[bytes, bytes]:
        done = ctx.runner.shell(_READ, self.params.src or "", check=False, live=False, max_output=16 << 20)
        if done.exit_code == _NO_FILE:
            raise Unavailable(f"there is no file {self.params.src}", hint="check `src`, a file on the host")
        index, _, rest = done.stdout.partition(b"\0")
        return index, rest.partition(b"\0")[0]

    def _lists_here(self, ctx: StepContext) -> tuple[bytes, bytes]:
        path = ctx.local_path(self.params.local_src or "")
        found = {}
        try:
            with tarfile.open(path) as archive:
                for member in archive:
                    name = member.name.removeprefix("./")
                    if name in _LISTS and (file := archive.extractfile(member)) is not None:
                        found[name] = file.read(16 << 20)
        except tarfile.TarError as error:
            raise StepFailed(f"read {path}: it is no tar archive ({error})", hint="check `localSrc`") from None
        except OSError as error:
            raise local_failure("read", path, error) from error
        return found.get("index.json", b""), found.get("manifest.json", b"")

    # what changes

    def _import(self, ctx: StepContext) -> None:
        params = self.params
        client, place = self._client(ctx), params.src or params.local_src or ""
        options = ("images", "import", *([f"--platform={params.platform}"] if params.platform else []))
        if params.src is not None:
            client.do(f"import {place}", *options, params.src)
            return
        path = ctx.local_path(place)
        try:
            with path.open("rb") as file:
                client.do(f"import {place}", *options, "-", stdin=file)
        except OSError as error:
            raise local_failure("read", path, error) from error

    def _pull(self, ctx: StepContext, names: Sequence[str]) -> None:
        params = self.params
        more = [
            *([f"--hosts-dir={params.hosts_dir}"] if params.hosts_dir else []),
            *([f"--platform={params.platform}"] if params.platform else []),
        ]
        for number, name in enumerate(names):
            ctx.progress(f"pulling {name}", number, len(names))
            self._client(ctx).do(f"pull {name}", *self._words("pull", "pull"), *more, name)

    def _outputs(self, seen: Seen) -> dict[str, Any]:
        return {"images": {name: seen.there[name] for name in seen.wanted}}


def _held(place: str, index: bytes, manifest: bytes) -> dict[str, str]:
    """The images in an archive, with their digests if it has them."""
    found: dict[str, str] = {}
    try:
        for each in msgspec.json.decode(index).get("manifests", ()) if index else ():
            if name := (each.get("annotations") or {}).get("io.containerd.image.name"):
                found[name] = each["digest"]
        for each in msgspec.json.decode(manifest) if manifest and not found else ():
            found |= {_whole(tag): "" for tag in each.get("RepoTags") or ()}
    except (msgspec.DecodeError, AttributeError, KeyError, TypeError):
        raise StepFailed(f"import {place}: its lists of images cannot be read", hint="see how it was made") from None
    if not found:
        raise StepFailed(
            f"import {place}: no image with a name is in it",
            hint="make it with `ctr images export`, `docker save NAME` or `skopeo copy ... docker-archive:FILE:NAME`",
        )
    return found


def _whole(tag: str) -> str:
    """A name as docker shortens it, as containerd knows it."""
    first, slash, _ = tag.partition("/")
    if not slash:
        return f"docker.io/library/{tag}"
    return tag if "." in first or ":" in first or first == "localhost" else f"docker.io/{tag}"


def _digest(digest: str | None) -> dict[str, str] | None:
    return None if digest is None else {"digest": digest}


def _some(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else plural(len(names), "image")
