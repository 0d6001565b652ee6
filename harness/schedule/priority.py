"""Which row of a host has the next launches. Pure: what each row proposes and how it stands goes in, a row comes out.

A round that was begun is finished first, because its launches are compared with each other. The first round of every
row comes before the second of any. What looks bad is confirmed next, then comes what is near a limit, and last what is
plainly good.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Urgency = Literal["finish", "first", "confirm", "near", "good"]
ORDER: tuple[Urgency, ...] = ("finish", "first", "confirm", "near", "good")
REASONS: dict[Urgency, str] = {
    "finish": "a round that was begun is finished first",
    "first": "the first round of every row comes before the second of any",
    "confirm": "what looks bad is confirmed before what looks good is made sure of",
    "near": "of what is left, this is nearest to a limit",
    "good": "no row has anything to confirm; this one has had the fewest launches",
}
NEAR = 0.5
"""Share of a limit from which a row counts as near it."""


@dataclass(frozen=True, kw_only=True)
class Standing:
    """How a row stands, by the launches that it had.

    `suspect`: something looks bad that is not confirmed. `confirmed`: it has a finding that is. `nearness`: the largest
    share of a limit that any of its signals reaches; 1 is at the limit.
    """

    suspect: bool = False
    confirmed: bool = False
    nearness: float = 0.0


@dataclass(frozen=True, kw_only=True)
class RowState:
    """A row that can have launches.

    `group`: rows of a lower one come first, whatever their state. `finishes`: what it proposes completes a round of
    this run, or costs no launch. `first`: some version has had no launch yet. `confirms`: it proposes launches that
    confirm something. `rounds`: the launches that each of its versions has had at least.
    """

    group: int = 0
    finishes: bool = False
    first: bool = False
    confirms: bool = False
    rounds: int = 0
    standing: Standing = Standing()

    @property
    def urgency(self) -> Urgency:
        if self.finishes:
            return "finish"
        if self.first:
            return "first"
        if self.confirms or self.standing.suspect:
            return "confirm"
        return "near" if self.standing.nearness >= NEAR else "good"


@dataclass(frozen=True, kw_only=True)
class Choice:
    """`place`: the position of the chosen row among those that were given."""

    place: int
    urgency: Urgency

    @property
    def reason(self) -> str:
        return REASONS[self.urgency]


def choose(rows: Sequence[RowState]) -> Choice | None:
    """Return the row that is launched next; of equal ones the first. None if there is no row."""
    place = min(range(len(rows)), key=lambda place: _rank(rows[place]), default=None)
    return None if place is None else Choice(place=place, urgency=rows[place].urgency)


def in_order(rows: Sequence[RowState]) -> list[int]:
    """Return the positions of all rows, the most urgent first."""
    return sorted(range(len(rows)), key=lambda place: _rank(rows[place]))


def _rank(row: RowState) -> tuple[int, int, float, float]:
    """Rows near a limit go by nearness; all others by the launches that they had, so that none falls behind."""
    by_nearness = (-row.standing.nearness, float(row.rounds))
    by_launches = (float(row.rounds), -row.standing.nearness)
    return (row.group, ORDER.index(row.urgency), *(by_nearness if row.urgency == "near" else by_launches))
