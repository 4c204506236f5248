"""The page as text: its content, its completeness, and that it needs nothing else."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import date
from html.parser import HTMLParser

import pytest

from tests.unit.pipeline.report.sample_figures import DAYS, EMPTY, FIGURES, LEG, PERIOD, SUMS, server
from tocsin.events.delivery_events import Stage
from tocsin.pipeline.explain.explanation import SAID
from tocsin.pipeline.report.figures import Days, Figures, HostDrift, HostHealth, HostHour, OutcomeCount
from tocsin.pipeline.report.sections.funnel import EXITS
from tocsin.pipeline.report.sections.heat_maps import MOST_HOSTS, OTHERS, by_host
from tocsin.pipeline.report.sections.page import SECTIONS, report_page
from tocsin.pipeline.report.sections.servers import troubles
from tocsin.pipeline.report.verdict import ALL_IS_WELL, MEANINGS, DeliveryLosses
from tocsin.pipeline.schemas.hourly import SMALL_GROUPS
from tools.reference_pages import _member_docs

HOSTILE = "<img src=x onerror=alert(1)>&\"'"


class Elements(HTMLParser):
    """Every element with its attributes; refuses tags that are not closed in order."""

    VOID = frozenset({"meta"})

    def __init__(self, page: str) -> None:
        super().__init__()
        self.all: list[tuple[str, dict[str, str | None]]] = []
        self._open: list[str] = []
        self.feed(page)
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.all.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag


def words(page: str) -> str:
    return re.sub("<[^>]*>", " ", page)


PAGES = [pytest.param(FIGURES, id="full"), pytest.param(EMPTY, id="empty")]


@pytest.mark.parametrize("figures", PAGES)
def test_page_is_well_formed_and_every_id_is_unique_and_every_reference_leads_somewhere(
    figures: Figures,
) -> None:
    found = Elements(report_page(figures)).all
    ids = [attributes["id"] for _, attributes in found if "id" in attributes]
    assert len(ids) == len(set(ids))
    for _, attributes in found:
        for name in ("aria-labelledby", "href"):
            for target in (attributes.get(name) or "").split():
                assert target.removeprefix("#") in ids


@pytest.mark.parametrize("figures", PAGES)
def test_page_loads_and_runs_nothing(figures: Figures) -> None:
    page = report_page(figures)
    assert not re.search(r"https?:|//|url\(|@import|javascript:", page.replace("<!doctype", ""))
    tags = Elements(page).all
    assert {"script", "link", "img", "iframe", "object", "form"}.isdisjoint(name for name, _ in tags)
    assert all(not key.startswith("on") and key != "src" for _, attributes in tags for key in attributes)
    assert "default-src &#x27;none&#x27;" in page or "default-src 'none'" in page


@pytest.mark.parametrize("figures", PAGES)
def test_every_plot_has_a_title_a_description_and_numbers_beside_it(figures: Figures) -> None:
    page = report_page(figures)
    for drawing in re.findall("<svg.*?</svg>", page):
        assert re.search("<title[^>]*>[^<]+</title><desc[^>]*>[^<]+</desc>", drawing)
    for part in re.findall("<section.*?</section>", page):
        assert "<svg" not in part or "<table" in part


def test_every_part_is_there_with_its_meaning() -> None:
    page = report_page(FIGURES)
    for name, (link, _) in SECTIONS.items():
        assert f'<section id="{name}"' in page
        assert f'<a href="#{name}">{link}</a>' in page


def test_header_names_the_range_and_when_it_was_made() -> None:
    page = words(report_page(FIGURES))
    assert "Mon 9 Nov 2026 to Sun 15 Nov 2026" in page
    assert "Created 2026-11-16 08:30 UTC from tables built 2026-11-16 08:00 UTC" in page
    assert "tocsin pipeline report --from 2026-11-09 --to 2026-11-15" in page


def test_accounting_adds_up_on_the_page() -> None:
    page = report_page(FIGURES)
    terms = re.findall(r"<b>([\d,−-]+)</b><span>(\w+)</span>", page)
    shown = {name: int(number.replace(",", "")) for number, name in terms}
    assert shown.pop("received") == sum(shown.values()) == SUMS.received
    assert "adds up" in page
    assert "tile alarm" not in page


def test_a_difference_is_highlighted_with_the_hosts_it_is_at() -> None:
    hours = (HostHour("smp9.example", 3, 5, 0, 2), HostHour("smp8.example", 3, 5, 0, 0))
    broken = replace(PERIOD, accounting=replace(SUMS, accepted=8_498, difference=2, ends_twice=2))
    page = report_page(replace(FIGURES, period=broken, host_hours=hours))
    assert "tile alarm" in page
    assert "term alarm" in page
    assert "does not add up" in page
    assert "two ends: 2" in page
    assert "SMP hosts: smp9.example." in page


def test_redelivered_notifications_are_told_beside_the_funnel_with_their_meaning() -> None:
    sums = replace(SUMS, redelivered=50)
    page = report_page(replace(FIGURES, period=replace(PERIOD, accounting=sums)))
    [funnel] = re.findall('<section id="funnel".*?</section>', page)
    assert "Redelivered: 50" in funnel
    assert "0.5\u00a0% of those received" in funnel
    assert "counted once" in funnel
    assert "Redelivered: none" in report_page(FIGURES)


def test_differences_that_cancel_out_are_seen_too() -> None:
    hidden = replace(PERIOD, accounting=replace(SUMS, ends_twice=1, ends_unreceived=1))
    assert "The terms add up" not in report_page(replace(FIGURES, period=hidden))


def test_a_difference_is_wrong_although_what_causes_it_is_allowed() -> None:
    losses, allowed = DeliveryLosses(ends_twice=1), {"ends_twice": 1}
    assert not replace(FIGURES, losses=losses).is_off(allowed)
    assert replace(FIGURES, losses=losses).is_off({})
    twice = replace(PERIOD, accounting=replace(SUMS, difference=-1, ends_twice=1))
    assert twice.accounting.difference
    assert replace(FIGURES, period=twice, losses=losses).is_off(allowed)


@pytest.mark.parametrize("kind", MEANINGS)
def test_the_headline_says_that_nothing_is_missing_only_if_it_is_so(kind: str) -> None:
    assert words(report_page(FIGURES)).count(ALL_IS_WELL) == 2
    page = report_page(replace(FIGURES, losses=DeliveryLosses(**{kind: 7})))
    assert ALL_IS_WELL not in page
    assert "tile alarm" in page
    assert words(page).count(f"7 notifications are not accounted for: 7 {MEANINGS[kind][0]}.") == 2


def test_late_events_are_said_beside_quarantined_lines() -> None:
    assert "arrived after" not in report_page(FIGURES)
    assert "12 events arrived after the rows of their day had expired" in report_page(
        replace(FIGURES, late_events=12)
    )


def test_stages_are_described_with_the_words_of_the_schema() -> None:
    """The report said that there was no room where the schema said that the queue was deleted."""
    meanings = _member_docs(Stage)
    for stage in (Stage.DROPPED, Stage.EXPIRED):
        assert EXITS[stage] in meanings[stage.name]
        assert EXITS[stage] in SAID[stage].means


def test_names_chosen_by_strangers_are_escaped_everywhere() -> None:
    figures = replace(
        FIGURES,
        period=replace(
            PERIOD, outcomes=(OutcomeCount("failed", HOSTILE, 20),), spans=(replace(LEG, name=HOSTILE),)
        ),
        host_hours=(HostHour(HOSTILE, 3, 5, 1, 2),),
        servers=(server(HOSTILE, storm_hours=1),),
        drift=(HostDrift(HOSTILE, HOSTILE, 30),),
    )
    page = report_page(figures)
    assert "<img" not in page
    assert "&lt;img src=x onerror=alert(1)&gt;" in page
    Elements(page)


def test_drift_that_was_never_measured_names_the_next_step() -> None:
    assert "Not measured yet: run <code>tocsin pipeline reconcile</code>" in report_page(
        replace(FIGURES, drift=None)
    )
    assert "The routers agree. Measured on Sun 15 Nov 2026." in words(report_page(replace(FIGURES, drift=())))
    assert "not subscribed" in report_page(FIGURES)


def test_weeks_without_anything_before_say_so() -> None:
    page = words(report_page(replace(FIGURES, before=None)))
    assert "Nothing to compare with: the tables have no rows of Mon 2 Nov 2026 to Sun 8 Nov 2026" in page


def test_steady_weeks_say_so() -> None:
    assert "No change beyond chance" in report_page(FIGURES)


def test_an_empty_range_has_a_clear_page() -> None:
    page = words(report_page(EMPTY))
    for sentence in (
        "No notification completed a span of the path",
        "No notification failed or was shed",
        "No SMP host was seen",
        "Every line was a valid event",
    ):
        assert sentence in page


def test_long_ranges_are_drawn_by_days() -> None:
    days = Days(date(2026, 10, 1), DAYS.last)
    page = report_page(replace(FIGURES, period=replace(PERIOD, days=days)))
    assert "Notifications received per day" in page
    assert "Notifications received per hour" in report_page(FIGURES)


def test_one_day_is_drawn_by_hours_with_the_hours_named() -> None:
    page = report_page(replace(FIGURES, period=replace(PERIOD, days=Days(DAYS.last, DAYS.last))))
    assert ">18:00</text>" in page


def test_heat_map_shows_the_busiest_hosts_and_adds_up_the_others() -> None:
    hours = tuple(HostHour(f"smp{n:02}.example", 1, n, 1, 0) for n in range(1, MOST_HOSTS + 4))
    hosts, cells = by_host((*hours, HostHour(SMALL_GROUPS, 1, 500, 0, 0)))
    assert len(hosts) == MOST_HOSTS + 2
    assert hosts[0] == f"smp{MOST_HOSTS + 3:02}.example"
    assert hosts[-2:] == [OTHERS, SMALL_GROUPS]
    assert cells[OTHERS, 1].received == 1 + 2 + 3


@pytest.mark.parametrize(
    ("found", "trouble"),
    [
        (server(), None),
        (server(storm_hours=1), "resubscribed repeatedly in 1 hour"),
        (server(silent_hours=3), "silent or nearly silent in 3 hours that are busy on other days"),
        (server(skew_us=-4_000_000), "its clock is ahead"),
        (server(errors=50, subscribed=2), "50 subscriptions refused, 2 accepted"),
        (server(skew_us=None), None),
        (server(SMALL_GROUPS, silent_hours=3), None),
    ],
)
def test_troubles_of_a_host_are_named(found: HostHealth, trouble: str | None) -> None:
    said = list(troubles(found))
    assert len(said) == (trouble is not None)
    assert trouble is None or trouble in said[0]


def test_many_hosts_are_folded_after_the_busiest() -> None:
    many = tuple(server(f"smp{number}.example") for number in range(30))
    assert "<summary>5 more</summary>" in report_page(replace(FIGURES, servers=many))


def test_days_before_are_the_same_days_of_the_week_and_none_of_these() -> None:
    assert DAYS.before() == Days(date(2026, 11, 2), date(2026, 11, 8))
    assert Days(date(2026, 11, 15), date(2026, 11, 15)).before().first == date(2026, 11, 8)
    assert Days(date(2026, 11, 6), date(2026, 11, 15)).before() == Days(date(2026, 10, 23), date(2026, 11, 1))
    with pytest.raises(ValueError, match="is before"):
        Days(DAYS.last, DAYS.first)


def test_each_engine_has_its_ends_and_times() -> None:
    text = re.sub(r"\s+", " ", words(report_page(FIGURES)))
    assert "the job on Spark 5,000 100 (2 %) 400 ms 600 ms 900 ms" in text
    assert "the NTF router (inline) 3,500 150 (4.1 %) – – –" in text
