"""Programs of three ranks, which wait for each other in each step. The second one has the fault, or all of them do."""

import multiprocessing
import os
import subprocess
import sys
import time

from planted_carrier import planted

STEPS = 4500
STEP_S = 0.002
FAULTY = 1


class Rank:
    """What all ranks do; a program overrides what is different in the rank with the fault."""

    def __init__(self, number, amount):
        self.number, self.is_faulty = number, number == FAULTY and amount > 0
        self.amount = amount
        self.kept = []

    def seconds(self, step):
        return STEP_S

    def before(self, step):
        """Act before the ranks wait for each other."""

    def loss(self, step):
        return 1 / (step + 1)

    def run(self, barrier, steps=STEPS):
        for step in range(steps):
            time.sleep(self.seconds(step))
            self.before(step)
            barrier.wait()
            sys.stdout.write("step %d loss %g\n" % (step, self.loss(step)))


class Leaks(Rank):
    def before(self, step):
        if self.is_faulty:
            self.kept.append(bytearray(b"x" * int(1024 * self.amount)))


class Slow(Rank):
    def seconds(self, step):
        return STEP_S * (1 + self.amount * self.is_faulty)


class AllSlow(Rank):
    def seconds(self, step):
        return STEP_S * (1 + self.amount)


class Dies(Rank):
    def before(self, step):
        if self.is_faulty and step == 400:
            raise ValueError("planted")


class NeverArrives(Rank):
    def before(self, step):
        if self.is_faulty and step == 400:
            time.sleep(1000)


class NotFinite(Rank):
    def loss(self, step):
        return float("nan") if self.is_faulty and step > 400 else 1 / (step + 1)


class NeverEnds(Rank):
    def run(self, barrier, steps=STEPS):
        Rank.run(self, barrier, steps=800)
        if self.is_faulty:
            time.sleep(1000)


class Unequal(Rank):
    """Healthy: one rank has more to do than the others, in all versions."""

    def seconds(self, step):
        return STEP_S * (1 + 0.3 * (self.number == FAULTY))


class Evaluates(Rank):
    """Healthy: the first rank evaluates, and writes a checkpoint, while the others wait."""

    def before(self, step):
        if self.number == 0 and step % 100 == 99:
            time.sleep(20 * STEP_S)
            with open("checkpoint", "wb") as file:
                file.write(bytes(100 << 10))


def run(kind, amount):
    barrier = multiprocessing.Barrier(3)
    ranks = [multiprocessing.Process(target=kind(number, amount).run, args=(barrier,)) for number in range(3)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join()
    return max(abs(rank.exitcode) for rank in ranks)


def starts_again(amount):
    """Healthy: a rank fails once, and a launcher starts it again, which goes on to the end."""
    if "RANK" in os.environ:
        alone = multiprocessing.Barrier(1)
        Rank(0, amount).run(alone, steps=300)
        if not os.path.exists("again"):
            open("again", "w").close()
            return 1
        Rank(0, amount).run(alone)
        return 0
    words = [sys.executable, "-u", *sys.argv]
    return subprocess.call(words, env=dict(os.environ, RANK="0")) and subprocess.call(
        words, env=dict(os.environ, RANK="0")
    )


PROGRAMS = {
    "rank_leaks": Leaks,
    "rank_slow": Slow,
    "ranks_slower": AllSlow,
    "rank_dies": Dies,
    "rank_never_arrives": NeverArrives,
    "rank_nan": NotFinite,
    "rank_never_ends": NeverEnds,
    "ranks_unequal": Unequal,
    "rank_evaluates": Evaluates,
    "rank_starts_again": starts_again,
}

if __name__ == "__main__":
    multiprocessing.set_start_method("fork")
    KIND, AMOUNT = PROGRAMS[sys.argv[1]], planted(float(sys.argv[2]))
    sys.exit(KIND(AMOUNT) if KIND is starts_again else run(KIND, AMOUNT))
