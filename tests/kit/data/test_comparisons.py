"""Comparisons from files: every shape gives the same columns, every fault one sentence."""

import json

import numpy as np
import pytest

from equipoise.core import UsageError
from equipoise.kit.data.comparisons import read_comparisons


@pytest.fixture
def file(tmp_path):
    def write(text, name="met.csv"):
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return str(path)

    return write


def test_winners_of_the_arena(file):
    met = read_comparisons(
        file(
            "question_id,model_a,model_b,winner\n"
            "q1,x,y,model_a\nq2,x,y,model_b\nq3,y,x,tie\nq4,z,x,tie (bothbad)\nq5,z,y,z\n"
        )
    )
    assert met.models == ("x", "y", "z")
    assert met.first.tolist() == [0, 0, 1, 2, 2]
    assert met.second.tolist() == [1, 1, 0, 0, 1]
    assert met.score.tolist() == [1, 0, 0.5, 0.5, 1]
    assert met.prompts == ("q1", "q2", "q3", "q4", "q5")
    assert met.cluster is None


@pytest.mark.parametrize(
    ("one", "other"), [("left", "right"), ("first", "second"), ("model_a", "model_b")]
)
def test_sides_by_other_names(file, one, other):
    met = read_comparisons(file(f"{one}\t{other}\twinner\nx\ty\t{one}\nx\ty\t{other}\n", "met.tsv"))
    assert met.score.tolist() == [1, 0]


def test_a_model_may_be_called_like_a_side(file):
    met = read_comparisons(file("left,right,winner\nright,left,right\n"))
    assert met.models[int(met.first[0])] == "right"
    assert met.score.tolist() == [1]


def test_scores_clusters_and_weights(file):
    rows = [
        {"model_a": "x", "model_b": "y", "score": 0.75, "cluster": "u1", "weight": 2},
        {"model_a": "y", "model_b": "z", "score": 0, "cluster": "u2", "weight": 0},
        {"model_a": "x", "model_b": "y", "score": 1, "cluster": "u1", "weight": 1},
    ]
    met = read_comparisons(file("\n".join(map(json.dumps, rows)), "met.jsonl"))
    assert met.models == ("x", "y", "z")  # z has no game left, which a rating will say
    assert met.score.tolist() == [0.75, 0.75, 1]
    assert len(set(met.cluster.tolist())) == 1


def test_prompts_may_be_conversations(file):
    talk = [{"role": "user", "content": "hi"}]
    rows = [{"model_a": "x", "model_b": "y", "winner": "tie", "prompt": talk}] * 2
    met = read_comparisons(file(json.dumps(rows), "met.json"))
    assert len(met.prompts) == 1
    assert met.prompt.tolist() == [0, 0]


def wide():
    return "model,p1,p2,p3\nb,1,0,\na,0,0,3\nc,1,2,1\n"


def long():
    rows = ["model,prompt,score"]
    for line in wide().splitlines()[1:]:
        name, *scores = line.split(",")
        rows += [f"{name},p{i},{s}" for i, s in enumerate(scores, 1) if s]
    return "\n".join(rows)


@pytest.mark.parametrize("text", [wide(), long()])
def test_scores_are_compared_prompt_by_prompt(file, text):
    met = read_comparisons(file(text))
    assert met.models == ("a", "b", "c")
    found = {
        (met.models[i], met.models[j], met.prompts[p]): s
        for i, j, p, s in zip(met.first, met.second, met.prompt, met.score, strict=True)
    }
    assert found == {
        ("a", "b", "p1"): 0, ("a", "b", "p2"): 0.5, ("a", "c", "p1"): 0, ("a", "c", "p2"): 0,
        ("a", "c", "p3"): 1, ("b", "c", "p1"): 0.5, ("b", "c", "p2"): 0,
    }  # fmt: skip
    lower = read_comparisons(file(text, "again.csv"), lower_is_better=True)
    assert (lower.score == 1 - met.score).all()


def test_clusters_of_prompts(file):
    met = read_comparisons(
        file("model,prompt,score,cluster\na,p1,1,u\nb,p1,0,u\na,p2,1,v\nb,p2,2,v\n")
    )
    assert met.cluster[met.prompt == 0] != met.cluster[met.prompt == 1]


def test_parquet(tmp_path):
    pl = pytest.importorskip("polars")
    path = tmp_path / "met.parquet"
    pl.DataFrame({"model_a": ["x"], "model_b": ["y"], "score": [0.5]}).write_parquet(path)
    assert np.array_equal(read_comparisons(str(path)).score, [0.5])


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "the file is empty"),
        ("model_a,model_b,winner\n", "there are no rows"),
        ("model_a,model_b,winner\nx,y,x\nx,y,nobody\n", 'line 3: winner is "nobody"; it must be'),
        ("model_a,model_b,winner\nx,y,\n", "line 2: winner is empty"),
        ("model_a,model_b,winner\nx,x,x\n", 'line 2: "x" is compared with itself'),
        ("model_a,model_b,winner\nx,,x\n", "line 2: model_b is empty"),
        ("model_a,model_b,score\nx,y,2\n", "line 2: score is 2; it must be from 0"),
        ("model_a,model_b,score\nx,y,good\n", "line 2: score is good"),
        ("model_a,model_b\nx,y\n", "has no column winner or score"),
        ("model_a,model_b,winner,score\nx,y,x,1\n", "has both winner and score"),
        ("model_a,model_b,score,weight\nx,y,1,0.5\n", "line 2: weight is 0.5; it must be a whole"),
        ("model_a,model_b,score,weight\nx,y,1,-1\n", "weight is -1"),
        ("model_a,model_b,score,weight\nx,y,1,0\n", "every weight is 0"),
        ("model_a,model_b,score,weight\nx,y,1,40000000\ny,x,1,40000000\n", "add up to 80,000,000"),
        ("modell_a,modell_b,winner\nx,y,x\n", "needs the columns model_a, model_b"),
        ("model,p1\nx,1\n", '"x" is the only model'),
        ("model\nx\ny\n", "no column beside model"),
        ("model,p1\nx,1\nx,2\n", 'line 3: "x" has a second row'),
        ("model,p1\nx,1\ny,good\n", 'line 2: "p1" is 1'),
        ("model,p1,p2\nx,1,\ny,,1\n", "no two models have a score for the same prompt"),
        ("model,prompt,score\nx,p,1\nx,p,2\n", 'line 3: "x" has a second score for prompt "p"'),
        ("model,prompt,score\nx,p,1\ny,p,\n", 'line 3: "score" is empty'),
        ("model,prompt,score,cluster\nx,p,1,u\ny,p,1,v\n", 'prompt "p" is in cluster "v"'),
    ],
)
def test_faults_name_file_and_line(file, text, sentence):
    with pytest.raises(UsageError) as caught:
        read_comparisons(file(text))
    said = str(caught.value)
    assert sentence in said
    assert "met.csv" in said
    assert "\n" not in said


def test_lower_is_for_scores(file):
    with pytest.raises(UsageError, match="says who won"):
        read_comparisons(file("model_a,model_b,winner\nx,y,x\n"), lower_is_better=True)
