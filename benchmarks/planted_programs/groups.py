"""Programs of three ranks, which wait for each other in each step. The second one has the fault, or all of them do; in
the healthy ones it only looks guilty."""

import multiprocessing
import os
import random
import socket
import subprocess
import sys
import threading
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


def run(kind, amount):
    barrier = multiprocessing.Barrier(3)
    ranks = [multiprocessing.Process(target=kind(number, amount).run, args=(barrier,)) for number in range(3)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join()
    return max(abs(rank.exitcode) for rank in ranks)


# ---------------------------------------------------------------- healthy in all versions


def odd(rank):
    return rank.number == FAULTY


def checkpoint(rank, step):
    if rank.number == 0 and step % 50 == 49:
        with open("checkpoint", "wb") as file:
            file.write(bytes(100 << 10))


def evaluate(rank, step):
    """The others wait."""
    if rank.number == 0 and step % 100 == 99:
        time.sleep(20 * STEP_S)
        checkpoint(rank, 49)


def keep_up_to(most):
    def keep(rank, step):
        if odd(rank) and step < most:
            rank.kept.append(bytearray(b"x" * 8192))

    return keep


def begin_worker(rank, step):
    """Each rank has a process that loads data, and a thread that beats."""
    if step == 0:
        multiprocessing.Process(target=time.sleep, args=(1000,), daemon=True).start()
        threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()


def burst(rank, step):
    if odd(rank) and step % 10 == 0:
        rank.kept = [bytearray(b"x" * (4 << 20))]
    else:
        rank.kept = []


def send(rank, step):
    """Ranks write to each other's sockets."""
    ends = rank.kept or rank.kept.extend(socket.socketpair()) or rank.kept
    ends[0].send(bytes(4096))
    ends[1].recv(4096)


def apart(rank, barrier):
    """The ranks do not wait for each other, and end at different steps."""
    Rank.run(rank, multiprocessing.Barrier(1), STEPS - 50 * rank.number)


def ends_early(rank, barrier):
    Rank.run(rank, barrier, 700)


def late_start(rank, barrier):
    time.sleep(0.5 * rank.number)
    Rank.run(rank, barrier)


def long_end(rank, barrier):
    Rank.run(rank, barrier, 900)
    time.sleep(0.5 * (rank.number == 0))


HEALTHY = {
    "ranks_plain": {},
    "ranks_unequal": {"seconds": lambda rank, step: STEP_S * (1 + 0.3 * odd(rank))},
    "ranks_take_turns": {"seconds": lambda rank, step: STEP_S * (1 + (step % 3 == rank.number))},
    "ranks_jitter": {"seconds": lambda rank, step: STEP_S * (0.8 + 0.4 * random.random())},
    "rank_pauses": {"seconds": lambda rank, step: STEP_S * (25 if odd(rank) and step % 250 == 200 else 1)},
    "ranks_warm_up": {"seconds": lambda rank, step: STEP_S * (1 + 2 * (step < 100))},
    "ranks_work": {"seconds": lambda rank, step: sum(range(20000)) and STEP_S / 4},
    "rank_evaluates": {"before": evaluate},
    "rank_checkpoints": {"before": checkpoint},
    "rank_fills_cache": {"before": keep_up_to(300)},
    "rank_bursts": {"before": burst},
    "ranks_send": {"before": send},
    "ranks_have_workers": {"before": begin_worker},
    "rank_prints_much": {"before": lambda rank, step: odd(rank) and sys.stdout.write("%s\n" % ("x" * 2000))},
    "ranks_noisy_loss": {"loss": lambda rank, step: random.random() + rank.number},
    "ranks_apart": {"run": apart},
    "ranks_end_early": {"run": ends_early},
    "ranks_start_late": {"run": late_start},
    "rank_ends_long": {"run": long_end},
}


def starts_again(amount):
    """A rank fails once, and a launcher starts it again, which goes on to the end."""
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
    "rank_starts_again": starts_again,
    **{name: type(name, (Rank,), changes) for name, changes in HEALTHY.items()},
}

if __name__ == "__main__":
    multiprocessing.set_start_method("fork")
    KIND, AMOUNT = PROGRAMS[sys.argv[1]], planted(float(sys.argv[2]))
    sys.exit(KIND(AMOUNT) if KIND is starts_again else run(KIND, AMOUNT))
