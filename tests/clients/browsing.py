# SPDX-License-Identifier: Apache-2.0
"""Chromium without a screen, for what is made to be looked at in a browser."""
import contextlib

from selenium import webdriver

# Reading a pixel back makes the browser finish what it has put off, so the time holds the whole drawing.
TIME_ZOOMS = """
const canvases = [...document.querySelectorAll('canvas')];
const finish = () => canvases.forEach((canvas) => canvas.getContext('2d').getImageData(0, 0, 1, 1));
const times = [];
finish();
for (let i = 0; i < 21; i++) {
  const began = performance.now();
  window.report.zoom(i % 2 ? 0.6 : 1.6);
  finish();
  times.push(performance.now() - began);
}
return times;
"""


@contextlib.contextmanager
def browser():
    options = webdriver.ChromeOptions()
    # root has no sandbox, and a container little shared memory.
    for argument in ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1280,900"]:
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options)
    try:
        yield driver
    finally:
        driver.quit()


def zoom_times(driver):
    """ms of each of some zooms, until the last pixel is drawn."""
    return driver.execute_script(TIME_ZOOMS)
