"""The master over the real forwarder, real sockets and real sites; only Flower's own transport is in this process."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import Context, Message, RecordDict
from safetensors.torch import load_file
from torch import Tensor

from f2cto.config import SettingsError
from f2cto.federation.engine import WorkerFailedError
from f2cto.federation.exchange import TooFewWorkersError
from f2cto.federation.wire import Frame
from f2cto.flower.client_app import forward
from f2cto.flower.master import Orders, UnfinishedError, run
from f2cto.flower.master_folder import MasterFolder
from f2cto.flower.packing import content_of, frame_of
from f2cto.flower.server_app import FederationError, main, orders
from f2cto.privacy import Privacy, spent
from f2cto.site.job import Job
from f2cto.site.schema import schema_text
from testing.grids import app_of
from testing.sites import Federation, Served, expected, federation

ITERATIONS = {"stopping": {"iterations": 4}, "weighting": {"draws": 5}}
LONG = ITERATIONS | {"stopping": {"iterations": 20}}
LESS = ITERATIONS | {"stopping": {"iterations": 3}}
WAIT = {"on_failure": "wait", "patience": 10.0, "pause": 0.01}
CONTINUE = {"on_failure": "continue", "patience": 0.3, "pause": 0.01}


@pytest.fixture
def three(tmp_path: Path) -> Iterator[Federation]:
    with federation(tmp_path, 3) as made:
        yield made


def short(made: Federation, exchanges: int = 2, faults: dict[str, Any] | None = None, **others: Any) -> Orders:
    f2cto = ITERATIONS | {"sharing": {"exchanges": exchanges}}
    return made.orders(**{"f2cto": f2cto, "federation": {"faults": faults or {"patience": 0.0}}} | others)


def job(of: Orders) -> Job:
    found = MasterFolder(of.out).job()
    assert found is not None
    return found


def model(of: Orders) -> Tensor:
    parts = load_file(of.out / "model.safetensors")
    names = sorted(parts, key=lambda name: (int(name.split(".")[0]), "bias" in name))
    return torch.cat([parts[name].flatten() for name in names])


def rows(of: Orders) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (of.out / "metrics.jsonl").read_text().splitlines()]


def check_as_in_process(made: Federation, of: Orders) -> None:
    solution, chosen = expected(job(of), made)
    assert torch.equal(model(of), solution.w)
    assert len(rows(of)) == len(solution.history)
    for site, coreset in zip(made.sites, chosen, strict=True):
        data = site.data
        assert [row for row, _, _ in site.coreset()] == data.rows[coreset.indices].tolist()
        labels = [site.schema.classes[y] for y in data.samples.y[coreset.indices].tolist()]
        assert [label for _, label, _ in site.coreset()] == labels
        assert np.allclose([w for *_, w in site.coreset()], coreset.weights, atol=1e-8)


class Kill:
    """Ends the master before its n-th message, as kill -9 would."""

    class KilledError(BaseException):
        """Nothing catches it."""

    def __init__(self, at: int) -> None:
        self.left = at

    def __call__(self, _: Message) -> None:
        self.left -= 1
        if self.left == 0:
            self.strike()

    def strike(self) -> None:
        raise self.KilledError


@pytest.mark.parametrize("exchanges", [2, 1])
def test_it_selects_what_workers_in_one_process_select(tmp_path: Path, exchanges: int) -> None:
    with federation(tmp_path, 5) as made:
        of = short(made, exchanges, f2cto=LONG | {"sharing": {"exchanges": exchanges}})
        summary = run(of, made.grid)
        check_as_in_process(made, of)
    questions = 20 * exchanges
    assert summary["questions"] == questions
    assert summary["down"]["messages"] == summary["up"]["messages"] == 5 * questions
    assert summary["sites"] == {str(i): {"samples": 60, "kept": 6} for i in range(5)}
    assert summary["iterations"] == 20
    assert summary["stopped"] == "iterations"
    assert summary["absences"] == []
    assert "epsilon" not in summary
    assert json.loads((of.out / "summary.json").read_text()) == summary
    # Five sites: a greeting, a start, the questions and a finish each; nothing else.
    assert len(made.grid.sent) == 5 * (questions + 3)


def test_nothing_of_the_data_crosses(three: Federation) -> None:
    run(short(three), three.grid)
    assert len(three.grid.crossed) > 2 * 3 * 8
    size = 64 * 12 + 12 + 12 * 10 + 10
    heads = set[str]()
    for content in three.grid.crossed:
        frame = frame_of(content)
        heads |= set(frame.head)
        assert set(frame.arrays) <= {"w", "w_hat"}
        assert {array.shape for array in frame.arrays.values()} <= {(size,)}
        for site in three.sites:
            assert not holds_a_row(content, site)
    known = {"kind", "job", "number", "samples", "schema", "phase", "serial", "scalars", "kept"}
    assert heads == known


def holds_a_row(content: RecordDict, site: Served) -> bool:
    whole = b"".join(np.ascontiguousarray(a).tobytes() for a in frame_of(content).arrays.values())
    text = str(content["head"])
    x = site.data.samples.x.numpy()
    return any(row.tobytes() in whole or str(row.ravel().tolist())[1:-1] in text for row in x)


def test_a_row_would_have_been_seen(three: Federation) -> None:
    x = three.sites[0].data.samples.x.numpy()
    w = np.zeros(300, np.float32)
    w[100:164] = x[7].ravel()
    assert holds_a_row(content_of(Frame({}, {"w": w})), three.sites[0])
    assert not holds_a_row(content_of(Frame({}, {"w": w})), three.sites[1])


@pytest.mark.parametrize("exchanges", [2, 1])
def test_a_master_killed_at_any_moment_goes_on_to_the_same_model(tmp_path: Path, exchanges: int) -> None:
    with federation(tmp_path, 2) as two:
        undisturbed = short(two, exchanges, f2cto=LESS | {"sharing": {"exchanges": exchanges}})
        run(undisturbed, two.grid)
        sent = len(two.grid.sent)
        assert sent == 2 * (3 * exchanges + 3)
        coresets = [site.coreset() for site in two.sites]
        for at in range(1, sent + 1):
            of = replace(undisturbed, out=tmp_path / f"killed-{at}")
            two.grid.before = Kill(at)
            with pytest.raises(Kill.KilledError):
                run(of, two.grid)
            first = job(of)
            two.grid.before = lambda _: None
            summary = run(of, two.grid)
            assert job(of) == first
            assert torch.equal(model(of), model(undisturbed)), at
            assert [site.coreset() for site in two.sites] == coresets
            assert [row["iteration"] for row in rows(of)] == [1, 2, 3]
            assert summary["questions"] == 3 * exchanges


def test_a_master_killed_while_it_writes_goes_on(three: Federation) -> None:
    undisturbed = short(three)
    run(undisturbed, three.grid)
    of = replace(undisturbed, out=undisturbed.out.parent / "killed")

    def killed(line: str) -> None:
        if "iteration 3" in line:  # its row is written, its checkpoint is not
            raise Kill.KilledError

    with pytest.raises(Kill.KilledError):
        run(of, three.grid, killed)
    assert len(rows(of)) == 3
    run(of, three.grid)
    assert torch.equal(model(of), model(undisturbed))
    assert [row["iteration"] for row in rows(of)] == [1, 2, 3, 4]


class Interrupt:
    """Does something before the n-th question, once."""

    def __init__(self, serial: int, what: Callable[[], object]) -> None:
        self.serial, self.what = serial, what

    def __call__(self, message: Message) -> None:
        head = frame_of(message.content).head
        if head.get("serial") == self.serial:
            self.serial = -1
            self.what()


@pytest.mark.parametrize("serial", [3, 4])
def test_a_killed_site_that_comes_back_goes_on_where_it_was(three: Federation, serial: int) -> None:
    site = three.sites[1]

    def restart() -> None:
        site.kill()
        threading.Timer(0.2, site.start).start()

    three.grid.before = Interrupt(serial, restart)
    of = short(three, faults=WAIT)
    summary = run(of, three.grid)
    check_as_in_process(three, of)
    assert summary["absences"] == []  # all were waited for


def test_without_a_killed_site_the_others_go_on_and_it_comes_back(three: Federation) -> None:
    site = three.sites[1]
    three.grid.before = Interrupt(4, site.kill)  # in the second iteration
    lines = list[str]()

    def tell(line: str) -> None:
        lines.append(line)
        if "iteration 3" in line:
            site.start()

    of = short(three, faults=CONTINUE)
    summary = run(of, three.grid, tell)
    assert [row.get("absent", []) for row in rows(of)] == [[], [1], [1], []]
    missed = [(absence["serial"], absence["worker"]) for absence in summary["absences"]]
    assert missed == [(4, 1), (5, 1), (6, 1)]
    assert "does not answer" in summary["absences"][0]["why"]
    assert "sat out" in summary["absences"][2]["why"]
    assert [summary["sites"][str(i)]["kept"] for i in range(3)] == [6, 6, 6]
    assert "without 1" in next(line for line in lines if "iteration 3" in line)


def test_a_restarted_master_remembers_who_was_missing(three: Federation) -> None:
    of, site = short(three, faults=CONTINUE), three.sites[1]
    first = Interrupt(3, site.kill)

    def die(message: Message) -> None:
        if frame_of(message.content).head.get("phase") == "update" and first.serial < 0:
            raise Kill.KilledError
        first(message)

    three.grid.before = die  # the site misses `refine` of the second iteration, and the master dies in its `update`
    with pytest.raises(Kill.KilledError):
        run(of, three.grid)
    three.grid.before = lambda _: None
    site.start()
    summary = run(of, three.grid)
    assert [row.get("absent", []) for row in rows(of)] == [[], [1], [], []]
    assert [(a["serial"], a["phase"], a["worker"]) for a in summary["absences"]] == [(3, "refine", 1), (4, "update", 1)]


@pytest.mark.parametrize(("exchanges", "serial"), [(2, 5), (1, 3)])
def test_a_site_that_lost_everything_is_told_the_job_again(three: Federation, exchanges: int, serial: int) -> None:
    site = three.sites[2]

    def lose() -> None:
        site.kill()
        shutil.rmtree(site.folder)
        site.start()

    three.grid.before = Interrupt(serial, lose)
    of = short(three, exchanges, faults=CONTINUE)
    summary = run(of, three.grid)
    noted = {"serial": serial, "phase": "refine", "worker": 2, "why": "had lost its state and started afresh"}
    assert [dict(absence) | {"phase": "refine"} for absence in summary["absences"]] == [noted]
    assert not any(row.get("absent") for row in rows(of))  # it took part
    assert len(site.coreset()) == 6


def test_a_large_model_reaches_a_site_that_lost_everything(tmp_path: Path) -> None:
    with federation(tmp_path, 2) as two:
        site = two.sites[1]
        kill = Interrupt(3, site.kill)

        def tell(line: str) -> None:
            if "iteration 3" in line:
                shutil.rmtree(site.folder)
                site.start()

        two.grid.before = kill
        of = short(two, 1, faults=CONTINUE | {"least": 1}, network={"hidden": [9000]})  # 2 x 0.68 M numbers, 5.4 MB
        summary = run(of, two.grid, tell)
    assert [row.get("absent", []) for row in rows(of)] == [[], [], [1], []]
    assert [(a["serial"], a["why"].partition(" ")[0]) for a in summary["absences"]] == [(3, "The"), (4, "had")]


def test_a_restarted_master_remembers_who_had_lost_its_state(three: Federation) -> None:
    of, site = short(three, faults=CONTINUE), three.sites[2]

    def lose() -> None:
        site.kill()
        shutil.rmtree(site.folder)
        site.start()

    first = Interrupt(3, lose)

    def die(message: Message) -> None:
        if frame_of(message.content).head.get("serial") == 4:
            raise Kill.KilledError
        first(message)

    three.grid.before = die
    with pytest.raises(Kill.KilledError):
        run(of, three.grid)
    three.grid.before = lambda _: None
    summary = run(of, three.grid)
    assert [(a["serial"], a["worker"]) for a in summary["absences"]] == [(3, 2)]
    assert not any(row.get("absent") for row in rows(of))


def lost_between(made: Federation, of: Orders, serial: int) -> None:
    """A master is killed before a question, and while it is away a site loses its folder."""
    made.grid.before = Interrupt(serial, Kill(1).strike)
    with pytest.raises(Kill.KilledError):
        run(of, made.grid)
    made.grid.before = lambda _: None
    made.sites[1].kill()
    shutil.rmtree(made.sites[1].folder)
    made.sites[1].start()


@pytest.mark.parametrize(("exchanges", "serial"), [(1, 3), (2, 5), (2, 4)])
def test_a_master_that_goes_on_notes_who_lost_its_state_meanwhile(
    three: Federation, exchanges: int, serial: int
) -> None:
    of = short(three, exchanges, faults=CONTINUE)
    lost_between(three, of, serial)
    lines = list[str]()
    summary = run(of, three.grid, lines.append)
    noted = {"serial": serial, "phase": "begin", "worker": 1, "why": "had lost its state and started afresh"}
    missed = [(4, "update")] if serial == 4 else []  # which only those can answer who know `refine`
    assert noted in summary["absences"]
    assert [(a["serial"], a["phase"]) for a in summary["absences"] if a["phase"] != "begin"] == missed
    assert "Site 1 had lost its state and started afresh." in lines


@pytest.mark.parametrize("serial", [4, 5])
def test_it_is_not_forgotten_if_that_master_is_killed_too(three: Federation, serial: int) -> None:
    of = short(three, faults=CONTINUE)
    lost_between(three, of, serial)

    def killed(line: str) -> None:
        if "sites are there" in line:
            three.grid.before = Kill(1)  # before its first question

    with pytest.raises(Kill.KilledError):
        run(of, three.grid, killed)
    three.grid.before = lambda _: None
    summary = run(of, three.grid)
    assert [a["worker"] for a in summary["absences"] if a["why"].startswith("had lost")] == [1]


def test_who_was_never_there_has_lost_nothing(three: Federation) -> None:
    of, site = short(three, faults=CONTINUE), three.sites[1]
    site.kill()
    three.grid.before = Interrupt(5, Kill(1).strike)
    with pytest.raises(Kill.KilledError):
        run(of, three.grid)
    three.grid.before = lambda _: None
    site.start()
    summary = run(of, three.grid)
    assert [a["serial"] for a in summary["absences"]] == [1, 2, 3, 4]
    assert not any(a["why"].startswith("had lost") for a in summary["absences"])


def test_a_killed_site_ends_a_run_that_is_to_stop(three: Federation) -> None:
    three.grid.before = Interrupt(4, three.sites[1].kill)
    of = short(three)
    with pytest.raises(WorkerFailedError, match=r"Worker 1 failed in phase `update`: The site's process does not"):
        run(of, three.grid)
    three.grid.before = lambda _: None
    three.sites[1].start()
    run(of, three.grid)
    check_as_in_process(three, of)


def test_who_sends_garbage_is_left_out(three: Federation) -> None:
    node = three.grid.nodes[1007]

    def garbage(message: Message, context: Context) -> Message:
        reply = forward(message, context)
        frame = frame_of(reply.content)
        if frame_of(message.content).head.get("serial") == 3:
            frame = Frame(frame.head, {name: array[:-1] for name, array in frame.arrays.items()})
        if frame_of(message.content).head.get("serial") == 6:
            frame = Frame(frame.head, {name: array * np.float32(np.nan) for name, array in frame.arrays.items()})
        return Message(content_of(frame), reply_to=message)

    node.app = garbage
    of = short(three, faults=CONTINUE)
    run(of, three.grid)
    assert [row.get("absent", []) for row in rows(of)] == [[], [1], [1], []]
    assert bool(torch.isfinite(model(of)).all())


def test_sites_that_have_not_finished_are_named_and_asked_again(three: Federation) -> None:
    of, site = short(three), three.sites[2]

    def at_finish(message: Message) -> None:
        if frame_of(message.content).head["kind"] == "finish":
            site.kill()

    three.grid.before = at_finish
    with pytest.raises(UnfinishedError, match=r"run again to ask them. Site 2: The site's process does not answer"):
        run(of, three.grid)
    with pytest.raises(UnfinishedError):
        run(of, three.grid)  # a master that never heard the site's greeting
    found = json.loads((of.out / "summary.json").read_text())["sites"]
    assert found["2"]["samples"] == 60
    assert [found[str(i)]["kept"] for i in range(3)] == [6, 6, None]
    assert "does not answer" in found["2"]["why"]
    three.grid.before = lambda _: None
    site.start()
    before = len(three.grid.sent)
    summary = run(of, three.grid)
    assert summary["sites"]["2"] == {"samples": 60, "kept": 6}
    kinds = [frame_of(m.content).head["kind"] for m in three.grid.sent[before:]]
    assert kinds == ["hello"] * 3 + ["finish"]
    check_as_in_process(three, of)
    before = len(three.grid.sent)
    assert run(of, three.grid) == summary
    assert len(three.grid.sent) == before


def test_where_the_run_may_go_on_without_a_site_it_may_end_without(three: Federation) -> None:
    three.sites[0].kill()
    lines = list[str]()
    summary = run(short(three, faults=CONTINUE), three.grid, lines.append)
    assert summary["sites"]["0"]["kept"] is None
    assert lines[0].startswith("Waiting for site 0: no connected node has site 0; node 1000: The site's process")
    assert {absence["worker"] for absence in summary["absences"]} == {0}


def test_too_few_sites_are_an_error_that_names_them(three: Federation) -> None:
    three.sites[1].kill()
    with pytest.raises(TooFewWorkersError, match=r"Only 2 of 3 sites are there after 0 s; Site 1: no connected node"):
        run(short(three), three.grid)


def test_a_site_that_comes_late_is_waited_for(three: Federation) -> None:
    site = three.sites[1]
    site.kill()
    node = three.grid.nodes.pop(1007)

    def later(line: str) -> None:
        if line.startswith("Waiting for site 1: no connected node has site 1"):
            site.start()
            three.grid.nodes[1007] = node

    of = short(three, faults={"patience": 10.0, "pause": 0.01})
    run(of, three.grid, later)
    check_as_in_process(three, of)


def test_two_sites_of_one_number_are_an_error(three: Federation) -> None:
    three.grid.connect(5, forward, socket=str(three.sites[1].socket))
    with pytest.raises(SettingsError, match="Site 1 is claimed by the nodes 5 and 1007"):
        run(short(three), three.grid)


def test_what_a_site_refuses_is_said_in_its_own_words(three: Federation) -> None:
    with pytest.raises(SettingsError, match="Site 0 does not take the job: `gcfl` sends sums over classes"):
        run(short(three, method="gcfl"), three.grid)
    with pytest.raises(SettingsError, match="Site 0 does not take the job: The job keeps 50 of this site's 60"):
        run(replace(short(three, size=50), out=three.sites[0].folder.parent / "other"), three.grid)


def test_other_settings_need_another_folder(three: Federation) -> None:
    run(short(three), three.grid)
    with pytest.raises(SettingsError, match=r"holds a job with other settings \(seed\); give another folder"):
        run(short(three, seed=4), three.grid)


def test_faults_may_be_met_otherwise_when_a_job_goes_on(three: Federation) -> None:
    three.grid.before = Kill(20)
    with pytest.raises(Kill.KilledError):
        run(short(three), three.grid)
    three.grid.before = lambda _: None
    of = short(three, faults=WAIT)
    run(of, three.grid)
    check_as_in_process(three, of)


def test_a_new_job_finds_nothing_of_a_former_one(three: Federation) -> None:
    of = short(three)
    run(of, three.grid)
    folder, former = MasterFolder(of.out), job(of)
    folder.begin(replace(former, id="another"), {})
    assert folder.progress() is None
    assert folder.replies() is None
    assert folder.summary() is None
    assert sorted(path.name for path in of.out.iterdir()) == ["job.json", "master.lock", "settings.toml"]


def test_one_folder_has_one_master(three: Federation) -> None:
    of = short(three)
    folder = MasterFolder(of.out)
    with folder.claimed(), pytest.raises(SettingsError, match="Another master is running"), folder.claimed(0.1):
        pass
    run(of, three.grid)


def test_a_method_that_cannot_go_on_begins_again(three: Federation) -> None:
    of = short(three, method="tsg", methods={"tsg": {"iterations": 2}})
    three.grid.before = Kill(10)
    with pytest.raises(Kill.KilledError):
        run(of, three.grid)
    first = job(of)
    three.grid.before = lambda _: None
    run(of, three.grid)
    assert job(of).id != first.id
    check_as_in_process(three, of)


@pytest.mark.parametrize("method", ["balanced", "f2cto"])
def test_what_is_trained_is_not_trained_again(three: Federation, method: str) -> None:
    of = short(three, method=method)
    three.grid.before = lambda m: three.sites[0].kill() if frame_of(m.content).head["kind"] == "finish" else None
    with pytest.raises(UnfinishedError):
        run(of, three.grid)
    first = job(of)
    three.grid.before = lambda _: None
    three.sites[0].start()
    run(of, three.grid)
    assert job(of) == first


def test_a_method_without_questions_only_finishes(three: Federation) -> None:
    summary = run(short(three, method="balanced"), three.grid)
    assert [site["kept"] for site in summary["sites"].values()] == [6, 6, 6]
    assert summary["questions"] == 0
    assert rows(short(three)) == []


def test_privacy_is_accounted_for_every_question(three: Federation) -> None:
    privacy = {"clip": 0.5, "noise": 2.0, "delta": 1e-4}
    of = short(three, f2cto=ITERATIONS | {"sharing": {"exchanges": 1, "privacy": privacy}})
    summary = run(of, three.grid)
    assert summary["epsilon"] == spent(Privacy(**privacy), 4)
    assert summary["delta"] == 1e-4
    assert rows(of)[-1]["epsilon"] == summary["epsilon"]


def test_the_model_is_that_of_the_last_round(three: Federation) -> None:
    of = short(three)
    run(of, three.grid)
    found = MasterFolder(of.out).progress()
    assert found is not None
    assert torch.equal(found[0].w, model(of))
    assert found[1].serial == 8


class Started:
    """The app as Flower calls it."""

    def __init__(self, made: Federation, tmp_path: Path) -> None:
        self.grid = made.grid
        self.config: dict[str, Any] = {"out": str(tmp_path / "out"), "seconds": 5.0, "poll": 0.01}
        (tmp_path / "schema.json").write_text(schema_text(made.sites[0].schema))
        (tmp_path / "settings.toml").write_text(
            "workers = 3\nsize = 6\nseed = 3\nnetwork.hidden = [12]\nf2cto.stopping.iterations = 2\n"
            "federation.faults.patience = 0.0\n"
        )
        self.config |= {"settings": str(tmp_path / "settings.toml"), "schema": str(tmp_path / "schema.json")}

    def __call__(self, **others: Any) -> None:
        main(self.grid, Context(1, 1, {}, RecordDict(), self.config | others))


def test_the_app_reads_its_configuration(three: Federation, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Started(three, tmp_path)()
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "f2cto: 3 of 3 sites are there."
    assert said[1].startswith("f2cto: iteration 1: gap")
    assert said[-1] == "f2cto: done: site 0 keeps 6, site 1 keeps 6, site 2 keeps 6"
    assert (tmp_path / "out" / "model.safetensors").exists()
    assert 'method = "f2cto"' in (tmp_path / "out" / "settings.toml").read_text()


@pytest.mark.parametrize(
    ("others", "sentence"),
    [
        ({"out": ""}, "has no `out`"),
        ({"settings": ""}, "has no `settings`"),
        ({"schema": ""}, "has no `schema`"),
        ({"settings": "/nowhere.toml"}, "Cannot read settings from /nowhere.toml"),
        ({"schema": "/nowhere.json"}, "Cannot read the schema /nowhere.json"),
        ({"out": "/proc/1/no"}, "Cannot write to /proc/1/no"),
        ({"seconds": 0.0}, "needs seconds > 0"),
        ({"preset": "digit"}, "There is no preset `digit`"),
    ],
)
def test_what_is_wrong_is_one_sentence(
    three: Federation, tmp_path: Path, capsys: pytest.CaptureFixture[str], others: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(FederationError, match=sentence) as caught:
        Started(three, tmp_path)(**others)
    assert f"f2cto: error: {caught.value}" in capsys.readouterr().out
    assert caught.value.__suppress_context__


def test_failing_sites_are_one_sentence_too(three: Federation, tmp_path: Path) -> None:
    three.grid.nodes[1014].app = app_of(lambda _: Frame({"error": "I am out.", "away": True}))
    with pytest.raises(FederationError, match=r"Only 2 of 3 sites are there after 0 s; Site 2: .* I am out."):
        Started(three, tmp_path)()


def test_the_app_needs_no_more_than_its_keys(three: Federation, tmp_path: Path) -> None:
    config = Started(three, tmp_path).config
    made = orders({key: config[key] for key in ("out", "settings", "schema")})
    assert (made.seconds, made.poll) == (600.0, 0.2)
    assert made.settings.workers == 3
