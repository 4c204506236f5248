"""`GET /metrics`, for Prometheus on the same machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tocsin.observability.prometheus import CONTENT_TYPE
from tocsin.operate.operator_pages import EndpointLimits, OperatorPages, Page

PATH: Final = "/metrics"


def metrics_page(text: str) -> Page:
    return Page(text, content_type=CONTENT_TYPE)


class MetricsEndpoint(OperatorPages):
    """Serves what `render` returns while its `async with` block runs."""

    def __init__(
        self, render: Callable[[], str], *, host: str, port: int, limits: EndpointLimits | None = None
    ) -> None:
        """Nothing is opened yet. With `port` 0 the system chooses one; the property `port` tells it."""

        async def page() -> Page:
            return metrics_page(render())

        super().__init__({PATH: page}, host=host, port=port, limits=limits)
