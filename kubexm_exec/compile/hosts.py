"""Pass: turns the inventory into hosts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from pydantic.alias_generators import to_camel

from kubexm_exec.compile.hostpatterns import PatternError, choose
from kubexm_exec.compile.params import is_reference, meant_reference
from kubexm_exec.compile.scopes import var_layers
from kubexm_exec.compile.state import Reach, State, VarLayer
from kubexm_exec.model.graph import GraphHost
from kubexm_exec.plugins import Registry, RegistryError
from kubexm_exec.values.evaluate import CONTROL_NODE
from kubexm_spec.diagnostics import Diagnostics, did_you_mean
from kubexm_spec.documents.hosts import ExpandedHost, expand_hosts, quoted
from kubexm_spec.documents.loader import Loaded
from kubexm_spec.hostnames import ADDRESS_RULE, USER_RULE, is_address, is_user
from kubexm_spec.models import ConnectionSpec, HostSpec, InventoryBody
from kubexm_spec.models.common import Model
from kubexm_spec.models.inventory import BecomeSpec
from kubexm_spec.ranges import match
from kubexm_spec.yaml.source import Place

_OPTION_KEYS = (
    "private_key", "private_key_path", "passphrase", "password", "host_keys", "known_hosts", "proxy_jump",
    "proxy_command", "connect_timeout", "server_alive_interval", "server_alive_count_max", "become",
)  # fmt: skip
CONNECTION_KEYS = ("port", "user", "connector", "per_host_limit", *_OPTION_KEYS)
"""All settings of a connection, as the models name them."""

_OURS = ("ssh", "local")
_LEVELS: Final[dict[str | int, int]] = {"roles": 1, "groups": 2, "hosts": 3}
"""How close to a host the variables are that an inventory has under these keys."""
_ONE_OF = {"two-proxies": ("proxy_jump", "proxy_command"), "two-keys": ("private_key", "private_key_path")}
"""Two ways to say the same: the stronger layer's must not meet the weaker one's."""


def build_hosts(state: State) -> None:
    """Fill ``state.hosts``; the control node is always there, and serves all steps if no inventory is named."""
    inventory = state.bundle.inventory
    control = GraphHost(name=CONTROL_NODE, connector="local", address="127.0.0.1", internal_address="127.0.0.1")
    if inventory is not None:
        _Inventory(state, inventory).build()
    state.hosts_known = state.hosts_known and (inventory is not None or not state.inventory_wanted)
    named = [name for name in state.hosts if name != CONTROL_NODE]
    state.hosts.setdefault(CONTROL_NODE, control)
    state.all_hosts = tuple(named) or (CONTROL_NODE,)
    state.reach = Reach(state.all_hosts, state.roles, state.groups)
    if state.options.limit:
        keep = {*_limited(state), CONTROL_NODE}
        state.all_hosts = tuple(name for name in state.all_hosts if name in keep)
        state.roles = {role: tuple(h for h in hosts if h in keep) for role, hosts in state.roles.items()}
        state.groups = {group: tuple(h for h in hosts if h in keep) for group, hosts in state.groups.items()}


def check_inventory(inventory: Loaded[InventoryBody], diagnostics: Diagnostics, steps: Registry[Any]) -> None:
    """Findings about the hosts of an inventory that no pipeline uses yet."""
    from kubexm_exec.plugins import connector_registry
    from kubexm_exec.values.expressions import Expressions

    state = State(
        name="", diagnostics=diagnostics, expressions=Expressions(), steps=steps, connectors=connector_registry()
    )
    _Inventory(state, inventory).build()


def check_connectors(state: State) -> None:
    """No node works on a host whose connector is not installed; other hosts of an inventory may be for others."""
    if not state.beyond_reach:
        return
    for name in dict.fromkeys(host for node in state.nodes.values() for host in node.locations):
        if name in state.beyond_reach:
            error, place = state.beyond_reach[name]
            hint = f'{error.hint}; or exclude it: --limit "!{name}"'
            state.diagnostics.error(error.code, f'host "{name}": {error.message}', place, hint=hint)


def _limited(state: State) -> list[str]:
    try:
        return choose(state.hosts, state.options.limit, CONTROL_NODE)
    except PatternError as error:
        if state.hosts_known:
            state.diagnostics.error("unknown-host", f"--limit: {error.message}", hint=error.hint)
        return []


class _Inventory:
    def __init__(self, state: State, inventory: Loaded[InventoryBody]) -> None:
        self.state = state
        self.inventory = inventory
        self.body = inventory.document
        self.expanded: dict[str, ExpandedHost] = {}
        self._sound: set[str] = set()
        """Connectors of third parties that can be used."""

    def build(self) -> None:
        if not self.body.hosts:
            # A source of hosts that has failed must not lead to work on the operator's own machine.
            hint = "check the source of its hosts; to run on this machine, omit the inventory"
            place = self.inventory.place("hosts")
            self.state.diagnostics.error("empty-inventory", "the inventory has no hosts", place, hint=hint)
            self.state.hosts_known = False
        if self.inventory.source.of_ansible:
            from kubexm_exec.compile.ansiblehosts import finish_hosts

            finish_hosts(self.state, self.inventory)
        self._expand()
        self._check_connection(self.body.defaults, self.inventory.place("defaults"))
        for role, spec in self.body.roles.items():
            self._check_connection(spec, self.inventory.place("roles", role))
        groups = self._groups()
        member_of: dict[str, list[str]] = {name: [] for name in self.expanded}
        for group, hosts in groups.items():
            for host in hosts:
                member_of[host].append(group)
        roles: dict[str, list[str]] = {role: [] for role in self.body.roles}
        for name, expanded in self.expanded.items():
            made = self._host(name, expanded, member_of[name])
            if name == CONTROL_NODE and made.connector != "local":
                # Its entry may give it variables and roles; it stays this machine, as everything that names it expects.
                summary = f'"{name}" is the machine that kubexm runs on, and this entry defines another one'
                hint = "give the host another name, or write `connector: local`"
                self.state.diagnostics.error("reserved-host", summary, expanded.place.child("name"), hint=hint)
            self.state.hosts[name] = made
            self.state.host_entries[name] = expanded.index
            for role in made.roles:
                roles.setdefault(role, []).append(name)
        self.state.roles = {role: tuple(hosts) for role, hosts in roles.items()}
        self.state.groups = {group: tuple(hosts) for group, hosts in groups.items()}

    def _expand(self) -> None:
        self.expanded, whole = expand_hosts(self.body.hosts, self.inventory.place("hosts"), self.state.diagnostics)
        self.state.hosts_known = self.state.hosts_known and whole
        for index, spec in enumerate(self.body.hosts):
            self._check_connection(spec, self.inventory.place("hosts", index))

    def _check_address(self, address: str, connector: str, place: Place) -> None:
        """Connectors of third parties have addresses of their own kind, such as a path: those only must be one line."""
        # Two of them, of IPv4 and IPv6, are written with a comma between them.
        for part in address.split(",") if address else ():
            if not (is_address(part) if connector in _OURS else part.isprintable()):
                message = f"{quoted(part)} is not an address"
                self.state.diagnostics.error("bad-address", message, place, hint=f"write {ADDRESS_RULE}")

    def _groups(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for name, group in self.body.groups.items():
            place = self.inventory.place("groups", name)
            self._check_connection(group, place)
            members: dict[str, None] = {}
            for index, pattern in enumerate(group.hosts):
                matched = match(pattern, self.expanded)
                if not matched:
                    summary = f'group "{name}": there is no host "{pattern}"'
                    where, hint = place.child("hosts", index), did_you_mean(pattern, self.expanded)
                    self.state.diagnostics.error("unknown-host", summary, where, hint=hint)
                members.update(dict.fromkeys(matched))
            found[name] = list(members)
        return found

    def _check_connection(self, spec: ConnectionSpec, place: Place) -> None:
        diagnostics = self.state.diagnostics
        for path, value in _secrets_of(spec).items():
            if value is not None and not is_reference(value):
                summary = f"a {path[-1]} must be a secret reference, not the value itself"
                hint = meant_reference(value, path[-1])
                diagnostics.error("plain-password", summary, place.child(*path), hint=hint)
        if spec.user is not None and not is_user(spec.user):
            message = f"{quoted(spec.user)} cannot be the name of a user"
            diagnostics.error("bad-user", message, place.child("user"), hint=f"allowed are {USER_RULE}")
        for code, keys in _ONE_OF.items():
            if all(getattr(spec, key) is not None for key in keys):
                one, other = map(to_camel, keys)
                hint = "remove one of them; the other one overrides both at lower levels, such as defaults"
                diagnostics.error(code, f"{one} and {other} exclude each other", place.child(other), hint=hint)
        if spec.connector is not None and self.state.connectors is not None:
            try:
                info = self.state.connectors.info(spec.connector)
                if info.distribution != "kubexm" and spec.connector not in self._sound:
                    from kubexm_exec.connectors.thirdparty import load_connector

                    load_connector(self.state.connectors, spec.connector)
                    self._sound.add(spec.connector)
            except RegistryError as error:
                if isinstance(spec, HostSpec) and self.inventory.source.of_ansible:
                    self.state.beyond_reach[spec.name] = (error, place.child("connector"))
                else:
                    diagnostics.error(error.code, error.message, place.child("connector"), hint=error.hint)

    def _host(self, name: str, expanded: ExpandedHost, member_of: list[str]) -> GraphHost:
        spec = expanded.spec
        groups = [(group, self.body.groups[group]) for group in member_of]
        roles = tuple(dict.fromkeys([*spec.roles, *(role for _, group in groups for role in group.roles)]))
        connection = self._connection(roles, member_of, expanded.index)
        connector = connection.get("connector", "ssh")
        self._check_address(expanded.address, connector, expanded.place.child("address"))
        self._check_address(expanded.internal_address, connector, expanded.place.child("internalAddress"))
        variables: dict[str, Any] = {}
        for _, _, values in var_layers(self.body, roles, member_of, expanded.index):
            variables.update(values)
        options = {
            to_camel(key): value.model_dump(by_alias=True, exclude_none=True) if isinstance(value, Model) else value
            for key in _OPTION_KEYS
            if (value := connection.get(key)) is not None
        }
        return GraphHost(
            name=name,
            connector=connector,
            address=expanded.address or name,
            internal_address=expanded.internal_address,
            port=connection.get("port"),
            user=connection.get("user"),
            roles=roles,
            groups=tuple(member_of),
            labels={**{k: v for _, group in groups for k, v in group.labels.items()}, **spec.labels},
            vars=variables,
            per_host_limit=connection.get("per_host_limit", 1),
            options=options,
        )

    def _connection(self, roles: tuple[str, ...], groups: list[str], host: int) -> dict[str, Any]:
        connection: dict[str, Any] = {}
        for _, layer in _connection_layers(self.body, roles, groups, host):
            given = {key: value for key in CONNECTION_KEYS if (value := getattr(layer, key)) is not None}
            for keys in _ONE_OF.values():
                if not given.keys().isdisjoint(keys):
                    connection = {key: value for key, value in connection.items() if key not in keys}
            connection.update(given)
        return connection


def _connection_layers(
    body: InventoryBody, roles: Iterable[str], groups: Iterable[str], host: int
) -> list[tuple[tuple[str | int, ...], ConnectionSpec]]:
    """What says how a host is reached: defaults, roles, groups and the host itself, the strongest last, with its path.

    Of several roles the one that the inventory writes last under `roles` decides, just as with groups: the order in
    which a host lists its roles says nothing about which of them knows better.
    """
    return [
        (("defaults",), body.defaults),
        *((("roles", name), role) for name, role in body.roles.items() if name in roles),
        *((("groups", name), body.groups[name]) for name in groups),
        (("hosts", host), body.hosts[host]),
    ]


def _secrets_of(spec: ConnectionSpec) -> dict[tuple[str, ...], str | None]:
    """By path the references to secrets that a connection is made with."""
    secrets: dict[tuple[str, ...], str | None] = {
        ("password",): spec.password,
        ("passphrase",): spec.passphrase,
        ("privateKey",): spec.private_key,
    }
    if isinstance(spec.become, BecomeSpec):
        secrets["become", "password"] = spec.become.password
    return secrets


def place_of_secret(state: State, host: str, reference: str) -> Place | None:
    """Where the inventory names a secret that a host is reached with."""
    inventory = state.bundle.inventory
    if inventory is None or host not in state.host_entries:
        return None
    known = state.hosts[host]
    layers = _connection_layers(inventory.document, known.roles, known.groups, state.host_entries[host])
    for path, layer in reversed(layers):
        for key, value in _secrets_of(layer).items():
            if value == reference:
                return inventory.place(*path, *key)
    return None


def host_layers(state: State, host: str) -> list[VarLayer]:
    """The variables of a host, the weakest first: those of the inventory, and of files by role, group or host."""
    inventory = state.bundle.inventory
    found: list[VarLayer] = []
    if inventory is not None and host in state.host_entries:
        known = state.hosts[host]
        layers = var_layers(inventory.document, known.roles, known.groups, state.host_entries[host])
        found = [
            VarLayer(_LEVELS[path[0]] if len(path) > 1 else 0, label, values, inventory.place(*path))
            for label, path, values in layers
        ]
    found += state.host_var_files.get(host, ())
    # Where both say something, a file wins over the inventory.
    return sorted(found, key=lambda layer: layer.level)


def merged_layers(state: State, host: str) -> list[tuple[str, str, Place]]:
    """Every variable of a host with the layer and place it was written at, weakest first."""
    return [(layer.label, name, layer.place.child(name)) for layer in host_layers(state, host) for name in layer.values]
