"""A campaign's tokens on disk: sealed, private, and complete after a second attempt."""

from __future__ import annotations

from pathlib import Path

from tests.unit.pipeline.jobs.test_fanout import TEST, due
from tocsin.ntf_router.delivery.channels.handover_key import handover_key
from tocsin.pipeline.fanout.campaign_folder import CampaignFolder, CampaignToken


def test_parts_hold_no_device_token_and_are_for_their_owner(tmp_path: Path) -> None:
    parts = CampaignFolder(tmp_path / "campaign", handover_key(tmp_path / "keys"))
    owner = due("a")
    parts.begin(b"postgresql://user:password@host/")
    one = CampaignToken(owner.token_id, TEST.text, owner.device_token.token, 7)
    assert parts.write_share(0, [[one]]) == {TEST.text: 1}
    for path in parts.folder.iterdir():
        assert owner.device_token.token not in path.read_bytes()
        assert b"password" not in path.read_bytes()
        assert path.stat().st_mode & 0o777 == 0o600
    assert parts.opened_source() == b"postgresql://user:password@host/"
    parts.finish({TEST.text: 1}, "reminder")
    assert sorted(path.name for path in parts.folder.iterdir()) == ["part-0000-000000.jsonl", "planned.json"]
    [name] = parts.names()
    [(_, found)] = parts.tokens(name)
    assert found == one


def test_a_share_that_is_written_again_leaves_nothing_of_the_first_attempt(tmp_path: Path) -> None:
    parts = CampaignFolder(tmp_path / "campaign", handover_key(tmp_path / "keys"))
    parts.begin(b"")
    tokens = [CampaignToken(bytes([number]), TEST.text, b"d", 0) for number in range(5)]
    assert parts.write_share(1, [tokens], part_tokens=2) == {TEST.text: 5}
    assert parts.write_share(0, [tokens[:1]], part_tokens=2) == {TEST.text: 1}
    assert len(parts.names()) == 4
    assert parts.write_share(1, [tokens[:3]], part_tokens=2) == {TEST.text: 3}
    assert len(parts.names()) == 3
