// The parts of a report that are too big to be written out: bars of long runs, and the logs with their search.
"use strict";
(() => {
  const read = id => JSON.parse(document.getElementById(id).textContent);
  const looks = read("kx-looks-data"), logs = read("kx-logs-data"), gantt = read("kx-gantt-data");
  const element = (tag, css, text) => {
    const made = document.createElement(tag);
    if (css) made.className = css;
    if (text !== undefined) made.textContent = text;
    return made;
  };

  // Timeline
  const time = ms => (ms < 1000 ? `${ms}ms` : ms < 60000 ? `${(ms / 1000).toFixed(1)}s`
    : `${Math.floor(ms / 60000)}m ${String(Math.round(ms / 1000) % 60).padStart(2, "0")}s`);
  function drawRow(row) {
    const svg = row.querySelector("svg"), flat = gantt.rows[+row.dataset.row];
    const make = (tag, attributes, into) => {
      const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
      for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
      into.append(made);
      return made;
    };
    const share = ms => `${(100 * ms / gantt.ms).toFixed(3)}%`;
    for (let i = 0; i < flat.length; i += 6) {
      const [start, length, label, code, count, lane] = flat.slice(i, i + 6);
      const [key, word] = gantt.looks[code >> 1], critical = code & 1;
      const bar = make("rect", {class: `b-${key}${critical ? " crit" : ""}`, x: share(start), y: 4 + lane * gantt.bar,
        width: share(length), height: gantt.bar - 2, rx: 2.5}, svg);
      if (key === "failed") { // not by colour alone
        make("text", {class: "bad", x: share(start + length), dx: 2, y: 14.5 + lane * gantt.bar}, svg).textContent = "✘";
      }
      make("title", {}, bar).textContent = `${gantt.labels[label]}\n${time(length)} from ${time(start)}\n${word}` +
        (count > 1 ? `, ${count} actions` : "") + (critical ? "\non the critical path" : "");
    }
    row.dataset.drawn = "1";
  }
  const chart = document.querySelector(".gantt");
  if (chart) {
    if (gantt) {
      const rows = [...chart.querySelectorAll("[data-row]")];
      const seen = new IntersectionObserver(found => {
        for (const one of found) if (one.isIntersecting) { seen.unobserve(one.target); drawRow(one.target); }
      }, {rootMargin: "300px"});
      for (const row of rows) seen.observe(row);
      window.addEventListener("beforeprint", () => rows.slice(0, 200).filter(row => !row.dataset.drawn).forEach(drawRow));
    }
    let zoom = 1;
    document.querySelector(".gantt-bar").addEventListener("click", event => {
      const how = event.target.dataset.time;
      if (!how) return;
      const middle = (chart.scrollLeft + chart.clientWidth / 2) / chart.scrollWidth;
      zoom = how === "all" ? 1 : Math.min(64, Math.max(1, how === "in" ? zoom * 2 : zoom / 2));
      chart.style.setProperty("--zoom", zoom);
      chart.scrollLeft = middle * chart.scrollWidth - chart.clientWidth / 2;
    });
  }

  // Logs
  const part = document.getElementById("logs"), list = part.querySelector(".log-list"), more = part.querySelector(".more");
  const input = part.querySelector("input"), choice = part.querySelector("select"), output = part.querySelector("output");
  const STEP = 40;
  let found = [], shown = 0;
  for (const key of Object.keys(looks)) {
    const count = logs.entries.filter(entry => entry.s === key).length;
    if (!count) continue;
    const option = element("option", "", `${looks[key][0]} ${looks[key][1]} (${count})`);
    option.value = key;
    choice.append(option);
  }
  const text = entry => entry.text || (entry.text = [entry.n, entry.h, entry.m, entry.c, entry.o, entry.e, entry.r,
    entry.hint, entry.tb, ...(entry.d || []).flat()].filter(Boolean).join("\n").toLowerCase());
  function stream(name, content, into) {
    if (content) into.append(element("p", "stream", name), element("pre", "", content));
  }
  function diff(content) {
    const made = element("pre", "diff"), css = {"+": "add", "-": "del", "@": "at"};
    content.split("\n").forEach((line, i) => {
      if (i) made.append("\n");
      made.append(css[line[0]] ? element("span", css[line[0]], line) : line);
    });
    return made;
  }
  function fill(entry, into) {
    if (entry.m) into.append(element("p", "message", entry.m));
    if (entry.c) into.append(element("pre", "command", `$ ${entry.c}`));
    if (entry.f) into.append(element("p", "exit", entry.f));
    stream("earlier attempts", entry.r, into);
    stream("stderr", entry.e, into);
    stream("stdout", entry.o, into);
    if (entry.hint) into.append(element("p", "hint", `→ ${entry.hint}`));
    for (const [path, note, content] of entry.d || []) {
      const line = element("p", "path");
      line.append(element("code", "", path), note ? ` (${note})` : "");
      into.append(line);
      if (content) into.append(diff(content));
    }
    stream("traceback", entry.tb, into);
    if (!into.childNodes.length) into.append(element("p", "message", "It said nothing."));
  }
  function show() {
    for (const entry of found.slice(shown, shown + STEP)) {
      const fold = element("details", "log"), line = element("summary");
      const [symbol, label] = looks[entry.s], mark = element("b", `sign s-${entry.s}`, symbol);
      mark.title = label;
      line.append(mark, " ", element("code", "", entry.n), " ", element("span", "", entry.h), " ",
        element("small", "", [entry.t, (entry.m || "").split("\n")[0]].filter(Boolean).join("  ")));
      fold.append(line);
      fold.addEventListener("toggle", () => {
        if (!fold.open || fold.childNodes.length > 1) return;
        const inside = element("div", "inside");
        fill(entry, inside);
        fold.append(inside);
      });
      list.append(fold);
    }
    shown = Math.min(found.length, shown + STEP);
    more.hidden = shown >= found.length;
    more.textContent = `Show more (${found.length - shown})`;
  }
  function search() {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    found = logs.entries.filter(entry => (!choice.value || entry.s === choice.value) &&
      (!words.length || words.every(word => text(entry).includes(word))));
    list.replaceChildren();
    shown = 0;
    const left = logs.leftOut ? `; ${logs.leftOut} more are not listed` : "";
    const cut = logs.cut ? `; the output of ${logs.cut} was left out` : "";
    output.textContent = `${found.length} of ${logs.entries.length} actions${left}${cut}`;
    show();
  }
  let waiting = 0;
  input.addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(search, 120); });
  choice.addEventListener("change", search);
  more.addEventListener("click", show);
  search();

  // Times as the reader's clock shows them
  for (const when of document.querySelectorAll("time")) when.title = new Date(when.dateTime).toLocaleString();
})();
