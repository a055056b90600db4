"""Molecules as arrays, from their SMILES: bit fingerprints and descriptors, by RDKit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from equipoise.core import UsageError
from equipoise.kit.arrays.similarity import pack_bits

DESCRIPTORS = (
    "MolWt", "MolLogP", "TPSA", "NumHDonors", "NumHAcceptors", "NumRotatableBonds", "RingCount",
    "FractionCSP3",
)  # fmt: skip
"""Descriptors that `descriptors` gives, in its order, by RDKit's names."""

Where = Callable[[int], str]
"""Says where a row is, for complaints, as in ``molecules.csv, line 3``."""


def ecfp(
    smiles: Sequence[str], *, radius: int = 2, bits: int = 2048, where: Where | None = None
) -> np.ndarray:
    """Return extended-connectivity fingerprints, packed for `similarity.tanimoto`.

    Parameters
    ----------
    smiles
        One text a molecule.
    radius
        Bonds around each atom that a bit looks at; 2 is ECFP4.
    bits
        Length; similarities of fingerprints of other lengths differ.
    where
        Says where a row is.

    Raises
    ------
    UsageError
        If RDKit is not installed, or a text is no molecule.

    Examples
    --------
    >>> ecfp(["CCO", "CCN"], bits=128).shape
    (2, 2)
    """
    return pack_bits(ecfp_bits(smiles, radius=radius, bits=bits, where=where))


def ecfp_bits(
    smiles: Sequence[str], *, radius: int = 2, bits: int = 2048, where: Where | None = None
) -> np.ndarray:
    """Return extended-connectivity fingerprints as truth values ``(n, bits)``.

    Examples
    --------
    >>> int(ecfp_bits(["C"]).sum())
    1
    """
    generators = _rdkit("rdkit.Chem.rdFingerprintGenerator")
    generator = generators.GetMorganGenerator(radius=radius, fpSize=bits)
    found = np.zeros((len(smiles), bits), bool)
    for row, molecule in enumerate(molecules(smiles, where=where)):
        found[row] = generator.GetFingerprintAsNumPy(molecule)
    return found


def descriptors(smiles: Sequence[str], *, where: Where | None = None) -> np.ndarray:
    """Return `DESCRIPTORS` of each molecule, ``(n, 8)``.

    Examples
    --------
    >>> descriptors(["CCO"]).round(2).tolist()
    [[46.07, -0.0, 20.23, 1.0, 1.0, 0.0, 0.0, 1.0]]
    """
    by_name = dict(_rdkit("rdkit.Chem.Descriptors").descList)
    chosen = [by_name[name] for name in DESCRIPTORS]
    return np.array(
        [[float(each(m)) for each in chosen] for m in molecules(smiles, where=where)]
    ).reshape(-1, len(DESCRIPTORS))


def molecules(smiles: Sequence[str], *, where: Where | None = None) -> Iterator[Any]:
    """Yield RDKit's molecules, refusing a text that is none and naming its row."""
    chem, base = _rdkit("rdkit.Chem"), _rdkit("rdkit.rdBase")
    for row, text in enumerate(smiles):
        lock = base.BlockLogs()  # what is wrong is told below, once
        found = chem.MolFromSmiles(text) if text else None
        del lock
        if found is None:
            place = where(row) if where else f"row {row}"
            raise UsageError(f'{place}: "{text}" is no SMILES of a molecule.')
        yield found


def _rdkit(name: str) -> Any:
    from importlib import import_module

    try:
        return import_module(name)
    except ImportError as error:
        raise UsageError(
            "Molecules need the package rdkit, which is not installed: "
            "pip install 'equipoise[molecules]'."
        ) from error
