"""Remote addresses of a lab engine: a separate sshd and separate certificates, nothing of the user's."""

from __future__ import annotations

import getpass
import os
import shutil
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.lab.daemon import LabError, detach, end, run
from tests.waiting import until

KEY = ("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f")


@dataclass(frozen=True, kw_only=True)
class Sshd:
    """An SSH server on loopback, where `docker` reaches the engine at `engine`. All its files are in `folder`.

    `home` is a HOME whose `.ssh` has the key, the known host and the port: everything that a client needs.
    """

    folder: Path
    engine: str
    port: int

    @property
    def address(self) -> str:
        return f"ssh://{getpass.getuser()}@127.0.0.1:{self.port}"

    @property
    def home(self) -> Path:
        return self.folder / "home"

    def start(self) -> None:
        """Start the server. Raises LabError."""
        server = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin")
        if server is None:
            raise LabError("the lab needs an SSH server (Debian: apt-get install openssh-server)")
        Path("/run/sshd").mkdir(exist_ok=True)  # required by sshd
        self._make_keys()
        (self.folder / "sshd_config").write_text(self._config())
        command = [server, "-D", "-e", "-f", str(self.folder / "sshd_config")]
        detach(command, log=self.folder / "sshd.log", environ=os.environ)
        if not until(self._answers, seconds=10):
            raise LabError(f"sshd did not start: {(self.folder / 'sshd.log').read_text()[-500:]}")

    def _make_keys(self) -> None:
        ssh = self.home / ".ssh"
        shutil.rmtree(self.folder, ignore_errors=True)
        ssh.mkdir(parents=True, mode=0o700)
        run(*KEY, str(self.folder / "host_key"))
        run(*KEY, str(ssh / "id_ed25519"))
        shutil.copy(ssh / "id_ed25519.pub", self.folder / "authorized_keys")
        host_key = (self.folder / "host_key.pub").read_text()
        (ssh / "known_hosts").write_text(f"[127.0.0.1]:{self.port} {host_key}")

    def _config(self) -> str:
        lines = {
            "Port": self.port, "ListenAddress": "127.0.0.1", "HostKey": self.folder / "host_key", "PidFile": "none",
            "AuthorizedKeysFile": self.folder / "authorized_keys", "StrictModes": "no", "UsePAM": "no",
            "PasswordAuthentication": "no", "PermitRootLogin": "prohibit-password",
            "SetEnv": f"DOCKER_HOST={self.engine}",
        }  # fmt: skip
        return "".join(f"{name} {value}\n" for name, value in lines.items())

    def _answers(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
        except OSError:
            return False
        return True

    def stop(self) -> None:
        """End the server and the connections that it serves."""
        mark = str(self.folder / "sshd_config")
        servers = [found for found in psutil.process_iter(["cmdline"]) if mark in (found.info["cmdline"] or [])]
        served = [child for server in servers for child in server.children(recursive=True)]
        end([*servers, *served], signal.SIGTERM)


@contextmanager
def home(path: Path) -> Iterator[None]:
    """Set HOME to `path`: SSH clients find their keys there, and touch nothing of the user's."""
    before = os.environ["HOME"]
    os.environ["HOME"] = str(path)
    try:
        yield
    finally:
        os.environ["HOME"] = before


def make_certificates(folder: Path) -> Path:
    """Make a CA, and certificates signed by it for a server at 127.0.0.1 and for a client; return their folder.

    The names are those of DOCKER_CERT_PATH (ca.pem, cert.pem, key.pem), and server.pem, server-key.pem.
    """
    folder.mkdir(parents=True)
    kind = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")
    new = ("openssl", "req", "-x509", *kind, "-nodes", "-days", "2")
    ca, ca_key = str(folder / "ca.pem"), str(folder / "ca-key.pem")
    run(*new, "-subj", "/CN=lab CA", "-keyout", ca_key, "-out", ca)
    signed = ("-CA", ca, "-CAkey", ca_key, "-addext", "basicConstraints=critical,CA:FALSE")
    for name, key in (("server.pem", "server-key.pem"), ("cert.pem", "key.pem")):
        files = ("-keyout", str(folder / key), "-out", str(folder / name))
        run(*new, "-subj", f"/CN={name}", *signed, "-addext", "subjectAltName=IP:127.0.0.1", *files)
    return folder


def tls_options(certificates: Path) -> tuple[str, ...]:
    """Return dockerd's arguments for an address that accepts only clients of that CA."""
    files = {"tlscacert": "ca.pem", "tlscert": "server.pem", "tlskey": "server-key.pem"}
    return ("--tlsverify", *(f"--{name}={certificates / file}" for name, file in files.items()))
