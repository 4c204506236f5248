"""The events that routers write and those that the pipeline reads cannot drift apart."""

from __future__ import annotations

import msgspec
from pyspark.sql import SparkSession

from tests.doubles.delivery_lines import event, subscription_change, token_change
from tests.unit.pipeline.rows import events
from tocsin.events.delivery_events import ENDS, DeliveryEvent, Stage
from tocsin.pipeline.schemas.events import DEFAULTS, EVENT_LINE, EVENTS, HASHES, NOTIFICATION, REQUIRED
from tocsin.pipeline.schemas.hourly import FUNNEL_HOURLY
from tocsin.pipeline.schemas.notifications import NOTIFICATIONS, STAGES, moment
from tocsin.pipeline.transforms.servers import PENDING, SUBSCRIBED, UNSUBSCRIBED
from tocsin.protocol.ntf.statuses import SubscriptionState

CHANGES = {Stage.TOKEN_CHANGED, Stage.SUBSCRIPTION_CHANGED}


def test_every_field_that_routers_write_is_read_as_what_it_is() -> None:
    kinds = {str: "string", int: "bigint"}
    assert {field.name: field.dataType.simpleString() for field in EVENT_LINE.fields} == {
        field.name: kinds[field.type] for field in msgspec.structs.fields(DeliveryEvent)
    }
    assert {*REQUIRED, *DEFAULTS} == set(EVENT_LINE.names)
    kept = set(EVENT_LINE.names) - {"notification"} | {*NOTIFICATION, *HASHES, "day", "hour"}
    assert set(EVENTS.names) == kept


def test_every_stage_of_a_notification_has_its_column() -> None:
    assert {*STAGES, *CHANGES} == set(Stage)
    assert {moment(stage) for stage in STAGES} <= set(NOTIFICATIONS.names)
    assert {*STAGES, *ENDS} <= set(FUNNEL_HOURLY.names)


def test_every_status_of_a_subscription_is_counted_as_something() -> None:
    """AUTH and statuses that are errors count as errors."""
    known = {SUBSCRIBED, *UNSUBSCRIBED, *PENDING}
    assert {state.value for state in SubscriptionState} - known == {"AUTH"}


def test_an_event_of_every_stage_is_read(spark: SparkSession) -> None:
    written = [event(stage, number) for number, stage in enumerate(STAGES)]
    changes = [token_change(1, "ACTIVE"), subscription_change(1, "ACTIVE")]
    assert events(spark, [*written, *changes]).count() == len(Stage)
