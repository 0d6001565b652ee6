"""How long a sweep takes that has to pull its images, compared with the pulls alone and the trials alone.

    python -m benchmarks.pulls_beside_trials [--images 12] [--trials 1:1] [--variants 1] [--budget 200] [--large 1]
        [--step-time 10%] [--disk 1GiB] [--base harness-base:bookworm]

It uses a real registry on loopback (Debian's docker-registry), slowed so that all pulls take as long as all trials, and
an engine of the lab (docs/lab.md; root). Each image is the base, which the engine already has, and one further layer,
which is `--large` times as large for the oldest image. Steps sleep 10 ms; a quiet launch makes 100 steps, the first
launch of its cell `--budget`. Exits with 1 if the sweep takes more than 1.15 times the longer of the two.
"""

from __future__ import annotations

import argparse
import os
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import docker
from docker.errors import ImageNotFound

from tests.lab.daemon import Daemon
from tests.lab.proxy import Way, way_to
from tests.registry.held import Held, anonymous, held

BOUND = 1.15
FOLDER = Path("/var/tmp/harness-lab-figures")
LAYER_BYTES = 1 << 20
SCRIPT = '''"""A step that sleeps."""
import time
def setup(part=0):
    return lambda: time.sleep(0.01)
'''
MATRIX = """\
version: 1
series: {{s: {{repository: "{repository}", tags: {tags}}}}}
hosts: {{here: {{engine: "{engine}"{disk}}}}}
scenarios:
  sleep: {{script: sleep.py, params: {{part: {parts}}}, steps: {{first: 100, budget: {budget}}},
          limits: {{step_time: {step_time}}}}}
trials: {{least: {least}, most: {most}}}
"""


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where the sweeps run: the engine, and the proxy to the registry from which it pulls."""

    daemon: Daemon
    way: Way
    repository: str
    tags: list[str]
    folder: Path

    @property
    def references(self) -> list[str]:
        return [f"{self.repository}:{tag}" for tag in self.tags]

    def pull(self) -> float:
        """Return the seconds that all pulls take, one after the other."""
        begun_s = time.perf_counter()
        for reference in self.references:
            subprocess.run(
                ["docker", "--host", self.daemon.address, "pull", "--quiet", reference], check=True, capture_output=True
            )
        return time.perf_counter() - begun_s

    def remove(self) -> None:
        with closing(self.daemon.client()) as client:
            for reference in self.references:
                with suppress(ImageNotFound):  # it was removed to make room for others
                    client.images.remove(str(client.images.get(reference).id), force=True)

    def sweep(self) -> float:
        """Return the seconds that a sweep takes without earlier results."""
        command = [sys.executable, "-m", "harness", "sweep", "matrix.yaml", "--fresh"]
        begun_s = time.perf_counter()
        environ = {**os.environ, "PYTHONPATH": str(Path.cwd())}
        done = subprocess.run(command, cwd=self.folder, env=environ, capture_output=True, text=True, check=False)
        if done.returncode not in (0, 1, 4):  # with any of these codes, everything ran
            sys.exit(f"the sweep ended with {done.returncode}:\n{done.stdout}{done.stderr}")
        return time.perf_counter() - begun_s


def main() -> int:
    options = arguments()
    with place(options) as found:
        found.pull()
        run_s = found.sweep()
        found.remove()
        found.way.bytes_per_s = (options.images - 1 + options.large) * LAYER_BYTES / run_s
        pull_s = found.pull()
        found.remove()
        both_s = found.sweep()
        found.remove()
    ratio = both_s / max(run_s, pull_s)
    print(f"trials {run_s:.1f} s, pulls {pull_s:.1f} s, both {both_s:.1f} s, ratio {ratio:.2f}, bound {BOUND}")
    return 0 if ratio <= BOUND else 1


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=12)
    parser.add_argument("--trials", default="1:1", help="LEAST:MOST, as for a sweep")
    parser.add_argument("--variants", type=int, default=1)
    parser.add_argument("--budget", type=int, default=200)
    parser.add_argument("--large", type=int, default=1)
    parser.add_argument("--step-time", default="10%", help="the limit, or none: step times are not compared")
    parser.add_argument("--disk", help="the host's limit for images, as in a matrix (default: no limit)")
    parser.add_argument("--base", default="harness-base:bookworm")
    return parser.parse_args()


@contextmanager
def place(options: argparse.Namespace) -> Iterator[Place]:
    """Yield an engine that has the base, and a registry with the images."""
    daemon = Daemon(folder=FOLDER / "c", number=43)
    with tempfile.TemporaryDirectory() as name, closing(docker.from_env()) as client:
        folder = Path(name)
        with held(folder, auth=anonymous(folder), client=client) as registry:
            way = Way(behind=registry.host)
            tags = push(registry, options)
            with way_to(way) as address:
                try:
                    daemon.stop()
                    daemon.start()
                    found = Place(daemon=daemon, way=way, repository=f"{address}/app", tags=tags, folder=folder)
                    write(found, options)
                    subprocess.run(
                        ["docker", "--host", daemon.address, "pull", "--quiet", f"{address}/app:base"],
                        check=True,
                        capture_output=True,
                    )
                    yield found
                finally:
                    daemon.stop()


def push(registry: Held, options: argparse.Namespace) -> list[str]:
    """Push the images and the base (as `base`), and return the tags of the images, in order."""
    registry.push("app", "base", base=options.base, files={"own": "base"})
    tags = [f"1.{number}" for number in range(options.images)]
    for number, tag in enumerate(tags):
        times = options.large if number == 0 else 1
        registry.push("app", tag, base=options.base, files={"own": secrets.token_hex(times * LAYER_BYTES)})
    return tags


def write(found: Place, options: argparse.Namespace) -> None:
    least, _, most = options.trials.partition(":")
    text = MATRIX.format(
        repository=found.repository,
        tags=found.tags,
        engine=found.daemon.address,
        disk=f", disk: {options.disk}" if options.disk else "",
        parts=list(range(options.variants)),
        budget=options.budget,
        step_time=options.step_time,
        least=least,
        most=most,
    )
    (found.folder / "matrix.yaml").write_text(text)
    (found.folder / "sleep.py").write_text(SCRIPT)


if __name__ == "__main__":
    sys.exit(main())
