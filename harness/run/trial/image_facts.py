"""Reads the facts about an image from the agent's messages `hello` and `ready`, which are not trusted."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

from harness.masking import told
from harness.run.trial.messages import NUMBER_LIMIT, Message, Misunderstood, writable


def facts_of(message: Message) -> dict[str, Any]:
    """Return the fields of `hello` or `ready`: texts, numbers, booleans, flat lists and dicts of these, and lists of
    flat dicts (one for each GPU).

    A field in KINDS has the type given there or is None, so that readers need not check it. The values of variables
    that look like a credential (NVIDIA_API_KEY) are masked here, before anything is written. Raises Misunderstood.
    """
    facts: dict[str, Any] = {
        sys.intern(writable(name)): _facts(value) for name, value in message.items() if name != "type"
    }
    for name, fits in KINDS.items():
        if facts.get(name) is not None and not fits(facts[name]):
            raise Misunderstood(f"{message.get('type')}: {name} does not have the type that the agent sends")
    if facts.get("environment"):
        facts["environment"] = told(facts["environment"].items())
    return facts


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_measure(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0


def _list_of(fits: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda value: isinstance(value, list) and all(map(fits, value))


def _record_of(fits: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda value: isinstance(value, dict) and all(inner is None or fits(inner) for inner in value.values())


def _is_environment(value: object) -> bool:
    return isinstance(value, dict) and all(map(_is_text, value.values()))


def _is_gpu(value: object) -> bool:
    return isinstance(value, dict) and all(
        value.get(name) is None or fits(value[name]) for name, fits in GPU_KINDS.items()
    )


GPU_KINDS: Mapping[str, Callable[[object], bool]] = {
    **dict.fromkeys(("uuid", "name", "compute_capability", "driver", "cuda", "parent"), _is_text),
    **dict.fromkeys(("index", "memory_mib", "power_limit_w", "processes"), _is_measure),
    **dict.fromkeys(("ecc", "mig"), lambda value: isinstance(value, bool)),
}
KINDS: Mapping[str, Callable[[object], bool]] = {
    **dict.fromkeys(("agent", "python", "implementation", "libc", "cpu", "huge_pages", "gpu_problem"), _is_text),
    **dict.fromkeys(("protocol", "page_kib", "setup_s", "first_step_s", "stride"), _is_measure),
    **dict.fromkeys(("environment_names", "libraries", "probes"), _list_of(_is_text)),
    **dict.fromkeys(("packages", "wheels", "rlimits"), _record_of(_is_text)),
    "environment": _is_environment,
    "cgroup": _record_of(_is_measure),
    "gpus": _list_of(_is_gpu),
}
"""The types of the fields of `hello` and `ready`, as `harness/agent/__init__.py` describes them."""


def _facts(value: object) -> object:
    if isinstance(value, dict):
        return _record(value)
    if isinstance(value, list):
        return [_record(inner) if isinstance(inner, dict) else _fact(inner) for inner in value]
    return _fact(value)


def _record(value: dict[str, object]) -> dict[str, Any]:
    return {sys.intern(writable(name)): _fact(inner) for name, inner in value.items()}


def _fact(value: object) -> Any:
    if isinstance(value, str):
        return writable(value)
    if value is None or isinstance(value, bool) or (isinstance(value, (int, float)) and abs(value) <= NUMBER_LIMIT):
        return value
    raise Misunderstood("a fact is neither a text, a number, a boolean nor a flat list of these")
