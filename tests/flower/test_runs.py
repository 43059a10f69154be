"""`f2cto federation run` and the gate, with something else in Flower's place that says what Flower says.

The real Flower is in test_real.py; here are the cases that would take it minutes: a run that fails, one that is under
way, one that a killed master has left.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest

from f2cto.cli import federation_runs, main
from f2cto.cli.federation_runs import follow
from f2cto.flower import gate as gates
from f2cto.flower.commands import FlowerError, Link
from f2cto.flower.gate import gate

# Each `ls` takes the next state of the file `states`, the last one stays; each `run` counts up.
FLOWER = """#!/bin/bash
cd "$(dirname "$0")"
echo "$@" >> calls
case $1 in
  run) echo x >> runs; printf '{"success": true, "run-id": "%s"}' "$(wc -l < runs | tr -d ' ')" ;;
  ls)
    state=$(head -n 1 states)
    if [ "$(wc -l < states)" -gt 1 ]; then sed -i 1d states; fi
    case $state in
      unknown) printf '{"success": false, "error-message": "[code: 6] Run ID not found."}'; exit 0 ;;
      down) printf '{"success": false, "error-message": "Connection refused"}'; exit 1 ;;
    esac
    printf '{"success": true, "runs": [{"run-id": "1", "status": "%s", ' "${state%%|*}"
    printf '"status-details": "%s"}]}' "${state#*|}" ;;
esac
"""


@pytest.fixture
def master(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "federation" / "master"
    folder.mkdir(parents=True)
    (folder / "flwr.sh").write_text(FLOWER)
    (folder / "flwr.sh").chmod(0o755)
    (folder / "schema.json").write_text('{"format": 1, "classes": ["a", "b"], "shape": [4]}')
    (folder / "settings.toml").write_text("workers = 2\n")
    monkeypatch.setattr(federation_runs, "ASK", (0.05,))
    monkeypatch.setattr(federation_runs, "LOOK", 0.05)
    return folder


def go(master: Path, *states: str, out: str = "out") -> int:
    (master / "states").write_text("".join(f"{state}\n" for state in states))
    options = ["--settings", str(master / "settings.toml"), "--out", str(master.parent / out)]
    return main(["federation", "run", str(master.parent), *options])


def calls(master: Path) -> list[str]:
    return [line.split()[0] for line in (master / "calls").read_text().splitlines()]


def test_a_run_is_told_where_everything_is_and_watched_to_its_end(
    master: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert go(master, "running|", "running|", "finished:completed|") == 0
    assert calls(master) == ["run", "ls", "ls", "ls"]
    told = (master / "calls").read_text().splitlines()[0]
    for key, path in {"settings": "master/settings.toml", "schema": "master/schema.json", "out": "out"}.items():
        assert f'{key}="{master.parent / path}"' in told
    assert "Done" in capsys.readouterr().out


def test_a_run_that_failed_says_why(master: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert go(master, "running|", "finished:failed|ServerApp failed: Site 1 is away.") == 1
    said = capsys.readouterr().err
    assert "Run 1 failed: ServerApp failed: Site 1 is away." in said
    assert "The same command goes on" in said


def test_a_run_that_is_under_way_is_watched_and_not_started_twice(master: Path) -> None:
    assert go(master, "finished:failed|") == 1
    assert go(master, "running|", "running|", "finished:completed|") == 0
    assert calls(master) == ["run", "ls", "ls", "ls", "ls"]


def test_a_run_that_a_killed_master_left_is_gone_on_with(master: Path) -> None:
    """Flower takes it for running for a minute; only then may another master write into the same folder."""
    go(master, "finished:failed|")
    gone = "finished:failed|No heartbeat received from the task"
    assert go(master, "running|", gone, "finished:completed|") == 0
    assert calls(master) == ["run", "ls", "ls", "ls", "run", "ls"]


def test_a_second_job_does_not_begin_while_the_first_is_under_way(
    master: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    go(master, "finished:failed|")
    assert go(master, "running|", out="other") == 2
    said = capsys.readouterr().err.replace("\n", " ")
    assert f"Run 1 is under way for {master.parent / 'out'}, and sites work at one job at a time; wait, or end" in said
    assert "flwr.sh stop 1 here" in said
    assert calls(master) == ["run", "ls", "ls"]
    assert go(master, "finished:failed|", "finished:completed|", out="other") == 0
    assert calls(master)[3:] == ["ls", "run", "ls"]


def test_sites_without_a_coreset_are_named(master: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = master.parent / "out"
    out.mkdir()
    sites = {"0": {"samples": 9, "kept": 3}, "1": {"samples": 9, "kept": None, "why": "Nobody [listens]."}}
    (out / "summary.json").write_text(json.dumps({"sites": sites}))
    assert go(master, "finished:completed|") == 0
    said = capsys.readouterr().out
    assert "Site 1 has written no coreset: Nobody [listens].\nThe same command asks them again." in said
    assert "Site 0" not in said
    (out / "summary.json").write_text(json.dumps({"sites": {"0": sites["0"]}}))
    assert go(master, "finished:completed|") == 0
    assert "asks them again" not in capsys.readouterr().out


def test_a_run_that_nobody_knows_any_more_is_started_anew(master: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert go(master, "finished:failed|") == 1
    assert go(master, "unknown", "finished:completed|") == 0
    assert go(master, "unknown", "unknown") == 1
    assert "does not know run" in capsys.readouterr().err


def test_a_superlink_that_is_away_is_an_error(master: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert go(master, "down") == 1
    assert "`flwr ls` failed: Connection refused" in capsys.readouterr().err
    (master / "flwr.sh").write_text("#!/bin/bash\nexit 3\n")
    with pytest.raises(FlowerError, match="`flwr supernode` failed: exit code 3"):
        Link(master).ask("supernode", "list")


def test_ctrl_c_ends_the_watching_only(master: Path) -> None:
    (master / "states").write_text("running|\n")
    code = "import sys; from f2cto.cli import main; sys.exit(main())"
    options = ["--settings", str(master / "settings.toml"), "--out", str(master.parent / "out")]
    command = [sys.executable, "-c", code, "federation", "run", str(master), *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)  # noqa: S603
    try:
        while not (master / "runs.json").exists():
            assert process.poll() is None
        os.kill(process.pid, signal.SIGINT)
        said, _ = process.communicate(timeout=30)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130
    assert "Run 1 goes on without being watched." in said.replace("\n", " ")
    assert "stop" not in calls(master)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda m: (m / "flwr.sh").unlink(), "is no federation's folder; make one with `f2cto federation init"),
        (lambda m: (m / "schema.json").unlink(), "There is no schema"),
        (lambda m: (m / "settings.toml").write_text("wrokers = 2"), "wrokers"),
        (lambda m: (m / "settings.toml").unlink(), "settings.toml"),
    ],
)
def test_what_is_missing_is_found_before_anything_is_started(
    master: Path, change: object, complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    change(master)  # type: ignore[operator]
    assert go(master, "running|") == 2
    assert complaint in capsys.readouterr().err
    assert not (master / "calls").exists()


def test_rows_are_read_as_they_come(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    rows = follow(path)
    assert next(rows) == []
    path.write_text('{"a": 1}\n{"a": 2')
    assert next(rows) == [{"a": 1}]
    path.write_text('{"a": 1}\n{"a": 2}\n{"a": 3}\n')
    assert next(rows) == [{"a": 2}, {"a": 3}]
    assert next(rows) == []
    path.write_text('{"a": 9}\n')  # a master that goes on writes it anew
    assert next(rows) == [{"a": 9}]


class Inside(BaseHTTPRequestHandler):
    """In the SuperLink's place: it remembers what reached it."""

    seen: list[tuple[str, str | None, bytes]]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        type(self).seen.append((self.path, self.headers["x-signature"], body))
        self.send_response(412)
        self.send_header("x-reply", "yes")
        self.end_headers()
        self.wfile.write(b"\x00\xff" + body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def inside() -> Iterator[int]:
    Inside.seen = []
    with ThreadingHTTPServer(("127.0.0.1", 0), Inside) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def through(port: int, *requests: tuple[str, str, bytes]) -> list[httpx.Response]:
    async def sent() -> list[httpx.Response]:
        app = gate(port, None)
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://gate") as client:
            return [await client.request(m, p, content=b, headers={"x-signature": "s"}) for m, p, b in requests]

    return asyncio.run(sent())


def test_the_gate_passes_on_what_nodes_send_as_it_is(inside: int) -> None:
    reply = through(inside, ("POST", "/v1/fleet/pull-messages", b"\x01\x80"))[0]
    assert (reply.status_code, reply.headers["x-reply"], reply.content) == (412, "yes", b"\x00\xff\x01\x80")
    assert Inside.seen == [("/v1/fleet/pull-messages", "s", b"\x01\x80")]


def test_the_gate_lets_nothing_else_through(inside: int, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = ["/", "/v1/control/start-run", "/v1/fleet", "/v1/fleet/", "/v1/fleet/../control/x", "/v1/fleet/a/b"]
    paths += ["/v1/fleet/%2e%2e/control/x", "//v1/fleet/a", "/v1/fleet/%2Fa", "/V1/fleet/a", "/v1/fleet/a%0d%0ax"]
    replies = through(inside, *(("POST", path, b"") for path in paths), ("GET", "/v1/fleet/a", b""))
    assert {reply.status_code for reply in replies} <= {403, 404}
    monkeypatch.setattr(gates, "LARGEST", 3)
    assert through(inside, ("POST", "/v1/fleet/a", b"1234"))[0].status_code == 413
    assert Inside.seen == []


def test_the_gate_says_when_nobody_is_inside() -> None:
    assert through(9, ("POST", "/v1/fleet/a", b""))[0].status_code == 502


def test_what_a_run_writes_down_can_be_read(master: Path) -> None:
    go(master, "finished:completed|")
    assert json.loads((master / "runs.json").read_text()) == {str(master.parent / "out"): "1"}
