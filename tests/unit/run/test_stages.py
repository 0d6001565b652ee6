"""Which images a build made, read from what Docker's classic builder says."""

from __future__ import annotations

from harness.run.stages import Stages

SAID = """\
Step 1/7 : FROM base AS early
 ---> 427013fe3c07
Step 2/7 : ARG V
 ---> Using cache
 ---> d7c63c61f6b4
Step 3/7 : RUN make
 ---> Running in 785886f2573d
made
Removing intermediate container 785886f2573d
 ---> 8e26d1037053
Step 4/7 : FROM early
 ---> 8e26d1037053
Step 5/7 : COPY --from=early /a /
 ---> 7441d5e27d40
Step 6/7 : run echo from here
 ---> Running in 3f8094976b4f
Removing intermediate container 3f8094976b4f
 ---> 9b748c374279
Successfully built 9b748c374279
"""


def heard(text: str) -> list[str]:
    stages = Stages()
    for line in text.splitlines(keepends=True):
        stages.hear(line)
    return stages.made


def test_bases_and_cached_steps_were_there_before() -> None:
    assert heard(SAID) == ["8e26d1037053", "7441d5e27d40", "9b748c374279"]


def test_other_builders_are_not_understood_and_lose_nothing() -> None:
    assert heard("STEP 1/2: FROM base\nSTEP 2/2: RUN make\n--> 8e26d1037053\n") == []
