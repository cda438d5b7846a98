"""A newcomer opens a notebook in JupyterLab and runs all cells: it works and the sheaf is drawn."""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import nbformat
import pytest

from discogp_lib.paths import REPO
from tests.test_notebooks import problems

NOTEBOOK = "02_discovery.ipynb"

SETTINGS = {
    "@jupyterlab/notebook-extension/tracker": {"windowingMode": "none"},  # all cells in the page
    "@jupyterlab/apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
}

FINISHED = """() => {
    const prompts = [...document.querySelectorAll('.jp-CodeCell')]
        .filter(cell => cell.querySelector('.cm-content').innerText.trim())
        .map(cell => cell.querySelector('.jp-InputPrompt').innerText);
    return prompts.length > 5 && prompts.every(prompt => /\\[\\d+\\]/.test(prompt));
}"""


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[str]:
    """The address of a JupyterLab whose folder holds a copy of the notebook, without outputs."""
    notebook = nbformat.read(REPO / "notebooks" / NOTEBOOK, as_version=4)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    (tmp_path / "files").mkdir()
    nbformat.write(notebook, tmp_path / "files" / NOTEBOOK)
    for name, setting in SETTINGS.items():
        path = tmp_path / "settings" / f"{name}.jupyterlab-settings"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(setting))
    with closing(socket.socket()) as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root"]
    command += [
        f"--ServerApp.port={port}",
        "--ServerApp.port_retries=0",
        "--ServerApp.ip=127.0.0.1",
    ]
    command += ["--IdentityProvider.token=", f"--ServerApp.root_dir={tmp_path / 'files'}"]
    command += [f"--LabApp.user_settings_dir={tmp_path / 'settings'}"]
    command += [f"--LabApp.workspaces_dir={tmp_path / 'workspaces'}"]
    home = {"JUPYTER_RUNTIME_DIR": str(tmp_path / "runtime"), "JUPYTER_CONFIG_DIR": str(tmp_path)}
    log = (tmp_path / "lab.log").open("w")
    server = subprocess.Popen(command, env=os.environ | home, stdout=log, stderr=log)
    address = f"http://127.0.0.1:{port}"
    try:
        until = time.monotonic() + 120
        while not answers(f"{address}/api"):
            assert server.poll() is None, (tmp_path / "lab.log").read_text()
            assert time.monotonic() < until, "JupyterLab did not start"
            time.sleep(0.3)
        yield address
    finally:
        server.terminate()
        server.wait(timeout=60)


def answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(address, timeout=5):
            return True
    except (urllib.error.URLError, OSError):
        return False


def run_all_cells(page) -> None:
    """By the menu; again if the page was not ready for it."""
    begun = page.locator(".jp-CodeCell .jp-InputPrompt").filter(has_text=re.compile(r"\[[*\d]"))
    for _ in range(10):
        page.locator(".jp-Notebook .jp-CodeCell").first.click()
        page.get_by_role("menuitem", name="Run", exact=True).click()
        page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
        page.wait_for_timeout(3_000)
        if begun.count():
            return
    raise AssertionError("JupyterLab does not run the cells")


def test_all_cells_run_and_the_sheaf_is_drawn(lab: str, tmp_path: Path):
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("chromium is not installed")
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1400, "height": 1000})
        page.set_default_timeout(120_000)
        page.goto(f"{lab}/lab/tree/{NOTEBOOK}")
        page.wait_for_selector(".jp-Notebook .jp-CodeCell")
        page.wait_for_selector('.jp-Notebook-ExecutionIndicator[data-status="idle"]')
        run_all_cells(page)
        page.wait_for_function(FINISHED, timeout=600_000, polling=500)

        wrong = [
            f'[data-mime-type="application/vnd.jupyter.{kind}"]' for kind in ("error", "stderr")
        ]
        assert page.locator(",".join(wrong)).all_inner_texts() == []
        drawing = page.locator(".jp-OutputArea-output .dgp-sheaf svg").first
        drawing.scroll_into_view_if_needed()
        assert drawing.is_visible()
        assert drawing.locator(".dgp-nodes g").count() > 5
        assert drawing.locator(".dgp-edges path").count() > 5
        page.screenshot(path=tmp_path / "lab.png")

        page.keyboard.press("Control+s")
        path = tmp_path / "files" / NOTEBOOK
        before = path.stat().st_mtime_ns
        until = time.monotonic() + 30
        while path.stat().st_mtime_ns == before and time.monotonic() < until:
            time.sleep(0.2)
        browser.close()
    assert problems(nbformat.read(path, as_version=4)) == []
