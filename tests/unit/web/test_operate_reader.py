"""Reading what the view `Operate` shows."""

from __future__ import annotations

from pathlib import Path

from tocsin.web.operate_reader import OperateReader


async def test_the_view_names_what_cannot_be_read(tmp_path: Path) -> None:
    async def away() -> str:
        raise ConnectionRefusedError

    (tmp_path / "funnel_hourly" / "_delta_log").mkdir(parents=True)
    (tmp_path / "funnel_hourly" / "_delta_log" / "00000000000000000000.json").write_text("{")
    view = await OperateReader({"ntf": away}, tmp_path).read()
    assert view["missing"]["NTF router"] == "does not answer: is it running?"
    assert view["missing"]["tables"].startswith("cannot be read: ")
    view = await OperateReader({}, None, "the pipeline is off").read()
    assert view["missing"] == {"tables": "the pipeline is off"}
    view = await OperateReader({}, tmp_path / "nothing").read()
    assert view["missing"] == {"tables": "the pipeline has not built any yet"}
