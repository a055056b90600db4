"""The released folder: read, never run, and refused in one sentence when it is another one."""

import json

import pytest

from equipoise.core import Rng, UsageError
from equipoise.methods.interactive._tau.official import Folder
from equipoise.methods.interactive.tau_bench import ScriptedClerk, ToolAgentUser
from equipoise.methods.tables.estimator import Estimator

RETAIL = {
    "orders": {
        "#W1": {
            "order_id": "#W1",
            "user_id": "ada",
            "address": {},
            "items": [],
            "status": "pending",
            "payment_history": [
                {"transaction_type": "payment", "amount": 31.0, "payment_method_id": "paypal_1"}
            ],
        }
    },
    "products": {"P1": {"name": "Cap", "product_id": "P1", "variants": {}}},
    "users": {
        "ada": {"name": {}, "address": {}, "email": "a@x.org", "payment_methods": {}, "orders": []}
    },
}
AIRLINE = {
    "flights": {
        "HAT001": {
            "flight_number": "HAT001", "origin": "SFO", "destination": "JFK", "dates": {},
        }
    },
    "reservations": {
        "R1": {
            "user_id": "ada", "cabin": "economy", "flights": [], "passengers": [],
            "payment_history": [],
        }
    },
    "users": {"ada": {"name": {}, "payment_methods": {}, "membership": "gold", "reservations": []}},
}  # fmt: skip
TASKS = """from tau_bench.types import Task, Action

raise SystemExit("task files must not be run")

TASKS = [
    Task(
        annotator="0",
        user_id="ada",
        instruction="You are Ada. Cancel #W1.",
        actions=[Action(name="cancel_pending_order",
                        kwargs={"order_id": "#W1", "reason": "no longer needed"})],
        outputs=["31"],
    ),
    Task(user_id="ada", instruction="You are Ada. Do nothing.", actions=[], outputs=[]),
]
"""


@pytest.fixture
def data(tmp_path):
    root = tmp_path / "tau_bench" / "envs"
    for domain, tables in (("retail", RETAIL), ("airline", AIRLINE)):
        folder = root / domain / "data"
        folder.mkdir(parents=True)
        for name, table in tables.items():
            (folder / f"{name}.json").write_text(json.dumps(table))
        (folder.parent / "wiki.md").write_text("Be kind.")
        (folder.parent / "tasks_test.py").write_text(TASKS)
    (root / "retail" / "tasks_dev.py").write_text(TASKS)
    return tmp_path


def task(data, **given):
    given = {"domain": "retail", "data": str(data), "user": ScriptedClerk(), **given}
    return ToolAgentUser(**given)


def test_units(data):
    for place in (data, data / "tau_bench" / "envs"):
        one, two = task(place).units(Rng(0))
        assert one.content == {"user_id": "ada", "instruction": "You are Ada. Cancel #W1."}
        call = ["cancel_pending_order", {"order_id": "#W1", "reason": "no longer needed"}]
        assert one.target == {"actions": [call], "outputs": ["31"]}
        assert (one.stratum, two.stratum) == ("changed", "unchanged")
        assert one.cluster == "ada"
        assert (one.split, one.id[:16]) == ("test", "retail-test-000-")
    assert {u.split for u in task(data, split="dev").units(Rng(0))} == {"calibration"}
    assert len(list(task(data, domain="airline").units(Rng(0)))) == 2


def test_the_identity_follows_the_files(data):
    before = task(data).content()
    assert before == task(data / "tau_bench" / "envs").content()
    wiki = data / "tau_bench" / "envs" / "retail" / "wiki.md"
    wiki.write_text("Be strict.")
    assert task(data).content() != before


def test_records_are_shared_until_a_file_changes(data):
    one, two = Folder(str(data), "retail", "x"), Folder(str(data), "retail", "x")
    assert one.records() is two.records()


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        ("wiki.md", None, "has no retail/wiki.md"),
        ("data/users.json", None, "has no retail/data/users.json"),
        ("tasks_test.py", None, "has no retail/tasks_test.py"),
        ("data/users.json", "{", "retail/data/users.json in .* is not JSON"),
        ("data/users.json", "[]", "is not a table of records"),
        ("data/users.json", '{"ada": {"name": 1}}', "has no address in record ada"),
        ("tasks_test.py", "TASKS = [", "is not Python"),
        ("tasks_test.py", "x = 1", "has not one list of tasks"),
        ("tasks_test.py", "TASKS = []", "has not one list of tasks"),
        ("tasks_test.py", "TASKS = [{}]", "has no plain Task in line 1"),
        ("tasks_test.py", "TASKS = [Task(user_id=f())]", "has no plain Task in line 1"),
        ("tasks_test.py", "TASKS = [Task(user_id='a', instruction='b', actions=[f()])]",
         "has no plain Action in line 1"),
        ("tasks_test.py", "TASKS = [Task(user_id=3, instruction='b', actions=[])]",
         "has no plain Task in line 1"),
    ],
)  # fmt: skip
def test_faults_are_told_in_a_sentence(data, file, text, said):
    path = data / "tau_bench" / "envs" / "retail" / file
    path.unlink() if text is None else path.write_text(text)
    with pytest.raises(UsageError, match=said) as caught:
        list(task(data).units(Rng(0)))
    assert "checkout of https://github.com/sierra-research/tau-bench" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_is_not_text_is_refused(data):
    path = data / "tau_bench" / "envs" / "retail" / "data" / "users.json"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="is not UTF-8 text"):
        list(task(data).units(Rng(0)))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"domain": "retail"}, "domain retail needs data"),
        ({"domain": "retail", "data": "x"}, "domain retail needs a user"),
        ({"domain": "airline", "data": "x", "user": ScriptedClerk(), "split": "dev"},
         "domain airline has no split dev; it has test"),
        ({"data": "x"}, "domain shop is generated"),
        ({"user": Estimator.tiny()}, "user must generate text; this subject"),
    ],
)  # fmt: skip
def test_parameters_that_do_not_fit(given, said):
    with pytest.raises(UsageError, match=said):
        ToolAgentUser(**given)
