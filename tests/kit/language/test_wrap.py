import pickle
from dataclasses import dataclass, replace

import pytest

from equipoise.core import (
    Embeds,
    Generates,
    GeneratesAsync,
    HasModule,
    Request,
    ScoresText,
    UsageError,
)
from equipoise.kit.language.canned import Canned, CannedScores, Constant
from equipoise.kit.language.talk import generate_each
from equipoise.kit.language.wrap import rewritten, with_prefix


@dataclass(frozen=True)
class Shout:
    def __call__(self, request):
        if isinstance(request.prompt, str):
            return replace(request, prompt=request.prompt.upper())
        return with_prefix(request, [{"role": "user", "content": "!"}], "")


class Everything:
    """Has all capabilities and keeps what it was asked."""

    max_connections = 3
    module = "weights"
    tokenizer = "tokenizer"
    device = "cpu"

    def __init__(self, module="weights"):
        self.module = module
        self.asked = []

    def generate(self, requests):
        self.asked += requests
        return Canned(Constant("x")).generate(requests)

    async def generate_one(self, request):
        return self.generate([request])[0]

    def log_likelihood(self, pairs):
        self.asked += pairs
        return CannedScores().log_likelihood(pairs)

    def tokenize(self, text):
        return [1]

    def with_module(self, module):
        return Everything(module)

    def embed(self, texts):
        raise AssertionError


def test_has_the_capabilities_of_what_it_wraps_and_no_more():
    all_of_them = rewritten(Everything(), Shout())
    for capability in (Generates, GeneratesAsync, ScoresText, HasModule):
        assert isinstance(all_of_them, capability)
    assert not isinstance(all_of_them, Embeds), "an embedding is of the text as it is"
    plain = rewritten(Canned(Constant("x")), Shout())
    assert isinstance(plain, Generates)
    for capability in (GeneratesAsync, ScoresText, HasModule):
        assert not isinstance(plain, capability)
    with pytest.raises(UsageError, match="int neither generates nor scores text"):
        rewritten(3, Shout())


def test_rewrites_text_and_messages_and_leaves_token_ids_alone():
    inner = Everything()
    subject = rewritten(inner, Shout())
    messages = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]
    subject.generate([Request("a")])
    generate_each(subject, [Request(messages)])
    shared, ids = "b", (1, 2)
    subject.log_likelihood([(shared, "x"), (shared, "y"), (messages, "z"), (ids, [3])])
    assert inner.asked[0].prompt == "A"
    assert [m["content"] for m in inner.asked[1].prompt] == ["s", "!", "u"]
    assert inner.asked[2][0] is inner.asked[3][0], "a shared prompt stays shared"
    assert inner.asked[2] == ("B", "x")
    assert [m["content"] for m in inner.asked[4][0]] == ["s", "!", "u"]
    assert inner.asked[5] == (ids, [3])
    assert len(messages) == 2, "the caller's list is not changed"


def test_another_module_is_rewritten_in_the_same_way():
    subject = rewritten(Everything(), Shout())
    treated = subject.with_module("other")
    treated.generate([Request("a")])
    assert (treated.module, subject.module) == ("other", "weights")
    assert treated.subject.asked[0].prompt == "A"
    assert treated.max_connections == 3


def test_survives_pickling():
    subject = pickle.loads(pickle.dumps(rewritten(Canned(Constant("x")), Shout())))
    assert subject.generate([Request("a")])[0].text == "x"
