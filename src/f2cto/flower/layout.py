"""Everything a team needs to start a federation, as files by their names: `f2cto federation init` writes them.

Scripts and texts stand in `kit/`; what differs from federation to federation is filled in where they say `@NAME@`.
"""

from __future__ import annotations

import ipaddress
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import NamedTuple

import tomli_w

from f2cto.config import SettingsError
from f2cto.flower.keys import Certificates, Pair

LOOPBACK = ("localhost", "127.0.0.1")
PUBLIC, PROGRAM, SECRET = 0o644, 0o755, 0o600
MOST = 10_000  # sites; more than that are no files to hand out


class File(NamedTuple):
    """A file's content and who may do what with it."""

    content: bytes
    mode: int = PUBLIC


@dataclass(frozen=True)
class Plan:
    """What a federation is made of."""

    sites: int
    bin: str  # the folder with the programs that scripts start
    hosts: tuple[str, ...] = ()  # of the master, as sites call it; none: everything is on one machine
    port: int = 9092
    insecure: bool = False
    schema: str = ""  # the text of schema.json, where it is known already

    def __post_init__(self) -> None:
        """Refuse what could not run, or would be open to everyone."""
        if not 1 <= self.sites <= MOST:
            msg = f"A federation has 1 to {MOST:,} sites; got {self.sites}."
            raise SettingsError(msg)
        if not 1 <= self.port <= 65535 - 2 - self.sites:
            msg = f"The port and the {self.sites + 1} after it must be from 1 to 65535; got {self.port}."
            raise SettingsError(msg)
        if self.insecure and not self.on_one_machine:
            msg = (
                f"--insecure is for one machine alone, and {', '.join(self.hosts)} is another; leave it out: keys and "
                "certificates are made for you."
            )
            raise SettingsError(msg)

    @property
    def on_one_machine(self) -> bool:
        """Whether nothing has to reach it from outside."""
        return all(map(is_loopback, self.hosts))

    @property
    def names(self) -> tuple[str, ...]:
        """What the server's certificate is for."""
        return tuple(dict.fromkeys((*self.hosts, *LOOPBACK)))

    @property
    def address(self) -> str:
        """Where sites find the master."""
        host = self.hosts[0] if self.hosts else LOOPBACK[1]
        return f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"

    @property
    def link_port(self) -> int:
        """Where the SuperLink listens, on its own machine only; sites elsewhere come through the gate."""
        return self.port if self.on_one_machine else self.port + 1


class Keys(NamedTuple):
    """All keys of a federation; without certificates it is an insecure one."""

    certificates: Certificates | None
    sites: tuple[Pair, ...]


def is_loopback(host: str) -> bool:
    """Whether a host's name or address is this machine's own."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == LOOPBACK[0]


def layout(plan: Plan, keys: Keys) -> dict[str, File]:
    """All files by their paths."""
    found = {"README.md": _filled("README.md", _said(plan))}
    if keys.certificates:
        top = keys.certificates.authority
        found |= {"ca/ca.key": File(top.private, SECRET), "ca/ca.crt": File(top.public)}
    found |= _under("master", _master(plan, keys))
    for number in range(plan.sites):
        found |= _under(f"site-{number}", _site(plan, keys, number))
    return found


def _master(plan: Plan, keys: Keys) -> dict[str, File]:
    scripts = ["flwr.sh", "start-superlink.sh", "register-sites.sh", "run.sh"]
    services = {"superlink": "start-superlink.sh"}
    conf = {"LINK_PORT": str(plan.link_port)}
    if not plan.on_one_machine:
        scripts, services = [*scripts, "start-gate.sh"], services | {"gate": "start-gate.sh"}
        conf |= {"GATE": "0.0.0.0", "GATE_PORT": str(plan.port)}  # noqa: S104  (sites are elsewhere)
    found = _common(plan, conf)
    found |= {name: _script(f"master/{name}") for name in scripts}
    found |= {f"systemd/f2cto-{name}.service": _unit(name, script) for name, script in services.items()}
    found |= {name: _filled(f"master/{name}", _said(plan)) for name in ("README.md", "settings.toml")}
    found["app/pyproject.toml"] = File(tomli_w.dumps(APP).encode())
    if keys.certificates:
        pair = keys.certificates.server
        found |= {"keys/server.key": File(pair.private, SECRET), "keys/server.crt": File(pair.public)}
        found |= {"keys/ca.crt": File(keys.certificates.authority.public)}
        found |= {f"keys/sites/site-{i}.pub": File(pair.public) for i, pair in enumerate(keys.sites)}
    else:
        del found["register-sites.sh"]
    return found


def _site(plan: Plan, keys: Keys, number: int) -> dict[str, File]:
    conf = {"NUMBER": str(number), "SUPERLINK": plan.address, "NODE_PORT": str(plan.port + 2 + number)}
    found = _common(plan, conf) | {"site.conf": File(_kit("site/site.conf"), SECRET)}
    for what in ("site", "supernode"):
        script = f"start-{what}.sh"
        found |= {script: _script(f"site/{script}")}
        found |= {f"systemd/f2cto-{what}-{number}.service": _unit(f"{what} {number}", script)}
    found["README.md"] = _filled("site/README.md", {**_said(plan), "NUMBER": str(number)})
    if keys.certificates:
        found |= {
            "site.key": File(keys.sites[number].private, SECRET),
            "ca.crt": File(keys.certificates.authority.public),
        }
    return found


def _common(plan: Plan, conf: Mapping[str, str]) -> dict[str, File]:
    values = {"BIN": plan.bin, "SECURE": "no" if plan.insecure else "yes", **conf}
    lines = ["# Read by the scripts beside it.", *(f"{key}={shlex.quote(value)}" for key, value in values.items())]
    found = {"federation.conf": File("".join(f"{line}\n" for line in lines).encode())}
    found |= {"environment.sh": File(_kit("environment.sh")), "install-services.sh": _script("install-services.sh")}
    return found | ({"schema.json": File(plan.schema.encode())} if plan.schema else {})


# An app of two modules that are installed wherever f2cto is: nothing is sent but this text.
APP = {
    "project": {"name": "f2cto-federation", "version": "1.0.0"},
    "tool": {
        "flwr": {
            "app": {
                "publisher": "f2cto",
                "components": {
                    "serverapp": "f2cto.flower.server_app:app",
                    "clientapp": "f2cto.flower.client_app:app",
                },
                "config": {"settings": "", "schema": "", "out": "", "seconds": 600.0, "poll": 0.2},
            }
        }
    },
}


def _said(plan: Plan) -> dict[str, str]:
    """What the texts are filled in with."""
    gate = (
        "" if plan.on_one_machine else "    ./start-gate.sh          # stays; the way in for sites on other machines\n"
    )
    return {
        "SITES": str(plan.sites),
        "LAST": str(plan.sites - 1),
        "HOST": plan.hosts[0] if plan.hosts else "this one",
        "BIN": plan.bin,
        "SUPERLINK": plan.address,
        "SCHEMA": "" if plan.schema else SCHEMA,
        "AGREED": "" if plan.schema else AGREED,
        "GATE": gate,
        "DOOR": "" if plan.on_one_machine else " and `./start-gate.sh`",
        "SAFETY": INSECURE if plan.insecure else SAFETY,
    }


SCHEMA = """\
**First of all**, agree on a schema: `f2cto federation schema FILE --label y --out schema.json` makes one from a table
that may be looked at. Put the same `schema.json` into `master/` and into every `site-N/`.

"""
AGREED = """   Put the `schema.json` that all sites agreed on beside it.
"""
SAFETY = """\
The SuperLink listens on this machine only, because whoever reaches it may start runs. Messages are encrypted, and nodes
are known by their keys."""
INSECURE = "This federation is **insecure**: nothing is encrypted, and any process of this machine can take part."


def _unit(what: str, script: str) -> File:
    later = {name: f"@{name}@" for name in ("FOLDER", "BIN", "USER")}  # are filled in where it is installed
    return _filled("unit.service", {"WHAT": what, "SCRIPT": script} | later)


def _filled(name: str, values: Mapping[str, str]) -> File:
    return File(re.sub("@([A-Z]+)@", lambda place: values[place[1]], _kit(name).decode()).encode())


def _script(name: str) -> File:
    return File(_kit(name), PROGRAM)


def _kit(name: str) -> bytes:
    return (files("f2cto.flower") / "kit" / name).read_bytes()


def _under(folder: str, found: Mapping[str, File]) -> dict[str, File]:
    return {f"{folder}/{name}": file for name, file in found.items()}
