import pytest

from equipoise.core import Request, UnitError
from equipoise.kit.language.canned import Canned, CannedScores, Constant, Lookup, asked


def test_stop_strings_and_the_limit_cut_answers():
    subject = Canned(Constant("one two  three\nfour"))
    whole, stopped, short = subject.generate(
        [Request("a b"), Request("a", stop=("\n", "three")), Request("a", max_tokens=2)]
    )
    assert (whole.text, whole.finish) == ("one two  three\nfour", ("stop",))
    assert (stopped.text, stopped.usage.output_tokens) == ("one two  ", 2)
    assert (short.text, short.finish) == ("one two", ("length",))
    assert (whole.usage.input_tokens, whole.usage.output_tokens) == (2, 4)


def test_samples_have_seeds_of_their_own():
    subject = Canned(lambda request: f"{request.n}/{request.seed}")
    assert subject.generate([Request("a", n=3, seed=5)])[0].texts == ("1/5", "1/6", "1/7")


def test_looks_up_the_last_thing_the_user_said():
    parts = [{"type": "text", "text": "2"}, {"type": "text", "text": "+2?"}]
    said = [{"role": "user", "content": "1?"}, {"role": "user", "content": parts}]
    assert asked([*said, {"role": "assistant", "content": "hm"}]) == "2+2?"
    assert asked([]) == ""
    assert Canned(Lookup({"2+2?": "4"})).generate([Request(said)])[0].text == "4"
    with pytest.raises(UnitError, match="No answer is scripted"):
        Canned(Lookup({})).generate([Request("x" * 100)])
    with pytest.raises(UnitError, match="must be text, got int"):
        Canned(lambda request: 4).generate([Request("x")])


def test_scores_count_bytes():
    scores = CannedScores(lambda prompt: "é").log_likelihood([("a", "é"), ("a", "no!")])
    assert [s.total for s in scores] == [0.0, -15.0]
    assert [len(s.log_probs) for s in scores] == [2, 3]
