"""Visit every page of the built site in Chromium, from disk: python docs/_tools/check_site.py [axe.min.js]

Each page is opened at desktop and phone width, light and dark. Fails on console errors, requests to other hosts, broken
links and anchors, text that runs out of a phone's screen, a search that finds nothing and, if the path of axe-core's
script is given (`npm pack axe-core`), text with too little contrast.
"""

import json
import re
import sys
import time
from pathlib import Path
from urllib.parse import unquote, urldefrag, urlparse

from selenium import webdriver

SITE = Path(__file__).parents[2] / "build" / "docs" / "site"
SIZES = {"desktop": (1280, 900), "phone": (390, 844)}
FLAGS = ("headless=new", "no-sandbox", "disable-background-networking", "no-first-run", "disable-sync")


def browser_of(width: int, height: int) -> webdriver.Chrome:
    options = webdriver.ChromeOptions()
    for flag in FLAGS:
        options.add_argument(f"--{flag}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    browser = webdriver.Chrome(options=options)
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    return browser


def problems_of(browser: webdriver.Chrome, page: Path, width: int, theme: str, axe: str | None) -> list[str]:
    browser.execute_cdp_cmd(
        "Page.addScriptToEvaluateOnNewDocument", {"source": f"try {{ localStorage.theme = '{theme}' }} catch (e) {{}}"}
    )
    browser.get(page.as_uri())
    found = [f"console: {entry['message']}" for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]
    for entry in browser.get_log("performance"):
        message = json.loads(entry["message"])["message"]
        if message["method"] == "Network.requestWillBeSent":
            url = message["params"]["request"]["url"]
            if urlparse(url).scheme not in ("file", "data", "blob", "chrome"):
                found.append(f"request: {url}")
    wide = browser.execute_script("return document.documentElement.scrollWidth")
    if wide > width:
        found.append(f"{wide} px wide, the screen has {width}")
    if axe is not None:
        browser.execute_script(axe)
        rules = {"runOnly": ["color-contrast", "image-alt", "link-name", "button-name", "label", "document-title"]}
        report = browser.execute_async_script(
            "const done = arguments[1]; axe.run(document, arguments[0]).then(done)", rules
        )
        for rule in report["violations"]:
            found += [f"{rule['id']}: {node['target']} {node['html'][:120]}" for node in rule["nodes"][:3]]
    return found


def broken_links(page: Path) -> list[str]:
    found = []
    for link in re.findall(r'(?:href|src)="([^"]+)"', page.read_text()):
        url = urlparse(link)
        if url.scheme or link.startswith("//"):
            continue
        path, anchor = urldefrag(unquote(link))
        target = (page.parent / path.partition("?")[0]).resolve() if path else page
        if target.is_dir():
            target /= "index.html"
        if not target.exists():
            found.append(f"link to {link}")
        elif (
            anchor
            and target.suffix == ".html"
            and not re.search(rf'(id|name)="{re.escape(anchor)}"', target.read_text())
        ):
            found.append(f"anchor {link}")
    return found


def search_results(word: str) -> int:
    browser = browser_of(*SIZES["desktop"])
    try:
        browser.get((SITE / "search.html").as_uri() + f"?q={word}")
        time.sleep(3)
        return len(browser.find_elements("css selector", "ul.search li"))
    finally:
        browser.quit()


def main(arguments: list[str]) -> int:
    axe = Path(arguments[0]).read_text() if arguments else None
    pages = sorted(
        path for path in SITE.rglob("*.html") if "_modules" not in path.parts and "_static" not in path.parts
    )
    count = 0
    for page in pages:
        for problem in broken_links(page):
            count += 1
            print(f"{page.relative_to(SITE)}: {problem}")
    for name, size in SIZES.items():
        for theme in ("light", "dark"):
            browser = browser_of(*size)
            for page in pages:
                for problem in problems_of(browser, page, size[0], theme, axe):
                    count += 1
                    print(f"{page.relative_to(SITE)}, {name}, {theme}: {problem}", flush=True)
            browser.quit()
    results = search_results("uniformity")
    print(f"{len(pages)} pages, {count} problems; the search finds uniformity on {results} pages")
    return int(count > 0 or results == 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
