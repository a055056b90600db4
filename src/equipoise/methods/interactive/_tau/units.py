"""Units of the task: generated customers, and those that were released."""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
from collections.abc import Iterator, Mapping
from typing import Any

from equipoise.core import Rng, Split, Unit
from equipoise.kit.worlds.small_shop import small_shop
from equipoise.methods.interactive._tau.errands import Errand, errands
from equipoise.methods.interactive._tau.records import Records
from equipoise.methods.interactive._tau.retail import Retail
from equipoise.methods.interactive._tau.service import Case, Service, leaves_unchanged

_SPLITS: Mapping[str, Split] = {"test": "test", "train": "train", "dev": "calibration"}


@functools.lru_cache(maxsize=4)
def shop(seed: int, customers: int) -> Records:
    """Return a generated shop; one object for all who ask for the same."""
    return Records(small_shop(Rng(seed), customers, orders=3.0))


def generated(rng: Rng, tasks: int, customers: int, most: int, traps: float) -> Iterator[Unit]:
    """Yield customers of a generated shop, each with errands whose right end is known."""
    seed = rng.child("shop").seed_for_request()
    records = shop(seed, customers)
    tables: Any = records.tables
    draws = rng.child("errands").numpy()
    names = list(tables["users"])
    people = itertools.cycle([names[place] for place in draws.permutation(customers)])
    made = 0
    while made < tasks:
        user_id, found = errands(draws, tables, people, most, traps)
        knows_email = bool(draws.random() < 0.7)
        case = _case(user_id, tables["users"][user_id], found, knows_email)
        if any(said.startswith("Error") for said in Retail(records).replay(case.actions)):
            continue  # one errand took what another needs, such as the money on a gift card
        email, name_zip = _answers(tables["users"][user_id], knows_email)
        content = {
            "user_id": user_id, "instruction": case.instruction, "shop": seed,
            "email": email, "name_zip": name_zip, "errands": [each.as_json() for each in found],
        }  # fmt: skip
        yield _unit(f"{made:05d}", case, content, Retail(records), "test", None)
        made += 1


def released(cases: list[Case], episode: Service, domain: str, split: str) -> Iterator[Unit]:
    """Yield released cases, in order; several are variants of one customer's story."""
    for number, case in enumerate(cases):
        content = {"user_id": case.user_id, "instruction": case.instruction}
        name = f"{domain}-{split}-{number:03d}"
        yield _unit(name, case, content, episode.fresh(), _SPLITS[split], case.user_id)


def _answers(user: Mapping[str, Any], knows_email: bool) -> tuple[str, str]:
    name = user["name"]
    email = f"My email is {user['email']}." if knows_email else "I do not remember my email."
    code = user["address"]["zip"]
    return email, f"I am {name['first_name']} {name['last_name']}, zip code {code}."


def _case(user_id: str, user: Mapping[str, Any], found: list[Errand], knows_email: bool) -> Case:
    email, name_zip = _answers(user, knows_email)
    wants = []
    for each in found:
        wants += [each.ask, *each.answers.values()]
        if not each.consents:
            wants.append("When you are asked to confirm that, think better of it and say no.")
    return Case(
        user_id,
        f"You are a customer. {name_zip} {email} This is what you want, one after the other:"
        f" {' '.join(wants)}",
        [each.wanted for each in found if each.right and each.wanted is not None],
        [text for each in found for text in each.outputs],
    )


def _unit(
    name: str,
    case: Case,
    content: dict[str, Any],
    episode: Service,
    split: Split,
    cluster: str | None,
) -> Unit:
    target = {
        "actions": [[tool, dict(given)] for tool, given in case.actions],
        "outputs": list(case.outputs),
    }
    digest = hashlib.sha256(json.dumps([content, target], sort_keys=True).encode()).hexdigest()
    return Unit(
        f"{name}-{digest[:8]}",
        content=content,
        target=target,
        cluster=cluster,
        stratum="unchanged" if leaves_unchanged(episode, case) else "changed",
        split=split,
    )
