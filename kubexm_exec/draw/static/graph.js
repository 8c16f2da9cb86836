// Makes the drawing of a graph one to explore: opens and closes frames, moves and zooms, finds steps, shows their details.
"use strict";
(() => {
  const root = document.querySelector(".kx-graph");
  const data = JSON.parse(document.getElementById("kx-graph-data").textContent);
  const {groups, boxes, levels, links, hostSets, statuses} = data;
  const one = (selector, from = root) => from.querySelector(selector);
  const all = (selector, from = root) => [...from.querySelectorAll(selector)];
  const canvas = one(".canvas"), svg = one("svg.kx"), view = one(".view"), panel = one(".details");
  const found = one(".found"), search = one("input[type=search]");

  // Elements by index
  const byIndex = (selector, name) => {
    const list = [];
    for (const element of all(selector)) list[+element.dataset[name]] = element;
    return list;
  };
  const frames = byIndex("g.group", "g"), nodes = byIndex("g.box", "n");
  const folds = byIndex("details[data-og]", "og"), entries = byIndex("button[data-on]", "on");
  const childOf = (element, css) => [...element.children].find(child => child.classList.contains(css));
  const insideOf = group => (group < 0 ? view : childOf(frames[group], "inside"));
  for (const level of levels) {
    const inside = insideOf(level.group);
    level.paths = [...childOf(inside, "ways").children];
    level.dots = [...inside.children].filter(child => child.classList.contains("dot"));
    if (level.group >= 0) groups[level.group].level = level;
  }
  const inner = groups.map(() => []);
  groups.forEach((group, i) => { if (group.parent >= 0) inner[group.parent].push(i); });
  boxes.forEach((box, i) => { groups[box.group].boxes = (groups[box.group].boxes || []).concat(i); });

  // Layout
  const open = groups.map(() => true), spots = groups.map(() => [0, 0]);
  let whole = [0, 0];
  const num = x => String(Math.round(x * 10) / 10);
  const path = points => {
    let [x, y] = points[0], text = `M${num(x)} ${num(y)}`;
    for (let i = 1; i < points.length; i++) {
      const [cx, cy] = points[i];
      if (i === points.length - 1) { text += `L${num(cx)} ${num(cy)}`; break; }
      const [nx, ny] = points[i + 1];
      const before = Math.abs(cx - x) + Math.abs(cy - y), after = Math.abs(nx - cx) + Math.abs(ny - cy);
      const r = Math.min(6, before / 2, after / 2);
      text += `L${num(cx - r * (cx - x) / before)} ${num(cy - r * (cy - y) / before)}` +
        `Q${num(cx)} ${num(cy)} ${num(cx + r * (nx - cx) / after)} ${num(cy + r * (ny - cy) / after)}`;
      x = cx; y = cy;
    }
    return text;
  };
  function sizeOf(index) {
    const group = groups[index];
    if (!open[index]) return group.closed;
    if (!group.level) return group.size;
    const [w, h] = layOut(group.level, group.inset, group.header);
    return [Math.max(w, group.least) + 2 * group.inset, h + group.header + group.inset];
  }
  function layOut(level, left, top) {
    const sizes = level.items.map(item => (item < 0 ? [data.dot, data.dot] : sizeOf(item)));
    const cells = sizes.map(([w, h], i) => (
      {u: w, v: h, port: Math.min(level.port, h / 2), rank: level.ranks[i], key: level.keys[i]}));
    const placed = level.group < 0 ? bestShape(cells, level) : kxPlace(cells, level.edges, level.room);
    let dot = 0;
    level.items.forEach((item, i) => {
      const [x, y] = [placed.at[i][0] + left, placed.at[i][1] + top], [w, h] = sizes[i];
      if (item < 0) {
        level.dots[dot].setAttribute("cx", num(x + w / 2));
        level.dots[dot++].setAttribute("cy", num(y + h / 2));
        return;
      }
      spots[item] = [x, y];
      frames[item].setAttribute("transform", `translate(${num(x)} ${num(y)})`);
      const frame = childOf(frames[item], "frame"), sign = childOf(frames[item], "open-sign");
      frame.setAttribute("width", num(w));
      frame.setAttribute("height", num(h));
      if (sign) sign.setAttribute("x", num(w - groups[item].inset - 14));
    });
    placed.ways.forEach((points, i) => {
      level.paths[i].setAttribute("d", path(points.map(([x, y]) => [x + left, y + top])));
    });
    return [placed.u, placed.v];
  }
  function bestShape(cells, level) { // as layout.py does: a tall pipeline may be wider
    const {widths, shape, tall} = data.shapes, first = kxPlace(cells, level.edges, {...level.room, max_u: widths[0]});
    if (first.v <= tall) return first;
    const off = placed => Math.abs(Math.log(placed.u / placed.v / shape));
    return widths.slice(1).map(width => kxPlace(cells, level.edges, {...level.room, max_u: width}))
      .reduce((best, placed) => (off(placed) < off(best) ? placed : best), first);
  }
  const rootLevel = levels.find(level => level.group < 0);
  function relayout() {
    groups.forEach((_, i) => {
      frames[i].classList.toggle("closed", !open[i]);
      frames[i].setAttribute("aria-expanded", open[i]);
      if (folds[i] && folds[i].open !== open[i]) folds[i].open = open[i];
    });
    whole = layOut(rootLevel, 0, 0);
  }
  const spotOf = index => { // in the drawing
    let [x, y] = spots[index];
    for (let up = groups[index].parent; up >= 0; up = groups[up].parent) { x += spots[up][0]; y += spots[up][1]; }
    return [x, y];
  };
  const shownAs = index => { // the outermost closed frame round a frame, or the frame itself
    let shown = index;
    for (let up = index; up >= 0; up = groups[up].parent) if (!open[up]) shown = up;
    return shown;
  };
  function setOpen(changes, anchor = -1) {
    const before = anchor >= 0 ? spotOf(anchor) : null;
    let changed = false;
    for (const [index, value] of changes) { changed = changed || open[index] !== value; open[index] = value; }
    if (!changed) return;
    for (const button of all("[data-level]")) button.setAttribute("aria-pressed", false);
    relayout();
    if (before) { // what was clicked stays under the pointer
      const after = spotOf(anchor);
      moveTo(zoom.x + (before[0] - after[0]) * zoom.k, zoom.y + (before[1] - after[1]) * zoom.k, zoom.k);
    }
  }
  function setLevel(name) {
    setOpen(groups.map((group, i) => [i, name === "steps" || (name === "tasks" && Boolean(group.level))]));
    for (const button of all("[data-level]")) button.setAttribute("aria-pressed", button.dataset.level === name);
  }

  // Moving and zooming
  const zoom = {x: 0, y: 0, k: 1};
  function moveTo(x, y, k) {
    Object.assign(zoom, {x, y, k});
    view.setAttribute("transform", `translate(${num(x)} ${num(y)}) scale(${k.toFixed(4)})`);
  }
  function zoomAt(x, y, factor) {
    const k = Math.min(4, Math.max(0.04, zoom.k * factor));
    moveTo(x - (x - zoom.x) * k / zoom.k, y - (y - zoom.y) * k / zoom.k, k);
  }
  function fit(least = 0) {
    const {width, height} = canvas.getBoundingClientRect(), edge = 20;
    const room = height - 24; // the legend is below
    const k = Math.max(least, Math.min(1.25, (width - 2 * edge) / whole[0], (room - 2 * edge) / whole[1]));
    moveTo(Math.max(edge, (width - whole[0] * k) / 2), Math.max(edge, (room - whole[1] * k) / 2), k);
  }
  function centre(x, y, w, h) {
    const {width, height} = canvas.getBoundingClientRect(), k = Math.max(zoom.k, 0.8);
    moveTo(width / 2 - (x + w / 2) * k, height / 2 - (y + h / 2) * k, k);
  }
  canvas.addEventListener("wheel", event => {
    if (root.dataset.wheel !== "free" && !event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    const area = canvas.getBoundingClientRect();
    const step = event.deltaY * (event.deltaMode === 1 ? 16 : 1) * (event.ctrlKey ? 0.01 : 0.0016);
    zoomAt(event.clientX - area.left, event.clientY - area.top, Math.exp(-Math.max(-0.6, Math.min(0.6, step))));
  }, {passive: false});
  const fingers = new Map();
  let dragged = 0;
  canvas.addEventListener("pointerdown", event => {
    if (event.button) return;
    fingers.set(event.pointerId, [event.clientX, event.clientY]);
    if (fingers.size === 1) dragged = 0;
  });
  window.addEventListener("pointermove", event => { // on the window: a drag may leave the canvas
    const last = fingers.get(event.pointerId);
    if (!last) return;
    const now = [event.clientX, event.clientY], area = canvas.getBoundingClientRect();
    const other = [...fingers].find(([id]) => id !== event.pointerId);
    if (other) {
      const [ox, oy] = other[1], size = ([x, y]) => Math.hypot(x - ox, y - oy) || 1;
      zoomAt((now[0] + ox) / 2 - area.left, (now[1] + oy) / 2 - area.top, size(now) / size(last));
    } else {
      dragged += Math.abs(now[0] - last[0]) + Math.abs(now[1] - last[1]);
      if (dragged > 4) moveTo(zoom.x + now[0] - last[0], zoom.y + now[1] - last[1], zoom.k);
    }
    fingers.set(event.pointerId, now);
  });
  for (const kind of ["pointerup", "pointercancel"]) {
    window.addEventListener(kind, event => fingers.delete(event.pointerId));
  }

  // Steps: which wait for which, through joints
  const after = boxes.map(() => []), before = boxes.map(() => []);
  const joints = new Map();
  for (const [source, target] of links) {
    for (const [end, side] of [[source, 1], [target, 0]]) {
      if (end < 0) { if (!joints.has(end)) joints.set(end, [[], []]); joints.get(end)[side].push(side ? target : source); }
    }
  }
  const reach = (end, side, seen = new Set()) => {
    if (end >= 0) return [end];
    if (seen.has(end)) return [];
    seen.add(end);
    return joints.get(end)[side].flatMap(next => reach(next, side, seen));
  };
  for (const [source, target] of links) {
    if (source >= 0) for (const next of reach(target, 1)) if (!after[source].includes(next)) after[source].push(next);
    if (target >= 0) for (const prior of reach(source, 0)) if (!before[target].includes(prior)) before[target].push(prior);
  }

  // Details
  let chosen = -1;
  const element = (tag, css, text) => {
    const made = document.createElement(tag);
    if (css) made.className = css;
    if (text !== undefined) made.textContent = text;
    return made;
  };
  function row(list, name, value) {
    if (value === undefined || value === null || value === "" || (Array.isArray(value) && !value.length)) return;
    list.append(element("dt", "", name));
    const cell = element("dd");
    cell.append(...(Array.isArray(value) ? value : [value]));
    list.append(cell);
  }
  const stepLinks = list => {
    const shown = list.slice(0, 30).map(i => {
      const button = element("button", "link", boxes[i].id);
      button.type = "button";
      button.addEventListener("click", () => choose(i, true));
      return button;
    });
    if (list.length > 30) shown.push(`and ${list.length - 30} more`);
    return shown;
  };
  function showDetails(box) {
    const heading = element("h2", "", box.id), close = element("button", "close", "×"), list = element("dl");
    close.type = "button";
    close.setAttribute("aria-label", "Close the details");
    close.addEventListener("click", () => choose(-1));
    if (box.status) {
      const [key, symbol, label] = statuses[box.status];
      row(list, "Outcome", element("span", `outcome s-${key}`, `${symbol} ${label}`));
    }
    row(list, "Type", box.type);
    row(list, "Hook", box.hook);
    row(list, "Place", box.place && element("code", "", box.place));
    const hosts = hostSets[box.hosts];
    const shown = hosts.names.join(", ") + (hosts.count > hosts.names.length ? ` and ${hosts.count - hosts.names.length} more` : "");
    row(list, hosts.count === 1 ? "Host" : `${hosts.count} hosts`, shown);
    row(list, "Items", box.items);
    row(list, "When", box.when && element("code", "", box.when));
    row(list, "Retry", box.retry);
    row(list, "Timeout", box.timeout);
    row(list, "Limits", box.limits);
    row(list, "Tags", box.tags);
    row(list, "Notes", box.notes);
    row(list, "With", box.with && element("pre", "", box.with));
    row(list, "Waits for", stepLinks(before[boxes.indexOf(box)]));
    row(list, "Before", stepLinks(after[boxes.indexOf(box)]));
    panel.replaceChildren(close, heading, list);
    panel.hidden = false;
  }
  function reveal(index) {
    const changes = [];
    for (let up = boxes[index].group; up >= 0; up = groups[up].parent) changes.push([up, true]);
    setOpen(changes);
    const [x, y] = spotOf(boxes[index].group), [bx, by, w, h] = boxes[index].at;
    centre(x + bx, y + by, w, h);
  }
  function choose(index, show = false) {
    for (const list of [nodes, entries]) {
      if (list[chosen]) list[chosen].classList.remove("chosen");
      if (list[index]) list[index].classList.add("chosen");
    }
    const near = new Set(index >= 0 ? [...before[index], ...after[index]] : []);
    nodes.forEach((node, i) => node.classList.toggle("near", near.has(i)));
    chosen = index;
    if (index < 0) { panel.hidden = true; return; }
    showDetails(boxes[index]);
    if (entries[index]) entries[index].scrollIntoView({block: "nearest"});
    if (show) reveal(index);
  }
  function toggle(index) { setOpen([[index, !open[index]]], index); }

  canvas.addEventListener("click", event => {
    if (dragged > 4) return;
    const box = event.target.closest("g.box"), frame = event.target.closest("g.group");
    if (box) { choose(+box.dataset.n); return; }
    if (!frame) { choose(-1); return; }
    const index = +frame.dataset.g, area = frame.getBoundingClientRect();
    if (!open[index] || event.clientY - area.top < groups[index].header * zoom.k) toggle(index);
  });
  canvas.addEventListener("keydown", event => {
    if (event.key !== "Enter" && event.key !== " ") return;
    if (event.target.matches("g.box")) choose(+event.target.dataset.n);
    else if (event.target.matches("g.group")) toggle(+event.target.dataset.g);
    else return;
    event.preventDefault();
  });
  for (const element of [...frames, ...nodes]) {
    element.setAttribute("tabindex", "0");
    element.setAttribute("role", "button");
  }
  folds.forEach((fold, index) => fold.addEventListener("toggle", () => {
    if (fold.open !== open[index]) setOpen([[index, fold.open]], index);
  }));
  entries.forEach((entry, index) => entry.addEventListener("click", () => choose(index, true)));

  // Search
  let hits = [], current = -1;
  const haystack = boxes.map(box => `${box.id}\n${box.type}\n${hostSets[box.hosts].names.join("\n")}`.toLowerCase());
  function find() {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    hits = words.length ? boxes.map((_, i) => i).filter(i => words.every(word => haystack[i].includes(word))) : [];
    current = -1;
    const set = new Set(hits), holds = new Set();
    for (const i of hits) holds.add(shownAs(boxes[i].group));
    nodes.forEach((node, i) => node.classList.toggle("hit", set.has(i)));
    entries.forEach((entry, i) => entry.classList.toggle("hit", set.has(i)));
    frames.forEach((frame, i) => frame.classList.toggle("holds", !open[i] && holds.has(i)));
    root.classList.toggle("searching", words.length > 0);
    found.textContent = words.length ? (hits.length === 1 ? "1 found" : `${hits.length} found`) : "";
  }
  search.addEventListener("input", find);
  search.addEventListener("keydown", event => {
    if (event.key === "Escape") { search.value = ""; find(); }
    if (event.key !== "Enter" || !hits.length) return;
    current = (current + (event.shiftKey ? hits.length - 1 : 1)) % hits.length;
    choose(hits[current], true);
    find_keep();
  });
  function find_keep() { // opening frames changed what is shown, not what was found
    const at = current;
    find();
    current = at;
    found.textContent = `${current + 1} of ${hits.length}`;
  }
  document.addEventListener("keydown", event => {
    if (event.key === "Escape" && !event.target.matches("input")) choose(-1);
    if (event.key === "/" && root.dataset.wheel === "free" && !event.target.matches("input")) {
      event.preventDefault();
      search.focus();
    }
  });

  // The bar
  for (const button of all("[data-level]")) {
    button.addEventListener("click", () => { setLevel(button.dataset.level); fit(); find(); });
  }
  const middle = () => { const area = canvas.getBoundingClientRect(); return [area.width / 2, area.height / 2]; };
  one("[data-zoom=in]").addEventListener("click", () => zoomAt(...middle(), 1.3));
  one("[data-zoom=out]").addEventListener("click", () => zoomAt(...middle(), 1 / 1.3));
  one("[data-zoom=fit]").addEventListener("click", () => fit());
  const side = one("[data-side]");
  side.addEventListener("click", () => {
    const shown = root.classList.toggle("no-outline");
    side.setAttribute("aria-pressed", !shown);
  });
  if (root.dataset.wheel !== "free" || window.matchMedia("(max-width: 760px)").matches) side.click();

  // Start
  svg.removeAttribute("viewBox");
  svg.removeAttribute("width");
  svg.removeAttribute("height");
  root.classList.add("live");
  relayout();
  setLevel(data.start);
  setOpen(data.troubled.map(index => [index, true]));
  fit(root.dataset.wheel === "free" ? 0.4 : 0.3);
  let asBefore = null;
  window.addEventListener("beforeprint", () => {
    asBefore = {...zoom};
    moveTo(0, 0, 1);
    svg.setAttribute("viewBox", `-4 -4 ${whole[0] + 8} ${whole[1] + 8}`);
  });
  window.addEventListener("afterprint", () => {
    svg.removeAttribute("viewBox");
    if (asBefore) moveTo(asBefore.x, asBefore.y, asBefore.k);
  });
  // For tests, and for whoever wants to script the page from the console.
  window.kubexmGraph = {setLevel, toggle, choose, fit, groups, boxes, open, levels, spotOf, shownAs, zoom};
})();
