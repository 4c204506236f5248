from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.unit.push.fcm.stage import FcmStage, fcm_stage


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[FcmStage]:
    async with fcm_stage(tmp_path) as made:
        yield made
