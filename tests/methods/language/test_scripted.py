import pickle

import pytest

from equipoise.catalog import identity, part
from equipoise.core import Request, Rng, UnitError, UsageError
from equipoise.kit.language.talk import generate_each
from equipoise.methods.language import Scripted


def texts(subject, *prompts):
    return [a.text for a in subject.load(Rng(0)).generate([Request(p, seed=3) for p in prompts])]


def test_answers_from_a_function(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    code = "def upper(request):\n    return f'{request.prompt.upper()} {request.seed}'\n"
    (tmp_path / "my_answers.py").write_text(code)
    subject = Scripted("my_answers:upper")
    assert texts(subject, "a") == ["A 3"]
    live = subject.load(Rng(0))
    assert pickle.loads(pickle.dumps(live)) == live


@pytest.mark.parametrize("ending", ["jsonl", "csv"])
def test_answers_from_a_file(tmp_path, ending):
    file = tmp_path / f"answers.{ending}"
    if ending == "csv":
        file.write_text("prompt,answer\n2+2?,4\n3+3?,6\n")
    else:
        file.write_text('{"prompt": "2+2?", "answer": 4}\n{"prompt": "3+3?", "answer": 6}\n')
    subject = Scripted(file=str(file))
    assert texts(subject, "3+3?", "2+2?") == ["6", "4"]
    found = generate_each(subject.load(Rng(0)), [Request("2+2?"), Request("9?")])
    assert isinstance(found[1], UnitError)
    assert found[1].kind == "unknown_prompt"
    moved = tmp_path / f"moved.{ending}"
    moved.write_bytes(file.read_bytes())
    assert identity(subject) == identity(Scripted(file=str(moved)))
    moved.write_text(file.read_text().replace("6", "7"))
    assert identity(subject) != identity(Scripted(file=str(moved)))


def test_a_table_and_a_constant_for_everything_else():
    assert texts(Scripted(answers={"a": "1"}, constant="?"), "a", "b") == ["1", "?"]
    assert texts(part("scripted", constant="yes"), "a") == ["yes"]


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({}, "give one of function, answers and file"),
        ({"function": "a:b", "file": "c"}, "give one of"),
        ({"function": "a:b", "constant": "c"}, "leave constant out"),
        ({"function": "nowhere"}, "must be module:function, got 'nowhere'"),
    ],
)
def test_wrong_parameters_are_one_sentence(values, says):
    with pytest.raises(UsageError, match=says):
        Scripted(**values)


def test_a_function_that_is_not_there_is_one_sentence():
    for name in ("no_such_module:f", "math:no_such"):
        with pytest.raises(UsageError, match="cannot be imported"):
            Scripted(name).load(Rng(0))
    with pytest.raises(UsageError, match="is not a function"):
        Scripted("math:pi").load(Rng(0))
