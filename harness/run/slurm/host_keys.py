"""Defines the forms of keys of Slurm's hosts. Only the reading of a file imports it: pydantic is slow to import."""

from __future__ import annotations

from typing import Annotated

from pydantic import Tag

from harness.model import forms

MOST_NODES = 64
Option = Annotated[
    forms.Text, forms.fits(r"[\w:.,=&|*()\[\]!+@/%-]{1,500}", "has characters that salloc does not accept")
]


NodeName = Annotated[
    forms.Text, forms.fits(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}", "is not the name of a node; write one name, not a range")
]
Nodes = Annotated[
    Annotated[forms.Whole, forms.Within(least=1, most=MOST_NODES), Tag("<text>")]
    | Annotated[tuple[NodeName, ...], forms.Within(items=1), Tag("<list>")],
    forms.BY_FORM,
]
