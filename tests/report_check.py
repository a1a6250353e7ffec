"""Reads pages of `tally report` in Chromium, without a window, and compares what they show with the plan and the log.

    report_check.py TALLY RUN_DIR SHOTS     in a folder of its own; SHOTS: where screenshots go

The browser is driven through its debugging pipe: JSON messages ending with NUL, on its file descriptors 3 and 4.
"""

import copy, fcntl, json, math, os, re, select, shlex, subprocess, sys, time

tally, run_dir, shots = sys.argv[1:]
QUIET = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-background-networking"]
LEVELS = ["none", "norm", "attention", "block"]


class Browser:
    def __init__(self):
        there, mine = (fcntl.fcntl(fd, fcntl.F_DUPFD, 16) for fd in os.pipe())
        back, theirs = (fcntl.fcntl(fd, fcntl.F_DUPFD, 16) for fd in os.pipe())
        self.write, self.read, self.buffer, self.count, self.session, self.events = mine, back, b"", 0, None, []
        self.process = subprocess.Popen(
            ["chromium", *QUIET, "--user-data-dir=" + os.path.abspath("profile"), "--remote-debugging-pipe", "about:blank"],
            preexec_fn=lambda: (os.dup2(there, 3), os.dup2(theirs, 4)), pass_fds=(3, 4),
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        target = self.call("Target.getTargets")["targetInfos"]
        target = next(t for t in target if t["type"] == "page")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in "Page", "Network", "Runtime":
            self.call(domain + ".enable")
        self.call("Emulation.setFocusEmulationEnabled", enabled=True)

    def message(self):
        end = time.monotonic() + 300 # a busy machine
        while b"\0" not in self.buffer:
            if not select.select([self.read], [], [], max(0, end - time.monotonic()))[0]:
                raise TimeoutError(f"Chromium does not answer: {self.asked}")
            part = os.read(self.read, 1 << 20)
            if not part:
                raise EOFError("Chromium has ended")
            self.buffer += part
        text, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(text)

    def call(self, method, **params):
        self.count, self.asked = self.count + 1, method
        message = {"id": self.count, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.message()
            if answer.get("id") == self.count:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self.events.append(answer)

    def close(self):
        self.session = None
        self.call("Browser.close")
        self.process.wait(60)

    def open(self, path, fragment=""):
        self.events.clear()
        file = os.path.abspath(path).replace("%", "%25").replace("#", "%23").replace("?", "%3F")
        self.call("Page.navigate", url=f"file://{file}?{self.count}{fragment}")  # each time another address, so that it is loaded
        while not any(e.get("method") == "Page.loadEventFired" for e in self.events):
            self.events.append(self.message())
        self.value("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(0))))")  # painted: keys are taken

    def value(self, expression):
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError(f"{expression}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def key(self, key, code):
        for kind in "rawKeyDown", "keyUp":
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code)


def shot(path, name, theme, width, height):
    """A screenshot by a browser of its own."""
    subprocess.run(["chromium", *QUIET, f"--screenshot={os.path.join(shots, name)}.png", f"--window-size={width},{height}", "--hide-scrollbars",
                    f"file://{os.path.abspath(path)}?#{theme}".replace(" ", "%20")], check=True, timeout=300, stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL)


def same(what, seen, wanted, tolerance=0.0):
    near = abs(seen - wanted) <= tolerance if tolerance else seen == wanted
    if not near:
        sys.exit(f"report_check: FAILED: {what}: the page has {seen!r:.300}, not {wanted!r:.300}")


def tally_json(*words):
    done = subprocess.run([tally, "plan", "--json", *words], capture_output=True, text=True)
    if done.returncode not in (0, 2):
        sys.exit(f"report_check: FAILED: tally plan {words}: {done.stderr}")
    return json.loads(done.stdout)


def report(*words, code=0):
    done = subprocess.run([tally, "report", *words], capture_output=True, text=True)
    same(f"exit code of tally report {words}: {done.stderr}", done.returncode, code)
    return done.stderr


def outline(d):
    """The corners of a path of M, H, V, L, Z in absolute units."""
    x = y = 0.0
    corners = []
    for letter, numbers in re.findall(r"([MHVLZ])([-0-9. ]*)", d):
        n = [float(v) for v in numbers.split()]
        x, y = (n[0], y) if letter == "H" else (x, n[0]) if letter == "V" else n if letter in "ML" else (x, y)
        corners.append((x, y))
    return corners


def area(corners):
    return abs(sum(a[0] * b[1] - b[0] * a[1] for a, b in zip(corners, corners[1:] + corners[:1]))) / 2


SHAPES = """[...document.querySelectorAll('%s .t')].map(t => [t.dataset.name, +t.dataset.layer, t.dataset.category,
    +t.dataset.value, +(t.dataset.first ?? -1), +(t.dataset.last ?? -1), t.querySelector('path').getAttribute('d'),
    t.querySelector('title').textContent])"""


def check_mountain(page, level, plan):
    """Every tensor of the step is one shape, of as many bytes for as many ops; none stands above the peak, and one reaches it."""
    svg = f"[data-level={level}] [data-chart=mountain]"
    top, ops = page.value(f"(s => [+s.dataset.top, +s.dataset.ops])(document.querySelector('{svg}'))")
    shapes = page.value(SHAPES % svg)
    wanted = sorted([t["name"], t["layer"], t["category"], t["bytes"],
                     *(t["lives"]["training"] if t["arena"] == "step" else (-1, -1))]
                    for t in plan["tensors"] if t["arena"] == "persistent" or "training" in t["lives"])
    same(f"{level}: tensors", sorted(s[:6] for s in shapes), wanted)
    live = [0] * ops
    for name, layer, category, size, first, last, d, title in shapes:
        width = 1000 if first < 0 else 1000 * (last - first + 1) / ops
        corners, high = outline(d), 1000 * size / top
        same(f"{level}: area of {name}, layer {layer}", area(corners), high * width, 0.011 * (width + high * len(corners)) + 1e-3)
        same(f"{level}: left edge of {name}", min(c[0] for c in corners), max(0, 1000 * first / ops), 0.006)
        if f"({size:,} bytes)" not in title or not title.startswith(name + " ") or category not in title:
            sys.exit(f"report_check: FAILED: {level}: the title of {name} is {title}")
        for i in range(first, last + 1) if first >= 0 else ():
            live[i] += size
    same(f"{level}: live at the peak", max(live), plan["peak"]["bytes"])
    same(f"{level}: height of the mountain", min(c[1] for s in shapes for c in outline(s[6])),
         1000 * (1 - (plan["persistent_bytes"] + plan["peak"]["bytes"]) / top), 0.006)


def check_split(page, plan):
    bars = page.value("Object.fromEntries([...document.querySelectorAll('[data-chart=split]')].map(s => [s.dataset.category, +s.dataset.total]))")
    same("categories", bars, {name: size for name, size in plan["categories"].items() if size})
    widest = max(bars.values())
    for name, layer, category, size, first, last, d, title in page.value(SHAPES % "[data-chart=split]"):
        corners = outline(d)
        same(f"width of {category}, layer {layer}", max(c[0] for c in corners) - min(c[0] for c in corners), 1000 * size / widest, 0.011)
        bars[category] -= size
        if category in ("weights", "gradients", "adam_m", "adam_v", "master_weights"):
            same(f"bytes of {category}, layer {layer}", size,
                 sum(t["bytes"] for t in plan["tensors"] if t["category"] == category and t["layer"] == layer))
    same("what the pieces leave of the bars", set(bars.values()), {0})


def check_plan(page, words, plan):
    same("total", page.value("+document.querySelector('[data-fact=total]').title"), plan["total_bytes"])
    same("parameters", page.value("+document.querySelector('[data-fact=parameters]').title"), plan["parameters"] / 1e6)
    check_split(page, plan)
    own = plan["run"]["recompute"]
    same("the level shown", page.value("[...document.querySelectorAll('.level')].filter(l => l.checkVisibility()).map(l => l.dataset.level)"), [own])
    for level in LEVELS:
        there = plan if level == own else tally_json(*words, "--recompute", level)
        thumb = page.value(f"(d => [+d.total, +d.flops])(document.querySelector('[data-recompute={level}]').dataset)")
        same(f"{level}: total and FLOPs", thumb, [there["total_bytes"], there["executed_flops_per_token"]])
        check_mountain(page, level, there)
    embedded = json.loads(page.value("document.querySelector('#data').textContent"))
    same("embedded plan", embedded["levels"][embedded["own"]], {k: v for k, v in plan.items() if k not in ("memory", "card")})


def check_curves(page, log):
    """The log's own numbers, and the lines: through each step when there are few, else through the means of groups."""
    n = min(len(log), 500)
    groups = [log[i * len(log) // n:(i + 1) * len(log) // n] for i in range(n)]
    for metric in "loss", "lr", "grad_norm", "tokens_per_s":
        shown = page.value(f"({{...document.querySelector('[data-metric={metric}]').dataset}})")
        values = [row[metric] for row in log if row.get(metric) is not None]
        same(f"{metric}: least and most", [float(shown["min"]), float(shown["max"])], [min(values), max(values)])
        same(f"{metric}: last", float(shown["last"]), float(log[-1].get(metric) or math.nan), 1e-300 if log[-1].get(metric) else 0) \
            if log[-1].get(metric) is not None else same(f"{metric}: last", shown["last"], "nan")
        x0, x1, y0, y1 = (float(v) for v in (shown["x"] + " " + shown["y"]).split())
        line = outline(page.value(f"document.querySelector('[data-metric={metric}] [data-line={metric}]').getAttribute('d')").replace("h0", ""))
        means = [(g[-1]["step"], [r[metric] for r in g if r.get(metric) is not None]) for g in groups]
        means = [(step, sum(v) / len(v)) for step, v in means if v]
        same(f"{metric}: points", len(line), len(means))
        for (x, y), (step, mean) in zip(line, means):
            same(f"{metric}: step {step}, x", x, 1000 * (step - x0) / (x1 - x0), 0.006)
            same(f"{metric}: step {step}, y", y, 1000 * (y1 - mean) / (y1 - y0), 0.006)
    dots = page.value("document.querySelector('[data-line=val_loss]').getAttribute('d')").count("M")
    same("validation losses", dots, sum(1 for g in groups if any("val_loss" in r for r in g)))
    same("steps", page.value("+document.querySelector('[data-steps]').dataset.steps"), len(log))


def check_keys(page):
    """Tab reaches every tensor that is shown, and each time its name and its bytes are read out; arrows move along a curve."""
    shown = page.value("[...document.querySelectorAll('.t')].filter(t => t.checkVisibility()).length")
    page.value("document.activeElement.blur()")
    reached = set()
    for _ in range(shown + 40):
        page.key("Tab", 9)
        at = page.value("""(t => t.matches('.t') ? [[...document.querySelectorAll('.t')].indexOf(t), t.dataset.name, (+t.dataset.value).toLocaleString('en'),
            t.closest('figure').querySelector('.readout').textContent] : null)(document.activeElement)""")
        if at:
            reached.add(at[0])
            if not (at[3].startswith(at[1] + " ") and f"({at[2]} bytes)" in at[3]):
                sys.exit(f"report_check: FAILED: on reaching {at[1]} the page says {at[3]}")
    same("tensors that Tab reaches", len(reached), shown)
    page.value("document.querySelector('[data-metric=loss]').focus()")
    page.key("Home", 36)
    page.key("ArrowRight", 39)
    loss = page.value("JSON.parse(document.querySelector('#data').textContent).log.loss[1][0]")
    said = page.value("document.querySelector('[data-metric=loss]').closest('figure').querySelector('.readout').textContent")
    same("the curve's second point", float(said.split(": ")[1].split()[0].rstrip(",")), float(f"{loss:.6g}"))


CONTRASTS = """(() => {
  const pen = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
  const rgb = colour => { pen.fillStyle = colour; pen.fillRect(0, 0, 1, 1); return [...pen.getImageData(0, 0, 1, 1).data]; };
  const light = c => { const [r, g, b] = rgb(c).map(v => (v /= 255) <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4); return .2126 * r + .7152 * g + .0722 * b; };
  const paper = light(getComputedStyle(document.body).backgroundColor);
  const ratio = c => { const other = light(c); return (Math.max(paper, other) + .05) / (Math.min(paper, other) + .05); };
  const least = (selector, property) => Math.min(...[...document.querySelectorAll(selector)].map(e => ratio(getComputedStyle(e)[property])));
  return [getComputedStyle(document.body).backgroundColor, least('p, td, th, dt, dd, summary, .label, .y span, .x span, li', 'color'),
          least('.t path, .phases path', 'fill'), least('.line, .dots', 'stroke')];
})()"""


def check_themes(page, path, name):
    """Two themes with enough contrast, by the system's wish, by the button and by the address; and a page that fits a telephone."""
    papers = []
    for theme in "light", "dark":
        page.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": theme}])
        page.open(path)
        paper, text, shapes, lines = page.value(CONTRASTS)
        for what, ratio, least in ("text", text, 4.5), ("shapes", shapes, 3), ("lines", lines, 3):
            if ratio is not None and ratio < least:  # None: a plan has no curves
                sys.exit(f"report_check: FAILED: {theme}: contrast of {what} is {ratio:.2f}, less than {least}")
        papers.append(paper)
        shot(path, f"{name}-{theme}", theme, 1280, 3200)
    same("two themes", len(set(papers)), 2)
    page.value("document.querySelector('#theme').click()")
    same("the button's theme", page.value("getComputedStyle(document.body).backgroundColor"), papers[0])
    page.open(path, "#light")
    same("#light", page.value("getComputedStyle(document.body).backgroundColor"), papers[0])
    page.call("Emulation.setDeviceMetricsOverride", width=360, height=740, deviceScaleFactor=2, mobile=True)
    same("width on a telephone", page.value("document.documentElement.scrollWidth"), 360)
    same("small text on a telephone", page.value("Math.min(...[...document.querySelectorAll('.x span, .y span, .label')].map(e => parseFloat(getComputedStyle(e).fontSize))) >= 11"), True)
    page.call("Emulation.clearDeviceMetricsOverride")
    shot(path, f"{name}-phone", "light", 360, 4800)


def check_closed(page, path):
    """The page asks for nothing but itself, and nothing of what it was given has become markup or script."""
    asked = {e["params"]["request"]["url"].split("?")[0] for e in page.events if e.get("method") == "Network.requestWillBeSent"}
    same("requests", len(asked), 1)
    same("requests", all(url.startswith("file:") for url in asked), True)
    same("http in the file", re.findall(r"https?:|src=|@import|url\(", open(path).read().replace(run_dir, "")), [])
    same("script from a setting", page.value("typeof window.bad"), "undefined")
    same("errors on the page", [e for e in page.events if e.get("method") == "Runtime.exceptionThrown"], [])


def check_amp(page, path):
    amp = json.load(open(path))
    rows = page.value("""[...document.querySelectorAll('#amp tr')].slice(1).map(r => [r.querySelector('th').textContent,
        Object.fromEntries([...r.querySelectorAll('td')].map(c => [c.dataset.field, [c.dataset.value, c.textContent]]))])""")
    same("precisions", [name for name, cells in rows], [row["precision"] for row in amp["precisions"]])
    for row, (name, cells) in zip(amp["precisions"], rows):
        speed = next((a for a in amp["amdahl"] if isinstance(a, dict) and a["precision"] == name), {})
        for field, (value, text) in cells.items():
            of = row.get("classes") if field.startswith("classes.") else speed if field in ("measured", "predicted") else row
            wanted = of.get(field.removeprefix("classes.")) if isinstance(of, dict) else None
            same(f"{name}: {field}", text if wanted is None else float(value), "\u2013" if wanted is None else wanted)


def check_run(page):
    lines = [json.loads(line) for line in open(os.path.join(run_dir, "log.jsonl"))]
    report(run_dir)
    path = os.path.join(run_dir, "report.html")
    page.open(path)
    check_closed(page, path)
    same("title", page.value("document.querySelector('h1').textContent"), run_dir)
    same("elements in the title", page.value("document.querySelectorAll('h1 *, b b').length"), 0)
    words = shlex.split(page.value("document.querySelector('#command').textContent"))
    same("command", words[:4], ["tally", "train", "--out-dir", run_dir])
    same("the prompt in the command", words[words.index("--prompt") + 1], "</script><script>window.bad = 1</script><!--")
    plan = tally_json(*words[4:])
    same("bytes taken", plan["total_bytes"], lines[0]["persistent_bytes"] + lines[0]["step_bytes"])
    check_plan(page, words[4:], plan)
    check_curves(page, lines[1:])
    check_amp(page, os.path.join(run_dir, "bench-amp.json"))
    check_keys(page)
    page.value("document.querySelector('[data-recompute=block]').click()")
    same("the level chosen", page.value("[...document.querySelectorAll('.level')].filter(l => l.checkVisibility()).map(l => l.dataset.level)"), ["block"])
    page.value("document.querySelectorAll('details').forEach(d => d.open = true)")
    page.value("new Promise(done => setTimeout(done, 200))")
    rows = page.value("[...document.querySelectorAll('details')].map(d => d.querySelectorAll('tr').length)")
    same("rows of tables", [rows[0], rows[2]], [1 + len(page.value(SHAPES % "[data-level=block]")), len(lines)])
    same("tables", min(rows) > 10, True)
    check_themes(page, path, "run")
    return lines


def check_long_log(page, lines):
    """1234 steps, some of them without a number, after which a crash has cut a line."""
    rows = []
    for step in range(1, 1235):
        row = {**copy.deepcopy(lines[1]), "step": step, "loss": 3 + math.sin(step), "lr": step * 1e-6}
        if step % 7 == 0:
            row["grad_norm"], row["skipped"] = None, True
        if step % 100 == 0:
            row["val_loss"] = 3.5
        rows.append(row)
    os.makedirs("long")
    with open("long/log.jsonl", "w") as f:
        f.writelines(json.dumps(row) + "\n" for row in [lines[0]] + rows)
        f.write('{"step":1235,"lo')
    report("long", "--out", "long.html")
    page.open("long.html")
    check_curves(page, rows)
    same("skipped", page.value("+document.querySelector('[data-skipped]').dataset.skipped"), 1234 // 7)


def check_gpt2(page):
    words = ["--model", "gpt2", "--batch-size", "4", "--precision", "bf16", "--card", "RTX 4060", "--threads", "2"]
    with open("amp.json", "w") as f:
        json.dump({"precisions": [{"precision": "<i>bf16", "ms_median": 150.25, "classes": 3}], "amdahl": {"bf16": 2}}, f)
    report("--plan", *words, "--amp", "amp.json", "--out", "gpt2.html")
    page.open("gpt2.html")
    check_closed(page, "gpt2.html")
    check_plan(page, words, tally_json(*words))
    same("command", shlex.split(page.value("document.querySelector('#command').textContent")), ["tally", "plan", *words])
    check_amp(page, "amp.json")
    same("no curves without a log", page.value("document.querySelectorAll('[data-chart=curve]').length"), 0)
    check_themes(page, "gpt2.html", "gpt2")


def check_refusals():
    os.makedirs("empty")
    os.makedirs("broken")
    with open("broken/log.jsonl", "w") as f:
        f.write('{"settings": {"n_layer": "many"}, "model": {}}\n')
    for words, code, part in (([], 2, "RUN_DIR"), (["empty"], 1, "log.jsonl"), (["broken"], 1, "n_layer"), (["a", "b"], 2, "RUN_DIR"),
                              (["--plan", "--model", "nosuch"], 2, "nosuch"), (["--plan", "--json"], 2, "json"),
                              (["--plan", "--out"], 2, "--out"), (["--plan", "--amp", "nosuch.json"], 1, "nosuch.json")):
        said = report(*words, code=code)
        same(f"message of {words}", part in said, True)


check_refusals()
browser = Browser()
try:
    log = check_run(browser)
    check_long_log(browser, log)
    check_gpt2(browser)
finally:
    browser.close()
print("report_check: the pages show what the plan and the log say")
