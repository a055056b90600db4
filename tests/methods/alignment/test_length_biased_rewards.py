import numpy as np

from equipoise.core import Rng
from equipoise.methods.alignment import LengthBiasedRewards, PaddedAnswers

RNG = Rng(0)


def test_worlds_are_as_they_say():
    task = LengthBiasedRewards(pairs=20_000, quality_by_length=0.6)
    responses, quality = task.draw(3)
    length, free = (responses.columns[name] for name in ("characters", "unbiased"))
    z = (np.log(length) - 6.5) / 0.8
    assert abs(np.corrcoef(z, quality)[0, 1] - 0.6) < 0.01
    assert abs(z.mean()) < 0.02
    assert abs(z.std() - 1) < 0.02
    assert abs((free - quality).std() - 0.4) < 0.01
    bias = responses.columns["reward"] - free
    np.testing.assert_allclose(bias, 1.2 * np.log(length / 665) + 0.6 * np.sin(length / 700))


def test_padded_answers_are_right_and_wrong():
    task = PaddedAnswers(pairs=60)
    units = task.units(RNG)
    for unit in units:
        a, b = (int(n) for n in unit.content["prompt"][8:-1].split(" + "))
        assert f"= {a + b}." in unit.content["chosen"]["text"]
        assert f"= {a + b}." not in unit.content["rejected"]["text"]
    lengths = [
        [len(unit.content[side]["text"]) for side in ("chosen", "rejected")] for unit in units
    ]
    assert abs(np.mean(np.diff(lengths) > 0) - 0.5) < 0.2
