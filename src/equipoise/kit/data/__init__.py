"""Data from files, dataset folders and named built-in sets, checked as it is read.

Wherever a part takes ``data`` it takes one text: a path (``.jsonl``, ``.json``,
``.csv``, ``.tsv``, ``.parquet``), ``hf:NAME_OR_FOLDER[:SPLIT]`` or
``builtin:NAME``. What is wrong with it is told in one sentence that names the
file and the line.
"""

from equipoise.kit.data.builtin import builtin_names
from equipoise.kit.data.identity import content_hash, split_of, unit_id
from equipoise.kit.data.rows import read_rows
from equipoise.kit.data.tables import Table, read_table
from equipoise.kit.data.texts import read_texts

__all__ = [
    "Table",
    "builtin_names",
    "content_hash",
    "read_rows",
    "read_table",
    "read_texts",
    "split_of",
    "unit_id",
]
