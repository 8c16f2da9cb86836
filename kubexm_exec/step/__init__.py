"""The step SDK: all that an author of a step type needs, and nothing of the engine."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from inspect import CO_VARARGS
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeAlias, get_args, overload

from msgspec import Struct
from msgspec import field as struct_field
from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel
from typing_extensions import TypeVar

from kubexm_exec.control import Cancel
from kubexm_exec.http.messages import HttpError, Reply, check_url
from kubexm_exec.model.command import CommandResult
from kubexm_exec.model.errors import StepFailed
from kubexm_exec.model.result import ForecastState
from kubexm_exec.plugins import RAISES, Registry
from kubexm_exec.resources.source import PREFIX as RESOURCE
from kubexm_exec.resources.source import LocalResource, ResourceError
from kubexm_exec.resources.source import Source as Resource
from kubexm_spec.duration import Duration

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

    from kubexm_exec.runner import Runner

__all__ = [
    "RESOURCE",
    "AnyStep",
    "Cancel",
    "CommandResult",
    "Diff",
    "Duration",
    "Effect",
    "Expression",
    "Forecast",
    "ForecastState",
    "HostName",
    "HostView",
    "HttpError",
    "Inspected",
    "LocalFile",
    "LocalResource",
    "OutputNames",
    "Outputs",
    "Params",
    "Reply",
    "Resource",
    "ResourceError",
    "ResourceName",
    "ResourceUrl",
    "Result",
    "Standing",
    "Step",
    "StepContext",
    "StepFailed",
    "StepList",
    "TemplateName",
    "Undo",
    "WrittenFile",
    "check_url",
]


class Params(BaseModel):
    """Base of a step type's parameters: camelCase in YAML, unknown keys refused, immutable."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True, validate_default=False,
        defer_build=True,
    )  # fmt: skip


class Outputs(BaseModel):
    """Base of a step type's outputs: what later steps see as ``steps.NAME.outputs``, in camelCase (``exitCode``).

    ``extra="allow"`` in a subclass means any name.
    """

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid", defer_build=True)


class TemplateName(Struct, frozen=True):
    """Marks a string parameter as the name of a template: it is looked up, and its references checked, when compiling.

    Use it as ``src: Annotated[str, TemplateName()]``.
    """


class Inspected(Struct, frozen=True):
    """Marks a string parameter as a path on the host about which, and its folder, ``precheck`` asks ``inspect``.

    Several such steps in a row are then answered with one question to the host.
    """


class LocalFile(Struct, frozen=True):
    """Marks a string parameter as a file or folder on the control node.

    It is relative to the spec's file, and must exist when compiling. ``resource:NAME`` is the file of a resource.
    """


class HostName(Struct, frozen=True):
    """Marks a string parameter, also one of a nested model, as a host of the inventory for ``ctx.read_on``.

    It must exist when compiling.
    """


class ResourceName(Struct, frozen=True):
    """Marks a string parameter as the name of a resource of the spec; the step calls ``ctx.resource``."""


class ResourceUrl(Struct, frozen=True):
    """Marks a string parameter as the address of a resource that is written in the step itself.

    ``sha256``, ``headers`` and the other keys of a resource stand beside it, under the same names.
    """


class Expression(Struct, frozen=True):
    """Marks a parameter as a bare expression (as in ``when``).

    It is not rendered with the others; the step calls ``ctx.evaluate``.
    """

    names: tuple[str, ...] = ()
    """Top-level names that the step itself gives to ``ctx.evaluate``, beyond those every expression sees."""


class StepList(Struct, frozen=True):
    """Marks a parameter as steps (spec data): they are checked when compiling; their expressions are left alone."""


class OutputNames(Struct, frozen=True):
    """Marks a parameter whose keys are the names of the step's outputs, if these may have any name."""


class WrittenFile(Struct, frozen=True):
    """A text file of a host that a step writes as a whole: its content, or the template that it is rendered from."""

    path: str
    content: str = ""
    template: str = ""
    names: Mapping[str, Any] = {}
    """More names for the template."""


@dataclass(frozen=True, slots=True)
class Diff:
    """What would change, or changed, at one place of a host."""

    path: str
    before: str | None = None
    """Text before; None if there was nothing, or if it is not text."""
    after: str | None = None
    note: str = ""
    """What is not content, such as ``0640 -> 0600`` or ``created``."""

    def unified(self, context: int = 3) -> str:
        """The change of content as a unified diff without its two header lines; empty if there is none to show."""
        import difflib

        if self.before == self.after or (self.before is None and self.after is None):
            return ""
        before = (self.before or "").splitlines()
        after = (self.after or "").splitlines()
        lines = list(difflib.unified_diff(before, after, lineterm="", n=context))[2:]
        return "\n".join(lines)


class Effect(Enum):
    """What ``run`` does on the host, as ``precheck`` sees it."""

    NONE = "none"
    """There is nothing to do: ``run`` is not called."""
    TELLS = "tells"
    """It changes nothing, and only tells people something or waits; ``check`` does not call it."""
    READS = "reads"
    """It only asks the host, so that ``check`` and ``drift`` call it too."""
    CHANGES = "changes"
    """It changes something, or may."""


T = TypeVar("T")
S = TypeVar("S", default=None)
S_co = TypeVar("S_co", covariant=True, default=None)


@dataclass(frozen=True, slots=True)
class Forecast(Generic[S_co]):
    """What a step would do on a host: nothing, change something, or it cannot be known yet, or was not checked.

    It belongs to one attempt: ``run`` gets the one of the ``precheck`` just before, and a retry looks again.
    """

    state: ForecastState
    message: str
    effect: Effect
    seen: S_co
    """What ``precheck`` has seen of the host, in a type of the step's own: ``run`` works with it, and need not ask
    again. Not set for ``satisfied``."""
    diffs: tuple[Diff, ...] = ()
    outputs: Mapping[str, Any] = field(default_factory=dict)
    replaces: str = ""
    """The file that ``run`` puts in its place, if it changes nothing else on the host: what is known of other files in
    the folder stays known."""
    spared: bool = False
    """The spec itself says that it need not run, and the outputs are not those of its work: ``failedWhen`` and
    ``retry.until`` do not judge them."""
    failure: StepFailed | None = None
    """What ``run`` raises unless something before it changes the host: ``check`` reports it if nothing would."""

    @property
    def decides(self) -> bool:
        """Whether the host was checked, so that this tells if the work is done already."""
        return self.state in (ForecastState.SATISFIED, ForecastState.CHANGE)

    @classmethod
    def satisfied(cls, message: str = "", outputs: Mapping[str, Any] | None = None) -> Forecast[Any]:
        """Everything is as it should be; ``run`` is not called. Outputs are those that ``run`` would have given."""
        return Forecast(ForecastState.SATISFIED, message, Effect.NONE, None, (), outputs or {})

    @classmethod
    def needless(cls, message: str, outputs: Mapping[str, Any]) -> Forecast[Any]:
        """A parameter such as ``creates`` says that it need not run; outputs are those of work that was not done."""
        return Forecast(ForecastState.SATISFIED, message, Effect.NONE, None, (), outputs, spared=True)

    @classmethod
    def tells(cls, message: str = "") -> Forecast:
        """``run`` is called, and only tells somebody something: there is nothing that could be otherwise."""
        return Forecast(ForecastState.SATISFIED, message, Effect.TELLS, None)

    @classmethod
    def reads(cls, message: str = "") -> Forecast:
        """``run`` is called, and only asks: ``check`` and ``drift`` call it too, so that its outputs are known."""
        return Forecast(ForecastState.SATISFIED, message, Effect.READS, None)

    @classmethod
    def harmless(cls, message: str = "") -> Forecast:
        """``run`` is called, but changes nothing. ``check`` does not call it, and reports it as not checked."""
        return Forecast(ForecastState.NOT_LOOKED_AT, message, Effect.TELLS, None)

    @classmethod
    def always(cls, message: str = "") -> Forecast:
        """``run`` is called whatever is there, and nothing on the host tells whether it has been done before.

        ``check`` reports it as not checked. If the connection drops during ``run``, it is run again only if the step
        is ``repeatable``.
        """
        return Forecast(ForecastState.NOT_LOOKED_AT, message, Effect.CHANGES, None)

    @overload
    @classmethod
    def change(cls, message: str = "", diffs: Sequence[Diff] = ()) -> Forecast: ...
    @overload
    @classmethod
    def change(cls, message: str = "", diffs: Sequence[Diff] = (), *, seen: T, replaces: str = "") -> Forecast[T]: ...
    @classmethod
    def change(
        cls, message: str = "", diffs: Sequence[Diff] = (), *, seen: Any = None, replaces: str = ""
    ) -> Forecast[Any]:
        """The host was checked, and ``run`` would change something; ``seen`` is what it needs to know for that."""
        return Forecast(ForecastState.CHANGE, message, Effect.CHANGES, seen, tuple(diffs), replaces=replaces)

    @overload
    @classmethod
    def unknown(cls, because: str) -> Forecast: ...
    @overload
    @classmethod
    def unknown(cls, because: str, *, seen: T, failure: StepFailed | None = None) -> Forecast[T]: ...
    @classmethod
    def unknown(cls, because: str, *, seen: Any = None, failure: StepFailed | None = None) -> Forecast[Any]:
        """The effect is unknown in advance; ``because`` says why. ``run`` is called.

        ``failure``: what ``run`` raises if nothing before it on the host makes up for what is missing.
        """
        return Forecast(ForecastState.UNKNOWN, because, Effect.CHANGES, seen, failure=failure)


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What ``run`` returns when the work was done."""

    changed: bool = True
    message: str = ""
    outputs: Mapping[str, Any] = field(default_factory=dict)
    stdout: str = ""
    stderr: str = ""
    command: str = ""
    exit_code: int | None = None
    fragment: Sequence[Mapping[str, Any]] = ()
    """More steps (spec data, like the entries of ``steps:``): run on this host before what waits for this one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What an undo finds before it begins, compared with what the run found and with what it left."""

    changed: tuple[str, ...] = ()
    """What is neither as it was before the run nor as the run left it, each by name and in few words: somebody else
    changed it since, and it is left alone unless ``--overwrite`` says otherwise."""
    before: bool = False
    """Everything is as it was before the run: there is nothing to undo."""
    unknown: str = ""
    """Why it cannot be told whether somebody else was there; then it is undone, and this is said."""


class Undo(Enum):
    """What there is to undo of a step, and how often that may be tried."""

    NEEDLESS = "needless"
    """It never changes anything."""
    IMPOSSIBLE = "impossible"
    """What it changes stays: there is no ``rollback``. Plans, checks and reports name it."""
    ONCE = "once"
    """``rollback`` undoes it. If it breaks off, somebody has to look on the host and say what became of it."""
    REPEATABLE = "repeatable"
    """``rollback`` undoes it, however often it is called: it looks, or brings back what was saved."""

    @property
    def reversible(self) -> bool:
        """Whether there is a ``rollback``."""
        return self in (Undo.ONCE, Undo.REPEATABLE)


class HostView(Struct, frozen=True):
    """What a step may know of its host."""

    name: str
    address: str = ""
    internal_address: str = ""
    roles: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    labels: Mapping[str, str] = struct_field(default_factory=dict)
    user: str | None = None


class StepContext(ABC):
    """Everything a step may use; made by the engine for one action. Steps never see the engine or other hosts."""

    host: HostView
    """The host that it works on."""
    origin: HostView
    """The host that it works for: the same one, unless a hook works for a host of its step at another place."""
    node: str
    """Id of the node, for messages."""
    run_id: str
    attempt: int
    sensitive: bool
    """True if values of this step must not be shown: leave content out of messages and diffs."""
    judged: bool
    """True if the spec says by ``failedWhen`` what a failure is: return a result that it can judge, such as any exit
    code, instead of raising ``StepFailed`` for it."""

    @property
    @abstractmethod
    def runner(self) -> Runner:
        """Files, commands and more on this host."""

    @property
    @abstractmethod
    def log(self) -> FilteringBoundLogger:
        """A logger of structlog with run, node and host bound."""

    @property
    @abstractmethod
    def facts(self) -> Mapping[str, Any]:
        """Facts of the host, gathered on first use."""

    @abstractmethod
    def cache(self, scope: Literal["run", "module", "task", "host"]) -> MutableMapping[str, Any]:
        """A place to remember things, shared by the actions of that scope; it lives as long as the run."""

    @abstractmethod
    def secret(self, reference: str) -> str:
        """The value behind a reference such as ``vault:PATH#key``; it is masked in all output from now on."""

    @abstractmethod
    def holds_secret(self, data: str | bytes) -> bool:
        """Whether a secret of this run is in there: then leave it out of messages and diffs, and its file is 0600."""

    @abstractmethod
    def hide(self, *texts: str) -> None:
        """Mask secrets that the step has made, or has read from a host, in all output from now on."""

    @abstractmethod
    def read_on(self, host: str, path: str, *, limit: int = 1 << 20) -> bytes | None:
        """The content of a file on any host of the inventory, in memory only; None if there is no such file.

        It is read as the user that the step works as. Mark the parameter that names the host with ``HostName``.
        """

    @abstractmethod
    def local_path(self, path: str) -> Path:
        """A path on the control node, relative to the file that the step was written in.

        ``resource:NAME`` is the file of a resource, fetched if it must be.
        """

    @abstractmethod
    def resource(self, resource: str | Resource) -> Resource:
        """A resource of the spec by its name, or one of the step's own, as this host sees it; nothing is fetched.

        One that is in the run's bundle is never left to the host to fetch: it may have no network.
        """

    @abstractmethod
    def fetch(self, resource: Resource) -> LocalResource:
        """The file of a resource on the control node, verified; fetched once, however many hosts ask for it.

        In a check nothing is fetched: then what is not here yet makes the forecast unknown.
        """

    @abstractmethod
    def render_template(
        self,
        name: str,
        variables: Mapping[str, Any] | None = None,
        *,
        trim_blocks: bool = True,
        lstrip_blocks: bool = False,
    ) -> str:
        """A template rendered for this host; it is searched in the user's folders, then in the shipped ones.

        ``variables`` are top-level names in it. ``trim_blocks``: the line break after a block is removed;
        ``lstrip_blocks``: so is white space before a block at the beginning of a line.
        """

    @abstractmethod
    def evaluate(self, expression: str, variables: Mapping[str, Any] | None = None) -> Any:
        """The value of a bare expression for this host; ``variables`` are more top-level names in it."""

    @abstractmethod
    def progress(self, message: str, done: float | None = None, total: float | None = None) -> None:
        """Tell the people who watch how far the work is."""

    @abstractmethod
    def save_undo(self, data: Mapping[str, Any]) -> None:
        """Remember (plain JSON data), BEFORE changing something, what ``rollback`` needs; a later call replaces it."""

    @abstractmethod
    def keep(self, data: bytes) -> str:
        """Store bytes for a later undo (content that is replaced, say); the token goes into ``save_undo``."""

    @abstractmethod
    def kept(self, token: str) -> bytes:
        """The bytes that were stored under a token."""

    @abstractmethod
    def ask(self, question: str, *, timeout: float | None = None, default: bool | None = None) -> bool:
        """Ask the person who runs this for yes or no.

        Without a person, or after the timeout, it is the default; without a default, StepFailed is raised.
        """

    @abstractmethod
    def sleep(self, seconds: float) -> None:
        """Wait; ends early (with the engine's own exception) when the run is cancelled or the step's time is over."""

    @abstractmethod
    def time_left(self) -> float | None:
        """Seconds until this attempt's timeout, or None."""


P = TypeVar("P", bound=Params)


class Step(Generic[P, S]):
    """A step type: one class with typed parameters. Its docstring is its documentation.

    Subclass ``Step[YourParams]``, or ``Step[YourParams, YourLook]`` if ``run`` needs to know what ``precheck`` has
    seen. The engine makes one object for each attempt, with its rendered parameters in ``self.params``.
    """

    params_model: ClassVar[type[Params]] = Params
    """Found from ``Step[YourParams]``."""
    outputs_model: ClassVar[type[Outputs]] = Outputs
    """What ``Result.outputs`` may hold."""
    undo: ClassVar[Undo] = Undo.IMPOSSIBLE
    """What there is to undo of it."""
    repeatable: ClassVar[bool] = False
    """True if running it again gives the same result, wherever an earlier attempt broke off: it is simply run again
    when nobody knows how far it came, and ``precheck`` cannot tell."""
    unknown_hint: ClassVar[str] = ""
    """What to write in the spec so that ``precheck`` can tell whether the work was done; it is said when the connection
    dropped in the middle, and it cannot."""
    speaks: ClassVar[bool] = False
    """True if its output is for the people who watch: it is always shown, in the place of its message."""
    example: ClassVar[str] = ""
    """A YAML list item as it would stand under ``steps:``; it is validated by the tests."""

    def __init__(self, params: P) -> None:
        self.params = params

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for base in getattr(cls, "__orig_bases__", ()):
            for argument in get_args(base):
                if isinstance(argument, type) and issubclass(argument, Params):
                    cls.params_model = argument

    @classmethod
    def undo_of(cls, params: Mapping[str, Any]) -> Undo:
        """What there is to undo of this use of the step, with parameters as they are written in the spec.

        It is asked when compiling, so that plans can name what cannot be undone.
        """
        return cls.undo

    @staticmethod
    def writes(params: Mapping[str, Any]) -> WrittenFile | None:
        """The file that this use of the step writes as a whole, with parameters rendered as far as they are known.

        It is asked without a host, so that files can be shown before anything runs; None if there is none to show.
        """
        return None

    @staticmethod
    def installs(params: Mapping[str, Any]) -> Sequence[str]:
        """The packages that this use of the step takes from the repositories of a host, for bills of materials.

        It is asked without a host, with parameters rendered as far as they are known.
        """
        return ()

    def is_repeatable(self) -> bool:
        """Whether this use of the step is ``repeatable``: override it where that depends on the parameters."""
        return self.repeatable

    def precheck(self, ctx: StepContext) -> Forecast[S]:
        """Say what ``run`` would do. It must change nothing, not even a temporary file."""
        forecast: Forecast[Any] = Forecast.always()
        return forecast

    def run(self, ctx: StepContext, forecast: Forecast[S]) -> Result:
        """Do the work, or raise StepFailed. Called only if precheck is not satisfied, with what it gave."""
        raise StepFailed(f"{type(self).__name__} has no `run`: its author did not say what to do")

    def standing(self, ctx: StepContext, undo: Mapping[str, Any]) -> Standing:
        """Look whether all that ``rollback`` would touch still is as ``run`` left it; it must change nothing.

        ``run`` may have broken off in the middle, and so may an earlier ``rollback``: whatever is as it was before, or
        as it was left, nobody else has changed. Compare by digest: what is saved must hold no secret. Without this
        method nobody looks, and `kubexm runs rollback` says so beforehand.
        """
        return Standing()

    def rollback(self, ctx: StepContext, undo: Mapping[str, Any]) -> None:
        """Undo what ``run`` did, from what it saved. Doing it twice must be harmless."""
        raise StepFailed("this step cannot be undone")

    @classmethod
    def merge_undo(cls, first: Mapping[str, Any], later: Mapping[str, Any]) -> Mapping[str, Any]:
        """What two attempts of one action saved, as one: ``rollback`` is called once, for all of them.

        What was there before the first of them is what comes back; a later one may have changed more than that.
        """
        return {**later, **first}

    @classmethod
    def spare_undo(cls, undo: Mapping[str, Any], path: str) -> Mapping[str, Any]:
        """What ``run`` saved, without a file that it has not replaced, because others had changed it before."""
        return undo


AnyStep: TypeAlias = Step[Any, Any]
"""A step of whatever type."""


def load_step(registry: Registry[Any], name: str) -> type[AnyStep]:
    """An installed step type; raises RegistryError if there is none, or if what is there is no step type."""
    step: Any = registry.load(name)
    if not (isinstance(step, type) and issubclass(step, Step)):
        raise registry.broken(name, f"is no Step class but {step!r:.60}")
    if wrong := mistake(step):
        raise registry.broken(name, f"cannot be used: {wrong}")
    try:
        # They are built when they are needed, since most models of a module are not, and may be wrong only then.
        step.params_model.model_rebuild()
        step.outputs_model.model_rebuild()
    except RAISES as error:
        wrong = str(error).partition("\n")[0]
        raise registry.broken(name, f"cannot be used: {type(error).__name__}: {wrong}") from error
    return step


def mistake(step: Any) -> str:
    """What its author has to mend before a step type can be used; empty if there is nothing.

    Not looked for when the class is made: one wrong class must not break the others of its module.
    """
    who = f"{step.__module__}.{step.__qualname__}"
    run = getattr(step.run, "__code__", None)
    undoes = step.rollback is not Step.rollback
    undo = step.undo
    if step.run is Step.run and step.precheck is Step.precheck:
        return f"{who} has no `run`: it must say what to do"
    if run is not None and run.co_argcount == 2 and not run.co_flags & CO_VARARGS:
        return f"{who}.run takes (self, ctx, forecast): see `forecast.seen` in Writing a step"
    if not isinstance(undo, Undo):
        return f"{who}.undo must be an Undo, such as Undo.REPEATABLE, not {undo!r:.60}"
    if not isinstance(step.repeatable, bool):
        return f"{who}.repeatable must be True or False, not {step.repeatable!r:.60}"
    if undo.reversible and not undoes:
        return f"{who}.undo is Undo.{undo.name}, but it has no `rollback`: write one, or use Undo.IMPOSSIBLE"
    if undoes and not undo.reversible and step.undo_of.__func__ is Step.undo_of.__func__:  # type: ignore[attr-defined]
        return (
            f"{who} has a `rollback`, but undo is Undo.{undo.name}: nobody would call it; use Undo.REPEATABLE or ONCE"
        )
    return ""
