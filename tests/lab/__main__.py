"""`tools/lab up | down | remove`: the lab by hand, to try a matrix on hosts whose GPUs are test doubles."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from pathlib import Path

from tests.lab.daemon import Daemon, LabError
from tests.lab.ways import Sshd

FOLDER = Path("/var/tmp/harness-lab")
FIRST_PORT = 23750


def main() -> None:
    parser = argparse.ArgumentParser(prog="tools/lab", description=__doc__)
    parser.add_argument("do", choices=["up", "down", "remove"])
    parser.add_argument("--hosts", type=Path, default=Path(__file__).with_name("hosts.json"), help="the doubles")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where all of it is kept")
    parser.add_argument(
        "--image", action="append", default=[], help="image of the machine's engine to bring to each host"
    )
    chosen = parser.parse_args()
    hosts = json.loads(chosen.hosts.read_text())
    daemons = {
        name: Daemon(folder=chosen.folder / name, number=number, listen=(f"tcp://127.0.0.1:{FIRST_PORT + number}",))
        for number, name in enumerate(hosts, start=1)
    }
    first = next(iter(daemons.values()))
    sshd = Sshd(folder=chosen.folder / "sshd", engine=first.address, port=FIRST_PORT)
    try:
        if chosen.do == "up":
            up(daemons, hosts, sshd, images=chosen.image)
        else:
            down(daemons, sshd)
    except LabError as error:
        down(daemons, sshd)
        sys.exit(f"lab: {error}")
    if chosen.do == "remove":
        shutil.rmtree(chosen.folder, ignore_errors=True)


def up(daemons: dict[str, Daemon], hosts: dict[str, dict[str, object]], sshd: Sshd, *, images: list[str]) -> None:
    print("the GPUs of these hosts are doubles; nothing measured on them says anything about a GPU", file=sys.stderr)
    for name, daemon in daemons.items():
        if not daemon.answers():
            daemon.start(hosts[name])
        daemon.load(images)
    sshd.stop()
    sshd.start()
    print(f"export HOME={sshd.home}   # its .ssh has the key of the ssh host")
    for name, address in addresses(daemons, sshd).items():
        print(f"export {name.upper()}_HOST={address}")


def addresses(daemons: dict[str, Daemon], sshd: Sshd) -> dict[str, str]:
    """Return the address of each host: the first by ssh, the others by tcp."""
    first, *_ = daemons
    return {name: sshd.address if name == first else daemon.listen[0] for name, daemon in daemons.items()}


def down(daemons: dict[str, Daemon], sshd: Sshd) -> None:
    sshd.stop()
    for daemon in daemons.values():
        daemon.stop()


if __name__ == "__main__":
    main()
