"""`f2cto select 'shards/*.parquet' --engine ray`: every worker opens its own file, and this program none of them."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from glob import glob, has_magic
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from f2cto.config import SettingsError, plain

if TYPE_CHECKING:
    from f2cto.folder import RunFolder
    from f2cto.run_settings import RunSettings
    from f2cto.selection import Selection
    from f2cto.trilevel.master import Round


def is_pattern(source: str) -> bool:
    """Whether a source stands for several files."""
    return has_magic(source) and not Path(source).exists()


def run(chosen: argparse.Namespace, settings: RunSettings) -> int:
    """Select and write; nothing is judged, since nobody here has the samples."""
    from f2cto.experiment import row  # noqa: PLC0415
    from f2cto.folder import RunFolder  # noqa: PLC0415

    paths = matching(settings)
    check_heeded(chosen, settings)
    folder: RunFolder | None = None
    console = Console(quiet=chosen.quiet, markup=False)
    with console.status(f"starting {len(paths)} workers") as status:

        def claimed() -> RunFolder | None:
            """Claimed when the workers have answered for the first time: what cannot run overwrites nothing."""
            if folder or not chosen.out:
                return folder
            new = RunFolder(chosen.out, force=chosen.force)
            new.write_settings(plain(settings))
            return new

        def on_round(last: Round) -> None:
            nonlocal folder
            status.update(f"selecting: iteration {last.iteration}, gap {last.gap:.3g}")
            folder = claimed()
            if folder:
                folder.add_row(row(last))

        found = selected(paths, settings, on_round, chosen.threads or 1)
        folder = claimed()  # a method that exchanges nothing has no rounds
    kept = sum(len(indices) for indices in found.indices)
    where = f"; {folder.path / 'coreset.csv'} lists them" if folder else ""
    if folder:
        write(folder, paths, found)
        if found.absences:
            folder.write_absences([asdict(absence) for absence in found.absences])
    console.print(f"{kept} samples of {len(paths)} files are worth keeping{where}.", highlight=False)
    for absence in found.absences:
        console.print(f"Worker {absence.worker} was missing in `{absence.phase}`: {absence.why}", highlight=False)
    return 0


def check_heeded(chosen: argparse.Namespace, settings: RunSettings) -> None:
    """Refuse what would be left unheeded."""
    ignored = {
        "--export": chosen.export,
        "--json": chosen.json,
        "--device": chosen.device,
        "--workers": chosen.workers,
        "--partition": chosen.partition,
        "--worker-column": chosen.worker_column,
        "--fixed": settings.data.fixed,
    }
    if found := [name for name, value in ignored.items() if value]:
        msg = f"Files that workers open themselves know no {', '.join(found)}; leave it out, or give one file."
        raise SettingsError(msg)


def matching(settings: RunSettings) -> list[str]:
    """The files that the source stands for, one a worker, in the order of their names."""
    from f2cto.run_settings import Engine  # noqa: PLC0415

    if settings.federation.engine is not Engine.RAY:
        msg = f"Each file of {settings.data.source} is opened by a worker of its own; add --engine ray."
        raise SettingsError(msg)
    if paths := sorted(glob(settings.data.source)):  # noqa: PTH207  (a pattern may begin anywhere)
        return paths
    msg = f"No file matches {settings.data.source}; give a pattern such as 'shards/*.parquet'."
    raise SettingsError(msg)


def selected(paths: Sequence[str], s: RunSettings, on_round: object, threads: int) -> Selection:
    """The choice of all workers."""
    from f2cto.cluster.files import select_files  # noqa: PLC0415
    from f2cto.cluster.hosts import Cluster  # noqa: PLC0415

    return select_files(
        paths,
        s.size,
        label=s.data.label,
        model=s.network.built,
        settings=s.of(s.method),
        seed=s.seed,
        method=s.method,
        valid=s.data.range,
        radius=s.radius,
        balance=s.data.balance,
        training=s.training,
        cluster=Cluster(s.federation.address, threads=threads, folder=s.federation.folder),
        faults=s.federation.faults,
        on_round=on_round,  # type: ignore[arg-type]
    )


def write(folder: RunFolder, paths: Sequence[str], found: Selection) -> None:
    """The kept rows of every file, and the proxy model."""
    from f2cto.records import Kept  # noqa: PLC0415

    folder.write_coreset(
        [
            Kept(worker, int(index), int(index), "", float(weight), str(Path(path)))
            for worker, path in enumerate(paths)
            for index, weight in zip(found.indices[worker], found.weights[worker], strict=True)
        ]
    )
    folder.write_model(found.model)
