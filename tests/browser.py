"""A real headless browser for tests of pages: Chromium and its driver, as Debian packages them, driven by selenium."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver


class Browser:
    """A window on one page at a time."""

    def __init__(self, driver: webdriver.Chrome) -> None:
        self._driver = driver

    def show(self, path: Path, width: int = 1200, dark: bool = False) -> None:
        """Open a file in a window of that width; `dark` is what the reader's system prefers."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
        metrics = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 600}
        self._driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        self._driver.get(path.as_uri())

    def ask(self, script: str) -> Any:
        """What a script's `return` gives."""
        return self._driver.execute_script(script)

    def complaints(self) -> list[str]:
        """What the console was told since the last call."""
        return [entry["message"] for entry in self._driver.get_log("browser")]


@contextmanager
def browser() -> Iterator[Browser]:
    """Start one; skips the test where there is none, except in CI, which must look at pages."""
    program, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if program is None or driver is None:
        missing = "no chromium and chromedriver here: apt-get install chromium chromium-driver"
        if os.environ.get("CI"):
            pytest.fail(missing)
        pytest.skip(missing)
    options = webdriver.ChromeOptions()
    options.binary_location = program
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    started = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    try:
        yield Browser(started)
    finally:
        started.quit()
