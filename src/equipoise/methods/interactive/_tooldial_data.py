"""The released dialogue files: read as data, checked, and made into dialogues."""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from equipoise.core import UsageError
from equipoise.kit.worlds.api_dialogues import SYSTEM_ACTIONS, USER_ACTIONS, Dialogue, Turn

WHERE = "https://github.com/holi-lab/ToolDial"
_USER = (*USER_ACTIONS, "inform_intent_re")


def read_dialogues(path: str | Path) -> list[Dialogue]:
    """Read a file of the release: ``train.json``, ``val.json`` or ``test.json``.

    A list of ``{source, target, dialogue: [{"User": {message, action}} | {"System": {message,
    thought, action, retriever_status, dialogue_state, api_response}}]}``. Dictionaries may be
    given as Python writes them, in a string; they are read as literals and never run. The files
    hold no documentation: what a confirmed interface asks for is taken from the state that follows.

    Raises
    ------
    UsageError
        If there is no such file or it holds something else.
    """
    found = _json(Path(path).expanduser())
    if not (isinstance(found, list) and found and all(_has_turns(each) for each in found)):
        raise _wrong(path, "it is no list of dialogues")
    if isinstance(found[0]["dialogue"], str):
        raise _wrong(path, "its dialogues are text that was prepared for training")
    return [_dialogue(path, number, each) for number, each in enumerate(found)]


def _has_turns(given: Any) -> bool:
    return isinstance(given, Mapping) and "dialogue" in given


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise UsageError(
            f"ToolDial: there is no file {path}; {WHERE} says where the dialogues are."
        ) from error
    except OSError as error:
        raise UsageError(f"ToolDial: {path} cannot be read: {error.strerror}.") from error
    except (ValueError, RecursionError) as error:
        raise _wrong(path, "it is not JSON") from error


def _wrong(path: str | Path, fault: str) -> UsageError:
    return UsageError(
        f"ToolDial: {path}: {fault}; give train.json, val.json or test.json of {WHERE}."
    )


def _dialogue(path: str | Path, number: int, given: Any) -> Dialogue:
    def fault(what: str) -> UsageError:
        return _wrong(path, f"dialogue {number + 1}: {what}")

    if not isinstance(given["dialogue"], list):
        raise fault("it has no list of turns")
    turns: list[Turn] = []
    for place, entry in enumerate(given["dialogue"]):
        speaker = next(iter(entry), None) if isinstance(entry, Mapping) else None
        said = entry.get(speaker) if speaker in ("User", "System") else None
        if not isinstance(said, Mapping) or not isinstance(said.get("action"), str):
            raise fault(f"turn {place + 1} is neither a User nor a System with an action")
        action = said["action"].strip()
        known = _USER if speaker == "User" else SYSTEM_ACTIONS
        if action not in known:
            raise fault(f'turn {place + 1}: {speaker} has no action "{action}"')
        if speaker == "User":
            turns.append(Turn("user", action, str(said.get("message") or "")))
            continue
        state = _literal(said.get("dialogue_state"))
        if not isinstance(state, Mapping) or "api_status" not in state:
            raise fault(f"turn {place + 1} has no dialogue_state")
        after = given["dialogue"][place + 1 : place + 2]
        turns.append(_system(action, said, _plain_state(state), _response(said, *after)))
    if not any(turn.speaker == "system" for turn in turns):
        raise fault("the system has no turn")
    source, target = (str(given.get(name, "")) for name in ("source", "target"))
    return Dialogue(f"{number}", "", source, target, tuple(_documented(turns)))


def _response(said: Mapping[str, Any], after: Any = None) -> Any:
    """Return what a call returned; where it is empty, the next turn of the system has it."""
    found = _literal(said.get("api_response"))
    following = after.get("System") if isinstance(after, Mapping) else None
    if not found and isinstance(following, Mapping):
        found = _literal(following.get("api_response"))
    return found


def _system(action: str, said: Mapping[str, Any], state: Mapping[str, Any], response: Any) -> Turn:
    status = _literal(said.get("retriever_status"))
    retrieved = status.get("retrieved_api") if isinstance(status, Mapping) else None
    if isinstance(retrieved, list):  # an interface that supplies a parameter comes with a reason
        retrieved = {str(each[0] if isinstance(each, (list, tuple)) else each): 1.0
                     for each in retrieved}  # fmt: skip
    called = results = None
    if action == "call" and isinstance(response, Mapping):
        called, results = str(response.get("api_name", "")), response.get("result")
    return Turn(
        "system", action, str(said.get("message") or ""), str(said.get("thought") or ""), state,
        retrieved if action == "retriever_call" and isinstance(retrieved, Mapping) else None,
        None, called, results,
    )  # fmt: skip


def _literal(value: Any) -> Any:
    """Return a dictionary that was written into a string, and anything else as it is."""
    if not isinstance(value, str):
        return value
    for read in (json.loads, ast.literal_eval):
        try:
            return read(value)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            continue
    return value


def _plain_state(state: Mapping[str, Any]) -> dict[str, Any]:
    status = state["api_status"]
    if isinstance(status, Mapping):
        status = {name: each for name, each in status.items() if name != "system_action"}
    return {"api_confirmed": str(state.get("api_confirmed", "")).lower(), "api_status": status}


def _documented(turns: list[Turn]) -> list[Turn]:
    """Give each retriever call the parameters of the interface that is confirmed next."""
    found = list(turns)
    for place, turn in enumerate(turns):
        if turn.retrieved is None or not any(score >= 0.5 for score in turn.retrieved.values()
                                             if isinstance(score, (int, float))):  # fmt: skip
            continue
        later = (each.state["api_status"] for each in turns[place + 1 :] if each.state)
        status = next((each for each in later if isinstance(each, Mapping)), None)
        if status is not None:
            document = {"api_name": status.get("api_name", "")}
            for name in ("required_parameters", "optional_parameters"):
                document[name] = list(status.get(name) or ())
            found[place] = replace(turn, documents=document)
    return found
