"""Implements the engine `docker`, which runs trials in containers of a Docker Engine or Podman."""
