"""`f2cto site`: the long-lived process that holds a site's data and answers the master of a federation."""

from __future__ import annotations

import argparse
import os
import signal
import socket
import stat
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from f2cto.config import SettingsError

if TYPE_CHECKING:
    from f2cto.federation.wire import Frame
    from f2cto.site.host import Site
    from f2cto.site.rules import Rules

EXAMPLES = """examples:
  f2cto site --data site.parquet --label y --schema schema.json --number 0 --socket run/site.sock --folder site
  f2cto site --data photos/ --schema schema.json --number 2 --socket run/site.sock --folder site --most 0.1
  f2cto site --data site.npz --schema schema.json --number 1 --socket run/site.sock --folder site --allow class-sums

Rows are never sent: the answers are the messages of the method, vectors as long as the model's parameters and a few
numbers. They are not harmless: a master that chooses the parameters can compute samples from them. Where you do not
trust it, ask for private jobs with --max-epsilon. What was selected is written to coreset.csv in --folder, in the
file's own row numbers.
Started again after it was stopped or killed, it goes on where it was. It ends by SIGTERM or Ctrl-C.
"""
PATIENCE = 60.0  # seconds that a connection may take to send a request or to take its answer


def add_to(commands: Any) -> None:  # noqa: ANN401  (argparse keeps the type to itself)
    """Add the command to the parser."""
    parser = commands.add_parser(
        "site",
        help="take part in a federation with a site's own data",
        description="Hold a site's data and answer the master of a federation over a local socket.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--data", type=Path, required=True, help="a .parquet, .csv or .npz file, or a folder of images by class"
    )
    parser.add_argument("--label", help="the column with the classes, for tables")
    parser.add_argument("--schema", type=Path, required=True, help="what all sites agreed on: schema.json")
    parser.add_argument("--number", type=int, required=True, help="which site of the federation this is, from 0")
    parser.add_argument("--socket", type=Path, required=True, help="where to listen: a path for a unix socket")
    parser.add_argument("--folder", type=Path, required=True, help="for checkpoints and coreset.csv")
    parser.add_argument(
        "--allow",
        action="append",
        default=[],
        choices=["class-sums"],
        help="send sums and counts over classes as well, for methods that need them",
    )
    parser.add_argument("--most", type=float, default=0.5, help="the largest share of samples to keep (default: 0.5)")
    parser.add_argument(
        "--max-parameters", type=int, default=50_000_000, help="of a network (default: 50000000)", metavar="COUNT"
    )
    parser.add_argument("--low", type=float, default=0.0, help="the least value of a feature (default: 0)")
    parser.add_argument("--high", type=float, default=1.0, help="the largest value of a feature (default: 1)")
    parser.add_argument(
        "--max-epsilon", type=float, default=0.0, help="private jobs only, up to this in all", metavar="EPSILON"
    )
    parser.add_argument(
        "--min-noise", type=float, default=0.0, help="private jobs only, of this noise multiplier", metavar="NOISE"
    )
    parser.add_argument("--threads", type=int, help="threads to compute with (default: by the size of the work)")
    parser.set_defaults(run=run)


def run(chosen: argparse.Namespace) -> int:
    """Read the data, listen, answer."""
    if chosen.number < 0 or (chosen.threads is not None and chosen.threads < 1):
        msg = "A site's number counts from 0, and it needs at least 1 thread; see `f2cto site --help`."
        raise SettingsError(msg)
    with for_owner_only(chosen.folder), claimed(chosen.folder), listening(chosen.socket) as server:
        site = opened(chosen)
        print(
            f"Site {site.number} is ready: {len(site.data):,} samples, {len(site.schema.classes)} classes, "
            f"listening at {chosen.socket}",
            flush=True,
        )
        serve(server, site, threads_of(chosen.threads))
    return 0


def opened(chosen: argparse.Namespace) -> Site:
    """The site, with its data and what it was at."""
    # Imported here because torch takes seconds, and `f2cto --help` needs none of it.
    from f2cto.site.host import Site  # noqa: PLC0415
    from f2cto.site.reading import read_site  # noqa: PLC0415
    from f2cto.site.schema import read_schema  # noqa: PLC0415
    from f2cto.site.store import Store  # noqa: PLC0415

    schema = read_schema(chosen.schema)
    rules = rules_of(chosen)
    data = read_site(chosen.data, chosen.label, schema, rules.range)
    site = Site(data, schema, chosen.number, Store(chosen.folder), rules)
    for note in (*data.notes, *site.notes):
        log(f"note: {note}")
    return site


def rules_of(chosen: argparse.Namespace) -> Rules:
    """What the owner allows."""
    from f2cto.site.rules import Allowance, Rules  # noqa: PLC0415

    try:
        rules = Rules(frozenset(map(Allowance, chosen.allow)), chosen.most, chosen.max_parameters)
        return replace(
            rules,
            range=replace(rules.range, low=chosen.low, high=chosen.high),
            least_noise=chosen.min_noise,
            most_epsilon=chosen.max_epsilon,
        )
    except ValueError as error:
        raise SettingsError(str(error)) from error


def serve(server: socket.socket, site: Site, on_start: Callable[[Site], None]) -> None:
    """Answer one request a connection, one at a time, until told to end; a request in hand is answered first."""
    on_start(site)
    with ending() as end:
        while not end.told:
            connection, _ = server.accept()
            with connection:
                serve_one(connection, site, on_start, end)
    log("ended")


def serve_one(connection: socket.socket, site: Site, on_start: Callable[[Site], None], end: End) -> None:
    """One request; whatever comes over the connection, the process goes on."""
    from f2cto.federation.wire import Frame, WireError, receive, send  # noqa: PLC0415

    connection.settimeout(PATIENCE)
    try:
        try:
            request = receive(connection, limit=site.limit)
        except WireError as error:
            log(f"no request: {error}")
            send(connection, Frame({"error": str(error)}))
            return
        with end.waiting():
            began = time.monotonic()
            reply = site.answer(request)
            log(_told(request, reply, site.trouble, time.monotonic() - began))
            if request.head.get("kind") == "start":
                on_start(site)
            send(connection, reply)
    except (OSError, WireError, MemoryError, RecursionError) as error:
        log(f"the connection broke: {type(error).__name__}")


def threads_of(wanted: int | None) -> Callable[[Site], None]:
    """What sets the number of threads once the job is known."""
    from f2cto import hardware  # noqa: PLC0415

    def set_threads(site: Site) -> None:
        import torch  # noqa: PLC0415

        torch.set_num_threads(wanted or hardware.threads(site.work))

    return set_threads


@contextmanager
def for_owner_only(folder: Path) -> Iterator[None]:
    """Keep others from reading the folder, new or not, and whatever is written meanwhile: it tells about the data."""
    before = os.umask(0o077)
    try:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            folder.chmod(0o700)
        except OSError as error:
            msg = f"Cannot keep {folder} for its owner: {error.strerror or error}; give a --folder of your own."
            raise SettingsError(msg) from error
        yield
    finally:
        os.umask(before)


@contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """Keep other sites out of the folder; a process that was killed keeps nobody out."""
    import fcntl  # noqa: PLC0415  (it is not everywhere, and other commands are)

    with (folder / "site.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            msg = f"Another site is running with the folder {folder}; end it, or give another --folder."
            raise SettingsError(msg) from error
        yield


@contextmanager
def listening(path: Path) -> Iterator[socket.socket]:
    """A unix socket that only this user can connect to; one that a killed process left behind is replaced."""
    path.parent.mkdir(parents=True, exist_ok=True)
    _free(path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        before = os.umask(0o177)
        try:
            server.bind(str(path))
        except OSError as error:
            msg = f"Cannot listen at {path}: {error.strerror or error}; give a short path in a folder of your own."
            raise SettingsError(msg) from error
        finally:
            os.umask(before)
        try:
            server.listen(8)
            yield server
        finally:
            path.unlink(missing_ok=True)


def _free(path: Path) -> None:
    try:
        if not stat.S_ISSOCK(path.lstat().st_mode):
            msg = f"{path} is a file and no socket; give another --socket."
            raise SettingsError(msg)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.settimeout(PATIENCE)
            probe.connect(str(path))
    except FileNotFoundError:
        return
    except ConnectionRefusedError:
        path.unlink(missing_ok=True)
        return
    except OSError as error:
        msg = f"Cannot look at {path}: {error.strerror or error}; give another --socket."
        raise SettingsError(msg) from error
    msg = f"Another process is listening at {path}; end it, or give another --socket."
    raise SettingsError(msg)


class EndedError(Exception):
    """The process is to end, and nothing is in hand."""


class End:
    """Whether SIGTERM or SIGINT came; the first waits for the request in hand, a second one does not."""

    def __init__(self) -> None:
        """Nothing came yet."""
        self.told, self._busy = False, False

    def __call__(self, number: int, _: object) -> None:
        """A signal came."""
        self.told = True
        signal.signal(number, signal.SIG_DFL)
        if not self._busy:
            raise EndedError

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """A request is in hand."""
        self._busy = True
        try:
            yield
        finally:
            self._busy = False


@contextmanager
def ending() -> Iterator[End]:
    """Heed SIGTERM and SIGINT meanwhile."""
    end = End()
    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGINT)}
    with suppress(EndedError):
        yield end
    for number, handler in before.items():
        signal.signal(number, handler)


def log(line: str) -> None:
    """A line with the time; never anything of the data."""
    print(f"{time.strftime('%Y-%m-%dT%H:%M:%S%z')} {line}", file=sys.stderr, flush=True)


def _told(request: Frame, reply: Frame, trouble: str, seconds: float) -> str:
    """A request in a line. What came from outside is shortened, and on one line."""
    said = [repr(request.head[key])[:40] for key in ("kind", "phase", "serial") if key in request.head]
    error = f" refused: {reply.head['error']!r}" if "error" in reply.head else ""
    return f"{' '.join(said) or 'no kind'} {seconds:.3f} s{error}{f' ({trouble})' if trouble else ''}"
