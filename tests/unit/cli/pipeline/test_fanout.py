"""`tocsin pipeline fanout`: options that are checked before Spark starts."""

from __future__ import annotations

import argparse

import pytest

from tocsin.cli.pipeline import fanout as fanout_command
from tocsin.ntf_router.settings.settings import NtfSettings, StoreKind
from tocsin.pipeline.fanout.options import FanoutOptions


def test_web_push_is_left_to_the_router(capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    fanout_command.add_arguments(parser)
    with pytest.raises(SystemExit):
        parser.parse_args(["--campaign", "a", "--provider", "webpush"])
    assert "invalid choice: 'webpush'" in capsys.readouterr().err
    settings = NtfSettings(store_kind=StoreKind.URL, database_url="postgresql://")
    all_providers = ("apns_dev", "apns_null", "apns_prod", "apns_test")
    assert FanoutOptions("a").source(settings, 0).providers == all_providers
