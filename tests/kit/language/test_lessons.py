"""What is learned and what is only read, to the token."""

import json

import pytest
import torch

from equipoise.core import Rng, Task, Unit, UsageError
from equipoise.kit.language._prompts import Prompts
from equipoise.kit.language.lessons import (
    Lesson,
    Order,
    collate,
    conversation,
    documents,
    question,
    read_lessons,
    taught,
    windows,
)
from equipoise.kit.language.tiny import byte_tokenizer

END = 258


def prompts(template=...):
    tokenizer = byte_tokenizer()
    if template is not ...:
        tokenizer.chat_template = template
    return Prompts(tokenizer, "tiny")


def parts(lesson):
    """Return the text that is only read, and the text that is learned."""
    tokenizer = byte_tokenizer()
    pairs = list(zip(lesson.ids, lesson.learned, strict=True))
    return tuple(
        tokenizer.decode([token for token, learned in pairs if learned is wanted])
        for wanted in (False, True)
    )


def test_windows_keep_every_token_once():
    texts = ["some words", "a", "three more words than that"]
    found = windows(texts, prompts(), 7)
    ids = [token for lesson in found for token in lesson.ids]
    wanted = [token for text in texts for token in (*text.encode(), END)]
    assert ids == wanted
    assert [len(lesson) for lesson in found[:-1]] == [7] * (len(found) - 1)
    assert all(lesson.learned == (False, *[True] * (len(lesson) - 1)) for lesson in found)


def test_documents_share_no_window():
    found = documents(["ab", "cdefg"], prompts(), 4)
    assert [lesson.ids for lesson in found] == [(97, 98, END), (99, 100, 101, 102), (103, END)]


def test_an_answer_is_learned_with_its_end_and_no_more():
    (lesson,) = question(prompts(), "2+2?", "4")
    assert parts(lesson) == ("<|start|>user\n2+2?<|end|>\n<|start|>assistant\n", "4<|end|>")
    (lesson,) = question(prompts(), "2+2?", "4", chat=False)
    assert parts(lesson) == ("2+2?", " 4<|end|>")
    (lesson,) = question(prompts(None), "2+2=\n", "4")
    assert parts(lesson) == ("2+2=", "\n4<|end|>")  # blanks go with what follows, as in scoring


CHAT = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Hi"},
    {"role": "assistant", "content": "Hello"},
    {"role": "user", "content": "Bye"},
    {"role": "assistant", "content": "Ciao"},
]


def test_every_turn_of_the_assistant_is_learned():
    (lesson,) = conversation(prompts(), CHAT)
    read, learned = parts(lesson)
    assert learned == "Hello<|end|>Ciao<|end|>"
    assert "Be brief." in read
    assert "Bye" in read
    whole = byte_tokenizer().decode(lesson.ids)
    wanted = byte_tokenizer().apply_chat_template(CHAT, tokenize=False)
    assert whole == wanted.rstrip()


def test_a_turn_of_no_weight_is_only_read():
    chat = [dict(message) for message in CHAT]
    chat[2]["weight"] = 0
    (lesson,) = conversation(prompts(), chat)
    assert parts(lesson)[1] == "Ciao<|end|>"


FORGETFUL = (
    "{% for m in messages %}<|start|>{{ m['role'] }}\n"
    "{% if m['role'] == 'assistant' and not loop.last %}...{% else %}{{ m['content'] }}{% endif %}"
    "<|end|>\n{% endfor %}{% if add_generation_prompt %}<|start|>assistant\n{% endif %}"
)


def test_a_template_that_rewrites_earlier_turns_gives_a_lesson_a_turn():
    one, two = conversation(prompts(FORGETFUL), CHAT)
    assert parts(one)[1] == "Hello<|end|>"
    assert parts(two)[1] == "Ciao<|end|>"
    assert "..." in parts(two)[0]


class Merging:
    """A tokenizer that has one token for ``a b`` as well."""

    chat_template = None
    eos_token_id = None

    def __call__(self, text, add_special_tokens=True):
        ids, at = [], 0
        while at < len(text):
            step = 3 if text[at : at + 3] == "a b" else 1
            ids.append(999 if step == 3 else ord(text[at]))
            at += step
        return {"input_ids": ids}


def test_tokens_that_reach_over_an_edge_are_cut_there():
    from equipoise.kit.language.lessons import _cut

    found = _cut(Prompts(Merging(), "odd"), "xa bz", [2])
    assert found == [[120, 97], [32, 98, 122]]
    found = _cut(Prompts(Merging(), "odd"), "xa bz", [1])
    assert found == [[120], [999, 122]]


@pytest.mark.parametrize(
    ("template", "messages", "says"),
    [
        (..., CHAT[:2], "needs a message of the assistant"),
        (..., CHAT[2:3], "and another one before it"),
        (..., ["hi"], "a message needs a role"),
        (None, CHAT, "has no chat template"),
        (
            "{% for m in messages %}{{ m['content'] }}{% endfor %}"
            "{% if add_generation_prompt %}>{% endif %}",
            CHAT,
            "writes an answer otherwise than it begins one",
        ),
    ],
)
def test_what_cannot_be_told_apart_is_one_sentence(template, messages, says):
    with pytest.raises(UsageError, match=says) as error:
        conversation(prompts(template), messages)
    assert str(error.value).endswith(".")
    assert str(error.value).count(". ") == 0


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def test_rows_say_by_their_columns_what_they_are(tmp_path):
    how = {"length": 64}
    chats = write(tmp_path / "chats.jsonl", [{"messages": CHAT}, {"messages": CHAT[1:3]}])
    assert [parts(each)[1] for each in read_lessons(chats, prompts(), **how)] == [
        "Hello<|end|>Ciao<|end|>",
        "Hello<|end|>",
    ]
    pairs = write(tmp_path / "pairs.jsonl", [{"prompt": "Q", "completion": " A"}])
    assert parts(read_lessons(pairs, prompts(), chat=False, **how)[0]) == ("Q", " A<|end|>")
    texts = write(tmp_path / "texts.jsonl", [{"text": "one"}, {"text": "two"}])
    assert len(read_lessons(texts, prompts(), **how)) == 1
    assert len(read_lessons(texts, prompts(), packing=False, **how)) == 2
    (tmp_path / "prose.txt").write_text("words")
    assert len(read_lessons(str(tmp_path / "prose.txt"), prompts(), **how)) == 1


def test_faults_name_their_row(tmp_path):
    how = {"prompts": prompts(), "length": 64}
    chats = write(tmp_path / "c.jsonl", [{"messages": CHAT}, {"messages": CHAT[:2]}])
    with pytest.raises(UsageError, match=r"c\.jsonl, row 2: a conversation needs"):
        read_lessons(chats, **how)
    pairs = write(tmp_path / "p.jsonl", [{"prompt": 1, "completion": 2}])
    with pytest.raises(UsageError, match=r"p\.jsonl, row 1: prompt and completion must be text"):
        read_lessons(pairs, **how)
    with pytest.raises(UsageError, match=r'no column "text"'):
        read_lessons(write(tmp_path / "o.jsonl", [{"other": "x"}]), **how)
    with pytest.raises(UsageError, match="no such file"):
        read_lessons(str(tmp_path / "none.jsonl"), **how)


class Sums(Task):
    """Even sums train, odd ones test."""

    def units(self, rng):
        for n in range(4):
            yield Unit(str(n), {"ask": f"{n}+{n}?"}, 2 * n, split="test" if n % 2 else "train")

    @staticmethod
    def example(unit):
        return unit.content["ask"], unit.target


class Mute(Task):
    def units(self, rng):
        yield Unit("a", "?", split="train")


class Untaught(Sums):
    def units(self, rng):
        yield Unit("a", {"ask": "?"}, 1)


def test_a_task_teaches_its_train_units_only():
    found = taught(Sums(), Rng(0), prompts(), chat=False)
    assert [parts(each) for each in found] == [("0+0?", " 0<|end|>"), ("2+2?", " 4<|end|>")]
    with pytest.raises(UsageError, match="Mute shows no right answers"):
        taught(Mute(), Rng(0), prompts())
    with pytest.raises(UsageError, match="Untaught has no train units"):
        taught(Untaught(), Rng(0), prompts())


def test_batches_are_padded_at_the_end():
    batch = collate([Lesson.of([1], [2, 3]), Lesson.of([4], [5])])
    assert batch.ids.tolist() == [[1, 2, 3], [4, 5, 0]]
    assert batch.learned.tolist() == [[False, True, True], [False, True, False]]
    assert batch.real.sum(1).tolist() == [3, 2]
    assert batch.ids.dtype == torch.int64


def test_every_time_through_has_an_order_of_its_own():
    order = Order(50, Rng(0))
    first, second = order.at(range(50)), order.at(range(50, 100))
    assert sorted(first) == sorted(second) == list(range(50))
    assert first != second
    assert Order(50, Rng(0)).at(range(40, 60)) == [*first[40:], *second[:10]]
