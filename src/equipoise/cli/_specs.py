"""Parts on the command line: ``rotate``, ``hf:FOLDER``, ``rotate(weights=4)``, or YAML."""

from __future__ import annotations

import ast
from typing import Any

from equipoise.core.errors import UsageError

_NAMES = {"true": True, "false": False, "null": None, "none": None}


def parse_spec(text: str) -> Any:
    """Return what a trial file would hold for a part written on the command line.

    Raises
    ------
    UsageError
        If it is none of the forms.

    Examples
    --------
    >>> parse_spec("rotate(weights=4, rotation='orthogonal')")
    {'rotate': {'weights': 4, 'rotation': 'orthogonal'}}
    >>> parse_spec("hf:folder"), parse_spec("{rotate: {weights: 4}}")
    ('hf:folder', {'rotate': {'weights': 4}})
    >>> parse_spec("few_shot(task=mathgap(depth=2), shots=3)")
    {'few_shot': {'task': {'mathgap': {'depth': 2}}, 'shots': 3}}
    """
    text = text.strip()
    if text.startswith("{"):
        return _yaml(text)
    if not text.endswith(")"):
        return text
    try:
        tree = ast.parse(text, mode="eval").body
    except SyntaxError as error:
        raise _unreadable(text) from error
    return _value(tree, text)


def _value(node: ast.expr, text: str) -> Any:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        given = {each.arg: _value(each.value, text) for each in node.keywords if each.arg}
        if len(given) < len(node.keywords) or len(node.args) + bool(given) > 1:
            raise _unreadable(text)
        if node.args:
            return {node.func.id: _value(node.args[0], text)}
        return {node.func.id: given} if given else node.func.id
    if isinstance(node, ast.Name):
        return _NAMES.get(node.id.lower(), node.id)
    if isinstance(node, (ast.List, ast.Tuple)):
        return [_value(each, text) for each in node.elts]
    try:
        return ast.literal_eval(node)
    except ValueError as error:
        raise _unreadable(text) from error


def _yaml(text: str) -> Any:
    import yaml

    from equipoise.catalog import yaml_loader

    try:
        return yaml.load(text, yaml_loader())  # noqa: S506 - a safe loader
    except yaml.YAMLError as error:
        raise _unreadable(text) from error


def _unreadable(text: str) -> UsageError:
    return UsageError(
        f"{text} is no part; write `name`, `name:value`, `name(parameter=value)`"
        " or {name: {parameter: value}}."
    )
