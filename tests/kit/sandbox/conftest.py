import pytest

from equipoise.core import UsageError
from equipoise.kit.sandbox import Sandbox


@pytest.fixture(scope="session")
def sandbox():
    try:
        made = Sandbox(workers=2)
    except UsageError as error:  # a container without user namespaces, say
        pytest.skip(str(error))
    with made:
        yield made
