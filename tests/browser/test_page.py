"""The page for browsers, in a real one, on a real node."""

import json
import re
from urllib.request import Request, urlopen

import pytest

from tests.browser.browser import Browser
from tests.browser.conftest import PASSWORD, USER, go, log_in
from tests.browser.some_traffic import (
    another_client,
    bound,
    bury,
    copied,
    dead_letters,
    declare,
    full,
    note_deaths,
    reading,
    reject,
    run_out,
    wait_for_hours,
)
from tests.integration.nodes import Nodes
from tests.waiting import BOUND_S, wait_for

pytestmark = [pytest.mark.slow, pytest.mark.processes]

VIEWS = {
    "": "Overview", "queues": "Queues", "exchanges": "Exchanges", "deadletters": "Dead letters",
    "forecast": "Forecast",
    "connections": "Connections", "channels": "Channels", "consumers": "Consumers", "users": "Users",
    "vhosts": "Virtual hosts", "policies": "Policies", "definitions": "Definitions", "shards": "Shards",
    "nodes": "Nodes and clocks",
}  # fmt: skip


PALE = """
    const canvas = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
    const known = new Map();
    const channels = (colour) => {
      if (!known.has(colour)) {
        canvas.clearRect(0, 0, 1, 1);
        canvas.fillStyle = colour;
        canvas.fillRect(0, 0, 1, 1);
        const [red, green, blue, alpha] = canvas.getImageData(0, 0, 1, 1).data;
        known.set(colour, [red, green, blue, alpha / 255]);
      }
      return known.get(colour);
    };
    const over = (top, below) => [0, 1, 2].map((each) => top[each] * top[3] + below[each] * (1 - top[3]));
    const ground = (element) => {
      const layers = [];
      for (let each = element; each; each = each.parentElement) {
        layers.push(channels(getComputedStyle(each).backgroundColor));
        if (layers.at(-1)[3] === 1) break;
      }
      return layers.reduceRight((below, layer) => over(layer, below), [255, 255, 255]);
    };
    const light = (colour) => {
      const linear = (each) => (each <= 0.04045 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4);
      const [red, green, blue] = colour.map((each) => linear(each / 255));
      return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
    };
    const found = [];
    const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (texts.nextNode()) {
      const element = texts.currentNode.parentElement;
      if (!texts.currentNode.data.trim() || !element.checkVisibility()) continue;
      if (element.closest(':disabled, noscript')) continue;
      const below = ground(element);
      const [one, other] = [light(below), light(over(channels(getComputedStyle(element).color), below))];
      const contrast = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
      if (contrast < 4.5) found.push(`${texts.currentNode.data.trim()} (${element.className}): ${contrast.toFixed(1)}`);
    }
    return found;
"""
"""Texts that stand out less from what is behind them than WCAG's level AA asks for."""


ROW = "[...document.querySelectorAll('tbody tr')].find((row) => row.innerText.includes(arguments[0]))"
"""The row of a table in which a text is to be read."""


def words_of_row(page: Browser, begin: str) -> list[str]:
    """Of the row of a table that begins so; none while there is no such row."""
    return next((text.split() for text in page.texts("tbody tr") if text.startswith(begin)), [])


def put(node: Nodes, path: str, content: object) -> None:
    import base64

    login = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
    headers = {"Authorization": f"Basic {login}", "Content-Type": "application/json"}
    with urlopen(Request(f"http://{node.plan(1).http}{path}", json.dumps(content).encode(), headers, method="PUT"),
                 timeout=BOUND_S) as answer:
        assert answer.status in (201, 204)


def test_a_wrong_password_is_told_and_the_right_one_opens_the_page(node: Nodes, browser: Browser) -> None:
    log_in(browser, node, USER, "another")
    browser.wait("wrong", "[role=alert]")
    assert not browser.has("Queues")
    browser.write("input[name=password]", PASSWORD)
    browser.press("\ue007")
    browser.wait("Overview", "h1")
    browser.click("button", "Log out")
    browser.wait_for("input[name=password]")
    assert browser.run("return sessionStorage.length") == 0


def test_a_login_outlives_a_reload_and_the_browser_sends_none_by_itself(page: Browser, node: Nodes) -> None:
    """There are no cookies, so what another site has it send comes without a login."""
    page.open(f"http://{node.plan(1).http}/#/queues")
    page.wait("Queues", "h1")
    assert page.chrome("Network.getAllCookies")["cookies"] == []
    assert page.run("return Object.keys(localStorage).filter((it) => it.includes('login'))") == []


@pytest.mark.parametrize("path", VIEWS)
def test_every_view_opens_without_a_fault(page: Browser, path: str) -> None:
    go(page, path, VIEWS[path])
    assert page.texts("#fault .notice") == []
    assert page.run("return document.querySelector('nav [aria-current]').innerText") == VIEWS[path]
    assert page.texts("main th[scope=col]") or page.texts("main dt")


def test_times_of_queues_run(page: Browser, node: Nodes) -> None:
    """Deadlines are counted down, leases run or are suspended."""
    run_out(node.plan(1).amqp, USER, PASSWORD, "running")
    go(page, "queues", "Queues")
    page.wait("running.timed", "table")

    def row(name: str) -> str:
        return next(text for text in page.texts("tbody tr") if text.startswith(name))

    assert "suspended" in row("session.4711")
    assert "29 min" in row("running.leased")
    wait_for(lambda: "in 14 min" in row("running.timed"), "its deadline")
    before = row("running.timed")
    wait_for(lambda: row("running.timed") != before, "the countdown goes on", BOUND_S)


def test_queues_are_searched_and_put_in_order_by_the_node(page: Browser, node: Nodes) -> None:
    names = [f"visit.{number}" for number in (1, 2, 3)]
    for name in names:
        declare(node.plan(1).amqp, USER, PASSWORD, name)
    go(page, "queues", "Queues")
    page.write("input[type=search]", "VISIT")
    page.wait_without("orders", "table")
    assert [text.split()[0] for text in page.texts("tbody tr")] == names
    page.click("th button", "Queue")
    page.wait_for("th[aria-sort=descending]")
    wait_for(lambda: page.texts("tbody th")[0].startswith("visit.3"), "the other order")


def test_a_queue_is_deleted_after_a_question(page: Browser, node: Nodes) -> None:
    declare(node.plan(1).amqp, USER, PASSWORD, "to.delete")
    go(page, "queues/%2F/to.delete", "to.delete")
    page.click("button", "Delete")
    page.click("dialog button", "Cancel")
    page.wait_without("are gone then")
    page.click("button", "Delete")
    page.click("dialog button[type=submit]")
    page.wait("Queues", "h1")
    node.until_nowhere("to.delete")


@pytest.mark.parametrize("path", ["queues/%2F/reminders", "exchanges/%2F/later"])
def test_s4_what_waits_is_shown_and_cancelled_after_a_question(page: Browser, node: Nodes, path: str) -> None:
    """S4: of a queue and of a delayed exchange."""
    wait_for_hours(node.plan(1).amqp, USER, PASSWORD, "reminders", "later", ["letter <1>"])
    go(page, path, path.rpartition("/")[2])
    page.wait("letter <1>", "table")
    page.wait("in 59 min", "table")
    page.click("td button", "Cancel")
    page.wait("never delivered then", "dialog")
    page.click("dialog button[type=submit]")
    page.wait("letter <1> is cancelled", "#told")
    page.wait_without("letter <1>", "table")


def test_shards_are_shown_by_nodes(page: Browser) -> None:
    """Which node has which, who leads, the term, how far each is: by node and by shard, in the order of the shards."""
    go(page, "shards", "Shards")
    captions = page.run("return [...document.querySelectorAll('caption')].map((it) => it.textContent)")
    assert captions == ["Nodes and their replicas", "Replicas by shard and node", "What is in each shard"]
    tables = page.run("""
        return [...document.querySelectorAll('main table')].map((table) =>
            [...table.rows].map((row) => [...row.cells].map((cell) => cell.innerText.trim())))
    """)
    (heads, *rows), (columns, *shards), (_, *inside) = tables
    assert heads == ["Node", "Leads", "Replicas", "Furthest behind", "There"]
    (row,) = rows
    assert columns == ["Shard", "Term", "Committed", row[0]]
    assert [each[0] for each in shards] == ["catalog", *[str(number) for number in range(1, len(shards))]]
    assert row[1:4] == [str(len(shards)), str(len(shards)), "0 entries"]
    assert all(int(each[1]) >= 1 and each[3].startswith("leader") for each in shards)
    assert [each[0] for each in inside] == [each[0] for each in shards]
    page.run("document.querySelectorAll('main .scroll')[1].focus()")
    assert page.run("return document.activeElement.getAttribute('aria-label')") == "Replicas by shard and node"


def test_parked_dead_letters_are_dropped_after_a_question(page: Browser) -> None:
    go(page, "deadletters", "Dead letters")
    page.wait("audit", "table")
    page.click("td button", "Drop")
    page.wait("They are gone then", "dialog")
    page.click("dialog button[type=submit]")
    page.wait("Dropped", "#told")
    page.wait("Every dead letter has found a queue")


def test_r2_the_forecast_tells_what_expires_and_which_leases_end(page: Browser, node: Nodes) -> None:
    """R2."""
    run_out(node.plan(1).amqp, USER, PASSWORD, "foreseen")
    go(page, "forecast", "Forecast")
    page.wait("foreseen.leased", "main")
    rows = page.texts("tbody tr")
    assert [row.split()[0] for row in rows[:3]] == ["minute", "hour", "day"]
    (timed,) = [row for row in rows if row.startswith("foreseen.timed")]
    assert "0, 1, 1" in timed


def test_r3_a_policy_is_tried_before_it_is_set(page: Browser) -> None:
    """R3: the page says what it would change, and nothing is set."""
    go(page, "policies", "Policies")
    page.click("summary", "Set a policy")
    page.write("input[name=name]", "on-trial")
    page.write("input[name=pattern]", "^reservations$")
    page.write("textarea[name=definition]", '{"max-length": 1}')
    page.click("button", "Try")
    page.wait("Nothing is set. 1 queues would have other settings", ".tried")
    page.wait("reservations", ".tried")
    assert not [row for row in page.texts("tbody tr") if row.startswith("on-trial")]


def test_r1_a_queue_is_redriven_after_a_preview(page: Browser, node: Nodes) -> None:
    """R1: the page says what would move, moves it, and shows how far it has come."""
    bury(node.plan(1).amqp, USER, PASSWORD, "returned", 3)
    wait_for(lambda: node.ready(1, "returned.dead") == 3, "all are dead")
    go(page, "queues/%2F/returned.dead", "returned.dead")
    fold_out(page, "Send messages back to where they died")
    page.write("details[open] input[name=header]", "nonsense")
    page.click("button", "Preview")
    page.wait("a header is given as name=value", "details[open] [role=alert]")
    page.write("details[open] input[name=header]", "")
    page.click("button", "Preview")
    page.wait("3 would move, 0 would stay: 3 to returned.", "details[open]")
    page.click("button", "Start")
    page.click("dialog button[type=submit]")
    page.wait("returned.dead is being redriven", "#told")
    page.wait("3 moved, 0 stayed of 3", "main")
    page.wait("done", "main [role=status] .tag")
    wait_for(lambda: node.ready(1, "returned") == 3, "all are back")


def test_r1_a_redrive_has_a_rate_that_changes_is_paused_goes_on_and_is_cancelled(page: Browser, node: Nodes) -> None:
    """R1: each by a button, and what stayed is still there."""
    bury(node.plan(1).amqp, USER, PASSWORD, "slowly", 300)
    wait_for(lambda: node.ready(1, "slowly.dead") == 300, "all are dead")
    go(page, "queues/%2F/slowly.dead", "slowly.dead")
    fold_out(page, "Send messages back to where they died")
    page.write("details[open] input[name=rate]", "1")
    page.click("button", "Start")
    page.click("dialog button[type=submit]")
    page.wait("of 300, 1 a second", "main")
    page.click("button", "Pause")
    page.wait("The redrive is paused.", "#told")
    page.wait("paused", "main [role=status] .tag")
    page.click("button", "Change the rate")
    assert page.run("return document.querySelector('dialog input').value") == "1"
    page.write("dialog input[name=rate]", "2")
    page.click("dialog button[type=submit]")
    page.wait("of 300, 2 a second", "main")
    page.click("button", "Resume")
    page.wait("running", "main [role=status] .tag")
    page.click("button", "Cancel")
    page.wait("The redrive is cancelled.", "#told")
    page.wait("cancelled", "main [role=status] .tag")
    # What was on its way when it was cancelled comes yet.
    wait_for(lambda: node.ready(1, "slowly.dead") + node.ready(1, "slowly") == 300, "all of them, in either")
    assert node.ready(1, "slowly.dead") > 0


def test_a_parked_letter_is_released_and_a_lane_says_what_it_waits_for(page: Browser, node: Nodes) -> None:
    amqp = node.plan(1).amqp
    dead_letters(amqp, USER, PASSWORD, "unrouted", "missing", "", 1)
    go(page, "deadletters", "Dead letters")
    page.wait("unrouted", "table")
    bound(amqp, USER, PASSWORD, "missing", "found")
    page.run(f"[...{ROW}.querySelectorAll('button')].find((it) => it.innerText === 'Release').click()", "unrouted")
    page.wait("routed again now", "dialog")
    page.click("dialog button[type=submit]")
    page.wait("Released", "#told")
    page.wait_without("unrouted", "table")
    wait_for(lambda: node.ready(1, "found") == 1, "it is where it belongs")
    full(amqp, USER, PASSWORD, "no room")
    for number in range(8):  # one of them is in another shard
        dead_letters(amqp, USER, PASSWORD, f"waiting {number}", "", "no room", 1)
    page.wait("no room", "table")
    # Before the first of them was refused nothing is known to be in its way.
    wait_for(lambda: words_of_row(page, "no room")[-1:] == ["room"], "what it waits for")


def test_r5_a_queue_on_brake_says_so_and_is_released(page: Browser, node: Nodes) -> None:
    """R5: on its page and in the list of queues; a button ends it."""
    reject(node.plan(1).amqp, USER, PASSWORD, "careful", 3)
    go(page, "queues", "Queues")
    page.wait("on brake", "tbody")
    go(page, "queues/%2F/careful", "careful")
    page.wait("nothing is delivered. 2 messages have failed", "main [role=status]")
    page.click("button", "Release the brake")
    page.click("dialog button[type=submit]")
    page.wait("careful delivers again", "#told")
    wait_for(lambda: not (node.queue(1, "careful") or {}).get("braked"), "it is released")
    wait_for(lambda: not page.run("return document.querySelector('main').innerText.includes('On brake')"), "no notice")


def test_j1_a_stream_shows_where_its_consumers_are(page: Browser, node: Nodes) -> None:
    with reading(node.plan(1).amqp, USER, PASSWORD, "read", "reader <1>", 5):
        go(page, "queues/%2F/read", "read")
        page.wait("reader <1>", "main")
        wait_for(lambda: words_of_row(page, "reader <1>")[-3:] == ["2", "3", "2"], "two are with it")
    page.wait("Nobody reads it.", "main")
    go(page, "queues/%2F/audit", "audit")
    assert page.run(
        "return [...document.querySelectorAll('h2')].some((it) => it.offsetParent && it.innerText === 'Stream')"
    ) is False


def test_j4_a_stream_shows_how_far_its_copies_are(page: Browser, node: Nodes) -> None:
    copied(node.plan(1).amqp, USER, PASSWORD, "origin", "its mirror", "elsewhere")
    go(page, "queues/%2F/origin", "origin")
    page.wait("its mirror", "main")
    wait_for(lambda: words_of_row(page, "its mirror")[-4:] == ["a", "copy", "0", "0"], "a copy that has all")
    go(page, "queues/%2F/its%20mirror", "its mirror")
    page.wait("copied from", "main")
    go(page, "queues/%2F/elsewhere", "elsewhere")
    page.wait("copied from, in cluster nowhere", "main")
    page.wait("refused: upstreams_file of this node has no cluster 'nowhere'", "main")


@pytest.mark.parametrize("name", ["noted", "trail"])
def test_r4_what_time_has_removed_is_on_the_page_of_its_queue_and_of_the_journal(
    page: Browser, node: Nodes, name: str
) -> None:
    note_deaths(node.plan(1).amqp, USER, PASSWORD, "noted", "trail", "message <1>")
    go(page, f"queues/%2F/{name}", name)
    page.wait("message <1>", "main")
    row = next(text for text in page.texts("tbody tr") if "message <1>" in text)
    assert "noted" in row and "expired" in row and "nowhere" in row
    go(page, "queues/%2F/orders", "orders")
    assert "Journal" not in page.texts("main h2")


def test_a_user_sees_what_the_tags_allow(page: Browser, node: Nodes) -> None:
    put(node, "/api/users/reader", {"password": "reader", "tags": "management"})
    put(node, "/api/permissions/%2F/reader", {"configure": "", "write": "", "read": ".*"})
    log_in(page, node, "reader", "reader")
    page.wait("Overview", "h1")
    assert page.texts("nav a") == [
        "Overview", "Queues", "Exchanges", "Forecast", "Connections", "Channels", "Consumers", "Virtual hosts",
    ]
    go(page, "shards", "Nothing here")
    assert page.has("administrator, monitoring")
    go(page, "queues", "Queues")
    page.wait("orders", "table")


def test_a_name_from_a_client_is_text(page: Browser, node: Nodes) -> None:
    """Names may hold anything; none of it is markup."""
    name = "<img src=x onerror=\"document.title='broken'\">"
    declare(node.plan(1).amqp, USER, PASSWORD, name)
    go(page, "queues", "Queues")
    page.wait(name, "table")
    assert page.run("return document.querySelectorAll('main img').length") == 0


def test_keys_reach_what_a_mouse_does(page: Browser) -> None:
    go(page, "queues", "Queues")
    page.run("document.querySelector('th button').focus()")
    page.press("\ue007")
    page.wait_for("th[aria-sort=descending]")
    assert page.run("return document.activeElement.innerText") == "Queue"
    unnamed = """
        return [...document.querySelectorAll('button, a, input, select, textarea')].filter((it) =>
            !(it.textContent || it.getAttribute('aria-label') || it.labels?.length)).map((it) => it.outerHTML)
    """
    assert page.run(unnamed) == []


@pytest.mark.parametrize("path", VIEWS)
def test_a_narrow_screen_is_not_wider_than_it_is(page: Browser, path: str) -> None:
    """Tables scroll within themselves."""
    page.resize(360, 740)
    try:
        go(page, path, VIEWS[path])
        assert page.run("return document.documentElement.scrollWidth") <= 360
    finally:
        page.resize(1280, 800)


@pytest.mark.parametrize("colours", ["light", "dark"])
def test_every_text_stands_out_in_light_and_in_dark(page: Browser, colours: str) -> None:
    """As the system has it, with no choice made on the page; and the two differ."""
    page.chrome("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": colours}])
    try:
        pale = {}
        for path, title in VIEWS.items():
            go(page, path, title)
            pale[title] = page.run(PALE)
        assert {title: texts for title, texts in pale.items() if texts} == {}
        ground = page.run("return getComputedStyle(document.body).backgroundColor")
        assert (sum(int(each) for each in re.findall(r"\d+", ground)[:3]) > 384) == (colours == "light"), ground
    finally:
        page.chrome("Emulation.setEmulatedMedia", features=[])


def test_the_colours_that_are_chosen_stay_chosen(page: Browser) -> None:
    go(page, "queues", "Queues")
    shade = "return getComputedStyle(document.body).backgroundColor"
    before = page.run(shade)
    choose = """
        const select = document.querySelector('select[aria-label=Colours]');
        select.value = arguments[0];
        select.dispatchEvent(new Event('change'));
    """
    page.run(choose, "dark")
    try:
        dark = page.run(shade)
        page.run("location.reload()")
        page.wait("Queues", "h1")
        assert page.run(shade) == dark != before
    finally:
        page.run(choose, "")


@pytest.mark.parametrize("path", VIEWS)
def test_a_screen_reader_is_told_what_everything_is(page: Browser, path: str) -> None:
    """By the browser's own tree for it: regions, one title, tables with names, nothing to be used without one."""
    go(page, path, VIEWS[path])
    nodes = page.chrome("Accessibility.getFullAXTree")["nodes"]
    named = [
        (node["role"]["value"], node.get("name", {}).get("value", "").strip()) for node in nodes if not node["ignored"]
    ]
    roles = [role for role, _ in named]
    assert (roles.count("main"), roles.count("banner"), ("navigation", "Pages") in named) == (1, 1, True)
    assert page.texts("h1") == [VIEWS[path]]
    used = {"button", "link", "textbox", "searchbox", "combobox", "checkbox", "radio", "spinbutton", "table", "dialog"}
    used |= {"columnheader", "rowheader", "figure", "image", "region"}
    assert [(role, name) for role, name in named if role in used and not name] == []


def fold_out(page: Browser, title: str) -> None:
    page.click("summary", title)
    page.wait_for("details[open]")


def test_a_queue_is_declared_filled_looked_into_and_purged(page: Browser, node: Nodes) -> None:
    go(page, "queues", "Queues")
    fold_out(page, "Declare a queue")
    page.write("details[open] input[name=name]", "by hand")
    page.write("details[open] input[name=ttl]", "3600000")
    page.write("details[open] input[name=expires]", "7200000")
    page.write("details[open] textarea[name=arguments]", "nonsense")
    page.click("button", "Declare")
    page.wait("Further arguments is no JSON object", "details[open]")
    page.write("details[open] textarea[name=arguments]", '{"x-max-length": 10}')
    page.click("button", "Declare")
    page.wait("by hand is declared", "#told")
    go(page, "queues/%2F/by%20hand", "by hand")
    page.wait("1 h argument", "main")
    page.wait("2 h argument", "main")
    fold_out(page, "Publish a message")
    page.write("textarea[name=payload]", "<b>a body</b>")
    page.write("textarea[name=headers]", '{"tenant": "a"}')
    page.click("button", "Publish")
    page.wait("The message is in a queue", "#told")
    page.wait("in 59 min", "dl.facts")
    fold_out(page, "Get messages")
    page.click("button", "Get")
    page.wait("<b>a body</b>", "pre")
    assert "tenant" in page.text("main")
    page.click("button", "Purge")
    page.click("dialog button[type=submit]")
    page.wait("by hand is purged", "#told")
    wait_for(lambda: node.ready(1, "by hand") == 0, "nothing is ready")


def test_an_exchange_is_declared_bound_and_unbound(page: Browser) -> None:
    go(page, "exchanges", "Exchanges")
    fold_out(page, "Declare an exchange")
    page.write("details[open] input[name=name]", "hand made")
    page.click("button", "Declare")
    page.wait("hand made is declared", "#told")
    go(page, "exchanges/%2F/hand%20made", "hand made")
    fold_out(page, "Bind a queue or an exchange")
    page.write("details[open] input[name=destination]", "orders")
    page.write("details[open] input[name=routing_key]", "k.1")
    page.click("button", "Bind")
    page.wait("orders is bound", "#told")
    page.wait("k.1", "table")
    go(page, "queues/%2F/orders", "orders")
    page.wait("hand made", "table")
    go(page, "exchanges/%2F/hand%20made", "hand made")
    page.wait("k.1", "table")
    page.click("td button", "Unbind")
    page.click("dialog button[type=submit]")
    page.wait("orders is unbound", "#told")
    page.wait_without("k.1", "table")
    page.click("button", "Delete")
    page.click("dialog button[type=submit]")
    page.wait("Exchanges", "h1")


def test_a_user_a_vhost_and_a_policy_are_made(page: Browser) -> None:
    go(page, "vhosts", "Virtual hosts")
    fold_out(page, "Add a virtual host")
    page.write("details[open] input[name=name]", "stage")
    page.click("button", "Add")
    page.wait("stage is there", "#told")
    go(page, "users", "Users")
    fold_out(page, "Add a user")
    page.write("details[open] input[name=name]", "helper")
    page.write("details[open] input[name=password]", "secret")
    page.write("details[open] input[name=tags]", "monitoring, policymaker")
    page.click("button", "Add")
    page.wait("helper is there", "#told")
    go(page, "users/helper", "helper")
    page.wait("policymaker", ".title")
    fold_out(page, "Give permissions")
    page.wait_for("select[name=vhost] option[value=stage]")
    page.run("document.querySelector('select[name=vhost]').value = 'stage'")
    page.click("button", "Give")
    page.wait("stage", "table")
    go(page, "policies", "Policies")
    fold_out(page, "Set a policy")
    page.write("details[open] input[name=name]", "short")
    page.write("details[open] input[name=pattern]", "^tmp")
    page.write("details[open] textarea[name=definition]", '{"message-ttl": -1}')
    page.click("button", "Set")
    page.wait("message-ttl", "details[open] [role=alert]")
    page.write("details[open] textarea[name=definition]", '{"message-ttl": 60000}')
    page.click("button", "Set")
    page.wait("short is set", "#told")
    page.wait("message-ttl 60000", "table")
    go(page, "vhosts", "Virtual hosts")
    script = "[...document.querySelectorAll('tr')].find((it) => it.innerText.startsWith('stage'))"
    page.run(f"{script}.querySelector('button').click()")
    page.write("dialog input", "stage")
    page.click("dialog button[type=submit]")
    page.wait("stage is deleted", "#told")


def test_a_consumer_is_cancelled_and_a_channel_closed(page: Browser, node: Nodes) -> None:
    with reading(node.plan(1).amqp, USER, PASSWORD, "read by one", "only <1>", 1):
        go(page, "consumers", "Consumers")
        page.wait("only <1>", "table")
        page.run(f"{ROW}.querySelector('button').click()", "only <1>")
        page.wait("gets no more from read by one", "dialog")
        page.click("dialog button[type=submit]")
        page.wait("The consumer is cancelled", "#told")
        page.wait_without("only <1>", "table")
    with another_client(node.plan(1).amqp, USER, PASSWORD) as name:
        go(page, "channels", "Channels")
        page.wait(name, "table")
        page.run(f"{ROW}.querySelector('button').click()", name)
        page.click("dialog button[type=submit]")
        page.wait("The channel is closed", "#told")
        page.wait_without(name, "table")


def test_a_connection_is_closed(page: Browser, node: Nodes) -> None:
    with another_client(node.plan(1).amqp, USER, PASSWORD):
        go(page, "connections", "Connections")
        page.wait("another client", "table")
        page.click("tbody a", "another client")
        page.wait("Largest frame", "main")
        page.click("button", "Close")
        page.click("dialog button[type=submit]")
        page.wait("Connections", "h1")
        page.wait_without("another client", "table")
