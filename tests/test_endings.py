"""Whatever goes wrong, users get one sentence, and the trace if they ask for it."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
import torch

from f2cto.cli import main

QUICK = ["select", "--preset", "digits", "--method", "random", "--no-judge", "--quiet"]


def no_memory() -> None:
    torch.empty(2**46)


def no_file() -> None:
    Path("/nowhere/at/all").write_text("")


def too_deep() -> None:
    too_deep()


def panic() -> None:
    msg = "index out of bounds\nthe second line"
    raise pl.exceptions.PanicException(msg)


def bug() -> None:
    {}["x"]  # type: ignore[index]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (bug, "Unforeseen error, KeyError: 'x'; give the command again with --debug for the trace, and report it"),
        (too_deep, "Unforeseen error, RecursionError: maximum recursion depth exceeded"),
        (panic, "Unforeseen error, PanicException: index out of bounds the second line; give"),
        (no_memory, "The memory did not suffice (["),
        (no_file, "The system said `No such file or directory` at /nowhere/at/all; see to that and give the command"),
    ],
)
def test_every_error_is_one_sentence(
    wrong: object, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("f2cto.experiment.run", lambda *_: wrong())  # type: ignore[operator]
    assert main(QUICK) == 1
    shown = capsys.readouterr().err
    assert shown.startswith("f2cto: " + said)
    assert shown.count("\n") == 1
    for arguments in (["--debug", *QUICK], [*QUICK, "--debug"]):
        assert main(arguments) == 1
        trace = capsys.readouterr().err
        assert "Traceback (most recent call last)" in trace
        assert trace.endswith(shown)


def test_python_has_no_word_for_a_lack_of_memory(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def empty(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr("f2cto.experiment.run", empty)
    assert main(QUICK) == 1
    assert capsys.readouterr().err.startswith("f2cto: The memory did not suffice (no more was said); use fewer")


def test_debug_shows_what_users_can_mend_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["select", "--debug", "--preset", "nope"]) == 2
    assert "Traceback" in capsys.readouterr().err
