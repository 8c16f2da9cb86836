// Lays out one frame, as flow.py and stack.py do (which say why); here always from left to right, lines at the titles.
// cells: [{u, v, port, rank, key}], edges: [{s, t, style}], room: {max_u, max_v, gap, gutter, row_gap}
// -> {u, v, at: [[u, v]], ways: [[[u, v], ...]]}
"use strict";
const kxPlace = (() => {
  const TRACK = 8, LANE = 10, PAD = 13, SPINE = 60, FOLLOW = 1.6, FAR = 1e9, NEAR = 4;
  const snap = x => Math.floor(x * 2 + 0.5) / 2;
  const sum = list => list.reduce((a, b) => a + b, 0);
  const most = (list, none) => list.reduce((a, b) => Math.max(a, b), none);
  const byText = (a, b) => (a < b ? -1 : a > b ? 1 : 0);

  function layered(cells, room) {
    const order = cells.map((_, i) => i)
      .sort((a, b) => cells[a].rank - cells[b].rank || cells[a].key - cells[b].key || a - b);
    const layers = [];
    for (let from = 0; from < order.length;) {
      let to = from;
      while (to < order.length && cells[order[to]].rank === cells[order[from]].rank) to++;
      const members = order.slice(from, to);
      const total = sum(members.map(i => cells[i].v + room.gap)) - room.gap;
      const share = total > room.max_v ? total / Math.ceil(total / room.max_v) : Infinity;
      let layer = [], used = 0;
      for (const i of members) {
        if (layer.length && used + cells[i].v / 2 > share) { layers.push(layer); layer = []; used = 0; }
        layer.push(i);
        used += cells[i].v + room.gap;
      }
      layers.push(layer);
      from = to;
    }
    return layers;
  }

  function lines(sizes, gutter, limit) {
    const rows = [];
    let used = 0;
    sizes.forEach((size, index) => {
      if (!rows.length || used + gutter + size > limit) { rows.push([]); used = -gutter; }
      rows[rows.length - 1].push(index);
      used += gutter + size;
    });
    return rows;
  }

  function wrapped(cells, layers, room) {
    const sizes = layers.map(layer => most(layer.map(i => cells[i].u), 0));
    let low = 0, high = room.max_u;
    const fewest = lines(sizes, room.gutter, high).length;
    for (let k = 0; k < 12; k++) {
      const middle = (low + high) / 2;
      if (lines(sizes, room.gutter, middle).length > fewest) low = middle; else high = middle;
    }
    return lines(sizes, room.gutter, high);
  }

  function topological(names, before) { // as contract.py: in the given order, but after what must be before; cycles are cut
    const missing = new Map(names.map(name => [name, before.get(name).size]));
    const after = new Map(names.map(name => [name, []]));
    for (const name of names) for (const other of before.get(name)) after.get(other).push(name);
    const order = [], taken = new Set();
    while (order.length < names.length) {
      const free = names.find(name => !taken.has(name) && missing.get(name) === 0);
      const name = free === undefined ? names.find(one => !taken.has(one)) : free;
      taken.add(name);
      order.push(name);
      for (const other of after.get(name)) missing.set(other, missing.get(other) - 1);
    }
    return order;
  }

  function tracks(spans) { // Map net -> {low, high, origin, enters, leaves}
    const turn = ([net, {low, high, origin}]) => (high - origin >= origin - low ? [0, -origin, net] : [1, origin, net]);
    const names = [...spans].map(turn).sort((a, b) => a[0] - b[0] || a[1] - b[1] || byText(a[2], b[2])).map(one => one[2]);
    const first = new Map(names.map(net => [net, new Set()]));
    for (const net of names) {
      for (const other of names) {
        if (other === net) continue;
        const meets = spans.get(net).enters.some(a => spans.get(other).leaves.some(b => Math.abs(a - b) <= NEAR));
        if (meets) first.get(other).add(net);
      }
    }
    const found = new Map();
    for (const net of topological(names, first)) {
      const {low, high} = spans.get(net);
      let track = -1;
      for (const [other, at] of found) {
        const span = spans.get(other);
        if (low <= span.high + NEAR && span.low <= high + NEAR) track = Math.max(track, at);
      }
      found.set(net, track + 1);
    }
    return found;
  }

  function widen(spans, key, net, come, go, enters, leaves) {
    if (!spans.has(key)) spans.set(key, new Map());
    const nets = spans.get(key);
    if (!nets.has(net)) nets.set(net, {low: come, high: come, origin: come, enters: [], leaves: []});
    const span = nets.get(net);
    span.low = Math.min(span.low, come, go);
    span.high = Math.max(span.high, come, go);
    if (enters) span.enters.push(come);
    if (leaves) span.leaves.push(go);
  }

  function straighten(points) {
    const kept = [];
    for (const p of points) {
      const n = kept.length, last = kept[n - 1], prior = kept[n - 2];
      if (n && last[0] === p[0] && last[1] === p[1]) continue;
      if (n > 1 && ((prior[0] === last[0] && last[0] === p[0]) || (prior[1] === last[1] && last[1] === p[1]))) kept[n - 1] = p;
      else kept.push(p);
    }
    return kept;
  }

  return function place(cells, edges, room) {
    if (!cells.length) return {u: 0, v: 0, at: [], ways: []};
    const layers = layered(cells, room), rows = wrapped(cells, layers, room);
    const layerOf = [], rowOf = [], indexOf = [];
    rows.forEach((row, r) => row.forEach((layer, i) => {
      indexOf[layer] = i;
      for (const cell of layers[layer]) { layerOf[cell] = layer; rowOf[cell] = r; }
    }));
    const out = cells.map(() => 0), into = cells.map(() => 0);
    for (const e of edges) { out[e.s]++; into[e.t]++; }
    const nets = edges.map(e => (out[e.s] >= into[e.t] ? "s" + e.s : "t" + e.t) + e.style);
    const inRow = edges.map(e => rowOf[e.s] === rowOf[e.t] && layerOf[e.s] < layerOf[e.t]);

    // Across
    const passing = layers.map(() => new Set()), feeds = cells.map(() => []), laneFeeds = new Map();
    edges.forEach((e, k) => {
      if (!inRow[k]) return;
      const first = layerOf[e.s], near = layerOf[e.t] - first === 1;
      for (let layer = first + 1; layer < layerOf[e.t]; layer++) passing[layer].add(nets[k]);
      feeds[e.t].push([nets[k], near ? e.s : -1]);
      if (!near) {
        const key = first + 1 + " " + nets[k];
        if (!laneFeeds.has(key)) laneFeeds.set(key, []);
        laneFeeds.get(key).push(e.s);
      }
    });
    const v = [], laneV = new Map(), stacks = [];
    const port = cell => v[cell] + cells[cell].port;
    const size = entry => (entry.net ? LANE : cells[entry.cell].v);
    const wished = (layer, entry) => {
      let at;
      if (entry.net) {
        at = (laneFeeds.get(layer + " " + entry.net) || []).map(port);
        const before = laneV.get(layer - 1 + " " + entry.net);
        if (before !== undefined) at.push(before);
      } else {
        at = feeds[entry.cell].map(([net, cell]) => (cell >= 0 ? port(cell) : laneV.get(layer - 1 + " " + net)));
      }
      return at.length ? Math.min(...at) - (entry.net ? LANE / 2 : cells[entry.cell].port) : null;
    };
    const starts = (layer, stack, follow) => {
      let free = 0;
      return stack.map(entry => {
        const wish = follow ? wished(layer, entry) : null;
        const start = Math.max(free, wish === null ? free : wish);
        free = start + size(entry) + room.gap;
        return start;
      });
    };
    const withLanes = (layer, stack, at) => {
      const half = room.gap / 2, last = stack.length - 1;
      const slots = [...at.map(x => x - half), at[last] + size(stack[last]) + half];
      const chosen = slots.map(() => []);
      for (const net of passing[layer]) {
        const wish = (wished(layer, {net}) || 0) + LANE / 2;
        let best = 0;
        slots.forEach((slot, i) => { if (Math.abs(slot - wish) < Math.abs(slots[best] - wish)) best = i; });
        chosen[best].push([wish, net]);
      }
      return chosen.flatMap((lanes, i) => [
        ...lanes.sort((a, b) => a[0] - b[0] || byText(a[1], b[1])).map(([, net]) => ({cell: -1, net})),
        ...stack.slice(i, i + 1)]);
    };
    const put = (layer, entry, at) => {
      if (entry.net) laneV.set(layer + " " + entry.net, at + LANE / 2); else v[entry.cell] = at;
    };
    const got = (layer, entry) => (entry.net ? laneV.get(layer + " " + entry.net) - LANE / 2 : v[entry.cell]);
    const spread = (row, follow) => {
      let low = Infinity, high = -Infinity;
      for (const layer of row) {
        let stack = layers[layer].map(cell => ({cell, net: ""}));
        if (passing[layer].size) stack = withLanes(layer, stack, starts(layer, stack, follow));
        stacks[layer] = stack;
        starts(layer, stack, follow).forEach((start, i) => {
          const begin = snap(start);
          put(layer, stack[i], begin);
          low = Math.min(low, begin);
          high = Math.max(high, begin + size(stack[i]));
        });
      }
      for (const layer of row) for (const entry of stacks[layer]) put(layer, entry, got(layer, entry) - low);
      return high - low;
    };
    const rowSize = rows.map(row => {
      const followed = spread(row, true);
      const tight = most(row.map(layer => sum(stacks[layer].map(entry => size(entry) + room.gap)) - room.gap), 0);
      return followed > FOLLOW * tight ? spread(row, false) : followed;
    });

    // Which way each edge goes: stops are numbers or {gap, net}; turns are numbers, NaN, {row, i, net} or {margin}
    const margin = new Map();
    const ways = edges.map((e, k) => {
      const net = nets[k], first = layerOf[e.s], last = layerOf[e.t];
      const stops = [port(e.s)], turns = [];
      if (inRow[k]) {
        for (let layer = first + 1; layer < last; layer++) stops.push(laneV.get(layer + " " + net));
        for (let layer = first + 1; layer <= last; layer++) turns.push({row: rowOf[e.s], i: indexOf[layer], net});
      } else {
        const from = rowOf[e.s], to = rowOf[e.t], under = stacks[first], over = stacks[last];
        turns.push(under[under.length - 1].cell === e.s ? NaN : {row: from, i: indexOf[first] + 1, net});
        stops.push({gap: from + 1, net});
        if (to !== from + 1) {
          if (!margin.has(net)) margin.set(net, margin.size);
          stops.push({gap: to, net});
          turns.push({margin: net});
        }
        turns.push(over[0].cell === e.t ? NaN : {row: to, i: indexOf[last], net});
      }
      stops.push(port(e.t));
      return {stops, turns};
    });
    const gutters = new Map();
    for (const way of ways) {
      way.turns.forEach((turn, i) => {
        if (turn.row === undefined) return;
        const end = stop => (stop.gap === undefined ? stop : stop.gap === turn.row ? -FAR : FAR);
        widen(gutters, turn.row + " " + turn.i, turn.net, end(way.stops[i]), end(way.stops[i + 1]), true, true);
      });
    }

    // Along
    const at = [], trackU = new Map();
    let width = 0;
    rows.forEach((row, r) => {
      let u = margin.size ? PAD + margin.size * TRACK : 0;
      for (let i = 0; i <= row.length; i++) {
        const all = gutters.get(r + " " + i) || new Map();
        const found = tracks(new Map([...all].filter(([, span]) => span.low !== span.high)));
        const count = most([...found.values()], -1) + 1;
        let gutter = count ? 2 * PAD + (count - 1) * TRACK : 0;
        if (i > 0 && i < row.length) gutter = Math.max(room.gutter, gutter);
        const first = u + (gutter - (count - 1) * TRACK) / 2;
        for (const net of all.keys()) trackU.set(r + " " + i + " " + net, first + (found.get(net) || 0) * TRACK);
        u += gutter;
        if (i < row.length) {
          for (const cell of layers[row[i]]) at[cell] = u;
          u += most(layers[row[i]].map(cell => cells[cell].u), 0);
        }
      }
      width = Math.max(width, u);
    });
    edges.forEach((e, k) => {
      const way = ways[k], end = way.turns.length - 1;
      const down = Number.isNaN(way.turns[0]), above = Number.isNaN(way.turns[end]);
      const low = Math.max(at[e.s], at[e.t]), high = Math.min(at[e.s] + cells[e.s].u, at[e.t] + cells[e.t].u);
      if (down && above && way.turns.length === 2 && low < high) {
        way.turns = [low + Math.min((high - low) / 2, SPINE)];
        way.stops = [way.stops[0], way.stops[way.stops.length - 1]];
        return;
      }
      if (down) way.turns[0] = at[e.s] + Math.min(cells[e.s].u / 2, SPINE);
      if (above) way.turns[end] = at[e.t] + Math.min(cells[e.t].u / 2, SPINE);
    });
    const turnU = turn => (typeof turn === "number" ? turn
      : turn.margin !== undefined ? margin.get(turn.margin) * TRACK + TRACK / 2
      : trackU.get(turn.row + " " + turn.i + " " + turn.net));

    // Down
    const gaps = new Map();
    for (const way of ways) {
      way.stops.forEach((stop, i) => {
        if (stop.gap === undefined) return;
        widen(gaps, stop.gap, stop.net, turnU(way.turns[i - 1]), turnU(way.turns[i]), i === 1, i === way.stops.length - 2);
      });
    }
    const gapV = new Map(), rowV = [];
    let height = 0;
    for (let gap = 0; gap <= rows.length; gap++) {
      const found = tracks(gaps.get(gap) || new Map());
      const count = most([...found.values()], -1) + 1;
      let room_ = count ? 2 * PAD + (count - 1) * TRACK : 0;
      if (gap > 0 && gap < rows.length) room_ = Math.max(room.row_gap, room_);
      for (const [net, track] of found) gapV.set(gap + " " + net, height + (room_ - (count - 1) * TRACK) / 2 + track * TRACK);
      height += room_;
      if (gap < rows.length) { rowV.push(height); height += rowSize[gap]; }
    }
    const spots = cells.map((_, i) => [at[i], rowV[rowOf[i]] + v[i]]);
    const drawn = edges.map((e, k) => {
      const {stops, turns} = ways[k], end = turns.length - 1, offset = rowV[rowOf[e.s]];
      let from = [at[e.s] + cells[e.s].u, offset + port(e.s)], to = [at[e.t], rowV[rowOf[e.t]] + port(e.t)];
      if (typeof turns[0] === "number") from = [turns[0], spots[e.s][1] + cells[e.s].v];
      if (typeof turns[end] === "number") to = [turns[end], spots[e.t][1]];
      const at_ = stops.map(stop => (stop.gap === undefined ? stop + offset : gapV.get(stop.gap + " " + stop.net)));
      at_[0] = from[1];
      at_[at_.length - 1] = to[1];
      const points = [from];
      turns.forEach((turn, i) => points.push([turnU(turn), at_[i]], [turnU(turn), at_[i + 1]]));
      return straighten([...points, to]);
    });
    return {u: width, v: height, at: spots, ways: drawn};
  };
})();
