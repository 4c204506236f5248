"""Fixtures of the tests in which routers are killed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.doubles.agent_world import AgentWorld, agent_world
from tests.doubles.spark_desk import SparkDesk, spark_desk


@pytest.fixture(params=["logs", "postgres"])
def database_server(request: pytest.FixtureRequest) -> str | None:
    """Behind the NTF routers; a test that needs PostgreSQL alone says so by `indirect` parameters."""
    return None if request.param == "logs" else str(request.getfixturevalue("server_url"))


@pytest.fixture
async def world(tmp_path: Path, database_server: str | None) -> AsyncIterator[AgentWorld]:
    async with agent_world(tmp_path, database_server) as world:
        yield world


@pytest.fixture(scope="session")
def desk() -> Iterator[SparkDesk]:
    """Runs `tocsin pipeline` commands of all tests with one Spark session."""
    with spark_desk() as running:
        yield running
