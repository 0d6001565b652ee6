"""Every error is one line that begins with the file, the line and the key path."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.errors import MatrixError
from harness.matrix import load_matrix
from harness.matrix.read_yaml import MOST_BYTES, MOST_LEVELS
from harness.model.file_keys import WrittenMetricLimit
from tests.unit.matrix.conftest import GOOD, SCRIPT, FakeIndex, Load

# (what is replaced in GOOD, the replacement, the beginning of the message after "matrix.yaml:")
# fmt: off
SHAPE = [
    ("version: 1\n", "", "1: version: is missing: the version of this format, always 1"),
    ("version: 1", "version: 2", "1: version: 2 is not allowed; allowed: 1"),
    ("version: 1", "version: true", "1: version: must be a whole number, not true"),
    ("version: 1", "version:", "1: version: has no value; give it one, or remove the key"),
    ("trials:", "trails:", "26: trails: unknown key; did you mean 'trials'? allowed: version, name, series"),
    ("arg: WHEEL", "agr: WHEEL", "8: series.wheel.agr: unknown key; did you mean 'arg'? allowed: environment"),
    ("arg: WHEEL", "agr: WHEEL", "6: series.wheel.arg: is missing: the build arg that takes the version"),
    ("build: image", "biuld: image", "6: series.wheel: does not say what its images are; did you mean 'build'? give"),
    ("build: image", "{build: image, images: [a]}", "8: is not YAML: "),
    ("arg: WHEEL", "images: [a]", "6: series.wheel: does not say what its images are; did you mean 'build'? give exa"),
    ("  tags:\n    rep", "  't ags':\n    rep", "3: series.t ags: 't ags' is not an allowed name"),
    ('["20.12", "22.12"]', "[]", "5: series.tags.tags: is empty; give at least one"),
    ('["20.12", "22.12"]', "20.12", "5: series.tags.tags: must be a list or a mapping, not 20.12"),
    ('["20.12", "22.12"]', '{from: "20"}', "5: series.tags.tags.match: is missing: pattern of the tags"),
    ('["20.12", "22.12"]', "{match: a, frm: b}", "5: series.tags.tags.frm: unknown key; did you mean 'from'? allowed:"),
    ('["20.12", "22.12"]', '{match: "*", to: new}',
     "5: series.tags.tags.to: 'new' is not a version; write one such as"),
    ('["20.12", "22.12"]', "[true]", "5: series.tags.tags[0]: must be text, not true; put it in quotes"),
    ('["2.0.0", "2.0.1"]', "{a: b}", "12: series.numpy.versions: must be a list or text, not a mapping"),
    ('["2.0.0", "2.0.1"]', "[2.0.0, [x]]", "12: series.numpy.versions[1]: must be text, not a list"),
    ("engine: docker", "engine: docker, gpus: RTX", "14: hosts.here.gpus: 'RTX' is not allowed; allowed: none, all"),
    ("engine: docker", "engine: docker, gpus: []", "14: hosts.here.gpus: is empty"),
    ("engine: docker", "engine: docker, disk: 60", "14: hosts.here.disk: 60 is not a size; write one such as 8GiB"),
    ("engine: docker", "engine: docker, disk: 60G", "14: hosts.here.disk: '60G' is not a size"),
    ("engine: docker", "engine: docker, parallel: yes",
     "14: hosts.here.parallel: must be auto, true, false or a number"),
    ("engine: docker", "engine: docker, nodes: 2", "14: hosts.here.nodes: is for engine: slurm, not docker; remove it"),
    ("engine: docker", "engine: slurm, nodes: 65", "14: hosts.here.nodes: 65 is too large; it must be at most 64"),
    ("engine: docker", "engine: slurm, nodes: 2, gpus: [GPU-1]",
     "14: hosts.here.gpus[0]: 'GPU-1' is in one machine, b"),
    ("engine: docker", "engine: slurm, nodes: 0", "14: hosts.here.nodes: 0 is too small; it must be at least 1"),
    ("engine: docker", 'engine: slurm, nodes: ["a[1-3]"]',
     "14: hosts.here.nodes[0]: 'a[1-3]' is not the name of a node"),
    ("engine: docker", "engine: slurm, nodes: [a, a]", "14: hosts.here.nodes[1]: a is listed twice; keep one"),
    ("engine: docker", "engine: slurm, parallel: true", "14: hosts.here.parallel: is not for engine: slurm; ask"),
    ("engine: docker", "engine: slurm, select: {gers: x}", "14: hosts.here.select.gers: unknown key; did you mean 'gr"),
    ("engine: docker", 'engine: slurm, select: {qos: "a b"}', "14: hosts.here.select.qos: 'a b' has characters that"),
    ("engine: docker", "engine: slurm, hold: {time: 1s}", "14: hosts.here.hold.time: '1s' is too small; it must be"),
    ("engine: docker", "engine: slurm, hold: {tmie: 1h}", "14: hosts.here.hold.tmie: unknown key; did you mean 'time'"),
    ("engine: docker", "engine: slurm, nodes_per_trial: 0", "14: hosts.here.nodes_per_trial: 0 is too small; it must"),
    ("engine: docker", "engine: slurm, nodes_per_trial: 2, nodes: [a, b]",
     "14: hosts.here.nodes_per_trial: is for a host without `nodes`, and with `container: none`; remove one of them"),
    ("engine: docker", "engine: slurm, nodes_per_trial: 2, container: docker",
     "14: hosts.here.nodes_per_trial: is for a host without `nodes`, and with `container: none`; remove one of them"),
    ("engine: docker", "nodes_per_trial: 2, engine: docker", "14: hosts.here.nodes_per_trial: is for engine: slurm"),
    ("engine: docker", "engine: slurm, container: lxc", "14: hosts.here.container: 'lxc' is not allowed; allowed: 'n"),
    ("{engine: docker}", "docker", "14: hosts.here: must be a mapping, not 'docker'; its keys: engine, gpus"),
    ("memory: 8GiB", "timeout: 3 days", "21: scenarios.signal.timeout: '3 days' is not a duration; write 20m, 90s"),
    ("memory: 8GiB", "timeout: 0", "21: scenarios.signal.timeout: 0 is out of range; it must be more than 0 and"),
    ("memory: 8GiB", "steps: {first: 10}", "21: scenarios.signal.steps.first: 10 is too small; it must be at least 64"),
    ("memory: 8GiB", "steps: {first: x}", "21: scenarios.signal.steps.first: must be a whole number, not 'x'"),
    ("memory: 8GiB", "limits: {setup: x}", "21: scenarios.signal.limits: appears twice, first on line 20; keep one"),
    ("leak: 0.5KiB", "leak: 0.5", "20: scenarios.signal.limits.leak: 0.5 is not a size"),
    ("leak: 0.5KiB", "leak: 0B", "20: scenarios.signal.limits.leak: 0 would make every trace a leak"),
    ("leak: 0.5KiB", "slowdown: 10", "20: scenarios.signal.limits.slowdown: 10 would be 1000 %; write 10%"),
    ("leak: 0.5KiB", "slowdown: ten", "20: scenarios.signal.limits.slowdown: 'ten' is not a share; write 10% or 0.1"),
    ("leak: 0.5KiB", "setup: nice", "20: scenarios.signal.limits.setup: 'nice' is not allowed; allowed: 'bad' or"),
    ("memory: 8GiB", "environment: [A]", "21: scenarios.signal.environment: 'A' is not NAME=value; write NAME=value"),
    ("memory: 8GiB", "environment: {A: true}", "21: scenarios.signal.environment.A: must be text, not true; put"),
    ("memory: 8GiB", "ulimits: {nofile: x}", "21: scenarios.signal.ulimits.nofile: must be a whole number, not 'x'"),
    ("memory: 8GiB", "ulimits: {nofile: {soft: 1}}", "21: scenarios.signal.ulimits.nofile.hard: is missing"),
    ("memory: 8GiB", "cap_add: [sys]", "21: scenarios.signal.cap_add[0]: 'sys' is not a capability; write one such as"),
    ("memory: 8GiB", "judge: code", "21: scenarios.signal.judge: 'code' is not allowed; allowed: 'exit'"),
    ('"--fast"]', '"--fast"]\n    params: {n: 1}', "24: scenarios.tool.params.n: the command has no '{n}'"),
    ('[true-of-it, "--fast"]', "make", "23: scenarios.tool.command: must be a list, not 'make'"),
    ("n: 1}", "n: []}", "19: scenarios.signal.params.n: is empty; give at least one"),
    ("n: 1}", "n: [1, [2]]}", "19: scenarios.signal.params.n[1]: must be text, a number, true, false or null, not a l"),
    ("n: 1}", "n: 1e999}", "19: scenarios.signal.params.n: 1e999 is too large a number"),
    ("memory: 8GiB", "probes: {largest: {}}",
     "21: scenarios.signal.probes.largest.param: is missing: the param to maximise"),
    ("memory: 8GiB", "probes: {lines: 3}", "21: scenarios.signal.probes.lines: must be a mapping, not 3; its keys: st"),
    ("trials: {", "stop: {until: bad}\ntrials: {", "26: stop.until: 'bad' is not allowed; allowed: 'first-bad'"),
    ("trials: {", "stop: {time: soon}\ntrials: {", "26: stop.time: "),
    ("trials: {", "stop: {quick: perhaps}\ntrials: {", "26: stop.quick: "),
    ("least: 3", "least: 0", "26: trials.least: 0 is too small; it must be at least 1"),
    (GOOD, "version: 1\nseries: {}\nscenarios: {}\n", "2: series: is empty; give at least one"),
    (GOOD, "- 1", "1: must be a mapping, not a list"),
    (GOOD, "", "1: version: is missing"),
]
MEANING = [
    ("tensorflow\n", "tensorflow:1\n", "4: series.tags.repository: 'registry.local/tensorflow:1' is not a repository"),
    ('"22.12"]', '"2 2"]', "5: series.tags.tags[1]: '2 2' is not a tag"),
    ('"20.12", "22.12"]', '"22.12", "20.12"]',
     "5: series.tags.tags[1]: versions are not oldest first: 22.12 before 20"),
    ('["2.0.0", "2.0.1"]', "[2.0.0, 2.0.0]", "12: series.numpy.versions[1]: '2.0.0' appears twice, first on line 12"),
    ('["2.0.0", "2.0.1"]', "[2.0, 2.0.0]", "12: series.numpy.versions[1]: 2.0 and 2.0.0 are the same version; keep"),
    ('["2.0.0", "2.0.1"]', "[x1]", "12: series.numpy.versions[0]: 'x1' is not a version of a Python package, such as"),
    ('["2.0.0", "2.0.1"]', "[2.0.7]",
     "12: series.numpy.versions[0]: the package index has no numpy 2.0.7; nearest: 1.26.4, 2.0.0, 2.0.1, 2.1.0"),
    ('["2.0.0", "2.0.1"]', "'>=9'", "12: series.numpy.versions: no release of numpy for Python"),
    ('["2.0.0", "2.0.1"]', "newest", "12: series.numpy.versions: 'newest' is neither a list nor a range; write"),
    ('"numpy=={version}"', "numpy", "11: series.numpy.install: no requirement has {version}: all versions would be"),
    ('"numpy=={version}"', '"--pre {version}"', "11: series.numpy.install[0]: '--pre {version}' is not a requirement"),
    ('"numpy=={version}"', '"nunpy=={version}"',
     "11: series.numpy.install[0]: the package index has no package 'nunpy'"),
    ("    install", "    python: two\n    install",
     "11: series.numpy.python: 'two' is not a version of Python 3, such as"),
    ("build: image", "build: img", "7: series.wheel.build: 'img/Dockerfile' does not exist; paths are relative to the"),
    ("arg: WHEEL", "arg: VERSION", "8: series.wheel.arg: image/Dockerfile has no 'ARG VERSION': all versions would be"),
    ("arg: WHEEL", "arg: WHEEL\n    args: {WHEEL: 1}", "9: series.wheel.args.WHEEL: is the arg that takes the version"),
    ('registry.local/tensorflow\n    tags: ["20.12", "22.12"]', "", "4: series.tags.repository: has no value"),
    ("engine: docker", "engine: dokcer", "14: hosts.here.engine: unknown engine 'dokcer'; allowed: docker, process"),
    ("engine: docker", "engine: 'tcp://h:notaport'",
     "14: hosts.here.engine: 'tcp://h:notaport' is not an address: Port"),
    ("engine: docker", "engine: 'ssh://h:99999'",
     "14: hosts.here.engine: 'ssh://h:99999' is not an address: Port out of"),
    ("engine: docker", "engine: 'tcp://[::1'",
     "14: hosts.here.engine: 'tcp://[::1' is not an address: Invalid IPv6 URL"),
    ("engine: docker", "engine: 'tcp://h'", "14: hosts.here.engine: 'tcp://h' names no host or port; write tcp://HOST"),
    ("engine: docker", "engine: 'ssh://me:secret@h'",
     "14: hosts.here.engine: a password does not belong in an address"),
    ("engine: docker", "engine: []", "14: hosts.here.engine: is empty; give at least one"),
    ("engine: docker", "engine: {a: 1}", "14: hosts.here.engine: must be text or a list, not a mapping"),
    ("engine: docker", "engine: ['ssh://a', process]", "14: hosts.here.engine[1]: process is only this machine, but a"),
    ("engine: docker", "engine: ['ssh://a', shs]", "14: hosts.here.engine[1]: unknown engine 'shs'; allowed: docker"),
    ("engine: docker", "engine: ['ssh://a', 'ssh://root@a']",
     "14: hosts.here.engine[1]: 'ssh://root@a' is the same machine as engine[0]; keep one"),
    ("engine: docker", "engine: ['ssh://a', 'ssh://b'], gpus: [GPU-1234]",
     "14: hosts.here.gpus[0]: 'GPU-1234' is in one machine, but this host is a pool; name the GPU by its index"),
    ("engine: docker", "engine: ['ssh://a', 'ssh://b'], parallel: true",
     "14: hosts.here.parallel: the machines of a pool run at the same time, and the cards of each run one after the"),
    ("engine: docker", "engine: docker, gpus: [0, 0]", "14: hosts.here.gpus: a GPU is listed twice; keep one"),
    ("memory: 8GiB", "series: [nmpy]",
     "21: scenarios.signal.series[0]: no series 'nmpy'; did you mean 'numpy'? known:"),
    ("memory: 8GiB", "hosts: [there]", "21: scenarios.signal.hosts[0]: no host 'there'; did you mean 'here'? known:"),
    ("script: signal.py", "script: gone.py", "18: scenarios.signal.script: 'gone.py' does not exist; paths are"),
    ("script: signal.py", "command: [a]\n    script: signal.py", "17: scenarios.signal: give exactly one of script,"),
    ("memory: 8GiB", "step_pattern: x",
     "21: scenarios.signal.step_pattern: is for a command; a script counts its steps"),
    ("memory: 8GiB", "judge: exit", "21: scenarios.signal.judge: is for a command"),
    ('"--fast"]', '"--fast"]\n    step_pattern: "("',
     "24: scenarios.tool.step_pattern: is not a regular expression: miss"),
    ("memory: 8GiB", "files: [gone.txt]", "21: scenarios.signal.files[0]: 'gone.txt' does not exist; paths are"),
    ("memory: 8GiB", "mounts: [{from: /a, at: /}]",
     "21: scenarios.signal.mounts[0].at: '/' cannot be mounted over; choose another path"),
    ("memory: 8GiB", "mounts: [{from: /a, at: /.harness/x}]",
     "21: scenarios.signal.mounts[0].at: '/.harness/x' cannot be mounted over; choose"),
    ("memory: 8GiB", "mounts: [{from: /a, at: ../x}]",
     "21: scenarios.signal.mounts[0].at: '../x': write a plain path, such as /data or data"),
    ("memory: 8GiB", "mounts: [{from: /a, at: signal.py}]",
     "21: scenarios.signal.mounts[0].at: 'signal.py' is a file of the scenario, too; choose"),
    ("memory: 8GiB", "mounts: [{from: /a, at: d}, {from: /b, at: d/e}]",
     "21: scenarios.signal.mounts[1].at: 'd/e' is where d is mounted, too; choose"),
    ("memory: 8GiB", "mounts: [{from: /a, at: /d}]",
     "21: scenarios.signal.mounts[0].at: host venv has no containers, so that no path of its own"),
    ("memory: 8GiB", "mounts: [{from: /a}]",
     "21: scenarios.signal.mounts[0].at: is missing: its path in a launch"),
    ("memory: 8GiB", "mounts: [{from: /a, at: d, identity: sha}]",
     "21: scenarios.signal.mounts[0].identity: 'sha' is not allowed; allowed: "),
    ("memory: 8GiB", "mounts: [{cache: c, at: d, start: hot}]",
     "21: scenarios.signal.mounts[0].start: 'hot' is not allowed; allowed: 'warm' or 'cold'"),
    ("memory: 8GiB", "mounts: [{cache: c, at: d, form: /a}]",
     "21: scenarios.signal.mounts[0].form: unknown key; allowed: cache, at, start"),
    ("memory: 8GiB", "mounts: [3]", "21: scenarios.signal.mounts[0]: must be a mapping, not 3"),
    ("memory: 8GiB", "mounts: [{cache: c, at: /d}]",
     "21: scenarios.signal.mounts[0].at: host venv has no containers, so that no path of its own can be "
     "replaced there; write d, which becomes a link in the folder of the launch, or ~/d, in its home"),
    ("memory: 8GiB", "mounts: [{cache: c, at: ~/d}]\n    environment: {HOME: /home/me}",
     "21: scenarios.signal.mounts[0].at: '~/d' needs the home of the launch; leave HOME out of the environment"),
    ("memory: 8GiB", "mounts: [{cache: c, at: d}, {cache: c, at: ~/d}]",
     "21: scenarios.signal.mounts[1].cache: c appears twice; give it another name"),
    ("memory: 8GiB", "mounts: [{from: /a, at: ~/d}]",
     "21: scenarios.signal.mounts[0].at: '~/d': write a plain path, such as /data or data"),
    ("memory: 8GiB", "steps: {time: 20m}",
     "21: scenarios.signal.steps.time: 1200 s is not less than timeout (1200 s), which must leave time for setup"),
    ("memory: 8GiB", "steps: {first: 100, budget: 99}",
     "21: scenarios.signal.steps.budget: 99 is less than first (100)"),
    ("memory: 8GiB", "probes: {optrace: {at: [9, 8, 9]}}",
     "21: scenarios.signal.probes.optrace.at[2]: 9 appears twice; keep one"),
    ("memory: 8GiB", "ulimits: {nofile: {soft: 2, hard: 1}}", "21: scenarios.signal.ulimits.nofile: soft (2) is more"),
    ("n: 1}", "n: [1, 1]}", "19: scenarios.signal.params.n[1]: 1 appears twice; keep one"),
    ("n: 1}", "n: [1, true]}", "19: scenarios.signal.params.n[1]: True is equal to 1 in Python; keep one"),
    ("n: 1}", "n: 3}", "19: scenarios.signal.params.n: 3 is not allowed by signal.py; allowed: 1, 2"),
    ("n: 1}", "n: true}", "19: scenarios.signal.params.n: True is not allowed by signal.py; allowed: 1, 2"),
    ("[rfft, fft]", "[rftt]",
     "19: scenarios.signal.params.op[0]: 'rftt' is not allowed by signal.py; allowed: rfft, fft"),
    ("n: 1}", "m: 1}", "19: scenarios.signal.params.m: setup in signal.py has no parameter 'm'; it has: op, n, flag"),
    ("op: [rfft, fft], ", "", "19: scenarios.signal.params: setup in signal.py needs 'op', which params does"),
    ("    params: {op: [rfft, fft], n: 1}\n", "", "17: scenarios.signal.params: setup in signal.py needs 'op'"),
    ("n: 1}", "n-1: 1}", "19: scenarios.signal.params.n-1: 'n-1' cannot name a parameter"),
    ("n: 1}", "host: 1}", "19: scenarios.signal.params.host: 'host' has another meaning in exclude"),
    ('why: "too long"', "oop: x", "24: exclude[0].oop: unknown axis; known: series, image, host"),
    ("{series: tags,", "{series: tag,", "24: exclude[0].series: no cell has series 'tag'; known: tags, wheel, numpy"),
    ("{series: tags,", "{series: tags, image: 2.0.0,", "24: exclude[0].image: no cell has image '2.0.0'; known: 20.12"),
    ("{series: tags, scenario: tool", "{op: dct", "24: exclude[0].op: no cell has op 'dct'; known: rfft, fft"),
    ("{series: tags, scenario: tool", "{op: rfft, scenario: tool", "24: exclude[0].op: unknown axis; known: series"),
    ("{series: tags, scenario: tool, why", "{why", "24: exclude[0]: names no axis, and would leave out everything"),
    ("exclude", "include", "24: include[0].series: include adds a variant to a scenario, for all its images and hosts"),
    ("baseline", "include: [{scenario: tol}]\nbaseline", "25: include[0].scenario: no scenario 'tol'; did you mean"),
    ("baseline", "include: [{op: fft}]\nbaseline", "25: include[0].scenario: is missing"),
    ("baseline", "include: [{scenario: signal, n: 2}]\nbaseline", "25: include[0]: setup in signal.py needs 'op'"),
    ("baseline", "include: [{scenario: signal, op: x}]\nbaseline",
     "25: include[0].op: 'x' is not allowed by signal.py"),
    ("baseline", "include: [{scenario: signal, op: fft, n: 1}]\nbaseline", "25: include[0]: scenario signal has this"),
    ('{tags: "20.12"}', '{tags: "20.13"}',
     "25: baseline.tags: series tags has no version '20.13'; it has: 20.12, 22.12"),
    ('{tags: "20.12"}', '{tgs: "20.12"}', "25: baseline.tgs: no series 'tgs'; did you mean 'tags'? known: tags, wheel"),
    ("most: 8", "most: 2", "26: trials.most: 2 is less than least (3); give at least as many"),
]
TEXT = [
    ('["2.0.0", "2.0.1"]', ">=9", "12: is not YAML: a value that begins with > or | must be in quotes"),
    ("version: 1", "version: 1\n\tname: x", "2: is not YAML: a tab is used for indentation; use spaces"),
    ("build: image", "build: image: x", "7: is not YAML: a colon is not allowed here"),
    ("trials: {", "trials: {{", "26: is not YAML: the { that begins here is never closed, or lacks a comma on line 27"),
    ("memory: 8GiB", "script: signal.py", "21: scenarios.signal.script: appears twice, first on line 18; keep one"),
    ("trials:", "version:", "26: version: appears twice, first on line 1; keep one"),
    ("memory: 8GiB", "memory: ${MEM}",
     "21: scenarios.signal.memory: the variable MEM is not set; set it, or write ${MEM"),
    ("memory: 8GiB", "memory: ${MEM:?in GiB}", "21: scenarios.signal.memory: the variable MEM is not set: in GiB; set"),
    ("memory: 8GiB", "memory: ${MEM", "21: scenarios.signal.memory: ${ has no closing }; write ${NAME}, or $$"),
    ("memory: 8GiB", "memory: ${1x}", "21: scenarios.signal.memory: ${1x} is not a variable; write ${NAME}"),
    ("build: image", 'build: "a\\0b"',
     "7: series.wheel.build: has a control character; only printable text is allowed"),
    ("build: image", 'build: "\\ud800"', "7: series.wheel.build: has a control character"),
    ("build: image", 'build: "\\UFFFFFFFF"', "1: is not YAML: "),
    ("build: image", "build: !!python/object:os.x y", "7: series.wheel.build: the YAML tag !python/object:os.x is not"),
    ("build: image", "build: !!int y", "7: series.wheel.build: 'y' is not a number"),
    ("build: image", "build: *nothing", "7: is not YAML: no value above is marked &nothing"),
    ("build: image", "build: &a [*a]", "7: series.wheel.build[0]: an alias (*) refers to a value that contains it"),
    ("build: image", "[build]: image", "7: series.wheel: a key is a list or a mapping; keys are plain text"),
    ("build: image", "<<: 3", "7: series.wheel: << takes a mapping, such as *defaults"),
    ("n: 1}", f"n: {'9' * 100}}}", "19: scenarios.signal.params.n: a number has more than 64 characters; quote it"),
    (GOOD, "--- 1\n--- 2\n", "2: is not YAML: but found another document expected a single document"),
    (GOOD, "a: \x01\n", "1: has a character that YAML does not allow"),
    (GOOD, "[" * 1000, "1: is nested too deeply; at most 32 levels"),
    (GOOD, "\n" * 3 + "a: " + "[" * 40 + "]" * 40,
     f"4: a[0][0][0]: is nested too deeply; at most {MOST_LEVELS} levels"),
]
# fmt: on


def test_a_fall_that_no_value_can_have_is_no_limit() -> None:
    """`{drop: 200%}` was accepted, and never found anything."""
    with pytest.raises(ValueError, match="a value cannot fall by 100 % or more"):
        WrittenMetricLimit.model_validate({"drop": "200%"}, context=Path())


@pytest.mark.parametrize(("old", "new", "expected"), SHAPE + MEANING + TEXT)
def test_error_says_where_and_what(load: Load, old: str, new: str, expected: str) -> None:
    assert old in GOOD
    with pytest.raises(MatrixError) as caught:
        load(GOOD.replace(old, new, 1))
    lines = str(caught.value).split("\n")
    assert any(line.startswith("matrix.yaml:" + expected) for line in lines), lines


@pytest.mark.parametrize(
    ("wrong", "lines"),
    [
        ({"most: 8": "most: 2", "engine: docker": "engine: dokcer", "memory: 8GiB": "memory: 8"}, [14, 21, 26]),
        ({'"20.12"}': '"x"}', "script: signal.py": "script: no.py", "build: image": "build: no"}, [7, 18, 25]),
    ],
    ids=["values", "names"],
)
def test_all_errors_come_in_order_of_line(load: Load, wrong: dict[str, str], lines: list[int]) -> None:
    """What a value must be is checked first, and then what the file names."""
    text = GOOD
    for right, other in wrong.items():
        text = text.replace(right, other)
    with pytest.raises(MatrixError) as caught:
        load(text)
    numbers = [int(line.split(":")[1]) for line in str(caught.value).split("\n")]
    assert numbers == lines


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("def setup(:\n", "signal.py:1: is not Python: "),
        ('print "can\'t"\n', "signal.py:1: is not Python: "),
        ("x = 1\n\n  y = 2\n", "signal.py:3: is not Python: unexpected indent"),
        ("def set_up(op, n): pass\n", "no setup(**params) in signal.py; a scenario must define it and return a step"),
        ("\0", "signal.py"),
        ("class C:\n    def setup(self): pass\n", "no setup(**params) in signal.py"),
        ("def setup(op, n, /): pass\n", "setup in signal.py has no parameter 'op'"),
        ("\nPARAMS = {'op': 5}\ndef setup(op, n): pass\n", "signal.py:2: PARAMS must be a dict of lists"),
        ("PARAMS = ['op']\ndef setup(op, n): pass\n", "signal.py:1: PARAMS must be a dict of lists"),
        ("PARAMS = {'opp': [1]}\ndef setup(op, n): pass\n", "signal.py:1: PARAMS has 'opp', which setup does not take"),
    ],
)
def test_script_that_is_no_scenario(load: Load, folder: Path, script: str, expected: str) -> None:
    (folder / "signal.py").write_text(script)
    with pytest.raises(MatrixError, match=r"matrix\.yaml:1[89]: scenarios\.signal\.(script|params.op): ") as caught:
        load(GOOD)
    assert expected in str(caught.value)


@pytest.mark.parametrize(
    "script",
    [
        "def setup(**params): pass\n",
        "from base import setup\n",
        "setup = make(1)\n",
        "try:\n    import x\nexcept ImportError:\n    def setup(op, n): pass\n",
        "PARAMS = compute()\ndef setup(op, n, late=2): pass\n",
        "PARAMS = {'op': open_end, 'n': [1]}\ndef setup(op, n): pass\n",
        "PARAMS: dict\ndef setup(op, n): pass\n",
        "PARAMS = {'other': [1]}\ndef setup(**params): pass\n",
        SCRIPT.replace("One", "A \\d in the text"),
    ],
)
def test_script_that_is_a_scenario(load: Load, folder: Path, script: str) -> None:
    (folder / "signal.py").write_text(script)
    assert load(GOOD).scenarios[0].script == Path("signal.py")


def test_alias_bomb_is_refused(load: Load) -> None:
    bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
    bomb += "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 12))
    with pytest.raises(MatrixError, match=r"^matrix\.yaml:1: a4.*: more than 100000 values, aliases expanded"):
        load(bomb)


def test_a_file_of_nearly_this_name_is_suggested(folder: Path) -> None:
    """`harness sweep m.yml` next to an m.yaml said only that there is no such file."""
    (folder / "nightly.yaml").touch()
    (folder / "other.txt").touch()
    for typed in ("nightly.yml", "nigthly.yaml"):
        with pytest.raises(MatrixError) as told:
            load_matrix(folder / typed, environ={})
        assert str(told.value).endswith(f"; did you mean {folder / 'nightly.yaml'}? name a matrix file")
    with pytest.raises(MatrixError, match="directory; name a matrix file"):
        load_matrix(folder / "quite-different.yaml", environ={})
    (folder / "loop.yaml").symlink_to("loop.yaml")
    with pytest.raises(MatrixError, match="symbolic links; name a matrix file"):
        load_matrix(folder / "loop.yaml", environ={})


def test_who_sweeps_a_program_is_told_which_command_takes_it(folder: Path) -> None:
    (folder / "train.py").write_text("for step in range(9): print(step)\n")
    with pytest.raises(MatrixError, match=r"train\.py: is a Python program, .* harness try for a program$"):
        load_matrix(folder / "train.py", environ={})


def test_file_that_is_too_large_or_not_text_or_not_there(load: Load, folder: Path) -> None:
    with pytest.raises(MatrixError, match=r"^matrix\.yaml:1: is larger than 1 MiB"):
        load(b"#" * (MOST_BYTES + 1))
    with pytest.raises(MatrixError, match=r"^matrix\.yaml:3: is not UTF-8 text; save the file as UTF-8"):
        load(b"version: 1\nname: x\nseries: \xff\n")
    with pytest.raises(MatrixError, match=r"^gone\.yaml: cannot be read: No such file or directory"):
        load_matrix(Path("gone.yaml"), environ={}, index=FakeIndex())
    with pytest.raises(MatrixError, match=r"^image: cannot be read: Is a directory"):
        load_matrix(Path("image"), environ={}, index=FakeIndex())


def test_too_many_variants(load: Load) -> None:
    values = f"[{', '.join(map(str, range(101)))}]"
    text = GOOD.replace(
        'command: [true-of-it, "--fast"]', f"command: ['{{a}}', '{{b}}']\n    params: {{a: {values}, b: {values}}}"
    )
    with pytest.raises(
        MatrixError, match=r"^matrix\.yaml:24: scenarios\.tool\.params: 10201 combinations; at most 10000"
    ):
        load(text)


@pytest.mark.parametrize(
    ("metrics", "line"),
    [
        ("{loss: }", "18: scenarios.signal.metrics.loss: has no value; give it one, or remove the key"),
        ('{"": equal}', "18: scenarios.signal.metrics: has an empty key; give it a name"),
    ],
)
def test_a_metric_without_a_limit_or_a_name_is_one_problem(metrics: str, line: str, load: Load) -> None:
    with pytest.raises(MatrixError) as error:
        load(GOOD.replace("    script: ", f"    metrics: {metrics}\n    script: ", 1))
    assert [text.partition("matrix.yaml:")[2] for text in str(error.value).splitlines()] == [line]
