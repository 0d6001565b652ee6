"""Trials are compared only if they differ in nothing but the version; the differing field and both values are named."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from harness.judge.comparable import conditions, differences, set_apart
from harness.judge.history.changes import find_changes
from harness.model import Trial
from tests.unit.judge.making import LIMITS, of_row, trial_of

FINGERPRINT = {"engine": "docker 27.1", "name": "lab", "cpu": "EPYC 7742", "cpus": 8, "kernel": "6.1.0"}
CARD = {"uuid": "GPU-1", "name": "RTX 3090", "driver": "535.104.05"}


def trial(number: int = 0, *, ms: float = 1.0, seed: int = 0, facts: Any = None, **fingerprint: Any) -> Trial:
    return replace(
        trial_of(number, ms=ms, seed=seed, steps=1000),
        fingerprint={**FINGERPRINT, **fingerprint},
        facts={"agent": "1.0", "libc": "glibc 2.36", "probes": ["rss", "heap"], "gpus": [CARD], **(facts or {})},
    )


def told(one: Trial, other: Trial, *axis: str) -> list[str]:
    return [str(each) for each in differences(conditions(one), conditions(other), axis=axis)]


def test_the_field_and_both_values_are_named():
    assert told(trial(), trial(kernel="6.5.0"), "image") == ["host kernel 6.1.0 and 6.5.0"]
    assert told(trial(), trial(facts={"agent": "1.1"}), "image") == ["agent version 1.0 and 1.1"]
    newer = trial(facts={"gpus": [{**CARD, "driver": "550.54"}]})
    assert told(trial(), newer, "image") == ["GPU driver 535.104.05 and 550.54"]


def test_what_the_comparison_is_about_may_differ():
    other = trial(facts={"libc": "musl", "probes": ["rss"]}, kernel="6.5.0", name="new")
    assert told(trial(), other, "image", "host") == []
    assert told(trial(), other, "image", "host.kernel") == ["host name lab and new"]
    assert told(trial(), other, "host") == ["image libc glibc 2.36 and musl", "probes ['rss', 'heap'] and ['rss']"]


def test_what_a_lanes_gpus_bring_into_the_environment_is_not_the_images():
    """The engine writes the card's UUID into the environment: no two hosts with GPUs could be compared."""
    old = trial(facts={"environment": {"NVIDIA_VISIBLE_DEVICES": "GPU-1", "CUDA_VERSION": "11.8"}})
    new = trial(facts={"environment": {"NVIDIA_VISIBLE_DEVICES": "GPU-2", "CUDA_VERSION": "11.8"}})
    bare = trial(facts={"environment": {"TF_FORCE_GPU_ALLOW_GROWTH": "true", "CUDA_VERSION": "11.8"}})
    assert told(old, new, "host", "gpu") == told(old, bare, "host", "gpu") == []
    other = trial(facts={"environment": {"NVIDIA_VISIBLE_DEVICES": "GPU-1", "CUDA_VERSION": "12.0"}})
    assert told(old, other, "host", "gpu") == [
        "image environment {'CUDA_VERSION': '11.8'} and {'CUDA_VERSION': '12.0'}"
    ]


def test_what_one_side_does_not_know_is_no_difference():
    assert told(trial(), trial(kernel=None, facts={"gpus": []}), "image") == []
    assert told(trial(), trial_of(), "image") == []


def test_an_image_may_send_anything():
    """The agent's messages are not trusted: a strange value counts as missing, and is never an error."""
    odd = trial(facts={"cgroup": 5, "gpus": [3, {"uuid": ["x"]}], "agent": {"a": [1]}})
    assert told(trial(), odd, "image") == ["GPU GPU-1 and None, ['x']", "agent version 1.0 and {'a': [1]}"]
    assert set_apart([[odd, odd, trial()]])[0] == ((odd, odd),)


def test_the_minority_is_set_apart():
    usual, odd = [trial(number) for number in range(3)], trial(3, kernel="6.5.0")
    kept, reasons = set_apart([usual, [odd, trial_of()]])
    assert [len(each) for each in kept] == [3, 1]
    assert [str(each) for each in reasons] == ["host kernel 6.1.0 and 6.5.0"]
    assert set_apart([]) == ((), ())


def test_versions_of_two_kernels_are_not_compared():
    """A version looked twice as slow, because the machine was updated in between."""
    trials = [[trial(n, seed=place) for n in range(3)] for place in range(5)]
    trials.append([trial(n, seed=5, ms=2.0, kernel="6.5.0") for n in range(3)])
    assert find_changes(of_row(trials), limits=LIMITS) == ()
    assert [str(each) for each in set_apart(trials)[1]] == ["host kernel 6.1.0 and 6.5.0"]
    same = [*trials[:5], [trial(n, seed=5, ms=2.0) for n in range(3)]]
    found = find_changes(of_row(same), limits=LIMITS)
    assert [change.after for change in found] == [5]
    assert set_apart(same)[1] == ()
