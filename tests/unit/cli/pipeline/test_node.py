"""Processes of a Spark cluster. `tests/adversity/test_pipeline_cluster.py` runs real ones."""

from __future__ import annotations

from typing import Any

import pytest

from tocsin.cli.main import build_parser
from tocsin.cli.pipeline import node
from tocsin.errors import ConfigError
from tocsin.pipeline.spark.cluster_nodes import CLASSES


class ReplacedError(Exception):
    """The process would be another program now."""


@pytest.fixture
def became(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    found: list[Any] = []

    def replace(*arguments: Any) -> None:
        found.extend(arguments)
        raise ReplacedError

    monkeypatch.setattr("os.execve", replace)
    return found


def started(*arguments: str) -> int:
    return node.run(build_parser().parse_args(["pipeline", "node", *arguments]))


def test_a_master_has_the_usual_port(became: list[Any]) -> None:
    with pytest.raises(ReplacedError):
        started("master", "--host", "spark-master")
    program, arguments, environment = became
    assert program.endswith("/pyspark/bin/spark-class")
    wanted = ["--host", "spark-master", "--port", "7077", "--webui-port", "0"]
    assert arguments[1:] == [CLASSES["master"], *wanted]
    assert environment["JAVA_HOME"]
    assert environment["PYSPARK_PYTHON"]


def test_a_worker_joins_its_master(became: list[Any]) -> None:
    with pytest.raises(ReplacedError):
        started("worker", "--of", "spark://m:7077", "--cores", "2", "--memory", "4g", "--work", "/work")
    wanted = ["--webui-port", "0", "--cores", "2", "--memory", "4g", "--work-dir", "/work", "spark://m:7077"]
    assert became[1][1:] == [CLASSES["worker"], *wanted]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("worker",), "needs its master"),
        (("worker", "--of", "m:7077"), "needs its master"),
        (("master", "--cores", "2"), "a master has no --cores"),
    ],
)
def test_options_of_the_other_role_are_refused(arguments: tuple[str, ...], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        started(*arguments)
