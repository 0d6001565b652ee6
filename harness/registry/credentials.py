"""Finds the logins for registries that `docker login` stored in Docker's own configuration, and no others.

Secrets stay in memory: helpers are called through a pipe, and no message or representation contains one.
"""

from __future__ import annotations

import base64
import binascii
import json
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.registry.image_references import DOCKER_HUB
from harness.registry.registry_errors import RegistryTrouble

HUB_KEY = "https://index.docker.io/v1/"
IDENTITY = "<token>"  # the user name under which helpers keep identity tokens
HELPER_S = 30.0


@dataclass(frozen=True, kw_only=True)
class Login:
    """A user and password, or an identity token (a refresh token of OAuth 2) for the token service."""

    user: str = ""
    password: str = field(default="", repr=False)
    identity: str = field(default="", repr=False)

    @property
    def basic(self) -> str:
        """Return the value of an `Authorization` header."""
        return "Basic " + base64.b64encode(f"{self.user}:{self.password}".encode()).decode()


@dataclass(frozen=True, kw_only=True)
class Logins:
    """Docker's `config.json` and the helpers that it names. Read at every use, since `docker login` may come later."""

    environ: Mapping[str, str]

    @property
    def path(self) -> Path:
        home = Path(self.environ.get("HOME") or Path.home())
        return Path(self.environ.get("DOCKER_CONFIG") or home / ".docker") / "config.json"

    def of(self, host: str) -> Login | None:
        """Return the login for a registry, in Docker's order: the host's helper, the general store, the file.

        Raises RegistryTrouble if the configuration cannot be read or a helper fails.
        """
        config = self._config()
        key = HUB_KEY if host == DOCKER_HUB else host
        helper = _table(config, "credHelpers").get(host) or config.get("credsStore")
        stored = self._ask_helper(str(helper), key) if helper else None
        return stored or self._written(_table(config, "auths"), host, key)

    def _config(self) -> Mapping[str, Any]:
        try:
            config = json.loads(self.path.read_bytes())
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise RegistryTrouble(f"{self.path}: cannot be read: {error.strerror}") from None
        except (ValueError, RecursionError):
            config = None
        if not isinstance(config, dict):
            raise RegistryTrouble(f"{self.path}: is not a JSON object; repair it, or run `docker login` again")
        return config

    def _written(self, auths: Mapping[str, Any], host: str, key: str) -> Login | None:
        for name in (key, host, f"https://{host}", f"https://{host}/v1/", f"https://{host}/v2/"):
            entry = auths.get(name)
            if isinstance(entry, dict) and (login := self._entry(entry, name)):
                return login
        return None

    def _entry(self, entry: Mapping[str, Any], name: str) -> Login | None:
        if entry.get("identitytoken"):
            return Login(identity=str(entry["identitytoken"]))
        if not entry.get("auth"):
            return None
        try:
            user, colon, password = base64.b64decode(str(entry["auth"]), validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            colon = ""
        if not colon:
            raise RegistryTrouble(f"{self.path}: auths.{name}: cannot be read; run `docker login` again")
        return Login(user=user, password=password.rstrip("\0"))

    def _ask_helper(self, helper: str, key: str) -> Login | None:
        """Return the login that a helper has for `key` (protocol of docker-credential-helpers); None if it has none."""
        name = f"docker-credential-{helper}"
        program = shutil.which(name, path=self.environ.get("PATH"))
        if program is None:
            raise RegistryTrouble(
                f"{self.path}: names {name}, which is not on the PATH; install it, or remove it from that file"
            )
        try:
            done = subprocess.run(
                [program, "get"], input=key.encode(), capture_output=True, timeout=HELPER_S, check=False,
                env=dict(self.environ),
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as error:
            raise RegistryTrouble(f"{name}: does not answer ({type(error).__name__}); see {self.path}") from None
        if done.returncode != 0:
            if b"not found" in done.stdout.lower() + done.stderr.lower():
                return None
            raise RegistryTrouble(
                f"{name}: exited with {done.returncode} when asked for {key}; run it by hand to see why"
            )
        return self._helped(name, done.stdout)

    def _helped(self, name: str, output: bytes) -> Login | None:
        try:
            said = json.loads(output)
            user, secret = str(said["Username"]), str(said["Secret"])
        except (ValueError, KeyError, TypeError, RecursionError):
            raise RegistryTrouble(f"{name}: does not respond like a credential helper; see {self.path}") from None
        if user == IDENTITY:
            return Login(identity=secret)
        return Login(user=user, password=secret) if user or secret else None


def _table(config: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = config.get(name)
    return value if isinstance(value, dict) else {}
