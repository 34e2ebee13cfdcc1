"""The newcomer's way, replayed with screenshots."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser

from tests.app.playground.chromium import LAPTOP, PHONE, PICTURES, open_page
from tests.app.playground.newcomer import Newcomer
from tests.servers.service_process import ServiceProcess


@pytest.mark.long
@pytest.mark.parametrize("size", [LAPTOP, PHONE], ids=["laptop", "phone"])
def test_each_step_of_a_newcomer_stands_above_the_fold(
    size: tuple[int, int], browser: Browser, service: ServiceProcess
) -> None:
    with open_page(browser, service.url, size, reduced_motion="reduce") as web_page:
        newcomer = Newcomer(web_page.page, PICTURES / f"newcomer-{size[0]}")
        newcomer.walk()
        assert list(newcomer.seconds) == ["page", "example", "drawn", "answered", "refused", "copied"]
