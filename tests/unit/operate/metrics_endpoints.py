"""A page with metrics alone, for tests of pages and their clients."""

from __future__ import annotations

from collections.abc import Callable

from tocsin.operate.operator_pages import METRICS_PATH, EndpointLimits, OperatorPages, Page, metrics_page

HOST = "127.0.0.1"


def metrics_endpoint(render: Callable[[], str], limits: EndpointLimits | None = None) -> OperatorPages:
    async def page() -> Page:
        return metrics_page(render())

    return OperatorPages({METRICS_PATH: page}, host=HOST, port=0, limits=limits)
