"""The carrier over Flower: it knows which node has which site, brings questions there and answers back."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

import torch

from f2cto.federation.carrier import Answers, Call
from f2cto.federation.faults import Absence
from f2cto.federation.wire import Frame
from f2cto.flower.post import LostNodeError, Post, RefusedBySiteError, Reply, UnreadableError
from f2cto.message import Message
from f2cto.site.job import Job, job_text

NAME = re.compile(r"site-\d+")  # as register-sites.sh gives them; others say nothing
GREETING = Frame({"kind": "hello"})
GREETING_SECONDS = 60.0  # for an answer to it
UNKNOWN_JOB = "send `start` first"  # in what a site says that has lost its job, or never had it
AFRESH = "had lost its state and started afresh"


class MisfitError(ValueError):
    """Sites that cannot take part in one job, such as two of the same number; somebody has to mend it."""


@dataclass(frozen=True)
class Greeted:
    """How a site introduced itself."""

    node: int
    number: int
    samples: int
    schema: str


class GridCarrier:
    """Carries calls to the sites of a job.

    Sites are found by asking nodes for their numbers: in the beginning, and whenever one is missing, because a node may
    come back as another. Nodes that have answered for one of the job's sites are not asked again while they answer.

    A site that does not know the job has no room for a large model's parameters and refuses them unread. So sites are
    told of the job before they are asked: those that were not told yet, and those that failed and have forgotten it.
    Whoever has forgotten it was at it with a state that is lost, and is noted.

    Args:
        post: sends requests to nodes.
        job: what the sites are to work on.
        pause: seconds before a node that has not introduced itself is asked again.

    """

    def __init__(self, post: Post, job: Job, pause: float = 15.0) -> None:
        """Nobody is known yet."""
        self._post, self._job, self._pause = post, job, pause
        self._nodes: dict[int, int] = {}  # by the number of the site
        self._asked: dict[int, float] = {}  # when nodes that are none of the job's were greeted
        self._strange: dict[int, Exception] = {}  # and what came of it
        self._begun: set[int] = set()  # the sites that were told of the job
        self._ready: set[int] = set()  # those that have not failed since
        self.samples: dict[int, int] = {}  # by the number of the site
        self.lost: list[Absence] = []  # who took part, but without what it had known

    @property
    def workers(self) -> int:
        """How many there are, whether they can be reached or not."""
        return self._job.workers

    def carry(self, call: Call, to: Sequence[int]) -> Answers:
        """Put a question to some sites; one that does not know the job is told about it first."""
        away = self.prepare(call, [i for i in to if i not in self._ready])
        head = {"kind": "ask", "job": self._job.id, "phase": call.phase, "serial": call.serial}
        vectors = {name: vector.detach().cpu().numpy() for name, vector in call.message.vectors.items()}
        question = Frame(head | {"scalars": dict(call.message.scalars)}, vectors)
        answers = away | self.request(question, [i for i in to if i not in away])
        if forgetful := [i for i, answer in answers.items() if _knows_no_job(answer)]:
            away = self._told(call, forgetful)
            answers |= away | self.request(question, [i for i in forgetful if i not in away])
        self._ready |= {i for i, answer in answers.items() if isinstance(answer, Frame)}
        return {i: _message(answer) if isinstance(answer, Frame) else answer for i, answer in answers.items()}

    def start(self, to: Sequence[int]) -> dict[int, Reply]:
        """Tell sites about the job; those that are at it already go on."""
        replies = self.request(Frame({"kind": "start", "job": job_text(self._job)}), to)
        told = {i for i, reply in replies.items() if isinstance(reply, Frame)}
        self._begun |= told
        self._ready |= told
        return replies

    def finish(self, to: Sequence[int]) -> dict[int, Reply]:
        """Let sites write what they selected; they tell how many samples that are."""
        return self.request(Frame({"kind": "finish", "job": self._job.id}), to)

    def request(self, frame: Frame, to: Sequence[int]) -> dict[int, Reply]:
        """What each site answered, or why it did not."""
        missing = self.look_for(to)
        there = {self._nodes[i]: i for i in to if i in self._nodes}
        answers = {there[node]: reply for node, reply in self._post.sent(dict.fromkeys(there, frame)).items()}
        for i, answer in answers.items():
            if isinstance(answer, LostNodeError):
                del self._nodes[i]
        answers |= missing
        self._ready -= {i for i, answer in answers.items() if isinstance(answer, Exception)}
        return answers

    def went_on(self, sites: Iterable[int]) -> None:
        """Take note of sites that a former master has had answers from: they are to know the job still."""
        self._begun |= set(sites)

    def prepare(self, call: Call, to: Sequence[int]) -> dict[int, Exception]:
        """See to it that sites know the job before a question; why those do not that cannot be asked now."""
        # A question without a phase is refused by all: by those that have lost the job because of that.
        probe = Frame({"kind": "ask", "job": self._job.id})
        said = self.request(probe, [i for i in to if i in self._begun])
        refused = {i for i, why in said.items() if isinstance(why, RefusedBySiteError)}
        untold = [i for i in to if i not in said or _knows_no_job(said[i])]
        self._ready |= refused.difference(untold)
        failed = {i: why for i, why in said.items() if isinstance(why, Exception) and i not in refused}
        return failed | self._told(call, untold)

    def _told(self, call: Call, to: Sequence[int]) -> dict[int, Exception]:
        """Tell sites about the job that do not know it, and note who did; why it was in vain with some."""
        knew = self._begun.intersection(to)
        failed = {i: r for i, r in self.start(to).items() if isinstance(r, Exception)}
        if call.serial > 1:
            self.lost += [Absence(call.serial, call.phase, i, AFRESH) for i in sorted(knew - failed.keys())]
        return failed

    def look_for(self, sites: Iterable[int]) -> dict[int, Exception]:
        """Why each of the sites that cannot be found cannot; nodes are greeted only if there are such."""
        if not [i for i in sites if i not in self._nodes]:
            return {}
        self._greet(self._post.online() - set(self._nodes.values()))
        why = "".join(f"; node {node}: {said}" for node, said in sorted(self._strange.items()))
        return {i: LostNodeError(f"no connected node has site {i}{why}") for i in sites if i not in self._nodes}

    def misfits(self) -> list[str]:
        """What is wrong with nodes that would take part and cannot."""
        return [str(said) for said in self._strange.values() if isinstance(said, MisfitError)]

    def _greet(self, strangers: set[int]) -> None:
        now = time.monotonic()
        self._asked = {node: when for node, when in self._asked.items() if node in strangers}
        self._strange = {node: said for node, said in self._strange.items() if node in strangers}
        due = sorted(node for node in strangers if now - self._asked.get(node, -math.inf) >= self._pause)
        answers = self._post.sent(dict.fromkeys(due, GREETING), min(GREETING_SECONDS, self._post.seconds))
        self._asked |= dict.fromkeys(due, now)
        greeted, names = list[Greeted](), self._post.names() if answers else {}
        for node, answer in answers.items():
            try:
                greeted.append(_greeted(node, names.get(node, ""), answer))
            except (ConnectionError, ValueError) as error:
                self._strange[node] = error
        for site in greeted:
            self._place(site, [other.node for other in greeted if other.number == site.number])

    def _place(self, site: Greeted, claimants: Sequence[int]) -> None:
        """Take note of a site, unless it cannot take part."""
        self._strange.pop(site.node, None)
        if site.number >= self.workers:
            self._strange[site.node] = ValueError(f"it has site {site.number}, and the job is for {self.workers}")
        elif site.schema != self._job.schema:
            self._strange[site.node] = MisfitError(
                f"Site {site.number} has the schema {site.schema[:12]}…, and the job {self._job.schema[:12]}…; "
                "give all sites and the master the same schema.json."
            )
        elif len(claimants) > 1 or site.number in self._nodes:
            nodes = " and ".join(map(str, sorted({*claimants, self._nodes.get(site.number, site.node)})))
            self._strange[site.node] = MisfitError(
                f"Site {site.number} is claimed by the nodes {nodes}; give each site its own --number."
            )
        else:
            self._nodes[site.number], self.samples[site.number] = site.node, site.samples
            self._ready.discard(site.number)


def _greeted(node: int, name: str, answer: Reply) -> Greeted:
    """What a site said of itself. The name was registered with its node's key: who has it can be no other site."""
    if isinstance(answer, Exception):
        raise answer
    number, samples, schema = (answer.head.get(key) for key in ("number", "samples", "schema"))
    if not _count(number) or not _count(samples) or not isinstance(schema, str):
        msg = "its site introduced itself with something else than a number, its samples and its schema"
        raise UnreadableError(msg)
    if NAME.fullmatch(name) and name != f"site-{number}":
        msg = f"The node {node} is registered as {name} and has site {number}; start each site from its own folder."
        raise MisfitError(msg)
    return Greeted(node, number, samples, schema)


def _count(value: Any) -> TypeGuard[int]:  # noqa: ANN401  (whatever came)
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _knows_no_job(answer: Reply) -> bool:
    return isinstance(answer, RefusedBySiteError) and UNKNOWN_JOB in str(answer)


def _message(frame: Frame) -> Message | Exception:
    """An answer as the method has it. Whether it can be reckoned with is found out later."""
    scalars = frame.head.get("scalars")
    if not isinstance(scalars, Mapping) or not all(_number(value) for value in scalars.values()):
        return UnreadableError("its answer has no scalars, or such that are no numbers")
    vectors = {name: torch.from_numpy(array).clone() for name, array in frame.arrays.items()}
    return Message(vectors, {str(name): float(value) for name, value in scalars.items()})


def _number(value: Any) -> bool:  # noqa: ANN401  (whatever came)
    return isinstance(value, float) or (isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**53)
