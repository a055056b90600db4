"""Questions about two words, their tokens, and a model's last block on them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from equipoise.core import UsageError

if TYPE_CHECKING:
    from torch import Tensor

TAUGHT = (
    "Which do you like better, {x} or {y}? I like",
    "Choose one: {x} or {y}. My choice is",
    "Between {x} and {y}, I would rather have",
    "Q: {x} or {y}? A:",
    "If I had to pick {x} or {y}, I would pick",
    "Do you prefer {x} or {y}? I prefer",
)
HELD_OUT = (
    "Given {x} and {y}, my favourite is",
    "What do you like more, {x} or {y}? I like",
    "People ask me: {x} or {y}? I always say",
    "Of the two, {x} and {y}, the better is",
    "Pick a winner: {x} or {y}. The winner is",
    "Tell me, {x} or {y}? I would choose",
    "I can have {x} or {y}, and I want",
    "My answer to {x} or {y} is",
    "Asked about {x} and {y}, I said",
    "{x} or {y}: I vote for",
    "There are {x} and there are {y}, but I love",
    "Some like {x}, some like {y}. I like",
    "Which would you keep, {x} or {y}? I would keep",
    "Question: {x} or {y}? Answer:",
    "My friend has {x} and {y}. I only want",
    "When I think of {x} and {y}, I am happier with",
)


def option_tokens(subject: Any, options: Sequence[str]) -> tuple[list[int], list[int]]:
    """Return the token of each option, and the tokens that all begin with."""
    ids = [subject.tokenize(f" {option}") for option in options]
    shared = 0
    while all(len(each) > shared + 1 for each in ids) and len({each[shared] for each in ids}) == 1:
        shared += 1
    long = [option for option, each in zip(options, ids, strict=True) if len(each) != shared + 1]
    if long:
        raise UsageError(
            f"{', '.join(long)}: not one token to this model's tokenizer; take other words."
        )
    return [each[shared] for each in ids], ids[0][:shared]


def asked(subject: Any, question: str, x: str, y: str, lead: Sequence[int]) -> list[int]:
    """Return the tokens of a question about x and y, up to where the answer's token is next."""
    from equipoise.kit.language.states import prompt_ids

    return [*prompt_ids(subject, question.replace("{x}", x).replace("{y}", y)), *lead]


class Tail:
    """The last block and what comes after it, on rows whose states below it are kept.

    Gives logits ``(rows, options)``; only their differences mean anything.
    """

    def __init__(self, subject: Any, rows: Sequence[Sequence[int]], tokens: Sequence[int]) -> None:
        import torch

        from equipoise.kit.language.structure import structure_of
        from equipoise.kit.torch.tokens import token_mask

        module = subject.module
        structure = structure_of(module)
        self._block, self._norm, self._head = (
            structure.blocks[-1].name, structure.norm, structure.head,
        )  # fmt: skip
        inside = f"{self._block}."
        self.parameters = [n for n, _ in module.named_parameters() if n.startswith(inside)]
        types = {each.dtype for each in module.parameters()}
        if types != {torch.float32}:
            raise UsageError(
                "DPOOnFixedPreferences: the subject must be in float32; load it with that dtype."
            )
        self._ends = [len(row) - 1 for row in rows]
        self._tokens = list(tokens)
        width = max(map(len, rows))
        # Padding comes last, where no real token sees it.
        ids = torch.tensor([[*row, *[row[-1]] * (width - len(row))] for row in rows])
        ids = ids.to(subject.device)
        real = torch.arange(width) <= torch.tensor(self._ends)[:, None]
        kept: list[Any] = []
        handle = module.get_submodule(self._block).register_forward_pre_hook(
            lambda _, given, named: kept.append((given, named)), with_kwargs=True
        )
        try:
            with torch.no_grad(), token_mask(real.to(subject.device)):
                logits = module(input_ids=ids, use_cache=False).logits
        finally:
            handle.remove()
        self._given, self._named = kept[0]
        at = torch.arange(len(rows)), torch.tensor(self._ends)
        whole = logits[at][:, self._tokens].float()
        with torch.no_grad():
            mine = self(module)
        apart = (whole - whole[:, :1]) - (mine - mine[:, :1])
        if float(apart.abs().max()) > 1e-3:
            raise UsageError(
                f"DPOOnFixedPreferences: {type(module).__name__} does more after its last block"
                " than a norm and an output layer."
            )

    def __call__(self, module: Any) -> Tensor:
        import torch
        from torch.nn.functional import linear

        states = module.get_submodule(self._block)(*self._given, **self._named)
        states = states[0] if isinstance(states, tuple) else states
        states = states[torch.arange(len(self._ends)), torch.tensor(self._ends)]
        if self._norm is not None:
            states = module.get_submodule(self._norm)(states)
        head = module.get_submodule(self._head)
        bias = None if head.bias is None else head.bias[self._tokens]
        return linear(states, head.weight[self._tokens], bias)

    def tensor(self, values: Sequence[float]) -> Tensor:
        """Return numbers as a tensor where the states are."""
        import torch

        states = self._given[0] if self._given else self._named["hidden_states"]
        return torch.tensor(values, dtype=torch.float32, device=states.device)
