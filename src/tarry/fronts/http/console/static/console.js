// What the pages do in the browser: times in UTC or local, dialogs, tabs, choosing rows, charts, and asking again only
// while somebody looks. Without it, every page and form still works, but for what is asked first.
"use strict";
(() => {
  const $ = (selector, from = document) => from.querySelector(selector);
  const $$ = (selector, from = document) => [...from.querySelectorAll(selector)];
  const root = document.documentElement;
  const store = {
    get(name) { try { return localStorage.getItem(name); } catch { return null; } },
    set(name, value) { try { localStorage.setItem(name, value); } catch { /* storage is off: for this page only */ } },
  };

  // -- time ------------------------------------------------------------------------------------------------------------
  // The page was made when its answer began to come, however long it took to load.
  const [loaded] = performance.getEntriesByType("navigation");
  const skew = Number(root.dataset.now) - (performance.timeOrigin + (loaded ? loaded.responseStart : performance.now()));
  const now = () => Date.now() + skew;
  let local = store.get("tarry-zone") === "local";
  const pad = (value, width = 2) => String(value).padStart(width, "0");

  function instant(ms, inLocal) {
    const d = new Date(ms);
    if (Number.isNaN(d.getTime())) return String(ms);
    if (!inLocal) return d.toISOString().replace("T", " ").replace("Z", "");
    const date = `${d.getFullYear()}-${pad(d.getMonth() + 1)}-${pad(d.getDate())}`;
    return `${date} ${pad(d.getHours())}:${pad(d.getMinutes())}:${pad(d.getSeconds())}.${pad(d.getMilliseconds(), 3)}`;
  }

  function span(ms) {
    const left = Math.abs(ms), year = 365 * 86400000;
    if (left >= 2 * year) return `${(left / year).toFixed(1)} years`;
    const units = [["d", 86400000], ["h", 3600000], ["m", 60000], ["s", 1000]];
    const at = units.findIndex(([, size]) => left >= size);
    if (at < 0) return `${left}ms`;
    const [unit, size] = units[at], next = units[at + 1];
    const rest = next ? Math.floor((left % size) / next[1]) : 0;
    return `${Math.floor(left / size)}${unit}${rest ? ` ${rest}${next[0]}` : ""}`;
  }

  const relative = (ms) => {
    const off = ms - now();
    return Math.abs(off) < 1000 ? "now" : off > 0 ? `in ${span(off)}` : `${span(off)} ago`;
  };

  function set(element, text) { if (element.textContent !== text) element.textContent = text; }

  function showTimes() {
    for (const time of $$("time[data-ms]")) set(time, instant(Number(time.dataset.ms), local));
    showRelative();
  }

  function showRelative() {
    for (const each of $$("[data-relative]")) set(each, relative(Number(each.dataset.relative)));
  }

  // Only where somebody points: a page may have a hundred times.
  document.addEventListener("pointerover", (event) => {
    const time = event.target.closest?.("time[data-ms]");
    if (!time) return;
    const ms = Number(time.dataset.ms);
    time.title = `${instant(ms, false)} UTC\n${instant(ms, true)} local\n${ms} ms`;
  });

  function showZone() {
    const button = $("#zone-button");
    if (!button) return;
    const name = Intl.DateTimeFormat().resolvedOptions().timeZone || "local";
    set(button, local ? name.replace(/.*\//, "").replace(/_/g, " ") : "UTC");
    button.setAttribute("aria-label", `Times are in ${local ? name : "UTC"}; switch`);
  }

  // -- what is on the page ---------------------------------------------------------------------------------------------
  const themes = ["auto", "light", "dark"];
  const theme = () => root.dataset.theme || "auto";
  function showTheme() {
    const button = $("#theme-button");
    if (button) set(button, `Theme: ${theme()}`);
  }

  // Fields that another field's value makes useless are hidden; without scripts, all are there.
  function showFields() {
    for (const each of $$("[data-if]")) {
      const [name, values] = each.dataset.if.split("=");
      each.hidden = !values.split("|").includes(document.getElementById(name).value);
    }
  }

  function chosen(name) { return $$(`input[name="${name}"]:checked`).length; }

  function showChosen() {
    for (const all of $$("[data-all]")) {
      const boxes = $$(`input[name="${all.dataset.all}"]`), count = chosen(all.dataset.all);
      all.checked = count > 0 && count === boxes.length;
      all.indeterminate = count > 0 && count < boxes.length;
      for (const button of $$("[data-dialog$=chosen]")) button.setAttribute("aria-disabled", String(count === 0));
    }
  }

  function openDialog(button) {
    const dialog = document.getElementById(button.dataset.dialog);
    if (!dialog || button.getAttribute("aria-disabled") === "true") return;
    for (const place of $$("[data-count]", dialog)) {
      const count = chosen(place.dataset.count);
      set(place, count === 1 ? "The one chosen" : `The ${count} chosen`);
    }
    dialog.showModal();
  }

  function showTab(tab) {
    for (const other of $$("[role=tab]", tab.parentElement)) {
      const on = other === tab;
      other.setAttribute("aria-selected", String(on));
      other.tabIndex = on ? 0 : -1;
      document.getElementById(other.getAttribute("aria-controls")).hidden = !on;
    }
  }

  document.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    if (button.dataset.dialog) openDialog(button);
    else if ("close" in button.dataset) button.closest("dialog").close();
    else if (button.getAttribute("role") === "tab") showTab(button);
    else if (button.dataset.unit) { unit = button.dataset.unit; store.set("tarry-unit", unit); saveUnit(); showUnit(); askLoad(); }
    else if (button.id === "zone-button") { local = !local; store.set("tarry-zone", local ? "local" : "utc"); showZone(); showTimes(); redraw(); }
    else if (button.id === "theme-button") {
      const next = themes[(themes.indexOf(theme()) + 1) % themes.length];
      if (next === "auto") delete root.dataset.theme; else root.dataset.theme = next;
      store.set("tarry-theme", next);
      showTheme();
      redraw();
    } else if (button.id === "menu") {
      button.setAttribute("aria-expanded", String($("#nav").classList.toggle("open")));
    }
  });
  document.addEventListener("keydown", (event) => {
    if (event.target.getAttribute?.("role") !== "tab" || !["ArrowLeft", "ArrowRight"].includes(event.key)) return;
    const tabs = $$("[role=tab]", event.target.parentElement);
    const next = tabs[(tabs.indexOf(event.target) + (event.key === "ArrowRight" ? 1 : tabs.length - 1)) % tabs.length];
    next.focus();
    showTab(next);
  });
  document.addEventListener("change", (event) => {
    if (event.target.dataset?.all) {
      for (const box of $$(`input[name="${event.target.dataset.all}"]`)) box.checked = event.target.checked;
    }
    showChosen();
    showFields();
  });

  // Some browsers keep pages to go back to, "no-store" or not: one of a session that has ended is not for whoever comes.
  addEventListener("pageshow", (event) => { if (event.persisted) { root.hidden = true; location.reload(); } });

  // -- asking again ----------------------------------------------------------------------------------------------------
  // What was drawn here is not on the page that is asked for again: it stays.
  if (typeof Idiomorph !== "undefined") {
    Idiomorph.defaults.callbacks.beforeNodeMorphed = (old) => !(old instanceof Element && "keep" in old.dataset);
  }
  const isPoll = (event) => event.detail.elt?.hasAttribute?.("data-poll");
  document.addEventListener("htmx:beforeRequest", (event) => {
    if (isPoll(event) && document.hidden) event.preventDefault();
  });
  document.addEventListener("htmx:afterSwap", () => showTimes());
  document.addEventListener("htmx:afterRequest", (event) => {
    if (isPoll(event)) $("#offline").hidden = event.detail.successful || document.hidden;
  });
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden) { document.body.dispatchEvent(new Event("console:shown")); askLive(); askLoad(); askPast(); showTimes(); }
  });

  // -- charts ----------------------------------------------------------------------------------------------------------
  const charts = new Map();
  const units = ["minute", "hour", "day"], named = new URLSearchParams(location.search).get("unit");
  let unit = units.includes(named) ? named : store.get("tarry-unit") || "hour";
  const loadTopic = () => $("[data-chart=load]")?.dataset.topic || "";
  // The address has what is shown, so that it can be sent to somebody.
  function saveUnit() {
    const address = new URL(location.href);
    address.searchParams.set("unit", unit);
    history.replaceState(null, "", address);
  }
  const pendingAt = (from, until) => {
    const query = new URLSearchParams(loadTopic() ? { topic: loadTopic(), from, until } : { from, until });
    return `/console/pending?${query}`;
  };
  const HERDS_MAX = 6, LIVE_MAX = 300;
  const FEW = "Figures of the last minutes come while this page is open.";
  let load = null, live = null, past = null;
  const colour = (name) => getComputedStyle(root).getPropertyValue(name).trim();
  const short = (value) => {
    for (const [size, name] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
      if (Math.abs(value) >= size) return `${+(value / size).toPrecision(3)}${name}`;
    }
    return String(+value.toPrecision(3));
  };
  const full = (value) => value.toLocaleString("en-US");

  function axes(valueText, atText) {
    const text = colour("--soft"), grid = { stroke: colour("--grid"), width: 1 };
    const font = "11px system-ui, sans-serif";
    return [
      { stroke: text, font, grid: { show: false }, ticks: { show: false }, size: 26, space: 70, values: (_, all) => all.map(atText) },
      { stroke: text, font, grid, ticks: { show: false }, size: 46, space: 34, values: (_, all) => all.map((v) => (v === null ? "" : valueText(v))) },
    ];
  }

  function options(element, series, extra, atText) {
    return {
      width: Math.max(element.clientWidth, 50), height: element.clientHeight, padding: [8, 18, 0, 0],
      legend: { show: false }, series: [{}, ...series], axes: axes(short, atText),
      cursor: { y: false, points: { show: false }, drag: { x: false, y: false } },
      tzDate: (at) => (local ? new Date(at * 1000) : uPlot.tzDate(new Date(at * 1000), "Etc/UTC")),
      ...extra,
    };
  }

  // A chart that is there gets the new data: what it is made with reads them, and is the same until all are drawn anew.
  function draw(name, data, series, extra, atText, tip) {
    const element = $(`[data-chart="${name}"]`), drawn = charts.get(name);
    if (!element || typeof uPlot === "undefined") return;
    if (drawn?.root.parentElement === element) { drawn.setData(data); return; }
    const made = options(element, series(), extra, atText);
    const label = document.createElement("div");
    label.className = "tip";
    label.hidden = true;
    made.hooks = { ...made.hooks, setCursor: [(u) => {
      const at = u.cursor.idx, text = at === null || at === undefined ? null : tip(at);
      label.hidden = !text;
      if (!text) return;
      set(label, text);
      const right = u.cursor.left > u.over.clientWidth / 2;
      label.style.left = right ? "" : `${u.over.offsetLeft + u.cursor.left + 12}px`;
      label.style.right = right ? `${element.clientWidth - u.over.offsetLeft - u.cursor.left + 12}px` : "";
      label.style.top = "8px";
    }] };
    drawn?.destroy();
    element.replaceChildren();
    charts.set(name, new uPlot(made, data, element));
    element.append(label);
  }

  function nothing(name, text) {
    const element = $(`[data-chart="${name}"]`);
    if (!element || (!charts.has(name) && element.textContent === text)) return;
    charts.get(name)?.destroy();
    charts.delete(name);
    const words = document.createElement("p");
    words.className = "nothing";
    words.textContent = text;
    element.replaceChildren(words);
  }

  function herdMarks(u) {
    const { ctx } = u, size = devicePixelRatio;
    ctx.save();
    ctx.fillStyle = colour("--series-4");
    for (const herd of load.herds) {
      const at = Math.floor(herd.due_ms / 1000 / load.unit_s) * load.unit_s + load.unit_s / 2;
      const x = u.valToPos(at, "x", true), row = load.at.indexOf(at - load.unit_s / 2);
      if (row < 0) continue;
      const y = Math.max(u.valToPos(load.loads[row], "y", true) - 4 * size, u.bbox.top + 2 * size);
      ctx.beginPath();
      ctx.moveTo(x, y);
      ctx.lineTo(x - 4 * size, y - 7 * size);
      ctx.lineTo(x + 4 * size, y - 7 * size);
      ctx.fill();
    }
    ctx.restore();
  }

  function showUnit() {
    for (const button of $$("[data-unit]")) button.setAttribute("aria-pressed", String(button.dataset.unit === unit));
  }

  // What is drawn stays, paler, until what was asked for is there: nothing moves.
  function showLoadState(text) {
    const place = $("#load-state"), chart = $("[data-chart=load]");
    if (!place) return;
    set(place, text);
    place.hidden = !text;
    chart.classList.toggle("stale", Boolean(text));
  }

  const loadEnd = () => load.at[load.at.length - 1] + load.unit_s;
  const openBar = (u) => u.over.addEventListener("click", () => {
    const at = u.cursor.idx;
    if (at !== null && at !== undefined && load.loads[at]) location.href = pendingAt(load.at[at] * 1000, (load.at[at] + load.unit_s) * 1000);
  });

  function drawLoad() {
    if (!load) return;
    showHerds();
    set($("#load-at"), `counted at ${instant(load.now_ms, local).slice(11, 19)}`);
    const until = { minute: "hour", hour: "two days", day: "month" }[load.unit];
    if (!load.rows) return nothing("load", `Nothing falls due within the next ${until}.`);
    const middle = load.at.map((at) => at + load.unit_s / 2);
    const bars = () => [{ fill: colour("--series-1"), width: 0, paths: uPlot.paths.bars({ size: [0.8, 60], radius: 0.12 }), points: { show: false } }];
    draw("load", [middle, load.loads], bars, {
      scales: { x: { range: () => [load.at[0], loadEnd()] }, y: { range: (u, low, high) => [0, Math.max(high * 1.12, 4)] } },
      hooks: { draw: [herdMarks], ready: [openBar] },
    }, (at) => {
      const text = instant(at * 1000, local), time = text.slice(11, 16);
      return load.unit === "day" || time === "00:00" ? text.slice(5, 10) : time;
    }, (at) => {
      const unsure = load.unsure[at] ? ` (give or take ${full(load.unsure[at])})` : "";
      const from = instant(load.at[at] * 1000, local).slice(0, load.unit === "day" ? 10 : 16);
      return `${from}: ${full(load.loads[at])}${unsure}`;
    });
  }

  function showHerds() { herdLinks($("#herds"), load.herds, "▼ due in the same millisecond:", (herd) => pendingAt(herd.due_ms, herd.due_ms + 1)); }

  // Links to the largest herds: how many, and when.
  function herdLinks(place, herds, words, address) {
    const text = JSON.stringify([herds, local]);
    if (!place || place.dataset.shown === text) return;
    place.dataset.shown = text;
    const links = [...herds].sort((a, b) => b.rows - a.rows).slice(0, HERDS_MAX).map((herd) => {
      const link = document.createElement("a"), count = document.createElement("b");
      count.textContent = full(herd.rows);
      link.href = address(herd);
      link.append(count, ` at ${instant(herd.due_ms, local).slice(0, 19)}`);
      return link;
    });
    place.replaceChildren(...(links.length ? [words, ...links] : []));
  }

  const line = (name, fill = false) => ({
    stroke: colour(name), width: 1.5, points: { show: false }, spanGaps: false,
    ...(fill ? { fill: `color-mix(in srgb, ${colour(name)} 12%, transparent)` } : {}),
  });

  function drawLive() {
    if (!live) return;
    if (live.at.length < 2) { nothing("rates", FEW); nothing("late", FEW); return; }
    const from = { scales: { y: { range: (u, low, high) => [0, Math.max((high ?? 0) * 1.15, 1)] } } };
    const clock = (at) => instant(at * 1000, local).slice(11, 19), time = (at) => clock(live.at[at]);
    draw("rates", [live.at, live.accepted, live.fired, live.handed_out], () => [line("--series-1", true), line("--series-2"), line("--series-3")], from, clock,
      (at) => `${time(at)}: ${short(live.accepted[at])}/s in, ${short(live.fired[at])}/s due, ${short(live.handed_out[at])}/s out`);
    if (!live.delivered_p99.some((value) => value !== null)) { nothing("late", "Nothing was delivered to a waiting consumer lately."); return; }
    draw("late", [live.at, live.delivered_p50, live.delivered_p99], () => [line("--series-1", true), line("--series-4")], from, clock,
      (at) => (live.delivered_p99[at] === null ? null : `${time(at)}: p50 ${live.delivered_p50[at]} ms, p99 ${live.delivered_p99[at]} ms`));
  }

  // What stands alone between two gaps is no line: it is drawn as a point.
  const alone = (u, index) => {
    const values = u.data[index], found = [];
    values.forEach((value, at) => {
      if (value !== null && (values[at - 1] ?? null) === null && (values[at + 1] ?? null) === null) found.push(at);
    });
    return found;
  };
  const pastLine = (name, fill = false) => ({
    ...line(name, fill), points: { show: true, size: 4, width: 0, fill: colour(name), filter: alone },
  });

  const pastEnd = () => past.at[past.at.length - 1] + past.step_s;
  // The page of a step of the past, or of a span within it.
  const pastAt = (from, until) => {
    const address = new URL($("[data-past]").dataset.at, location.href);
    address.searchParams.set("from", from);
    address.searchParams.set("until", until);
    return address.href;
  };
  const openStep = (u) => u.over.addEventListener("click", () => {
    const at = u.cursor.idx;
    if (at !== null && at !== undefined && past.pending[at] !== null) location.href = pastAt(past.at[at] * 1000, (past.at[at] + past.step_s) * 1000);
  });

  function drawPast() {
    if (!past) return;
    const above = (low, high) => [0, Math.max((high ?? 0) * 1.12, 1)];
    const extra = {
      scales: { x: { range: () => [past.at[0], pastEnd()] }, y: { range: (u, low, high) => above(low, high) } },
      hooks: { ready: [openStep] },
    };
    const clock = (moment) => {
      const text = instant(moment * 1000, local);
      return pastEnd() - past.at[0] > 2 * 86400 || text.slice(11, 16) === "00:00" ? text.slice(5, 10) : text.slice(11, 16);
    };
    const from = (row) => instant(past.at[row] * 1000, local).slice(0, 16);
    const show = (chart, names, series, tell) => {
      if (!names.some((name) => past[name].some((value) => value !== null))) {
        nothing(chart, "Nothing was kept in this time. A minute is kept when it is over.");
        return;
      }
      draw(chart, [past.at, ...names.map((name) => past[name])], series, extra, clock, (row) => (names.every((name) => past[name][row] === null) ? null : `${from(row)}: ${tell(row)}`));
    };
    const count = (name, row) => short(past[name][row] ?? 0);
    show("past-rates", ["accepted", "fired", "handed_out", "acknowledged"],
      () => [pastLine("--series-1", true), pastLine("--series-2"), pastLine("--series-3"), pastLine("--series-4")],
      (row) => `${count("accepted", row)}/s accepted, ${count("fired", row)}/s due, ${count("handed_out", row)}/s out, ${count("acknowledged", row)}/s acknowledged`);
    show("past-late", ["lateness_p50_ms", "lateness_p99_ms"], () => [pastLine("--series-1", true), pastLine("--series-4")],
      (row) => `p50 ${past.lateness_p50_ms[row]} ms, p99 ${past.lateness_p99_ms[row]} ms`);
    show("past-lag", ["ready"], () => [pastLine("--series-3", true)], (row) => `${full(past.ready[row])} ready`);
    show("past-pending", ["pending"], () => [pastLine("--series-1", true)], (row) => `${full(past.pending[row])} pending`);
    show("past-herds", ["herd_rows"], () => [pastLine("--series-4", true)], (row) => {
      const due = past.herd_due_ms[row];
      return due === null ? "nothing fell due" : `${full(past.herd_rows[row])} due at ${instant(due, local).slice(0, 23)}`;
    });
    const herds = past.at.map((_, row) => ({ due_ms: past.herd_due_ms[row], rows: past.herd_rows[row] }));
    herdLinks($("#past-herds"), herds.filter((herd) => herd.rows > 1), "largest:", (herd) => pastAt(herd.due_ms, herd.due_ms + 1));
  }

  // All anew: colours, the zone or the width are others.
  function redraw() {
    for (const chart of charts.values()) chart.destroy();
    charts.clear();
    drawLoad();
    drawLive();
    drawPast();
  }

  async function ask(address) {
    if (!$("[data-chart]") || document.hidden) return null;
    try {
      const answer = await fetch(address, { headers: { accept: "application/json" } });
      if (answer.status === 401) location.reload();
      return answer.ok ? await answer.json() : null;
    } catch { return null; }
  }

  async function askPast() {
    const place = $("[data-past]"), answer = place && await ask(place.dataset.past);
    if (answer) { past = answer; drawPast(); }
  }

  let asking = null;
  async function askLoad() {
    const wanted = `${unit} ${loadTopic()}`;
    if (!$("[data-chart=load]") || document.hidden || asking === wanted) return;
    asking = wanted;
    if (load?.unit !== unit) showLoadState("The load to come is being counted…");
    const answer = await ask(`/console/data/forecast?unit=${unit}&topic=${encodeURIComponent(loadTopic())}`);
    if (asking !== wanted) return;
    asking = null;
    if (answer) { load = answer; drawLoad(); }
    if (load?.unit === unit) showLoadState("");
    else showLoadState("The load to come could not be counted. It is asked for again in some seconds.");
  }

  async function askLive() {
    if (!$("[data-chart=rates]")) return;
    const last = live?.at.at(-1), answer = await ask(`/console/data/live${last ? `?after=${last}` : ""}`);
    if (!answer) return;
    if (last && answer.at.length && answer.at[0] <= last) return;
    for (const name of Object.keys(answer)) answer[name] = [...(live?.[name] ?? []), ...answer[name]].slice(-LIVE_MAX);
    const isNew = answer.at.at(-1) !== last || !live;
    live = answer;
    if (isNew) drawLive();
  }

  showTheme();
  showZone();
  showTimes();
  showChosen();
  showFields();
  showUnit();
  setInterval(() => { if (!document.hidden) showRelative(); }, 1000);
  if ($("[data-chart]")) {
    askLoad();
    askLive();
    askPast();
    setInterval(askLive, 2000);
    setInterval(askPast, 60000);
    setInterval(askLoad, 10000);
    let width = innerWidth;
    addEventListener("resize", () => { if (innerWidth !== width) { width = innerWidth; redraw(); } });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  }
})();
