import dataclasses

import pytest

from equipoise.core import (
    Measure,
    Outcomes,
    Part,
    ScoreSpec,
    Task,
    UsageError,
    between,
    one_of,
    parameters,
    setting,
)


@dataclasses.dataclass(frozen=True)
class Mixed(Part):
    bits: int = between(2, 16, default=8)
    rate: float = between(0, 1, default=0.5)
    kind: str = one_of("plain", "fancy", default="plain")
    names: tuple[str, ...] = ()
    task: Task | None = None
    where: str = setting("here")


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"bits": 1}, "Mixed: bits must be an integer from 2 to 16, got 1."),
        ({"bits": True}, "Mixed: bits must be an integer from 2 to 16, got True."),
        ({"bits": 2.5}, "Mixed: bits must be an integer from 2 to 16, got 2.5."),
        ({"rate": float("nan")}, "Mixed: rate must be a number from 0 to 1, got nan."),
        ({"kind": "odd"}, "Mixed: kind must be one of 'plain', 'fancy', got 'odd'."),
        ({"names": ["a"]}, "Mixed: names must be a list of texts, got ['a']."),
        ({"task": 3}, "Mixed: task must be a task or nothing, got 3."),
    ],
)
def test_a_wrong_value_is_one_sentence(given, sentence):
    with pytest.raises(UsageError) as caught:
        Mixed(**given)
    assert str(caught.value) == sentence


def test_parameters_say_what_enters_the_identity():
    assert [p.name for p in parameters(Mixed) if not p.in_identity] == ["where"]
    assert not any(p.required for p in parameters(Mixed))


def test_a_score_names_the_nearest():
    outcomes = Outcomes.of(correct=[1, 0])
    with pytest.raises(UsageError, match=r'No score "corect".*Nearest: correct'):
        outcomes.score("corect")


def test_the_worst_value_follows_the_direction():
    assert ScoreSpec("x", True, 0, 1).worst == 0
    assert ScoreSpec("x", False, 0, 1).worst == 1
    assert ScoreSpec("x", False).worst is None


def test_abstract_kinds_cannot_be_built():
    with pytest.raises(TypeError):
        Measure()
