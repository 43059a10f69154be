"""`f2cto tune`: a method's settings, searched on validation samples with the same effort for every method."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from f2cto.cli.comparing import attacks
from f2cto.cli.tuning_files import TuningFolder, check_target, own_part, save
from f2cto.cli.tuning_trials import Plan, finished
from f2cto.config import SettingsError, assignments, build, flat, merged, plain
from f2cto.presets import read_preset

if TYPE_CHECKING:
    from f2cto.tuning import Trial

EXAMPLES = """examples:
  f2cto tune --preset digits --method f2cto --trials 20 --seeds 3
  f2cto tune --preset mnist-rehearsal --method gcfl --trials 20 --minutes 30 --jobs 2 --data-dir data --save mine.toml

A search that was interrupted goes on where it stopped: give the same command again. The first trial is what is set now.
--save writes the preset with the best settings to a file of your own, for `--preset FILE`. To put several methods into
one file, tune the next one with `--preset FILE --save FILE`.
"""


def add_to(commands: Any) -> None:  # noqa: ANN401  (argparse keeps the type to itself)
    """Add the command to the parser."""
    parser = commands.add_parser(
        "tune",
        help="search a method's settings on validation samples",
        description="Search the settings of a method on validation samples; test samples are not looked at.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--preset", default="digits", help="a preset's name or a settings file (default: digits)")
    parser.add_argument("--method", required=True, help="a name of `f2cto list`")
    parser.add_argument("--trials", type=int, required=True, help="how many settings to try, the present ones included")
    parser.add_argument("--seeds", type=int, default=1, help="how many each is tried on (default: 1)")
    parser.add_argument("--first-seed", type=int, default=1000, help="the first of them (default: 1000)")
    parser.add_argument("--minutes", type=float, default=0.0, help="no trial starts later (default: no limit)")
    parser.add_argument("--sampler", choices=["random", "tpe"], default="random", help="how to draw (default: random)")
    parser.add_argument("--objective", default="pgd", help="the attack whose accuracy counts (default: pgd)")
    parser.add_argument("--jobs", type=int, default=1, help="how many trials at a time (default: 1)")
    parser.add_argument("--data-dir", type=Path, help="the folder with the named data sets; see `f2cto data`")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="any setting, e.g. workers=3")
    parser.add_argument("--out", type=Path, help="folder for trials.jsonl (default: runs/tune/PRESET-METHOD)")
    parser.add_argument("--save", type=Path, metavar="FILE", help="write the preset with the best settings to FILE")
    parser.add_argument("--quiet", action="store_true", help="show no progress and no table")
    parser.set_defaults(run=run)


def run(chosen: argparse.Namespace) -> int:
    """Compute the trials that are missing, show all, save the best."""
    from f2cto.methods.catalogue import method  # noqa: PLC0415
    from f2cto.tuning_spaces import SPACES  # noqa: PLC0415

    console, name = Console(quiet=chosen.quiet, markup=False), chosen.method
    method(name)
    if not SPACES.get(name):
        console.print(f"`{name}` has no open settings: there is nothing to tune.", highlight=False)
        return 0
    check(chosen)
    plan = planned(chosen)
    chosen.out = chosen.out or Path("runs", "tune", f"{Path(chosen.preset).stem}-{name}")
    folder = TuningFolder(chosen.out, identity(plan, chosen))
    if folder.own != plan.search.own():
        console.print(f"The settings of `{name}` have changed since; the search in {folder.path} goes on as it began.")
        plan = replace(plan, search=plan.search.started_from(folder.own))
    compute(plan, folder, console)
    trials = [trial for trial in folder.trials() if trial.number < plan.trials]
    return conclude(chosen, plan, trials, console)


def check(chosen: argparse.Namespace) -> None:
    """Refuse what would be found out too late."""
    from f2cto.tuning import shares_settings  # noqa: PLC0415

    if chosen.trials < 1 or chosen.jobs < 1 or not chosen.minutes >= 0:
        msg = f"--trials and --jobs must be at least 1, --minutes at least 0; got {chosen.trials}, {chosen.jobs}, "
        raise SettingsError(msg + f"{chosen.minutes:g}.")
    if chosen.sampler == "tpe":
        from f2cto.tuning_tpe import library  # noqa: PLC0415

        library()
    if chosen.save is None:
        return
    if shares_settings(chosen.method) and chosen.method != "f2cto":
        msg = f"`{chosen.method}` has the settings of `f2cto`, whose they would be; tune that, or leave out --save."
        raise SettingsError(msg)
    check_target(chosen.save, chosen.preset)


def planned(chosen: argparse.Namespace) -> Plan:
    """The search that the command asks for."""
    from f2cto.comparison import stream  # noqa: PLC0415
    from f2cto.data.folder import data_folder  # noqa: PLC0415
    from f2cto.run_settings import RunSettings  # noqa: PLC0415
    from f2cto.tuning import Search, on_validation  # noqa: PLC0415

    settings = build(RunSettings, merged(read_preset(chosen.preset), given(chosen)))
    settings.check_said(chosen.method, given(chosen))
    settings = on_validation(settings, chosen.objective)
    search = Search(settings, chosen.method, chosen.objective, chosen.first_seed, chosen.seeds)
    data = data_folder(chosen.data_dir)
    attacks(stream(settings, chosen.first_seed, data))  # what is wrong with data or attacks is said at once
    seconds = 60 * chosen.minutes or float("inf")
    return Plan(search, data, chosen.trials, seconds, chosen.jobs, estimated=chosen.sampler == "tpe")


def given(chosen: argparse.Namespace) -> dict[str, Any]:
    """What --set says."""
    return assignments(chosen.set)


def identity(plan: Plan, chosen: argparse.Namespace) -> dict[str, Any]:
    """All that scores and draws depend on; other methods' settings are left out, since they may be tuned meanwhile."""
    search, values = plan.search, plain(plan.search.settings)
    return {
        "preset": chosen.preset,
        "method": search.method,
        "objective": search.objective,
        "first_seed": search.first_seed,
        "seeds": search.seeds,
        "sampler": chosen.sampler,
        "jobs": plan.jobs if plan.estimated else 0,  # draws at random do not depend on it
        "radius": search.settings.radius,
        "settings": {key: value for key, value in values.items() if key not in {"f2cto", "methods", "method"}},
        "set": flat(own_part(given(chosen), search.method)),
        "own": search.own(),
    }


def compute(plan: Plan, folder: TuningFolder, console: Console) -> None:
    """Run the trials that are missing and write each as it ends."""
    done = {trial.number: trial for trial in folder.trials()}
    missing = [number for number in range(plan.trials) if number not in done]
    columns = (TextColumn("{task.description}"), BarColumn(bar_width=24), TextColumn("{task.completed}/{task.total}"))
    with Progress(*columns, TimeElapsedColumn(), console=console) as progress:
        bar = progress.add_task(f"tuning {plan.search.method}", total=len(missing))
        for trial in finished(plan, done, missing):
            folder.add(trial)
            progress.update(bar, advance=1, description=f"trial {trial.number}: {_percent(trial.score)}")


def conclude(chosen: argparse.Namespace, plan: Plan, trials: Sequence[Trial], console: Console) -> int:
    """Show all trials and save the best."""
    from f2cto.tuning import best  # noqa: PLC0415

    try:
        found = best(trials)
    except ValueError as error:
        reason = f" The first: {trials[0].failed}" if trials else ""
        msg = f"{error}{reason}"
        raise ArithmeticError(msg) from error
    console.print(table(plan, trials, found))
    words = verdict(plan, trials, found)
    console.print(words, highlight=False, soft_wrap=True)
    if chosen.save is not None:
        console.print(f"Written to {saved(chosen, plan, found, words)}.", highlight=False, soft_wrap=True)
    return 0


def table(plan: Plan, trials: Sequence[Trial], found: Trial) -> Table:
    """All trials, the best marked."""
    shown = Table(title=f"{plan.search.method}: accuracy under {plan.search.objective} on validation samples, %")
    for column in ("trial", "mean", "by seed", "seconds", "changed"):
        shown.add_column(column, justify="left" if column == "changed" else "right")
    for trial in trials:
        changed = ", ".join(f"{key}={value}" for key, value in trial.changes.items()) or "nothing"
        shown.add_row(
            f"{trial.number}{'*' if trial is found else ''}",
            "failed" if trial.failed else _percent(trial.score),
            " ".join(map(_percent, trial.scores)),
            f"{trial.seconds:.1f}",
            trial.failed or changed,
            style="bold" if trial is found else None,
        )
    return shown


def verdict(plan: Plan, trials: Sequence[Trial], found: Trial) -> str:
    """What came out, in a line."""
    search, failed = plan.search, sum(bool(trial.failed) for trial in trials)
    seeds = f"{search.seeds} seed{'s' if search.seeds > 1 else ''} from {search.first_seed}"
    ran = f"{len(trials)} of {plan.trials} trials" + (f" ({failed} failed)" if failed else "")
    before = "failed" if trials[0].failed else f"{_percent(trials[0].score)} %"
    score = f"{_percent(found.score)} % under {search.objective} on validation samples"
    if found.number == 0:
        return f"{ran}, {seeds}: the settings stay as they were, {score}"
    return f"{ran}, {seeds}: trial {found.number} is best, {score}, before: {before}"


def saved(chosen: argparse.Namespace, plan: Plan, found: Trial, words: str) -> Path:
    """Write the preset with the best settings to the file that was named; gives the file."""
    from f2cto.records import provenance  # noqa: PLC0415
    from f2cto.tuning import settled  # noqa: PLC0415

    values, name = read_preset(chosen.preset), chosen.method
    entry = merged(merged(own_part(values, name), own_part(given(chosen), name)), settled(plan.search, found))
    origin = provenance(command_line(chosen))
    save(chosen.save, values, (name, entry), f"`{origin['command']}`, {origin['date']}, {words}.")
    return Path(chosen.save)


def command_line(chosen: argparse.Namespace) -> list[str]:
    """The command as it can be given again."""
    asked = {
        "--preset": chosen.preset,
        "--method": chosen.method,
        "--trials": chosen.trials,
        "--seeds": chosen.seeds,
        "--first-seed": chosen.first_seed,
        "--minutes": f"{chosen.minutes:g}",
        "--sampler": chosen.sampler,
        "--objective": chosen.objective,
        "--jobs": chosen.jobs,
    }
    settings = [part for text in chosen.set for part in ("--set", text)]
    return ["f2cto", "tune", *(str(part) for pair in asked.items() for part in pair), *settings]


def _percent(score: float) -> str:
    return f"{100 * score:.1f}"
