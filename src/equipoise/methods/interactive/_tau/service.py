"""What both desks share: cases, goals, the reward, and tools that touch no data."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from equipoise.kit.language.environment import Dialogue, Environment
from equipoise.kit.language.tools import Tool, Toolbox, ToolError
from equipoise.methods.interactive._tau.records import Database, Records, reads


@dataclass(frozen=True, slots=True)
class Case:
    """One customer with a goal.

    Parameters
    ----------
    user_id
        Of the customer.
    instruction
        Who they are and what they want; hidden from the agent.
    actions
        Tool calls, name and arguments, that lead to the goal state.
    outputs
        What the agent must tell the customer.
    """

    user_id: str
    instruction: str
    actions: Sequence[tuple[str, Mapping[str, Any]]]
    outputs: Sequence[str]


class Service(Environment):
    """An episode at a service desk.

    Parameters
    ----------
    records
        The database that all episodes share.
    policy
        What the agent must keep to.
    """

    def __init__(self, records: Records, policy: str = "") -> None:
        self.database = Database(records)
        self.policy = policy
        self.case: Case | None = None

    def tools(self) -> Iterable[Callable[..., Any] | Tool]:
        """Return the tools by name."""
        return sorted(super().tools(), key=_name)

    def fresh(self) -> Service:
        """Return an episode of the same kind in which nothing has happened."""
        return type(self)(self.database.records)

    def replay(self, actions: Sequence[tuple[str, Mapping[str, Any]]]) -> list[str]:
        """Do annotated actions, but for those that end an episode; return what each says."""
        box = Toolbox(tuple(self.tools()))
        return [
            box.use(name, dict(arguments)).content
            for name, arguments in actions
            if name != "transfer_to_human_agents"
        ]

    def scores(self, dialogue: Dialogue) -> Mapping[str, float]:
        """Return the reward and what it is made of."""
        assert self.case is not None, "a case says what is right"
        goal = self.fresh()
        goal.replay(self.case.actions)
        database = float(self.database.digest() == goal.database.digest())
        output = float(said_all(dialogue.said, self.case.outputs))
        finished = dialogue.ended in ("user", "tool")
        return {
            "reward": database * output * finished,
            "database": database,
            "output": output,
            "tool_faults": float(sum(dialogue.faults.values())),
            "steps": float(dialogue.steps),
        }

    @reads
    def calculate(self, expression: str) -> str:
        """Work out an arithmetic expression, to two decimals.

        Parameters
        ----------
        expression
            Of numbers, + - * /, brackets and blanks, such as '2 + 2'.
        """
        if not all(char in "0123456789+-*/(). " for char in expression):
            raise ToolError("invalid characters in expression")
        if len(expression) > 1000:
            raise ToolError("the expression is too long")
        tree = ast.parse(expression.lstrip(), "<string>", "eval")
        return str(round(float(_value(tree.body)), 2))

    @reads
    def think(self, thought: str) -> str:
        """Write down a thought. Nothing is looked up and nothing changes.

        Parameters
        ----------
        thought
            What to think about.
        """
        return ""

    @reads
    def transfer_to_human_agents(self, summary: str) -> str:
        """Hand the customer over to a human, when they ask for one or no tool can help.

        Parameters
        ----------
        summary
            What the customer's problem is.
        """
        self.over = True
        return "Transfer successful"


def said_all(said: Sequence[str], outputs: Sequence[str]) -> bool:
    """Say whether every output occurs in some message, case and the messages' commas aside.

    Examples
    --------
    >>> said_all(["You get $1,234.50 back."], ["1234.5"])
    True
    """
    plain = [text.lower().replace(",", "") for text in said]
    return all(any(output.lower() in text for text in plain) for output in outputs)


def leaves_unchanged(episode: Service, case: Case) -> bool:
    """Say whether a case asks for no change, so that an agent that does nothing gets it right."""
    before = episode.database.digest()
    episode.replay(case.actions)
    return episode.database.digest() == before


def _name(each: Any) -> str:
    return str(each.name if isinstance(each, Tool) else each.__name__)


_OPERATORS: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
    ast.Div: operator.truediv, ast.FloorDiv: operator.floordiv,
}  # fmt: skip


def _value(node: ast.expr) -> Any:
    """Work out what Python would, without running it: powers could take for ever."""
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.UAdd | ast.USub):
        inner = _value(node.operand)
        return -inner if isinstance(node.op, ast.USub) else inner
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        return _OPERATORS[type(node.op)](_value(node.left), _value(node.right))
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
        base, power = _value(node.left), _value(node.right)
        whole = isinstance(base, int) and isinstance(power, int)
        if whole and base.bit_length() * abs(power) > 4096:
            raise ToolError("the power is too large")
        return base**power
    raise ToolError("the expression cannot be worked out")
