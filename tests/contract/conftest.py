"""Every contract holds for every backend of this machine."""

import pytest

import support


@pytest.fixture(params=support.BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)
