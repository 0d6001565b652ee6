"""Records of the search: the rules that it goes by, and what it answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from harness.model.narrowed import Hybrid


@dataclass(frozen=True, kw_only=True)
class NarrowRules:
    """Rules of a search for a component.

    `agree`: launches of each hybrid of a proof, at least. `least`: launches of A and of B before they are believed.
    `failures`: launches of B before a failure is taken for one that comes in every launch. `most`: launches of one
    hybrid. `most_hybrids`: hybrids that are asked for, without A and B. `most_launches`: of all, with those of A and B.
    `alpha`: the chance of error with which a hybrid of a proof is called bad or good; on the way to it `doubt` is
    enough.

    What the finding's run knows of B: `seen`, how many of its launches showed the fault and how many did not, and
    `effect`, the step of the figure's log from A to B. A fault that does not come back is told by them.
    """

    agree: int = 2
    least: int = 3
    failures: int = 5
    most: int = 40
    most_hybrids: int = 64
    most_launches: int = 400
    alpha: float = 0.002
    doubt: float = 0.02
    seen: tuple[int, int] = (0, 0)
    effect: float | None = None


NextKind = Literal["ends", "isolate", "partner", "prove", "sham", "done"]


@dataclass(frozen=True, kw_only=True)
class NextHybrids:
    """What is launched next, side by side in one round, and why. `launch` is empty once the search is over.

    A and B are hybrids, too. One that was asked for before is launched again.
    """

    launch: tuple[Hybrid, ...]
    kind: NextKind
    reason: str
