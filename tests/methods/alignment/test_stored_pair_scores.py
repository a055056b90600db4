import json
from pathlib import Path

import numpy as np
import pytest

from equipoise.core import Rng, UsageError
from equipoise.kit.language.tiny import tiny_model
from equipoise.methods.alignment import (
    JudgeRewards,
    LikelihoodRewards,
    PostHocRewardCalibration,
    RecordedScores,
    Responses,
    StoredPairScores,
)

RNG = Rng(0)
CALIBRATED = PostHocRewardCalibration


class Counted:
    """A judge who counts how often it is asked."""

    def __init__(self):
        self.asked = 0

    def judge(self, conversations):
        self.asked += len(conversations)
        return np.linspace(0, 1, len(conversations))


def test_likelihood_is_the_mean_over_tokens():
    model = tiny_model()
    asked = [([{"role": "user", "content": "a?"}], text) for text in ("long words", "no")]
    wanted = [each.log_probs.mean() for each in model.log_likelihood(asked)]
    responses = Responses(prompts=("a?", "a?"), texts=("long words", "no"))
    assert LikelihoodRewards().apply(model, RNG).rewards(responses) == pytest.approx(wanted)


def test_arms_that_share_a_judge_ask_it_once():
    judge, responses = Counted(), Responses(texts=("a", "b"))
    one, two = (JudgeRewards().apply(judge, RNG) for _ in range(2))
    assert one.rewards(responses).tolist() == two.rewards(responses).tolist() == [0, 1]
    assert judge.asked == 2
    one.rewards(Responses(texts=("a", "c", "d")))
    assert judge.asked == 5


def test_a_model_that_judges_and_scores_is_asked_for_each():
    model, responses = tiny_model(), Responses(texts=("a", "b"))
    model.judge = Counted().judge
    judged = JudgeRewards().apply(model, RNG).rewards(responses)
    assert judged.tolist() == [0, 1]
    assert LikelihoodRewards().apply(model, RNG).rewards(responses).max() < 0


def test_a_judge_learns_from_calibration_units_alone():
    task, judge = StoredPairScores(StoredPairScores.tiny().data, calibration=0.5), Counted()
    CALIBRATED(scorer="judge", data=task).apply(judge, RNG)
    assert judge.asked == 2 * sum(unit.split == "calibration" for unit in task.units(RNG)) > 0


def test_judges_need_texts():
    with pytest.raises(UsageError, match="needs the texts of responses"):
        JudgeRewards().apply(Counted(), RNG).rewards(Responses(columns={"score": np.zeros(2)}))


# Files.


def reward_bench(tmp_path: Path, **changes):
    content = {
        "scores_chosen": [[2.0], 1.0, 0.5],
        "scores_rejected": [[1.0], 3.0, 0.25],
        "results": [1, 0, 1],
        "subset": ["hep-go", "hep-cpp", "donotanswer"],
        "text_chosen": ["a long one", "short", "x"],
        "text_rejected": ["short", "a much longer one", "yy"],
        "model": "some/model",
    } | changes
    path = tmp_path / "scores.json"
    path.write_text(json.dumps({k: v for k, v in content.items() if v is not None}))
    return StoredPairScores(str(path))


def test_reward_bench_file(tmp_path):
    task = reward_bench(tmp_path)
    outcomes = task.perform(RecordedScores().load(RNG), task.units(RNG), RNG)
    assert [each.scores["correct"] for each in outcomes] == [1, 0, 1]
    assert outcomes[0].scores["margin"] == 1
    assert outcomes[0].scores["preference"] == pytest.approx(1 / (1 + np.exp(-1)))
    assert outcomes[1].scores["length_rejected"] == 17
    assert [unit.stratum for unit in task.units(RNG)] == ["hep-go", "hep-cpp", "donotanswer"]
    assert [type(each).__name__ for each in task.measures()] == [
        "CharacteristicCorrelation",
        "SectionedPairAccuracy",
    ]


def test_reward_bench_file_with_conversations_and_ids_met_twice(tmp_path):
    said = [{"role": "user", "content": "Why?"}, {"role": "assistant", "content": "So."}]
    task = reward_bench(tmp_path, text_chosen=[said] * 3, id=[1, 1, 2])
    units = task.units(RNG)
    assert len({unit.id for unit in units}) == 3
    assert units[0].content["chosen"]["text"] == "So."
    with pytest.raises(UsageError, match='"text_chosen" must be text'):
        reward_bench(tmp_path, text_chosen=[{"a": 1}] * 3).units(RNG)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"scores_chosen": None}, "there is no list scores_chosen"),
        ({"scores_rejected": [1.0]}, "scores_rejected has 1 entries and scores_chosen 3"),
        ({"scores_chosen": ["high", 1.0, 2.0]}, "\"score_chosen\" must be a number, got 'high'"),
        ({"scores_chosen": [[1.0, 2.0], 1.0, 2.0]}, '"score_chosen" must be a number'),
        ({"text_rejected": None}, '"text" is there for one of the two responses'),
    ],
)
def test_reward_bench_file_of_another_layout(tmp_path, changes, says):
    with pytest.raises(UsageError, match=says):
        reward_bench(tmp_path, **changes).units(RNG)


def test_tables(tmp_path):
    path = tmp_path / "pairs.csv"
    path.write_text("score_chosen,score_rejected,tokens_chosen,tokens_rejected\n2,1,5,6\n,1,3,2\n")
    task = StoredPairScores(str(path), length="tokens")
    good, bad = task.perform(RecordedScores().load(RNG), task.units(RNG), RNG)
    assert good.scores["length_chosen"] == 5
    assert (bad.status, bad.error_kind) == ("error", "no_score")
    subject = CALIBRATED(characteristics=("tokens",)).apply(RecordedScores().load(RNG), RNG)
    with pytest.raises(UsageError, match="1 of 4 rewards are NaN or infinite"):
        task.perform(subject, task.units(RNG), RNG)
    with pytest.raises(UsageError, match=r'No column "reward".* There are: score, tokens'):
        task.perform(RecordedScores("reward").load(RNG), task.units(RNG), RNG)
    path.write_text("a,b\n1,2\n")
    with pytest.raises(UsageError, match="there are no columns of pairs"):
        StoredPairScores(str(path)).units(RNG)
