"""A user's rows as a shift task needs them: inputs, targets, partitions and deployment weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from equipoise.core import UsageError
from equipoise.kit.arrays.similarity import cosine, nearest, similarities, tanimoto
from equipoise.kit.data.identity import unit_id
from equipoise.kit.data.rows import kind_of, load
from equipoise.kit.data.source import Source
from equipoise.kit.data.tables import feature_names, matrix
from equipoise.kit.data.targets import classes as read_classes
from equipoise.kit.data.targets import numbers
from equipoise.methods.shift._good import deployment_weights
from equipoise.methods.shift.similarity_split import Partition, packed, usable_partitions

Representation = Literal["ecfp", "descriptors", "both"]


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Everything a task knows of a table.

    Parameters
    ----------
    inputs
        ``(n, features)``, as learners get them.
    targets
        ``(n,)`` numbers or labels.
    codes
        ``(n,)`` targets as numbers: their places in ``classes`` where there are any.
    classes
        Labels in order, empty for numbers.
    ids, molecules
        Of each row: its id, and its SMILES where there are any.
    partitions
        By threshold.
    weights
        By threshold, empty without a deployment.
    """

    inputs: np.ndarray
    targets: np.ndarray
    codes: np.ndarray
    classes: tuple[Any, ...]
    ids: tuple[str, ...]
    molecules: tuple[str, ...]
    partitions: Mapping[float, Partition]
    weights: Mapping[float, float]


def read(
    data: str,
    *,
    target: str,
    molecule: str | None,
    features: tuple[str, ...],
    classes: bool,
    representation: Representation,
    similarity: str,
    thresholds: tuple[float, ...],
    smallest: float,
    balance: bool,
    deployment: str | None,
    options: Mapping[str, Any],
) -> Rows:
    """Return a table with its partitions.

    Raises
    ------
    UsageError
        If a column is missing or wrong, a text is no molecule, or no threshold is usable.
    """
    column = [] if molecule is None else [molecule]
    source = load(data, columns=[target, *column, *features])
    targets = _targets(source, target, classes)
    names = None if molecule else feature_names(source, {target}, features)
    inputs, compared = _inputs(source, molecule, names, representation, similarity)
    between = tanimoto if similarity == "tanimoto" else cosine
    kinds = tuple(sorted(set(targets.tolist()))) if classes else ()
    codes = np.searchsorted(np.array(kinds), targets) if classes else targets
    if options.get("algorithm") == "random":
        similar: Any = np.eye(len(inputs))
    else:
        similar = similarities(compared, between, minimum=min(thresholds))
    parts = usable_partitions(
        similar, thresholds, smallest=smallest, labels=codes if balance else None, **options
    )
    weights = {}
    if deployment is not None:
        met = load(deployment, columns=column or list(names or ()))
        _, items = _inputs(met, molecule, names, representation, similarity)
        grid = [each.threshold for each in parts]
        shares = deployment_weights(nearest(items, compared, between), grid)
        weights = dict(zip(grid, shares.tolist(), strict=True))
    return Rows(
        inputs,
        targets,
        codes,
        kinds,
        tuple(unit_id(row, index) for index, row in enumerate(source.rows)),
        tuple(row[molecule] for row in source.rows) if molecule else (),
        {each.threshold: each for each in parts},
        weights,
    )


def _inputs(
    source: Source,
    molecule: str | None,
    names: tuple[str, ...] | None,
    representation: Representation,
    similarity: str,
) -> tuple[np.ndarray, np.ndarray]:
    """Return what learners get, and what is compared."""
    if molecule is None:
        found = matrix(source, names or ())
        return found, packed(found) if similarity == "tanimoto" else found
    from equipoise.kit.arrays import molecules

    smiles = [row[molecule] for row in source.rows]
    if not isinstance(smiles[0], str):
        raise UsageError(
            f'{source.data}: "{molecule}" is {kind_of(smiles[0])}; molecules are SMILES.'
        )
    bits = molecules.ecfp_bits(smiles, where=source.at)
    parts = []
    if representation != "ecfp":
        parts.append(molecules.descriptors(smiles, where=source.at))
    if representation != "descriptors":
        parts.append(bits.astype(float))
    compared = packed(bits) if similarity == "tanimoto" else bits.astype(float)
    return np.hstack(parts), compared


def _targets(source: Source, target: str, classes: bool) -> np.ndarray:
    if classes:
        return np.array(read_classes(source, target))
    found = np.array(numbers(source, target, ", or say classes: true"))
    if np.ptp(found) == 0:
        raise UsageError(f'{source.data}: "{target}" is {found[0]:g} in every row.')
    return found
