"""Reads matrix.yaml into a Matrix: what to run, where, and with which limits. Every error names file, line and key."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from harness import model, package_index
from harness.matrix.complaints import check_shape
from harness.matrix.problems import Context
from harness.matrix.read_hosts import names_of, read_hosts
from harness.matrix.read_scenarios import read_exclude, read_include, read_scenarios
from harness.matrix.read_series import SeriesReader
from harness.matrix.read_yaml import read_yaml
from harness.matrix.shape import LETTERS, MatrixFile, schema
from harness.registry.registry_client import Registry, TagSource

__all__ = ["load_hosts", "load_matrix", "schema"]


def load_matrix(
    path: Path, *, environ: Mapping[str, str], index: package_index.Index | None = None, tags: TagSource | None = None
) -> model.Matrix:
    """Read and check a matrix file, the scripts and folders it names, and its versions.

    `environ` fills in ${VARIABLES} and names the package index and Docker's logins, unless `index` and `tags` are
    given. Raises MatrixError with one line per problem, in order of line, and RegistryTrouble if a registry does not
    answer a query for tags.
    """
    file, context = _open(path, environ)
    reader = SeriesReader(
        context=context,
        index=index or package_index.PackageIndex.from_environ(environ),
        tags=tags or Registry.from_environ(environ),
    )
    series, hosts = reader.read(file), read_hosts(file, context)
    scenarios_read = read_scenarios(file, context, hosts=names_of(file))
    scenarios = tuple(each.scenario for each in scenarios_read)
    matrix = model.Matrix(
        name=_name(file, context),
        path=Path(context.file),
        series=series,
        hosts=hosts,
        scenarios=scenarios,
        include=read_include(file, scenarios_read, context),
        exclude=read_exclude(file, series, hosts, scenarios, context),
        trials=model.Trials(least=file.trials.least, most=file.trials.most),
        stop=model.Stop(first_bad=file.stop.until is not None, quick=file.stop.quick, time_s=file.stop.time),
    )
    context.raise_if_any()
    return matrix


def load_hosts(path: Path, *, environ: Mapping[str, str]) -> tuple[str, tuple[model.Host, ...]]:
    """Return a matrix's name and hosts only, without querying an index or a registry. Raises MatrixError."""
    file, context = _open(path, environ)
    hosts = read_hosts(file, context)
    context.raise_if_any()
    return _name(file, context), hosts


def _open(path: Path, environ: Mapping[str, str]) -> tuple[MatrixFile, Context]:
    context = read_yaml(path, environ=environ)
    return check_shape(context), context


def _name(file: MatrixFile, context: Context) -> str:
    """Return the matrix's name, changed so that it is valid for a folder on every system."""
    name = file.name or Path(context.file).stem
    return re.sub(rf"[^{LETTERS}._-]+", "-", name)[:64].strip(".-") or "matrix"
