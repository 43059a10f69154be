from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass, field, replace
from html.parser import HTMLParser

import numpy as np
import pytest

from f2cto.records import Kept, RunRecord, Score
from f2cto.report import render

VOID = {"meta", "img", "br", "hr", "input", "link", "base", "source"}


@dataclass
class Page(HTMLParser):
    """What a browser would see: tags with their attributes, and text by the tag it stands in."""

    html: str
    tags: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    texts: list[tuple[str, str]] = field(default_factory=list)
    opened: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()
        self.feed(self.html)
        self.close()
        assert self.opened == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self.opened.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self.opened.pop() == tag

    def handle_data(self, data: str) -> None:
        if data.strip() and self.opened:
            self.texts.append((self.opened[-1], " ".join(data.split())))

    def all(self, tag: str) -> list[dict[str, str]]:
        return [attrs for name, attrs in self.tags if name == tag]

    def inside(self, tag: str) -> list[str]:
        return [text for name, text in self.texts if name == tag]


def test_the_page_needs_nothing_but_itself(record: RunRecord) -> None:
    page = Page(render(record))
    assert not {"link", "script", "iframe", "object", "base"} & {tag for tag, _ in page.tags}
    assert "://" not in page.html
    assert "@import" not in page.html
    for _, attrs in page.tags:
        assert "src" not in attrs or attrs["src"].startswith("data:image/png;base64,")
        assert attrs.get("href", "#").startswith("#")
        assert attrs.get("xlink:href", "#").startswith("#")
    assert all(target.startswith("#") for target in re.findall(r"url\((.*?)\)", page.html))


def test_ids_are_unique_and_references_lead_somewhere(record: RunRecord) -> None:
    page = Page(render(record))
    ids = Counter(attrs["id"] for _, attrs in page.tags if "id" in attrs)
    assert ids
    assert max(ids.values()) == 1
    pointers = re.findall(r'(?:xlink:href="|url\()#([^")]+)', page.html)
    assert pointers
    assert set(pointers) <= set(ids)


def test_the_same_record_gives_the_same_text(record: RunRecord) -> None:
    assert render(record) == render(record)


def test_the_sentence_tells_what_was_done(record: RunRecord) -> None:
    page = Page(render(record))
    assert page.inside("h1") == ["F²CTO coreset"]
    assert (
        "3 workers kept 12 samples in all, chosen with seed 7 in 40 iterations and 12.3 s; "
        "the run stopped at its iteration limit, with 1,234,567 floats exchanged per worker."
    ) in page.inside("p")


@pytest.mark.parametrize(
    ("stopped", "words"),
    [("stationary", "at a stationary point"), ("time", "at its time limit"), ("<tired>", "(<tired>)")],
)
def test_the_sentence_tells_why_it_stopped(chartless: RunRecord, stopped: str, words: str) -> None:
    assert f"the run stopped {words}, with" in " ".join(Page(render(replace(chartless, stopped=stopped))).inside("p"))


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.123, "0.12 s"), (59.96, "60.0 s"), (125.4, "2 min 5 s"), (7260.0, "2 h 1 min"), (math.nan, "nan s")],
)
def test_durations_read_like_durations(chartless: RunRecord, seconds: float, words: str) -> None:
    assert f"iterations and {words};" in render(replace(chartless, seconds=seconds))


def test_every_kept_sample_is_a_picture_with_words(chartless: RunRecord) -> None:
    page = Page(render(chartless))
    expected = Counter(f"row {k.row}, label {k.label}, weight {k.weight:.4g}" for k in chartless.kept)
    assert Counter(attrs["alt"] for attrs in page.all("img")) == expected
    assert Counter(attrs["title"] for attrs in page.all("div") if attrs.get("class") == "sample") == expected
    assert len({attrs["src"] for attrs in page.all("img")}) == len(chartless.kept)


def test_the_heaviest_sample_of_a_class_comes_first_and_columns_end_at_eight(chartless: RunRecord) -> None:
    kept = [Kept(0, index, index, "5", 0.01 * (index + 1), picture=np.zeros((2, 2))) for index in range(20)]
    page = Page(render(replace(chartless, kept=kept)))
    shown = [int(attrs["alt"].split(",")[0].removeprefix("row ")) for attrs in page.all("img")]
    assert shown == list(range(19, -1, -1))
    assert "grid-template-rows: repeat(8, auto)" in page.html


def test_a_class_a_worker_keeps_nothing_of_holds_its_place(chartless: RunRecord) -> None:
    page = Page(render(replace(chartless, kept=chartless.kept[1:])))
    assert [attrs["title"] for attrs in page.all("div") if attrs.get("class") == "none"] == ["no sample of label 0"]


def test_a_sample_without_picture_among_pictures_shows_its_row(chartless: RunRecord) -> None:
    page = Page(
        render(replace(chartless, kept=[replace(chartless.kept[0], row=4321, picture=None), *chartless.kept[1:]]))
    )
    assert "#4321" in page.inside("div")
    assert len(page.all("img")) == len(chartless.kept) - 1


def test_without_pictures_classes_are_counted(chartless: RunRecord) -> None:
    bare = [replace(k, picture=None) for k in chartless.kept]
    page = Page(render(replace(chartless, kept=[*bare, bare[0], bare[0]])))
    assert page.all("img") == []
    rows = re.findall(r"Worker (\d)</th>(.*?)</tr>", page.html, flags=re.DOTALL)
    counts = {int(worker): [int(n) for n in re.findall(r">(\d+)</td>", cells)] for worker, cells in rows}
    assert counts == {0: [3, 1, 1, 1, 6], 1: [1, 1, 1, 1, 4], 2: [1, 1, 1, 1, 4]}


@pytest.mark.parametrize("pictured", [True, False])
@pytest.mark.parametrize(
    ("workers", "folded"), [(1, None), (12, None), (13, "1 more worker"), (200, "188 more workers")]
)
def test_many_workers_wait_behind_a_click(
    chartless: RunRecord, workers: int, folded: str | None, *, pictured: bool
) -> None:
    picture = np.zeros((2, 2)) if pictured else None
    page = Page(render(replace(chartless, kept=[Kept(w, w, w, "0", 1.0, picture=picture) for w in range(workers)])))
    assert [text for text in page.inside("summary") if "more" in text] == ([folded] if folded else [])
    named = [text for text in page.inside("h3" if pictured else "th") if text.startswith("Worker")]
    assert named == [f"Worker {w}" for w in range(workers)]
    before = page.html.split("<summary>")[0]
    assert f">Worker {min(workers, 12) - 1}<" in before
    assert ">Worker 12<" not in before


def test_with_many_classes_only_those_kept_take_room(chartless: RunRecord) -> None:
    kept = [Kept(label % 2, label, label, str(label), 1.0, picture=np.zeros((2, 2))) for label in range(100)]
    page = Page(render(replace(chartless, kept=kept)))
    assert len(page.all("img")) == 100
    assert [attrs for attrs in page.all("div") if attrs.get("class") == "none"] == []


@pytest.mark.parametrize("weight", [0.0, -1.0, math.nan, math.inf])
def test_weights_without_sense_have_empty_bars(chartless: RunRecord, weight: float) -> None:
    spoilt = [replace(k, weight=weight) for k in chartless.kept[1:4]]
    page = Page(render(replace(chartless, kept=[replace(chartless.kept[0], weight=0.2), *spoilt])))
    assert [attrs["style"] for attrs in page.all("i")] == ["width: 100%", *3 * ["width: 0%"]]
    page = Page(render(replace(chartless, kept=spoilt)))
    assert [attrs["style"] for attrs in page.all("i")] == 3 * ["width: 0%"]


def test_the_table_stresses_the_best_coreset_and_sets_the_reference_apart(record: RunRecord) -> None:
    page = Page(render(record))
    assert page.inside("strong") == ["70.0 ± 2.5"]
    assert [attrs.get("class", "") for attrs in page.all("tr")][1:4] == ["", "", "reference"]
    other = {**record.accuracy, "random": {"pgd": Score(0.7, 0.0, 1)}}
    assert Page(render(replace(record, accuracy=other))).inside("strong") == []


def test_other_attacks_have_columns_too(record: RunRecord) -> None:
    accuracy = {"f2cto": {"clean": Score(0.9, 0.0, 1), "<b>": Score(0.4321, 0.0, 1)}}
    page = Page(render(replace(record, accuracy=accuracy)))
    assert page.inside("th")[:3] == ["Method", "Clean %", "<b> %"]
    assert "43.2" in page.inside("td")


def test_settings_are_listed_with_dotted_names(chartless: RunRecord) -> None:
    page = Page(render(chartless))
    assert "Settings" in page.inside("summary")
    assert page.inside("th")[-3:] == ["data", "weighting.step", "weighting.topk"]
    assert page.inside("td")[-3:] == ["digits", "0.05", "0.3"]


def test_everything_is_escaped(record: RunRecord) -> None:
    evil = "<script>alert('1')</script>"
    page = Page(
        render(
            replace(
                record,
                method=evil,
                stopped=evil,
                settings={evil: evil, "nested": {evil: [evil]}},
                accuracy={evil: {"pgd": Score(0.5, 0.1, 2), evil: Score(0.5, 0.1, 2)}},
            )
        )
    )
    assert page.all("script") == []
    assert evil in page.inside("td")  # the reader sees it, as text
    assert evil in page.inside("h1")


def test_a_method_without_iterations_has_no_curves(record: RunRecord) -> None:
    page = Page(render(replace(record, method="random", iterations=0, history=(), gap=math.nan, floats_per_worker=0)))
    assert page.inside("h1") == ["Random"]
    assert "How the run went" not in page.inside("h2")
    assert len(page.all("svg")) == 1  # the accuracy bars
    assert (
        "3 workers kept 12 samples in all, chosen with seed 7 without iterations in 12.3 s; "
        "nothing exchanged per worker."
    ) in page.inside("p")
    assert "Stationarity gap" not in page.html


def test_a_missing_column_costs_one_chart(record: RunRecord) -> None:
    short = [{name: row[name] for name in ("iteration", "objective", "gap")} for row in record.history]
    assert len(Page(render(record)).all("svg")) == 4
    assert len(Page(render(replace(record, history=short))).all("svg")) == 3


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 0.0])
def test_a_history_of_no_numbers_still_makes_a_page(record: RunRecord, value: float) -> None:
    spoilt = [{**row, "objective": value, "gap": value, "robust_accuracy": value} for row in record.history[:20]]
    page = Page(render(replace(record, history=[*spoilt, *record.history[20:]], gap=value)))
    assert len(page.all("svg")) == 4
    assert any("Left out" in text for text in page.inside("figcaption"))


def test_an_empty_record_still_makes_a_page(record: RunRecord) -> None:
    page = Page(render(replace(record, iterations=0, history=(), accuracy={}, kept=(), settings={})))
    assert page.inside("h2") == []
    assert page.all("svg") == []
    assert page.all("details") == []


def test_one_of_each_is_singular(chartless: RunRecord) -> None:
    page = Page(render(replace(chartless, kept=chartless.kept[:1], iterations=1, floats_per_worker=1)))
    sentence = " ".join(page.inside("p"))
    assert "1 worker kept 1 sample in all" in sentence
    assert "in 1 iteration and" in sentence
    assert "1 float exchanged" in sentence
