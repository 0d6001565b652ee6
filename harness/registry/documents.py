"""Describes the JSON documents of registries, with the needed fields only. A document that does not fit is refused."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, Field, ValidationError

INDEX_TYPES = ("application/vnd.oci.image.index.v1+json", "application/vnd.docker.distribution.manifest.list.v2+json")
MANIFEST_TYPES = ("application/vnd.oci.image.manifest.v1+json", "application/vnd.docker.distribution.manifest.v2+json")

Digest = Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]


class TagPage(BaseModel):
    """One page of `/tags/list`; some registries write null for "none"."""

    tags: list[str] | None


class Descriptor(BaseModel):
    digest: Digest
    size: Annotated[int, Field(ge=0, lt=1 << 53)]


class Manifest(BaseModel):
    config: Descriptor
    layers: list[Descriptor]


class Platform(BaseModel):
    os: str
    architecture: str


class IndexEntry(BaseModel):
    digest: Digest
    platform: Platform | None = None


class ImageIndex(BaseModel):
    manifests: list[IndexEntry]


class Settings(BaseModel):
    Env: list[str] | None = None
    Labels: dict[str, str] | None = None


class Config(BaseModel):
    config: Settings = Settings()


class Token(BaseModel):
    """The answer of a token service, which has one of these fields or both."""

    token: Annotated[str, Field(pattern=r"^[\x21-\x7e]*$")] = ""
    access_token: Annotated[str, Field(pattern=r"^[\x21-\x7e]*$")] = ""


class _Anything(BaseModel):
    pass


def is_json_object(body: bytes) -> bool:
    try:
        _Anything.model_validate_json(body)
    except ValidationError:
        return False
    return True
