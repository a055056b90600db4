"""Data loading: what is good comes back as it was, what is bad is told with its line."""

from __future__ import annotations

import codecs
import csv
import gzip
import hashlib
import json
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from equipoise.core import UsageError
from equipoise.kit.data import (
    builtin_names,
    content_hash,
    read_rows,
    read_table,
    read_texts,
    split_of,
    unit_id,
)


def write(folder: Path, name: str, content: str | bytes) -> str:
    path = folder / name
    raw = content.encode() if isinstance(content, str) else content
    path.write_bytes(gzip.compress(raw) if name.endswith(".gz") else raw)
    return str(path)


def complaint(call, *arguments, **named) -> str:
    with pytest.raises(UsageError) as caught:
        call(*arguments, **named)
    text = str(caught.value)
    assert "\n" not in text
    assert text.endswith(".")
    return text


# --- bad files, one sentence each ------------------------------------------------------------

GOOD = '{"id": "a", "text": "x"}\n'
BAD = [
    # name, content, required columns, sentence after the path
    ("empty.jsonl", "", [], ": the file is empty; at least one row is needed."),
    ("blank.jsonl", "\n  \n", [], ": there are no rows; at least one is needed."),
    (
        "broken.jsonl",
        GOOD + '{"id": "b", "text": \n',
        [],
        ", line 2: is not JSON (Expecting value at column 1); each line holds one object.",
    ),
    (
        "list.jsonl",
        GOOD + "\n[1, 2]\n",
        [],
        ', line 3: must be an object such as {"text": "…"}, got \'[1, 2]\'.',
    ),
    (
        "latin.jsonl",
        GOOD.encode() + b'{"text": "caf\xe9"}\n',
        [],
        ", line 2: byte 14 of the line is 0xe9, which is not UTF-8; save the file as UTF-8.",
    ),
    (
        "wide.jsonl",
        codecs.BOM_UTF16_LE + GOOD.encode("utf-16-le"),
        [],
        ": is UTF-16; save it as UTF-8.",
    ),
    (
        "column.jsonl",
        GOOD,
        ["texts"],
        ': there is no column "texts". Nearest: text. There are: id, text.',
    ),
    (
        "gap.jsonl",
        GOOD + '{"id": "b"}\n',
        ["text"],
        ', line 2: "text" is missing; every row needs a value there.',
    ),
    (
        "null.jsonl",
        GOOD + '{"id": "b", "text": null}\n',
        ["text"],
        ', line 2: "text" is empty; every row needs a value there.',
    ),
    (
        "nan.jsonl",
        '{"y": 1.5}\n\n{"y": NaN}\n',
        ["y"],
        ', line 3: "y" is NaN; every row needs a value there.',
    ),
    (
        "mixed.jsonl",
        '{"y": 1}\n{"y": 2.5}\n{"y": "2"}\n',
        ["y"],
        ': "y" is a number in line 1 and text in line 3; give the column one type.',
    ),
    (
        "twice.jsonl",
        '{"id": 1}\n{"id": 2}\n{"id": "1"}\n',
        [],
        ', line 3: id "1" is already in line 1; ids must differ, so mend them or rename the '
        "column.",
    ),
    (
        "noid.jsonl",
        '{"id": 1, "y": 0}\n{"y": 2}\n',
        [],
        ", line 2: has no id though other rows do; give it one.",
    ),
    (
        "listid.jsonl",
        '{"id": [1]}\n',
        [],
        ", line 1: id must be text or an integer, got a list.",
    ),
    ("digits.jsonl", '{"y": ' + "9" * 5000 + "}\n", [], ", line 1: is not JSON (Exceeds the limit"),
    ("deep.jsonl", "[" * 100_000 + "\n", [], ", line 1: is not JSON (maximum recursion depth"),
    (
        "lines.json",
        GOOD + GOOD,
        [],
        ", line 2: is not JSON (Extra data at column 1); one object a line is .jsonl.",
    ),
    ("object.json", '{"a": 1}', [], ': must be an array of objects, as in [{"text": "…"}, …].'),
    (
        "numbers.json",
        '[{"a": 1}, 2]',
        [],
        ', row 2: must be an object such as {"text": "…"}, got \'2\'.',
    ),
    ("none.json", "[]", [], ": there are no rows; at least one is needed."),
    ("header.csv", "a,b\n", [], ": there are no rows; at least one is needed."),
    ("newlines.csv", "\n\n", [], ": the file is empty; a header and one row are needed."),
    (
        "ragged.csv",
        "a,b\n1,2\n1,2,3\n",
        [],
        ", line 3: has 3 fields and the header has 2; quote fields that hold a comma.",
    ),
    (
        "short.tsv",
        "a\tb\n1\n",
        [],
        ", line 2: has 1 fields and the header has 2; quote fields that hold a tab.",
    ),
    ("open.csv", 'a,b\n1,"2\n', [], ", line 2: is not proper CSV (unexpected end of data)."),
    ("double.csv", "a,b,a\n1,2,3\n", [], ': the header has the column "a" twice; rename one.'),
    ("nameless.csv", "a,,c\n1,2,3\n", [], ": column 2 has no name in the header."),
    (
        "empty_cell.csv",
        "a,b\n1,x\n2,\n",
        ["b"],
        ', line 3: "b" is empty; every row needs a value there.',
    ),
    (
        "nan.csv",
        "y\n1\nNaN\n",
        ["y"],
        ', line 3: "y" is NaN; every row needs a value there.',
    ),
    (
        "latin.csv",
        "a,b\n1,caf\xe9\n".encode("latin-1"),
        [],
        ", line 2: byte 6 of the line is 0xe9, which is not UTF-8; save the file as UTF-8.",
    ),
    ("noise.parquet", b"PAR1 is not enough", [], ": is not a whole Parquet file ("),
    (
        "rows.xlsx",
        b"PK",
        [],
        ': unknown format ".xlsx"; rows come as .jsonl, .json, .csv, .tsv or .parquet, '
        "all but the last also with .gz.",
    ),
    ("rows.jsnl", GOOD, [], " all but the last also with .gz. Nearest: .jsonl, .json"),
    ("noname", GOOD, [], ': unknown format "noname"; rows come as'),
]


@pytest.mark.parametrize(("name", "content", "columns", "said"), BAD, ids=[b[0] for b in BAD])
def test_bad_file_gets_one_sentence(tmp_path, name, content, columns, said):
    data = write(tmp_path, name, content)
    text = complaint(read_rows, data, columns=columns)
    assert text.startswith(data)
    assert said in text


def test_missing_file_names_the_nearest(tmp_path):
    write(tmp_path, "items.jsonl", GOOD)
    data = str(tmp_path / "item.jsonl")
    assert complaint(read_rows, data) == f"{data}: there is no such file. Nearest: items.jsonl."
    data = str(tmp_path / "nowhere" / "item.jsonl")
    assert complaint(read_rows, data) == f"{data}: there is no folder {tmp_path / 'nowhere'}."
    assert "is a folder; name a file in it" in complaint(read_rows, str(tmp_path))
    assert "No data given" in complaint(read_rows, "  ")
    assert "no such file" in complaint(read_rows, "a\0b.csv")
    assert "cannot be opened" in complaint(read_rows, "x" * 5000 + ".csv")


def test_broken_gzip(tmp_path):
    whole = gzip.compress((GOOD * 1).encode() + b"".join(b'{"n": %d}\n' % n for n in range(9999)))
    for name, raw in {"cut.jsonl.gz": whole[:-500], "not.csv.gz": b"a,b\n1,2\n"}.items():
        (tmp_path / name).write_bytes(raw)
        assert ": is not a whole gzip file (after line " in complaint(
            read_rows, str(tmp_path / name)
        )


def test_cut_parquet(tmp_path):
    import polars as pl

    path = tmp_path / "cut.parquet"
    pl.DataFrame({"a": list(range(1000))}).write_parquet(path)
    path.write_bytes(path.read_bytes()[:-40])
    assert ": is not a whole Parquet file (" in complaint(read_rows, str(path))


def test_parquet_faults_name_the_row(tmp_path):
    import polars as pl

    data = str(tmp_path / "p.parquet")
    pl.DataFrame({"y": [1.0, float("nan")], "t": ["a", None], "b": [b"1", b"2"]}).write_parquet(
        data
    )
    assert complaint(read_rows, data, columns=["y"]).startswith(f'{data}, row 2: "y" is NaN')
    assert complaint(read_rows, data, columns=["t"]).startswith(f'{data}, row 2: "t" is empty')
    assert '"b" holds binary data' in complaint(read_rows, data, columns=["b"])


def test_limit_must_be_positive(tmp_path):
    assert "limit must be an integer of at least 1, got 0" in complaint(
        read_rows, write(tmp_path, "a.jsonl", GOOD), limit=0
    )


# --- good files ------------------------------------------------------------------------------


def test_ten_megabyte_line_and_cell(tmp_path):
    long = "a" * 10_000_000
    rows = read_rows(write(tmp_path, "long.jsonl", json.dumps({"text": long}) + "\n"))
    assert rows == [{"text": long}]
    before = csv.field_size_limit()
    assert read_rows(write(tmp_path, "long.csv", f"text,n\n{long},1\n")) == [{"text": long, "n": 1}]
    assert csv.field_size_limit() == before
    assert len(read_texts(write(tmp_path, "long.txt", long))[0]) == 10_000_000


def test_limit_reads_no_further(tmp_path):
    data = write(tmp_path, "a.jsonl", GOOD + "broken\n")
    assert read_rows(data, limit=1) == [{"id": "a", "text": "x"}]
    data = write(tmp_path, "a.csv", "a,b\n1,2\n3\n")
    assert read_rows(data, limit=1) == [{"a": 1, "b": 2}]
    assert len(read_rows("builtin:iris", limit=3)) == 3


def test_byte_order_mark_and_windows_lines(tmp_path):
    mark = codecs.BOM_UTF8
    assert read_rows(write(tmp_path, "a.jsonl", mark + b'{"a": 1}\r\n')) == [{"a": 1}]
    assert read_rows(write(tmp_path, "a.csv", mark + b"a,b\r\n1,x\r\n")) == [{"a": 1, "b": "x"}]


def test_csv_types(tmp_path):
    text = "i,f,b,s,zip,big,under\n1,1,true,a,007,1e5,1_0\n-2,.5,False,1,12,2,2\n,,,,,,\n"
    rows = read_rows(write(tmp_path, "t.csv", text))
    assert rows == [
        {"i": 1, "f": 1.0, "b": True, "s": "a", "zip": "007", "big": 1e5, "under": "1_0"},
        {"i": -2, "f": 0.5, "b": False, "s": "1", "zip": "12", "big": 2.0, "under": "2"},
        dict.fromkeys(["i", "f", "b", "s", "zip", "big", "under"]),
    ]


def test_parquet_dates_become_text(tmp_path):
    import datetime as dt
    from decimal import Decimal

    import polars as pl

    data = str(tmp_path / "d.parquet")
    pl.DataFrame(
        {"when": [dt.date(2025, 4, 24)], "at": [dt.datetime(2025, 4, 24, 9)], "p": [Decimal("1.5")]}
    ).write_parquet(data)
    (row,) = read_rows(data, columns=["when", "at", "p"])
    assert row == {"when": "2025-04-24", "at": "2025-04-24T09:00:00.000000", "p": 1.5}


_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | _text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_text, inner, max_size=3),
    max_leaves=5,
)
_quick = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@_quick
@given(
    st.lists(st.dictionaries(_text.filter(lambda key: key != "id"), _json), min_size=1, max_size=5),
    st.sampled_from(["r.jsonl", "r.jsonl.gz", "r.json", "r.json.gz"]),
)
def test_json_round_trip(tmp_path, rows, name):
    if ".jsonl" in name:
        text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    else:
        text = json.dumps(rows, indent=1)
    assert read_rows(write(tmp_path, name, text)) == rows


_cell = st.characters(exclude_categories=["Cs"], exclude_characters="\0")
_table = st.integers(1, 6).flatmap(
    lambda n: st.tuples(
        st.lists(st.integers(-(10**17), 10**17), min_size=n, max_size=n),
        st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=n, max_size=n),
        st.lists(st.booleans(), min_size=n, max_size=n),
        # An "x" in front: text that looks like numbers throughout would be read as numbers.
        st.lists(st.text(_cell, max_size=20).map("x".__add__), min_size=n, max_size=n),
    )
)


@_quick
@given(_table, st.sampled_from(["r.csv", "r.csv.gz", "r.tsv", "r.parquet"]))
def test_table_round_trip(tmp_path, columns, name):
    names = ("whole", "real", "truth", "words, quoted")
    rows = [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
    if name == "r.parquet":
        import polars as pl

        pl.DataFrame(rows).write_parquet(tmp_path / name)
        assert read_rows(str(tmp_path / name)) == rows
        return
    raw = tmp_path / "raw"
    with raw.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, names, delimiter="\t" if "tsv" in name else ",")
        writer.writeheader()
        writer.writerows(rows)
    found = read_rows(write(tmp_path, name, raw.read_bytes()))
    assert found == rows
    assert [type(value) for value in found[0].values()] == [int, float, bool, str]


# --- texts -----------------------------------------------------------------------------------


def test_texts_from_files_and_folders(tmp_path):
    (tmp_path / "docs").mkdir()
    write(tmp_path / "docs", "b.txt", "second")
    write(tmp_path / "docs", "a.txt", "first\n")
    write(tmp_path / "docs", "c.md", "not this")
    assert read_texts(str(tmp_path / "docs")) == ["first\n", "second"]
    assert read_texts(str(tmp_path / "docs" / "b.txt")) == ["second"]
    assert read_texts(write(tmp_path, "z.txt.gz", "packed")) == ["packed"]


def test_texts_like_wikitext(tmp_path):
    import polars as pl

    data = str(tmp_path / "wiki.parquet")
    pl.DataFrame({"text": ["", " = Title = \n", "", " Words . \n"]}).write_parquet(data)
    assert read_texts(data) == [" = Title = \n", " Words . \n"]


def test_texts_faults(tmp_path):
    assert complaint(read_texts, write(tmp_path, "a.txt", " \n")).endswith(
        "there is no text in it."
    )
    assert '"text" must be text, got a number.' in complaint(
        read_texts, write(tmp_path, "n.jsonl", '{"text": 1}\n')
    )
    assert 'no column "txt". Nearest: text.' in complaint(
        read_texts, write(tmp_path, "t.jsonl", GOOD), column="txt"
    )
    assert "line 2: byte 1 of the line is 0xff, which is not UTF-8" in complaint(
        read_texts, write(tmp_path, "l.txt", b"a\n\xff\n")
    )
    (tmp_path / "none").mkdir()
    assert "the folder has no .txt files" in complaint(read_texts, str(tmp_path / "none"))


# --- tables ----------------------------------------------------------------------------------


def test_read_table(tmp_path):
    data = write(tmp_path, "t.csv", "id,a,b,y,z\nr1,1,true,no,5\nr2,2.5,false,yes,6\n")
    inputs, targets, names = read_table(data, target="y")
    assert names == ("a", "b", "z")
    np.testing.assert_array_equal(inputs, [[1, 1, 5], [2.5, 0, 6]])
    assert inputs.dtype == np.float64
    assert targets.tolist() == ["no", "yes"]
    inputs, targets, names = read_table(data, target="z", features=["b", "a"])
    np.testing.assert_array_equal(inputs, [[1, 1], [0, 2.5]])
    assert names == ("b", "a")
    assert targets.tolist() == [5, 6]


def test_read_table_takes_integers_beyond_64_bits(tmp_path):
    data = write(tmp_path, "t.jsonl", '{"a": 1000000000000000000000, "y": 0}\n')
    assert read_table(data, target="y").inputs == 1e21


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a,y\n1,0\n,1\n", ', line 3: "a" is empty; features are finite numbers.'),
        ("a,y\n1,0\nnan,1\n", ', line 3: "a" is NaN; features are finite numbers.'),
        ("a,y\n1,0\ninf,1\n", ', line 3: "a" is infinite or too large; features are'),
        ("a,c,y\n1,2,0\n1,Bath,1\n", ', line 2: "c" is text; features are numbers, so encode'),
        ("y\n0\n", ": there are no columns to predict from."),
        ("a,y\n1,\n", ', line 2: "y" is empty; every row needs a value there.'),
    ],
)
def test_read_table_faults(tmp_path, text, said):
    assert said in complaint(read_table, write(tmp_path, "t.csv", text), target="y")


def test_read_table_refuses_its_target_as_a_feature(tmp_path):
    data = write(tmp_path, "t.csv", "a,y\n1,0\n")
    assert '"y" cannot be a feature and a target' in complaint(
        read_table, data, target="y", features=["y"]
    )
    data = write(tmp_path, "t.jsonl", '{"a": 1, "y": [1]}\n')
    assert '"y" is a list; a target is text' in complaint(read_table, data, target="y")
    data = write(tmp_path, "u.jsonl", '{"a": 1, "y": 0}\n{"y": 0}\n')
    assert 'line 2: "a" is empty' in complaint(read_table, data, target="y")


@pytest.mark.parametrize("name", ["iris", "wine", "breast_cancer", "digits", "diabetes"])
def test_builtin_tables_are_scikit_learns(name):
    from sklearn import datasets

    inputs, targets, names = read_table(f"builtin:{name}", target="target")
    expected = getattr(datasets, f"load_{name}")()
    np.testing.assert_array_equal(inputs, expected.data)
    labels = expected.target
    if name in ("iris", "wine", "breast_cancer"):
        labels = expected.target_names[labels]
    np.testing.assert_array_equal(targets, labels)
    assert len(names) == len(set(names)) == expected.data.shape[1]
    assert all(each.isidentifier() for each in names)


# --- built-in sets, identity, splits ---------------------------------------------------------


def test_builtin_prose():
    texts = read_texts("builtin:sklearn_descriptions")
    assert any("Fisher" in text for text in texts)
    assert not any("  " in text.replace("\n ", "") or "\n\n\n" in text for text in texts)
    # 24 windows of 512 tokens, at the 3.35 characters a token measured with SmolLM2.
    assert sum(map(len, texts)) / 3.35 > 24 * 512
    assert len(read_texts("builtin:python_topics")) > 50
    for code in read_texts("builtin:python_code"):
        compile(code, "code", "exec")


def test_unknown_builtin_names_the_nearest():
    text = complaint(read_rows, "builtin:digit")
    assert text.startswith('No built-in data "digit". Nearest: digits.')
    assert all(name in text for name in builtin_names())


def test_builtin_rows_cannot_be_spoilt():
    read_rows("builtin:iris")[0]["target"] = "poisoned"
    assert read_rows("builtin:iris")[0]["target"] == "setosa"


def test_content_hash_follows_content_not_place(tmp_path):
    first = write(tmp_path, "a.csv", "a\n1\n")
    assert content_hash(first) == hashlib.sha256(b"a\n1\n").hexdigest()
    assert content_hash(write(tmp_path, "b.csv", "a\n1\n")) == content_hash(first)
    before = content_hash(first)
    write(tmp_path, "a.csv", "a\n12\n")
    assert content_hash(first) != before
    assert "no such file" in complaint(content_hash, str(tmp_path / "none.csv"))


def test_content_hash_of_a_folder_and_of_built_in_sets(tmp_path):
    write(tmp_path, "a.txt", "one")
    before = content_hash(str(tmp_path))
    write(tmp_path, "ignored.md", "x")
    assert content_hash(str(tmp_path)) == before
    write(tmp_path, "b.txt", "two")
    assert content_hash(str(tmp_path)) != before
    found = content_hash("builtin:iris")
    assert found["builtin"] == "iris"
    assert found["package"].startswith("scikit-learn ")
    assert len(found["sha256"]) == 64
    json.dumps(found)


def test_unit_ids_stay_when_rows_are_appended():
    rows = [{"text": "a"}, {"text": "b"}]
    assert [unit_id(row, n) for n, row in enumerate(rows)] == ["000000", "000001"]
    assert unit_id({"id": "q7"}, 3) == "q7"
    assert unit_id({"id": None}, 3) == "000003"


def test_splits_have_their_fractions_and_do_not_move():
    keys = [str(n) for n in range(20_000)]
    splits = [split_of(key, train=0.5, calibration=0.2) for key in keys]
    # Five standard deviations of a proportion of 20,000.
    for name, share in {"train": 0.5, "calibration": 0.2, "test": 0.3}.items():
        assert abs(splits.count(name) / 20_000 - share) < 5 * (share * (1 - share) / 20_000) ** 0.5
    assert splits[::-1] == [split_of(key, train=0.5, calibration=0.2) for key in keys[::-1]]
    # More training data takes units from the others and gives none back.
    wider = [split_of(key, train=0.6, calibration=0.1) for key in keys]
    assert all(w == "train" for s, w in zip(splits, wider, strict=True) if s == "train")
    other = [split_of(key, train=0.5, calibration=0.2, seed=1) for key in keys]
    agreement = np.mean([a == b for a, b in zip(splits, other, strict=True)])
    assert abs(agreement - 0.38) < 0.02  # 0.5² + 0.2² + 0.3², as for independent splits
    assert "Fractions of train and calibration" in complaint(
        split_of, "a", train=0.8, calibration=0.4
    )


def test_reading_loads_neither_polars_nor_torch(tmp_path):
    data = write(tmp_path, "a.jsonl", GOOD)
    code = (
        "import sys; from equipoise.kit.data import read_rows, read_texts, content_hash;"
        f"read_rows({data!r}); content_hash({data!r}); read_texts('builtin:sklearn_descriptions');"
        "sys.exit(bool({'polars', 'torch', 'pandas', 'sklearn'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# --- Hugging Face sets -----------------------------------------------------------------------


def test_hub_without_the_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    assert complaint(read_rows, "hf:no/such:test") == (
        "hf:no/such:test: needs the package datasets, which is not installed: "
        "pip install 'equipoise[datasets]'."
    )
    assert "write hf:NAME_OR_FOLDER" in complaint(read_rows, "hf:a:b:c:d")
    assert "write hf:NAME_OR_FOLDER" in complaint(read_rows, "hf:")


def test_hub_folder(tmp_path):
    pytest.importorskip("datasets")
    write(tmp_path, "train.jsonl", '{"text": "a"}\n{"text": "b"}\n')
    write(tmp_path, "test.jsonl", '{"text": "c"}\n')
    data = f"hf:{tmp_path}"
    assert read_rows(f"{data}:train") == [{"text": "a"}, {"text": "b"}]
    assert read_rows(f"{data}:train", limit=1) == [{"text": "a"}]
    assert read_texts(f"{data}:test") == ["c"]
    assert content_hash(f"{data}:test") != content_hash(f"{data}:train")
    assert "name a split, as in" in complaint(read_rows, data)
    assert 'there is no split "tests". Nearest: test.' in complaint(read_rows, f"{data}:tests")


def test_hub_saved_folder(tmp_path):
    datasets = pytest.importorskip("datasets")
    folder = tmp_path / "saved"
    try:
        datasets.Dataset.from_dict({"text": ["a", "b"], "y": [1, 2]}).save_to_disk(str(folder))
    except pickle.PicklingError:
        pytest.skip("this release of datasets cannot make a set from a dict here")
    assert read_rows(f"hf:{folder}", columns=["y"]) == [
        {"text": "a", "y": 1},
        {"text": "b", "y": 2},
    ]


def test_hub_name_offline(monkeypatch):
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    text = complaint(read_rows, "hf:nobody/nothing:test")
    assert text.startswith("hf:nobody/nothing:test: cannot be loaded (")
    assert "without a network name a local folder or file" in text
