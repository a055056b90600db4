"""From prompts to token ids and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from equipoise.core import Message, Prompt, UsageError


class Prompts:
    """Turns prompts into token ids by a tokenizer, and ids into text.

    Parameters
    ----------
    tokenizer
        A transformers tokenizer.
    name
        Of the model, for messages.
    """

    def __init__(self, tokenizer: Any, name: str) -> None:
        self.tokenizer = tokenizer
        self.name = name

    def tokenize(self, text: str) -> list[int]:
        """Return the ids of text, without special tokens."""
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def ids(self, prompt: Prompt, tools: Sequence[Mapping[str, Any]] = ()) -> list[int]:
        """Return a prompt's ids; one that is empty becomes the token that begins a text."""
        if isinstance(prompt, str):
            if tools:
                prompt = [{"role": "user", "content": prompt}]
            else:
                return self._text(prompt) or self._start()
        if not prompt:
            return self._start()
        if not isinstance(prompt[0], Mapping):
            return [int(each) for each in prompt]  # type: ignore[arg-type]
        return self.tokenize(self.render(prompt, tools))  # type: ignore[arg-type]

    def pair(
        self, prompt: Prompt, continuation: str | Sequence[int]
    ) -> tuple[list[int], list[int]]:
        """Return the ids of a context and of what continues it.

        Text and its continuation are encoded as one and the context's ids taken
        off, because a tokenizer may cut them differently apart. White space at
        the end of a text prompt counts as the beginning of the continuation, as
        in lm-evaluation-harness. Where the two merge across their boundary the
        continuation is encoded alone, so that none of it is lost.
        """
        if not isinstance(continuation, str):
            return self.ids(prompt), [int(each) for each in continuation]
        if isinstance(prompt, str):
            bare = prompt.rstrip()
            continuation = prompt[len(bare) :] + continuation
            context = self._text(bare)
            whole = self._text(bare + continuation)
        elif prompt and isinstance(prompt[0], Mapping):
            text = self.render(prompt)  # type: ignore[arg-type]
            context = self.tokenize(text)
            whole = self.tokenize(text + continuation)
        else:
            context = self.ids(prompt)
            whole = context + self.tokenize(continuation)
        if whole[: len(context)] == context:
            rest = whole[len(context) :]
        else:
            rest = self.tokenize(continuation)
        return context or self._start(), rest

    def render(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]] = (),
        *,
        closed: bool = False,
    ) -> str:
        """Return messages as the chat template writes them.

        The answer is begun after the last message, unless that is the
        assistant's own: then it is gone on with. ``closed`` does neither.
        """
        template = getattr(self.tokenizer, "chat_template", None)
        if not template:
            raise UsageError(
                f"{self.name}: the tokenizer has no chat template, so messages cannot be put to"
                " this model; give the prompt as text, or add a chat_template.jinja to its folder."
            )
        if tools and "tools" not in str(template):
            raise UsageError(
                f"{self.name}: the chat template has no place for tools; leave tools out, or take"
                " a model that was trained to call them."
            )
        flat = [self._flat(message) for message in messages]
        goes_on = flat[-1].get("role") == "assistant" and not flat[-1].get("tool_calls")
        try:
            text: str = self.tokenizer.apply_chat_template(
                flat,
                tools=list(tools) or None,
                tokenize=False,
                add_generation_prompt=not closed and not goes_on,
                continue_final_message=not closed and goes_on,
            )
        except Exception as error:
            reason = " ".join(str(error).split()).rstrip(".")
            raise UsageError(
                f"{self.name}: the chat template refuses these messages: {reason}."
            ) from error
        return text

    def decode(self, ids: Sequence[int], before: Sequence[int] = ()) -> str:
        """Return the text of ids, as it reads after the ids ``before``.

        Some tokenizers drop the space that a text begins with; with a few
        tokens before, it is kept.
        """
        if before:
            start, whole = self._decode(before), self._decode([*before, *ids])
            if whole.startswith(start):
                return whole[len(start) :]
        return self._decode(ids)

    def _decode(self, ids: Sequence[int]) -> str:
        found: str = self.tokenizer.decode(
            list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        return found

    def _text(self, text: str) -> list[int]:
        ids = list(self.tokenizer(text)["input_ids"])
        end = self.tokenizer.eos_token_id
        if ids and ids[-1] == end and not text.endswith(self.tokenizer.eos_token or ""):
            ids.pop()  # a tokenizer that closes every text would end the answer before it begins
        return ids

    def _start(self) -> list[int]:
        for found in (self.tokenizer.bos_token_id, self.tokenizer.eos_token_id):
            if found is not None:
                return [int(found)]
        raise UsageError(
            f"{self.name}: the prompt is empty, and the tokenizer has no token that begins a text;"
            " give a prompt."
        )

    def _flat(self, message: Message) -> dict[str, Any]:
        if not isinstance(message, Mapping) or "role" not in message:
            raise UsageError(f"{self.name}: a message needs a role and a content, got {message!r}.")
        content = message.get("content")
        if content is None:
            content = ""
        elif not isinstance(content, str):
            kinds = {part.get("type") for part in content}
            if kinds - {"text"}:
                odd = ", ".join(sorted(str(kind) for kind in kinds - {"text"}))
                raise UsageError(f"{self.name}: takes text only, and a message has {odd}.")
            content = "".join(part["text"] for part in content)
        return {**message, "content": content}
