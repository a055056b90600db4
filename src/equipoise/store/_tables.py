"""The tables of a store.

Rows of ``outcomes`` are only ever added. Their key starts with what a run
writes in order, so that a table without row ids grows at its end and one arm
on one task is one stretch of the file. What is bulky comes last: reading
scores does not touch it.

Columns called JSON hold JSON text. Packed columns hold JSON in UTF-8, deflated
where that makes it smaller (see `_packing`).
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Column,
    Float,
    ForeignKey,
    ForeignKeyConstraint,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
)

SCHEMA = 1

metadata = MetaData()

about = Table(
    "equipoise",
    metadata,
    Column("key", Text, primary_key=True),
    Column("value", Text, nullable=False),
)

arms = Table(
    "arms",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("identity", Text, nullable=False, unique=True),
    Column("label", Text, nullable=False),
    Column("recipe", Text, nullable=False),  # JSON
)

tasks = Table(
    "tasks",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("identity", Text, nullable=False, unique=True),
    Column("label", Text, nullable=False),
    Column("recipe", Text, nullable=False),  # JSON
    Column("scores", Text, nullable=False),  # JSON, a list of score specs
)

units = Table(
    "units",
    metadata,
    Column("task", ForeignKey("tasks.id"), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),  # 0, 1, ... in a task
    Column("unit", Text, nullable=False),
    Column("cluster", Text),
    Column("stratum", Text),
    Column("split", Text, nullable=False),
    Column("content", LargeBinary),  # packed
    Column("target", LargeBinary),  # packed
    UniqueConstraint("unit", "task"),
    sqlite_with_rowid=False,
)

runs = Table(
    "runs",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("trial", Text, nullable=False),
    Column("paper", Text),
    Column("status", Text, nullable=False),  # running, finished, interrupted, failed
    Column("started", Text, nullable=False),  # ISO 8601, UTC
    Column("ended", Text),
    Column("written", Integer, nullable=False),  # outcomes that this run added
    Column("file", Text, nullable=False),  # the trial file's text
    Column("provenance", Text, nullable=False),  # JSON
    Column("result", Text),  # JSON
)

# What a run is about, whoever computed it: a rerun reads what an earlier run wrote.
covers = Table(
    "covers",
    metadata,
    Column("run", ForeignKey("runs.id"), primary_key=True),
    Column("position", Integer, primary_key=True, autoincrement=False),
    Column("arm", ForeignKey("arms.id"), nullable=False),
    Column("task", ForeignKey("tasks.id"), nullable=False),
    Column("arm_label", Text, nullable=False),
    Column("task_label", Text, nullable=False),
    Column("units", Integer),  # the first so many unit numbers; NULL for all
    Column("builds", Integer),
    Column("repeats", Integer),
    UniqueConstraint("run", "arm_label", "task_label"),
    sqlite_with_rowid=False,
)

outcomes = Table(
    "outcomes",
    metadata,
    Column("arm", ForeignKey("arms.id"), primary_key=True),
    Column("task", ForeignKey("tasks.id"), primary_key=True),
    Column("build", Integer, primary_key=True, autoincrement=False),
    Column("repeat", Integer, primary_key=True, autoincrement=False),
    Column("unit", Integer, primary_key=True, autoincrement=False),
    Column("attempt", Integer, primary_key=True, autoincrement=False),
    Column("run", ForeignKey("runs.id"), nullable=False),
    Column("status", Text, nullable=False),  # ok, error, limit
    Column("scores", Text, nullable=False),  # JSON; a score that is NaN is left out
    Column("input_tokens", Integer, nullable=False),
    Column("output_tokens", Integer, nullable=False),
    Column("dollars", Float(53), nullable=False),
    Column("seconds", Float(53)),
    Column("seed", BigInteger),
    Column("sandbox", Text),
    Column("error_kind", Text),
    Column("error", Text),
    Column("artifacts", Text),  # JSON, name to digest and kind
    Column("output", LargeBinary),  # packed
    Column("transcript", LargeBinary),  # packed; a string in it is the digest of a message
    ForeignKeyConstraint(("task", "unit"), ("units.task", "units.number")),
    sqlite_with_rowid=False,
)

blobs = Table(
    "blobs",
    metadata,
    Column("digest", Text, primary_key=True),  # SHA-256 of the data, hexadecimal
    Column("codec", Text, nullable=False),  # raw, zlib
    Column("data", LargeBinary, nullable=False),
)
