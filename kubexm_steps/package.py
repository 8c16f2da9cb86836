"""The step type ``package``: packages that are installed, up to date or absent, and perhaps held."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal, NamedTuple

from msgspec.structs import replace
from pydantic import AfterValidator, BeforeValidator, Field

from kubexm_exec.step import (
    Diff,
    Duration,
    Forecast,
    Outputs,
    Params,
    Result,
    Standing,
    Step,
    StepContext,
    StepFailed,
    Undo,
)
from kubexm_exec.step.packages import Ask, Goal, Manager, ManagerName, Move, Plan, Survey
from kubexm_spec.duration import format_duration
from kubexm_steps.lib.standing import mapped, together
from kubexm_steps.lib.types import shaped

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9+._-]*(?::[a-z0-9-]+)?")
_FILE: Final = re.compile(r"/[^\0\n\r]*\.(?:deb|rpm|apk)")


def _name(text: str) -> str:
    if text.startswith("/"):
        if not _FILE.fullmatch(text):
            raise ValueError(f"{text!r} is not a package file on the host: its name ends in .deb, .rpm or .apk")
    elif not _NAME.fullmatch(text):
        raise ValueError(f"{text!r} is not the name of a package; a version is written as name=version")
    return text


def _version(value: Any) -> Any:
    if isinstance(value, float) and not isinstance(value, bool):
        raise ValueError(f'put the version in quotes: as a number {value} could be "{value}" or "{value}0"')
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


class Named(Params):
    """A package with a version of its own."""

    name: Annotated[str, AfterValidator(_name)] = Field(
        description="Name of the package, or absolute path of a package file on the host."
    )
    version: (
        Annotated[
            str,
            BeforeValidator(_version, json_schema_input_type=str | int),
            shaped(r"[A-Za-z0-9*][A-Za-z0-9*.+~^_:-]*", "a version; `*` stands for anything, such as 1.24.*"),
        ]
        | None
    ) = Field(
        None,
        description="Version: a full one (`1.24.0-2`), one without a release (`1.24.0`: any release of it), or a "
        "pattern (`1.24.*`). Any by default.",
    )

    def model_post_init(self, context: object) -> None:
        if self.version is not None and self.name.startswith("/"):
            raise ValueError(f"{self.name} is a file: its version cannot be chosen")

    def ask(self) -> Ask:
        """What the runner takes."""
        return Ask(file=self.name) if self.name.startswith("/") else Ask(self.name, self.version or "")


def _entries(value: Any) -> Any:
    """One or many, each as text or as a mapping."""
    return [_entry(each) for each in (value if isinstance(value, list | tuple) else [value])]


def _entry(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    name, equals, version = (value, "", "") if value.startswith("/") else value.partition("=")
    return {"name": name, "version": version} if equals else {"name": name}


class PackageParams(Params):
    """Parameters of ``package``."""

    names: Annotated[list[Named], BeforeValidator(_entries, json_schema_input_type=str | Named | list[str | Named])] = (
        Field(
            min_length=1,
            description="One package, or a list. Each is a name, `name=version`, `{name, version}`, or the absolute "
            "path of a package file on the host.",
        )
    )
    state: Literal["present", "latest", "absent"] = Field(
        "present",
        description="`present`: installed, in the given version if any. `latest`: the newest one in the index (of "
        "that version). `absent`: not installed.",
    )
    hold: bool | None = Field(
        None,
        description="`true` holds them at their version: nothing upgrades them accidentally. `false` releases them. "
        "By default holds are not changed, and neither are held packages.",
    )
    update: Literal["never", "always"] | Duration = Field(
        86400.0,
        description="When to refresh the package index: `never`, `always`, or a time: if it is older than that, or "
        "lacks a wanted package.",
    )
    purge: bool = Field(False, description="With `absent`: also remove configuration files. Only apt keeps them.")
    allow_downgrade: bool = Field(
        False, description="Allow an older version to replace a newer one; by default that is a failure."
    )
    recommends: bool = Field(False, description="Also install recommended packages (weak dependencies); apk has none.")
    manager: ManagerName = Field(
        "auto", description="Package manager: by default the host's own. `yum` is taken as dnf."
    )
    lock_timeout: Duration = Field(120.0, description="How long to wait for another package manager on the host.")

    def model_post_init(self, context: object) -> None:
        for number, each in enumerate(self.names):
            if any(each.name == other.name for other in self.names[:number]):
                raise ValueError(f"{each.name} is named twice")
        if self.state == "absent":
            if any(each.version or each.name.startswith("/") for each in self.names):
                raise ValueError("`state: absent` takes names alone: any version of them is removed")
            if self.hold:
                raise ValueError("what is absent cannot be held")
        elif self.purge:
            raise ValueError("purge needs `state: absent`")


class PackageOutputs(Outputs):
    versions: dict[str, str] = Field(
        default_factory=dict, description="Installed version of each package; empty if it is absent."
    )


class Seen(NamedTuple):
    """The host's package manager, what is to be done, and what is installed and on offer."""

    manager: Manager
    plan: Plan
    survey: Survey
    moves: Sequence[Move] | None = None
    """All that would change, also what is not named; None if nobody has asked."""


class PackageStep(Step[PackageParams, Seen]):
    """Packages that are installed, up to date or absent, and optionally held at their version.

    It works with apt, dnf, zypper and apk, in one transaction for all packages. If the installed packages already
    match, nothing is done and the index is not used.

    - It is never interactive: configuration files changed on the host are kept, and services are restarted
      only by the packages' own scripts.
    - The index is refreshed when it is old (`update`), or when it lacks a wanted package. If that fails and the
      old one suffices, it is used with a warning; with `update: always` it is a failure.
    - A check shows versions, including packages that are added or removed as a consequence. It downloads no index.
    - If another package manager is running, the step waits (`lockTimeout`), and then names its process.
    - An interrupted dpkg, such as that of a killed run, is completed first (`dpkg --configure -a`).
    - Holds: apt's marks, dnf's versionlock plugin, zypper's locks, and the version in apk's world file.
    - apk removes packages that are no longer needed together with a package; the others keep them.
    - Signatures of package files are not checked.
    - Undo removes what was installed, including dependencies, restores former versions that a repository still has, and
      restores holds. It never removes what others have installed since: then it fails instead.
    """

    outputs_model = PackageOutputs
    undo = Undo.REPEATABLE
    repeatable = True
    example = """\
- name: web-server
  type: package
  with:
    names: [nginx=1.24.*, ca-certificates]
    hold: true
    update: 12h
"""

    @staticmethod
    def installs(params: Mapping[str, Any]) -> Sequence[str]:
        names = _entries(params.get("names", ())) if params.get("state") != "absent" else []
        found = [each for each in names if isinstance(each, dict) and isinstance(each.get("name"), str)]
        return [
            f"{each['name']}={each['version']}" if each.get("version") else each["name"]
            for each in found
            if not each["name"].startswith("/")
        ]

    def precheck(self, ctx: StepContext) -> Forecast[Seen]:
        manager = self._manager(ctx)
        plan, survey = ctx.runner.packages.plan(manager, self._asks(), self._goal())
        seen = Seen(manager, plan, survey)
        if plan.done and not self._in_doubt(plan, survey):
            return Forecast.satisfied(self._as_it_should_be(), self._outputs(plan))
        if plan.done:
            return Forecast.unknown(f"{self._index(survey)}, and is refreshed first", seen=seen)
        if plan.missing:
            names = [str(each.ask) for each in plan.missing]
            where = "on the host" if plan.missing[0].ask.file else "in the index"
            return Forecast.unknown(f"{_some(names)} {_is(names)} not {where} yet", seen=seen)
        moves = manager.simulate(plan.change)
        return Forecast.change(self._would(plan), self._diffs(plan, moves), seen=seen._replace(moves=moves))

    def run(self, ctx: StepContext, forecast: Forecast[Seen]) -> Result:
        manager, plan, survey, moves = forecast.seen
        packages = ctx.runner.packages
        if self._refreshes(plan, survey):
            problem = self._refresh(ctx, manager)
            plan, survey = packages.plan(manager, self._asks(), self._goal())
            moves = None
            if problem is not None and plan.missing:
                raise problem
        if plan.missing:
            raise packages.unknown(manager, plan.missing, survey)
        if plan.done:
            return Result(changed=False, message=self._as_it_should_be(), outputs=self._outputs(plan))
        purge = not any(found.leftover for found in survey.found)
        # Should this be killed, nobody could tell later what came along: it is known before.
        along = manager.simulate(plan.change) if moves is None else moves
        named = {move.name for move in plan.moves}
        self._remember(ctx, plan, [*plan.moves, *(move for move in along if move.name not in named)], purge)
        outcome = manager.apply(plan.change)
        self._remember(ctx, plan, outcome.moves, purge)
        if outcome.failure is not None:
            raise outcome.failure
        return Result(
            message=self._did(plan, outcome.moves),
            outputs=self._outputs(self._after(ctx, manager, plan, outcome.moves)),
        )

    def standing(self, ctx: StepContext, undo: Mapping[str, Any]) -> Standing:
        moves = {each["name"]: each for each in undo["moves"]}
        holds = [*undo["held"], *undo["unheld"]]
        manager = ctx.runner.packages.manager(undo["manager"], wait=self.params.lock_timeout)
        now = ctx.runner.packages.installed(manager, list(dict.fromkeys([*moves, *holds])), holds=bool(holds))
        versions = {name: "" if found.provider else found.installed for name, found in now.items()}
        # One that broke off may have installed any version of these.
        unsure = undo.get("unsure", [name for name, move in moves.items() if not move["after"]])
        left = {name: versions.get(name) if name in unsure else move["after"] for name, move in moves.items()}
        found = mapped({name: move["before"] for name, move in moves.items()}, left, versions)
        as_before = all(name in now and now[name].held == (name in undo["held"]) for name in holds)
        return together(found, Standing(before=as_before))

    @classmethod
    def merge_undo(cls, first: Mapping[str, Any], later: Mapping[str, Any]) -> Mapping[str, Any]:
        known = {each["name"]: each for each in first["moves"]}
        moves = known | {
            each["name"]: {**each, "before": known[each["name"]]["before"], "auto": known[each["name"]]["auto"]}
            if each["name"] in known
            else each
            for each in later["moves"]
        }
        held, unheld = (list(dict.fromkeys([*first[key], *later[key]])) for key in ("held", "unheld"))
        return {
            **later,
            **first,
            "moves": list(moves.values()),
            "unsure": later.get("unsure", []),
            "held": [name for name in held if name not in first["unheld"]],
            "unheld": [name for name in unheld if name not in first["held"]],
        }

    def rollback(self, ctx: StepContext, undo: Mapping[str, Any]) -> None:
        packages = ctx.runner.packages
        packages.revert(
            packages.manager(undo["manager"], wait=self.params.lock_timeout),
            [Move(**each) for each in undo["moves"]],
            held=undo["held"],
            unheld=undo["unheld"],
            purge=undo["purge"],
        )

    def _after(self, ctx: StepContext, manager: Manager, plan: Plan, moves: Sequence[Move]) -> Plan:
        """The versions that are installed now; asked for again only if they are not just those that were meant."""
        news = {move.name: move.after for move in moves}
        versions = {name: news.get(name, old) for name, old in plan.versions.items()}
        known = self.params.state == "absent" or all(move.after for move in plan.moves)
        if known and all(versions.get(move.name) == move.after for move in plan.moves):
            return replace(plan, versions=versions)
        after, _ = ctx.runner.packages.plan(manager, self._asks(), self._goal())
        if not after.done:
            names = _some([move.name for move in after.moves] or list(after.versions))
            raise StepFailed(
                f"{manager.name} reported success, but {names} is not as it should be",
                hint="see its output; another package may prevent it",
            )
        return after

    def _manager(self, ctx: StepContext) -> Manager:
        manager = ctx.runner.packages.manager(self.params.manager, wait=self.params.lock_timeout)
        for each in self.params.names:
            if each.name.startswith("/") and not each.name.endswith(manager.suffix):
                raise StepFailed(
                    f"install {each.name}: {manager.name} takes {manager.suffix} files",
                    hint="use `when` with a fact such as facts.packageManager, or another `manager`",
                )
        return manager

    def _asks(self) -> list[Ask]:
        return [each.ask() for each in self.params.names]

    def _goal(self) -> Goal:
        params = self.params
        return Goal(params.state, params.hold, params.purge, params.allow_downgrade, params.recommends)

    # the index

    def _old(self, survey: Survey) -> bool:
        match self.params.update:
            case "never":
                return False
            case "always":
                return True
            case seconds:
                return survey.age is None or survey.age > seconds

    def _in_doubt(self, plan: Plan, survey: Survey) -> bool:
        """Whether a fresh index could tell something else."""
        return plan.indexed and self._old(survey)

    def _refreshes(self, plan: Plan, survey: Survey) -> bool:
        if any(not each.ask.file for each in plan.missing):
            return self.params.update != "never"
        return self._in_doubt(plan, survey)

    def _refresh(self, ctx: StepContext, manager: Manager) -> StepFailed | None:
        """Refresh the index; if the old one may do instead, a failure is given back."""
        ctx.progress("refreshing the package index")
        try:
            manager.refresh()
        except StepFailed as error:
            if self.params.update == "always":
                raise
            ctx.log.warning("the package index could not be refreshed", reason=error.message)
            return error
        return None

    def _index(self, survey: Survey) -> str:
        if survey.age is None:
            return "the host has no package index yet"
        return f"the package index is {format_duration(survey.age)} old"

    # for people, and for later steps

    def _as_it_should_be(self) -> str:
        names = [each.name for each in self.params.names]
        if self.params.state == "absent":
            return f"{_some(names)} {_is(names)} not installed"
        return f"{_some(names)} {_is(names)} as {'they' if len(names) > 1 else 'it'} should be"

    def _would(self, plan: Plan) -> str:
        if plan.moves:
            return "would " + _verbs(plan.moves, ("install", "change", "remove"))
        return "would " + self._hold_words(plan, "hold", "release")

    def _did(self, plan: Plan, moves: Sequence[Move]) -> str:
        if not plan.moves:
            return self._hold_words(plan, "held", "released")
        named = {move.name for move in plan.moves}
        text = _verbs([move for move in moves if move.name in named] or plan.moves, ("installed", "changed", "removed"))
        others = [str(move) for move in moves if move.name not in named]
        return f"{text}; along with {'it' if len(named) == 1 else 'them'} {_some(others)}" if others else text

    def _hold_words(self, plan: Plan, hold: str, release: str) -> str:
        change = plan.change
        return f"{hold} {_some(change.hold)}" if change.hold else f"{release} {_some(change.unhold)}"

    def _diffs(self, plan: Plan, moves: Sequence[Move]) -> list[Diff]:
        change = plan.change
        named = {move.name: move for move in plan.moves}
        diffs = []
        for name, move in named.items():
            notes = [move.note()]
            if name in change.hold:
                notes.append("held")
            elif name in change.unhold:
                notes.append("released")
            diffs.append(Diff(name, note=", ".join(notes)))
        diffs.extend(Diff(name, note="held") for name in change.hold if name not in named)
        diffs.extend(Diff(name, note="released") for name in change.unhold if name not in (*change.hold, *named))
        diffs.extend(Diff(move.name, note=f"{move.note()} along with it") for move in moves if move.name not in named)
        return diffs

    def _outputs(self, plan: Plan) -> dict[str, Any]:
        return {"versions": dict(plan.versions)}

    def _remember(self, ctx: StepContext, plan: Plan, moves: Sequence[Move], purge: bool) -> None:
        change = plan.change
        ctx.save_undo(
            {
                "manager": ctx.runner.packages.manager_name(self.params.manager),
                "moves": [
                    {"name": move.name, "before": move.before, "after": move.after, "auto": move.auto}
                    for move in moves
                    if move.before not in ("configuration", "half installed")
                ],
                "unsure": [move.name for move in moves if not move.after and self.params.state != "absent"],
                "purge": purge,
                "held": list(change.unhold),
                "unheld": [name for name in change.hold if name not in change.unhold],
            }
        )


def _verbs(moves: Sequence[Move], verbs: tuple[str, str, str]) -> str:
    kinds: dict[str, list[str]] = {}
    for move in moves:
        verb = verbs[0] if not move.before else verbs[1] if move.after else verbs[2]
        name = f"{move.name} {move.after}" if not move.before else str(move) if move.after else move.name
        kinds.setdefault(verb, []).append(name.strip())
    return ", ".join(f"{verb} {_some(names)}" for verb, names in kinds.items())


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def _is(names: Sequence[str]) -> str:
    return "are" if len(names) > 1 else "is"
