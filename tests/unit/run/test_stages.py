"""Which images a build made, according to the output of Docker's classic builder."""

from __future__ import annotations

from harness.run.images.build_images import Stages

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


PODMAN_SAID = """\
[1/2] STEP 1/3: FROM base AS early
[1/2] STEP 2/3: ENV A=1
--> Using cache 0a1b2c3d4e5f0a1b2c3d4e5f0a1b2c3d4e5f0a1b2c3d4e5f0a1b2c3d4e5f0a1b
--> 0a1b2c3d4e5f
[1/2] STEP 3/3: RUN make
made
--> 78350c956e9d
[2/2] STEP 1/2: FROM base
[2/2] STEP 2/2: COPY --from=early /a /
[2/2] COMMIT docker.io/harness/build:1
--> b135452d820f
Successfully tagged docker.io/harness/build:1
"""


def heard(text: str) -> list[str]:
    stages = Stages()
    for line in text.splitlines(keepends=True):
        stages.hear(line)
    return stages.made


def test_bases_and_cached_steps_were_there_before() -> None:
    assert heard(SAID) == ["8e26d1037053", "7441d5e27d40", "9b748c374279"]


def test_podmans_builder_has_other_words() -> None:
    assert heard(PODMAN_SAID) == ["78350c956e9d", "b135452d820f"]
    assert heard("STEP 1/2: FROM base\nSTEP 2/2: RUN make\n--> 8e26d1037053\n") == ["8e26d1037053"]


def test_other_builders_are_not_understood_and_lose_nothing() -> None:
    assert heard("#1 [1/2] FROM base\n#2 [2/2] RUN make\n#2 -> 8e26d1037053\n") == []
