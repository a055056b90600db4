"""Finds parts by reading cards; a method's module is imported when a part is built.

A card is the registration: ``methods/<field>/<method>.yaml`` beside the module
of the same name. Packages outside equipoise add cards through an entry point in
the group ``equipoise.parts`` whose value is the package that holds them.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from equipoise.core import Part, UsageError

KINDS = ("subject", "treatment", "task", "measure")
_PACKAGE = "equipoise.methods"
_KEYS = {
    "title", "summary", "paper", "reference", "version", "requires", "parts", "replication",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Card:
    """What a card says.

    ``path`` is the YAML file, ``module`` the module beside it; ``parts`` maps an
    id to kind, class name and summary.
    """

    title: str
    summary: str
    field: str
    module: str
    path: Path
    version: int
    parts: Mapping[str, tuple[str, str, str]]
    paper: str | None = None
    reference: str | None = None
    requires: tuple[str, ...] = ()
    replicates: bool = False

    @property
    def replication(self) -> dict[str, Any] | None:
        """The replication's trial, read when it is asked for: most of a card is replication."""
        return _read_yaml(self.path)["replication"] if self.replicates else None


@dataclass(frozen=True, slots=True)
class Entry:
    """One part in the catalogue: its id, its kind, its class's name and its card."""

    id: str
    kind: str
    class_name: str
    summary: str
    card: Card

    def load(self) -> type[Part]:
        """Import the module and return the class.

        Raises
        ------
        UsageError
            If a package that the card requires is missing; the sentence says
            which extra to install.
        """
        from equipoise.core import UsageError

        try:
            module = import_module(self.card.module)
        except ModuleNotFoundError as error:
            if error.name is None or error.name.startswith("equipoise"):
                raise
            raise UsageError(self.missing(error.name)) from error
        found: type[Part] = getattr(module, self.class_name)
        return found

    def missing(self, package: str) -> str:
        """Say how to get a package that this part needs."""
        extras = ",".join(self.card.requires)
        mend = f"pip install 'equipoise[{extras}]'" if extras else f"pip install {package}"
        return f"{self.id} needs the package {package}, which is not installed: {mend}."


class Catalog:
    """Every card found under some packages.

    Parameters
    ----------
    folders
        Pairs of package name and the folder it lies in.
    """

    def __init__(self, folders: list[tuple[str, Path]]) -> None:
        self.cards: list[Card] = []
        self.entries: dict[str, Entry] = {}
        for package, folder in folders:
            for path in sorted(folder.rglob("*.yaml")):
                self._add(read_card(path, package, folder))

    def _add(self, card: Card) -> None:
        self.cards.append(card)
        for name, (kind, class_name, summary) in card.parts.items():
            if name in self.entries:
                from equipoise.core.errors import UsageError

                other = self.entries[name].card.path
                raise UsageError(f"{card.path}: part {name} is already on {other}.")
            self.entries[name] = Entry(name, kind, class_name, summary, card)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self.entries.values())

    def find(self, name: str, kind: str | None = None) -> Entry:
        """Return the entry with this id, or raise `UsageError` with the nearest names."""
        entry = self.entries.get(name)
        if entry is not None and kind in (None, entry.kind):
            return entry
        from equipoise.core.errors import UsageError, nearest

        word = kind or "part"
        if entry is not None:
            raise UsageError(f'"{name}" is a {entry.kind}, and a {kind} is needed here.')
        names = [each.id for each in self if kind in (None, each.kind)]
        plural = f"equipoise list {kind}s" if kind else "equipoise list"
        raise UsageError(f'No {word} "{name}".{nearest(name, names)} All: {plural}.')

    def paper(self, slug: str) -> Card:
        """Return the card with a replication of this paper, or of this part id."""
        for card in self.cards:
            if card.replicates and (slug == card.paper or slug in card.parts):
                return card
        from equipoise.core.errors import UsageError, nearest

        slugs = [card.paper or next(iter(card.parts)) for card in self.cards if card.replicates]
        raise UsageError(
            f'No replication "{slug}".{nearest(slug, slugs)} There are: {", ".join(slugs)}.'
        )


@functools.cache
def catalog() -> Catalog:
    """Return the catalogue of equipoise and of every installed package that adds to it."""
    from importlib.metadata import entry_points
    from importlib.util import find_spec

    folders = [(_PACKAGE, Path(__file__).parent / "methods")]
    for point in entry_points(group="equipoise.parts"):
        spec = find_spec(point.value)
        for place in (spec.submodule_search_locations or ()) if spec else ():
            folders.append((point.value, Path(place)))
    return Catalog(folders)


@functools.cache
def yaml_loader() -> Any:
    """Return a safe loader by the rules of YAML 1.2, which people expect.

    Under the older rules that PyYAML keeps, ``on:`` is the key true, ``1e-3``
    is text and ``2025-04-24`` a date.
    """
    import yaml

    class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
        pass

    dropped = {f"tag:yaml.org,2002:{name}" for name in ("bool", "float", "timestamp")}
    Loader.yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in resolvers if tag not in dropped]
        for first, resolvers in Loader.yaml_implicit_resolvers.items()
    }
    Loader.add_implicit_resolver(
        "tag:yaml.org,2002:bool", re.compile("^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF")
    )
    number = r"^[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?$"
    special = r"^[-+]?\.(?:inf|Inf|INF)$|^\.(?:nan|NaN|NAN)$"
    Loader.add_implicit_resolver(
        "tag:yaml.org,2002:float", re.compile(f"{number}|{special}"), list("-+.0123456789")
    )
    return Loader


def read_card(path: Path, package: str = _PACKAGE, root: Path | None = None) -> Card:
    """Read and check one card.

    Raises
    ------
    UsageError
        One sentence that names the file and the mend.
    """

    def wrong(fault: str, key: str = "") -> UsageError:
        from equipoise.core.errors import UsageError, nearest  # NumPy comes with them

        return UsageError(f"{path}: {fault}.{nearest(key, _KEYS) if key else ''}")

    raw = _read_yaml(path, head=True)
    if not isinstance(raw, dict):
        raise wrong("a card is a mapping with title, summary, version and parts")
    for key in sorted(set(raw) - _KEYS):
        raise wrong(f'unknown key "{key}"', str(key))
    for key in ("title", "summary", "version", "parts"):
        if not raw.get(key):
            raise wrong(f'the key "{key}" is missing')
    if not isinstance(raw["version"], int):
        raise wrong(f"version must be an integer, got {raw['version']!r}")
    if not isinstance(raw["parts"], dict):
        raise wrong("parts must map ids to a kind and a class, as in `mine: task Mine`")
    parts: dict[str, tuple[str, str, str]] = {}
    for name, text in raw["parts"].items():
        # A card with several parts may give each a line of its own after a colon.
        what, _, line = str(text).partition(":")
        words = what.split()
        if len(words) != 2 or words[0] not in KINDS or not words[1].isidentifier():
            raise wrong(f'part {name} must be a kind and a class, as in "task Mine", got "{text}"')
        if not re.fullmatch(r"[a-z][a-z0-9_]*", str(name)):
            raise wrong(f'part id "{name}" must be lower case letters, digits and underscores')
        parts[name] = (words[0], words[1], line.strip() or raw["summary"])
    parents = path.relative_to(root).parent.parts if root else path.parent.parts[-1:]
    return Card(
        title=raw["title"],
        summary=raw["summary"],
        field=parents[-1] if parents else package.rpartition(".")[2],
        module=".".join((package, *parents, path.stem)),
        path=path,
        version=raw["version"],
        parts=parts,
        paper=raw.get("paper"),
        reference=raw.get("reference"),
        requires=tuple(raw.get("requires") or ()),
        replicates="replication" in raw,
    )


def _read_yaml(path: Path, *, head: bool = False) -> Any:
    """Return what a card says; the head is all but the replication, which comes last."""
    import yaml

    try:
        text = path.read_text(encoding="utf-8")
        if head:
            text, key, rest = text.partition("\nreplication:")
            if re.search(r"^\w", rest, re.MULTILINE):
                raise ValueError("replication must be the last key")
            text += "\nreplication:" if key else ""
        return yaml.load(text, yaml_loader())  # noqa: S506 - a safe loader
    except (yaml.YAMLError, ValueError) as error:
        from equipoise.core.errors import UsageError

        problem = " ".join(str(error).split())
        raise UsageError(f"{path}: not a card: {problem}.") from error


def part(name: str, /, **parameters: Any) -> Part:
    """Build a part by its id.

    Examples
    --------
    >>> part("mean")
    Mean(score=None, level=0.95)
    """
    return catalog().find(name).load()(**parameters)


def entry_of(part: Part | type[Part]) -> Entry | None:
    """Return the catalogue entry of a part's class, or None for a class without a card."""
    cls = part if isinstance(part, type) else type(part)
    return _classes().get((cls.__module__, cls.__name__))


@functools.cache
def _classes() -> dict[tuple[str, str], Entry]:
    return {(each.card.module, each.class_name): each for each in catalog()}


def recipe(part: Part) -> dict[str, Any]:
    """Return a part as JSON from which `build` makes it again: ``{id: {parameters}}``."""
    from equipoise.core import parameters

    entry = entry_of(part)
    name = entry.id if entry else f"{type(part).__module__}:{type(part).__qualname__}"
    return {name: {p.name: _plain(getattr(part, p.name), recipe) for p in parameters(type(part))}}


def identity(part: Part) -> str:
    """Return the SHA-256 of what makes a part's results: id, version, parameters, content.

    Settings (devices, paths, batch sizes) stay out.
    """
    from equipoise.core import parameters

    entry = entry_of(part)
    name = entry.id if entry else f"{type(part).__module__}:{type(part).__qualname__}"
    return digest(
        {
            "part": name,
            "version": entry.card.version if entry else 0,
            "parameters": {
                p.name: _plain(getattr(part, p.name), identity)
                for p in parameters(type(part))
                if p.in_identity
            },
            "content": part.content(),
        }
    )


def digest(value: Any) -> str:
    """Return the SHA-256 of canonical JSON."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _plain(value: Any, of_part: Any) -> Any:
    from equipoise.core import Part

    if isinstance(value, Part):
        return of_part(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(each, of_part) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each, of_part) for each in value]
    if isinstance(value, Path):
        return str(value)
    return value
