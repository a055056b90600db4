import pytest

from equipoise.catalog import identity
from equipoise.core import GeneratesAsync, Rng, UsageError
from equipoise.methods.language import OpenAI


def test_loads_an_endpoint_with_its_settings():
    subject = OpenAI("m", base_url="http://localhost:1/v1", max_connections=3, input_price=2.0)
    live = subject.load(Rng(0))
    assert isinstance(live, GeneratesAsync)
    assert (live.model, live.max_connections, live.prices.input) == ("m", 3, 2.0)


def test_identity_is_the_model_and_not_the_address():
    here = OpenAI("m", base_url="http://localhost:1/v1")
    assert identity(here) == identity(OpenAI("m", base_url="http://localhost:2/v1", timeout=9))
    assert identity(here) != identity(OpenAI("n", base_url="http://localhost:1/v1"))


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"model": ""}, "model must be the name of a model"),
        ({"base_url": "ftp://x"}, "base_url must be an address"),
        ({"max_connections": 0}, "must be an integer from 1 to 10,000, got 0"),
        ({"timeout": 0}, "timeout must be a number from 0.001"),
    ],
)
def test_wrong_parameters_are_one_sentence(values, says):
    with pytest.raises(UsageError, match=says):
        OpenAI(**({"model": "m"} | values))


def test_a_key_that_is_missing_is_said_when_the_subject_is_loaded(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    with pytest.raises(UsageError, match="holds no key for api\\.openai\\.com"):
        OpenAI("m").load(Rng(0))
