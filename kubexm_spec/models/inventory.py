"""Inventory: the hosts, their connection settings and variables."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from kubexm_spec.duration import Duration
from kubexm_spec.models.common import Identifier, Labels, Metadata, Model, Name, Strings, UserName, no_items
from kubexm_spec.models.hops import Hops


class BecomeSpec(Model):
    """Another user that commands run as."""

    user: UserName = Field(default="root", description="The user to become.")
    method: Literal["sudo", "su", "doas"] = Field(default="sudo", description="How: sudo, su or doas.")
    password: str | None = Field(default=None, description="Only as a secret reference such as `env:NAME`.")
    always: bool | None = Field(
        default=None, description="false: only for tasks and steps with `become` (default: true)."
    )
    pty: bool | None = Field(
        default=None,
        description="true for hosts that require a terminal (`requiretty`); slower, and stderr is merged into stdout.",
    )


class ConnectionSpec(Model):
    """Connection settings; on a host, a group, a role, or as defaults for all hosts."""

    port: int | None = Field(default=None, ge=1, le=65535, description="Port of the SSH server.")
    user: str | None = Field(default=None, description="User to log in as.")
    connector: str | None = Field(default=None, description="ssh (default), local, or a third party's.")
    private_key_path: str | None = Field(default=None, description="Key file.")
    private_key: str | None = Field(
        default=None, description="The key itself, only as a secret reference; it is used from memory."
    )
    password: str | None = Field(default=None, description="Only as a secret reference such as `env:NAME`.")
    passphrase: str | None = Field(default=None, description="Passphrase of the key; only as a secret reference.")
    host_keys: Literal["acceptNew", "strict", "off"] | None = Field(
        default=None,
        description="acceptNew (default) trusts a host on first contact, strict only known hosts, off every host.",
    )
    known_hosts: str | None = Field(default=None, description="File of known host keys (~/.ssh/known_hosts).")
    proxy_jump: Hops | None = Field(default=None, description="Gateways, nearest first: `user@bastion:22,inner`.")
    proxy_command: str | None = Field(
        default=None, description="Program that opens the connection; expands %h, %n, %p, %r, %u."
    )
    connect_timeout: Duration | None = Field(default=None, description="Time for connecting and logging in (30s).")
    server_alive_interval: Duration | None = Field(
        default=None, description="Silence after which the host is probed (15s); 0 disables probes."
    )
    server_alive_count_max: int | None = Field(
        default=None, ge=1, description="Unanswered probes after which the connection is closed (3)."
    )
    become: UserName | bool | BecomeSpec | None = Field(
        default=None, description="true for root, the user to become, or user, method and password."
    )
    per_host_limit: int | None = Field(
        default=None, ge=1, description="Maximum number of actions at once on the host (1)."
    )


class HostSpec(ConnectionSpec):
    """One host, or a range of them."""

    name: str = Field(min_length=1, description="Name, or a range such as `node[01:50]`.")
    address: str | None = Field(default=None, description="Address to connect to; can contain the same range.")
    internal_address: str | None = Field(default=None, description="Address for traffic between hosts.")
    roles: Strings = Field(default_factory=no_items, description="Roles of the host.")
    labels: Labels = Field(default_factory=dict, description="Labels to select by.")
    vars: dict[Identifier, Any] = Field(default_factory=dict, description="Variables of the host.")


class GroupSpec(ConnectionSpec):
    """Hosts that share something."""

    hosts: Strings = Field(default_factory=no_items, description="Names, ranges or globs.")
    roles: Strings = Field(default_factory=no_items, description="Roles to give to its hosts.")
    labels: Labels = Field(default_factory=dict, description="Labels to give to its hosts.")
    vars: dict[Identifier, Any] = Field(default_factory=dict, description="Variables of its hosts.")


class RoleSpec(ConnectionSpec):
    """Settings that the hosts of a role share, including connection settings."""

    description: str = Field(default="", description="Purpose of the role.")
    vars: dict[Identifier, Any] = Field(default_factory=dict, description="Variables of its hosts.")


class InventoryBody(Model):
    """Hosts and their shared settings."""

    vars: dict[Identifier, Any] = Field(default_factory=dict, description="Variables of all hosts.")
    defaults: ConnectionSpec = Field(
        default_factory=ConnectionSpec, description="Default connection settings of hosts."
    )
    roles: dict[Name, RoleSpec] = Field(default_factory=dict, description="Settings that hosts share by role.")
    groups: dict[Name, GroupSpec] = Field(default_factory=dict, description="Groups of hosts.")
    hosts: list[HostSpec] = Field(default_factory=no_items, description="The hosts.")


class InventoryDocument(InventoryBody):
    """An inventory in its own file."""

    api_version: Literal["kubexm.io/v1"] = Field(description="Version of the format.")
    kind: Literal["Inventory"] = Field(description="Kind of the document.")
    metadata: Metadata = Field(description="Name and description of the document.")
