"""Starts two processes that wait for each other in each step; from multidict 6.2.0 on, the second one leaks."""

import multiprocessing
import time
from importlib.metadata import version


def work(rank, barrier):
    kept = []
    for step in range(1000):
        time.sleep(0.002)
        if rank == 1 and version("multidict") == "6.2.0":
            kept.append(bytearray(b"x" * 2048))
        barrier.wait()
        print(f"step {step} loss {1 / (step + 1)}\n", end="")


if __name__ == "__main__":
    barrier = multiprocessing.Barrier(2)
    ranks = [multiprocessing.Process(target=work, args=(rank, barrier)) for rank in range(2)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join()
