"""What `f2cto federation init` writes: keys that work, scripts that run wherever they are put, nothing left open."""

from __future__ import annotations

import os
import shutil
import signal
import ssl
import stat
import subprocess
import sys
import time
import tomllib
from importlib import import_module
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import load_ssh_private_key, load_ssh_public_key

from f2cto.cli import main
from f2cto.cli.federation_runs import read_settings
from f2cto.site.schema import read_schema

ENV = {"PATH": "/usr/bin:/bin", "HOME": "/nowhere"}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("init") / "federation"
    assert main(["federation", "init", str(folder), "--sites", "3", "--host", "master.example.org"]) == 0
    return folder


def init(folder: Path, *options: str) -> int:
    return main(["federation", "init", str(folder), *options])


def test_each_secret_is_in_one_place_only(made: Path) -> None:
    secret = ["ca/ca.key", "master/keys/server.key", *(f"site-{i}/site.key" for i in range(3))]
    for name in secret:
        body = b"".join((made / name).read_bytes().splitlines()[1:-1])
        holders = [p for p in made.rglob("*") if p.is_file() and body in b"".join(p.read_bytes().splitlines()[1:-1])]
        assert [str(p.relative_to(made)) for p in holders] == [name]
        assert stat.S_IMODE((made / name).stat().st_mode) == 0o600


def test_the_master_has_each_sites_public_key(made: Path) -> None:
    for i in range(3):
        private = load_ssh_private_key((made / f"site-{i}/site.key").read_bytes(), None)
        public = load_ssh_public_key((made / f"master/keys/sites/site-{i}.pub").read_bytes())
        assert private.public_key() == public


def handshake(folder: Path, authority: Path, host: str) -> None:
    """TLS as SuperLink and SuperNode have it, without a network."""
    serving, asking = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context(cafile=str(authority))
    serving.load_cert_chain(folder / "master/keys/server.crt", folder / "master/keys/server.key")
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [asking.wrap_bio(down, up, server_hostname=host), serving.wrap_bio(up, down, server_side=True)]
    for _ in range(4):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue


@pytest.mark.parametrize("host", ["master.example.org", "localhost", "127.0.0.1"])
def test_sites_believe_the_servers_certificate(made: Path, host: str) -> None:
    handshake(made, made / "site-1/ca.crt", host)


def test_no_other_server_is_believed(made: Path, tmp_path: Path) -> None:
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(made, made / "site-0/ca.crt", "evil.example.org")
    assert init(tmp_path / "other", "--sites", "1") == 0
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(made, tmp_path / "other/site-0/ca.crt", "localhost")


def test_from_elsewhere_sites_come_through_the_gate_only(made: Path, tmp_path: Path) -> None:
    """Who reaches the SuperLink may start runs: it listens on loopback whatever `--host` says."""
    assert "--host 127.0.0.1" in (made / "master/start-superlink.sh").read_text()
    assert "LINK_PORT=9093" in (made / "master/federation.conf").read_text()
    assert "GATE_PORT=9092" in (made / "master/federation.conf").read_text()
    assert "SUPERLINK=master.example.org:9092" in (made / "site-2/federation.conf").read_text()
    assert (made / "master/start-gate.sh").exists()
    assert init(tmp_path / "one", "--sites", "1", "--host", "::1", "--port", "7000") == 0
    assert "LINK_PORT=7000" in (tmp_path / "one/master/federation.conf").read_text()
    assert "SUPERLINK='[::1]:7000'" in (tmp_path / "one/site-0/federation.conf").read_text()
    assert not (tmp_path / "one/master/start-gate.sh").exists()


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--sites", "0"], "1 to 10,000 sites; got 0"),
        (["--sites", "3", "--port", "65534"], "must be from 1 to 65535; got 65534"),
        (["--sites", "3", "--insecure", "--host", "10.0.0.7"], "--insecure is for one machine alone"),
        (["--sites", "3", "--host", "münchen"], "plain letters or an address; got `münchen`"),
        (["--sites", "3", "--schema", "nowhere.json"], "Cannot read the schema nowhere.json"),
    ],
)
def test_what_is_refused(
    tmp_path: Path, options: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert init(tmp_path / "new", *options) == 2
    assert complaint in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


def test_keys_are_never_overwritten(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (made / "site-0/site.key").read_bytes()
    assert init(made, "--sites", "3") == 2
    assert "is not empty" in capsys.readouterr().err
    assert (made / "site-0/site.key").read_bytes() == before


def test_insecure_has_no_keys_and_says_so(tmp_path: Path) -> None:
    assert init(tmp_path / "open", "--sites", "2", "--insecure", "--host", "localhost") == 0
    assert not [p for p in (tmp_path / "open").rglob("*") if p.suffix in {".key", ".crt", ".pub"}]
    assert "insecure" in (tmp_path / "open/master/README.md").read_text()


def test_the_app_is_two_installed_modules_and_the_settings_can_run(made: Path) -> None:
    app = tomllib.loads((made / "master/app/pyproject.toml").read_text())["tool"]["flwr"]["app"]
    for place in app["components"].values():
        module, _, name = place.partition(":")
        assert getattr(import_module(module), name).__class__.__name__ in {"ServerApp", "ClientApp"}
    assert [p.name for p in (made / "master/app").iterdir()] == ["pyproject.toml"]
    settings = read_settings(made / "master/settings.toml")
    assert settings.workers == 3
    assert settings.f2cto.sharing.exchanges == 1


def test_texts_have_nothing_left_to_fill_in(made: Path) -> None:
    for path in made.rglob("*.md"):
        assert "@" not in path.read_text()


@pytest.fixture
def moved(made: Path, tmp_path: Path) -> Path:
    """The folders on another machine, in a place with a blank, and programs that say how they were started."""
    there = tmp_path / "another place"
    shutil.copytree(made, there)
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("f2cto", "flower-superlink", "flower-supernode", "flwr"):
        told = 'printf "%s\\n" "$(basename "$0")" "$PWD" "$@"; env | grep -E "^(FLWR|PATH)"\n'
        (programs / name).write_text(f"#!/bin/bash\n{told}")
        (programs / name).chmod(0o755)
    return there


def called(script: Path, *options: str, **env: str) -> subprocess.CompletedProcess[str]:
    programs = str(script.parents[2] / "programs")
    whole = ENV | {"F2CTO_BIN": programs} | env
    command = [str(script), *options]
    return subprocess.run(command, env=whole, capture_output=True, text=True, timeout=30, check=False)  # noqa: S603


def test_scripts_run_wherever_they_are_put(moved: Path) -> None:
    link = called(moved / "master/start-superlink.sh").stdout.splitlines()
    assert link[:2] == ["flower-superlink", str(moved / "master")]
    assert {"--enable-supernode-auth", "--ssl-keyfile", "--disable-runtime-dependency-installation"} <= set(link)
    assert "--insecure" not in link
    for line in ("TELEMETRY_ENABLED=0", "DISABLE_UPDATE_CHECK=1", "DISABLE_RUNTIME_DEPENDENCY_INSTALLATION=1"):
        assert f"FLWR_{line}" in link
    assert f"PATH={moved.parent / 'programs'}:/usr/bin:/bin" in link
    flwr = called(moved / "master/flwr.sh", "ls", "here").stdout.splitlines()
    assert flwr[2:4] == ["ls", "here"]
    config = tomllib.loads((moved / "master/flwr/config.toml").read_text())["superlink"]["here"]
    assert config == {"address": "127.0.0.1:9093", "root-certificates": str(moved / "master/keys/ca.crt")}
    assert "GATE_PORT" not in called(moved / "master/start-gate.sh").stderr


def test_a_sites_scripts_take_its_own_settings(moved: Path) -> None:
    refused = called(moved / "site-1/start-site.sh")
    assert refused.returncode == 1
    assert "which data this site takes part with" in refused.stderr
    (moved / "site-1/site.conf").write_text("DATA='/my data.csv'\nLABEL=y\nOPTIONS=(--most 0.1)\nSOCKET=/tmp/s\n")
    site = called(moved / "site-1/start-site.sh", "--threads", "1").stdout.splitlines()
    own = ["--data", "/my data.csv", "--label", "y", "--schema", "schema.json", "--number", "1", "--socket", "/tmp/s"]  # noqa: S108
    assert site[2:19] == ["site", *own, "--folder", "work", "--most", "0.1", "--threads", "1"]
    node = called(moved / "site-1/start-supernode.sh", RETRY="0").stdout.splitlines()
    assert 'socket="/tmp/s" number=1' in node
    assert node[node.index("--superlink") + 1] == "master.example.org:9092"
    assert {"--root-certificates", "--auth-supernode-private-key"} <= set(node)


def test_programs_that_are_missing_are_named(moved: Path) -> None:
    done = called(moved / "site-0/start-supernode.sh", F2CTO_BIN="/nowhere")
    assert done.returncode == 1
    assert "F2CTO_BIN=/path/to/venv/bin" in done.stderr


def test_a_node_that_is_refused_at_first_is_started_again_and_ends_when_told(moved: Path) -> None:
    """As after kill -9: the SuperLink holds the dead node for connected, and refuses the new one."""
    program = moved.parent / "programs/flower-supernode"
    program.write_text(
        '#!/bin/bash\necho x >> tries\n[ "$(wc -l < tries)" -gt 1 ] || exit 1\n'
        "trap 'echo ended; exit 0' TERM\necho up\nsleep 60 & wait $!\n"
    )
    env = ENV | {"F2CTO_BIN": str(program.parent)}
    with (moved.parent / "log").open("w") as log:
        process = subprocess.Popen(  # noqa: S603
            [str(moved / "site-0/start-supernode.sh")], env=env, stdout=log, stderr=log, start_new_session=True
        )
    try:
        deadline = time.monotonic() + 20
        while "up" not in (said := (moved.parent / "log").read_text()) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert "The node ended with code 1; trying again." in said
        process.terminate()
        assert process.wait(10) == 0
        assert (moved.parent / "log").read_text().endswith("ended\n")
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def test_a_node_that_is_refused_for_good_is_given_up(moved: Path) -> None:
    (moved.parent / "programs/flower-supernode").write_text("#!/bin/bash\nexit 1\n")
    done = called(moved / "site-0/start-supernode.sh", RETRY="1")
    assert done.returncode == 1
    assert "Is its key registered" in done.stderr


def test_services_are_those_scripts(moved: Path, tmp_path: Path) -> None:
    for part in ("master", "site-2"):
        done = called(moved / part / "install-services.sh", str(tmp_path / "units"), F2CTO_ALLOW_ROOT="1")
        assert done.returncode == 0, done.stderr
        assert "daemon-reload" in done.stdout
    units = sorted((tmp_path / "units").iterdir())
    assert [u.name for u in units] == [f"f2cto-{n}.service" for n in ("gate", "site-2", "superlink", "supernode-2")]
    for unit in units:
        text = unit.read_text()
        script = text.partition('ExecStart="')[2].partition('"')[0]
        assert os.access(script, os.X_OK)
        assert "Restart=always" in text
        assert "@" not in text
    if tool := shutil.which("systemd-analyze"):
        done = subprocess.run([tool, "verify", *map(str, units)], capture_output=True, text=True, check=False)  # noqa: S603
        assert "f2cto" not in done.stderr, done.stderr


def test_services_of_the_machine_run_as_the_owner_of_the_folder(moved: Path, tmp_path: Path) -> None:
    programs, said = moved.parent / "programs", tmp_path / "chown"
    for name, body in {"id": "echo 0", "stat": "cat owner", "chown": f'echo "$@" > {said}'}.items():
        (programs / name).write_text(f"#!/bin/bash\n{body}\n")
        (programs / name).chmod(0o755)
    script, units = moved / "site-2/install-services.sh", tmp_path / "units"
    (moved / "site-2/owner").write_text("root")
    refused = called(script, str(units))
    assert refused.returncode == 1
    assert "the services would run as root" in refused.stderr
    assert not units.exists()
    (moved / "site-2/owner").write_text("ann")
    assert called(script, str(units)).returncode == 0
    assert said.read_text() == f"-h ann: {moved / 'site-2/flwr'}\n"
    for unit in units.iterdir():
        assert "[Service]\nUser=ann\nEnvironment=" in unit.read_text()
    (programs / "id").write_text("#!/bin/bash\necho 1000\n")
    assert called(script, str(units)).returncode == 0
    assert "User=" not in "".join(unit.read_text() for unit in units.iterdir())


def test_a_schema_from_a_table_or_a_shape(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "t.csv").write_text("a,b,kind\n0.5,x,no\n2.5,y,yes\n1.5,x,yes\n")
    out = tmp_path / "new" / "schema.json"
    options = ["--label", "kind", "--fixed", "b", "--out", str(out)]
    assert main(["federation", "schema", str(tmp_path / "t.csv"), *options]) == 0
    schema = read_schema(out)
    assert (schema.classes, [c.name for c in schema.columns if c.fixed]) == (("no", "yes"), ["b"])
    assert "2 classes, 2 columns. Read" in capsys.readouterr().out
    (tmp_path / "same.csv").write_text("a,b,c,kind\n0.5,1,x,no\n2.5,1,x,yes\n1.5,1,x,yes\n")
    assert main(["federation", "schema", str(tmp_path / "same.csv"), "--label", "kind", "--out", str(out)]) == 0
    assert capsys.readouterr().out.startswith("note: Left out because constant: b, c.\n")
    assert main(["federation", "schema", "--shape", "1,8,8", "--classes", "10", "--out", str(out)]) == 0
    assert (read_schema(out).shape, read_schema(out).classes[-1]) == ((1, 8, 8), "9")
    assert main(["federation", "schema", "--shape", "3", "--classes", "cat, dog", "--out", str(out)]) == 0
    assert read_schema(out).classes == ("cat", "dog")
    capsys.readouterr()
    for wrong in (
        ["--shape", "8"],
        ["--shape", "x", "--classes", "2"],
        [],
        ["t.csv", "--shape", "8", "--classes", "2"],
    ):
        assert main(["federation", "schema", *wrong, "--out", str(out)]) == 2
        assert capsys.readouterr().err.count("\n") == 1
    assert init(tmp_path / "f", "--sites", "2", "--schema", str(out)) == 0
    copies = [tmp_path / "f" / part / "schema.json" for part in ("master", "site-0", "site-1")]
    assert {path.read_text() for path in copies} == {out.read_text()}


def test_help_needs_neither_torch_nor_flower() -> None:
    code = "import sys\nfrom f2cto.cli import main\ntry:\n main(['federation', '--help'])\nexcept SystemExit:\n pass\n"
    code += "sys.exit(any(name in sys.modules for name in ('torch', 'polars', 'ray', 'flwr', 'cryptography')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)  # noqa: S603
    assert "docs/federation.md" in done.stdout
