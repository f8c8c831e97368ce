"use strict";
// Placements: one colour each (never colour alone: the text stands beside it), and who holds what.
E.prepareColours = function () {
  const weight = new Map();
  for (const [t, , ,] of E.data.values) {
    if (t < 0) continue;
    const text = E.pattern(E.data.tensors[t]);
    weight.set(text, (weight.get(text) || 0) + 1);
  }
  const order = [...weight]
    .sort((a, b) => b[1] - a[1])
    .map(([text]) => text)
    .filter((text) => text !== "");
  E.hues = new Map(order.map((text, n) => [text, Math.round((250 + n * 137.508) % 360)]));
  const texts = new Map();
  for (let i = 0; i < E.count; i++) {
    const t = E.result(i);
    if (t) texts.set(E.placementText(t), (texts.get(E.placementText(t)) || 0) + 1);
  }
  E.placements = [...texts].sort((a, b) => b[1] - a[1]);
};

// What has one colour: which dimension, from the right, is cut by which axes, and addends.
E.pattern = (t) =>
  t[2]
    .map((d, i) => (d[0].length ? `${t[2].length - i}:${d[0].join()}` : ""))
    .filter(Boolean)
    .join(" ") + (t[3].length ? "+" + t[3].join() : "");

E.dress = function (node, t) {
  const hue = t ? E.hues.get(E.pattern(t)) : undefined;
  if (hue === undefined) return false;
  node.style.setProperty("--hue", hue);
  return true;
};

E.chip = function (t) {
  if (!t) return E.el("span", { class: "chip plain" }, "unplaced");
  const addends = t[3].length,
    windowed = t[2].some((d) => d[2] || d[3] || d[4]);
  const chip = E.el(
    "span",
    { class: "chip" + (addends ? " addends" : "") + (windowed ? " window" : "") },
    E.placementText(t),
  );
  if (!E.dress(chip, t)) chip.classList.add("plain");
  return chip;
};

// Per device: where it stands, and what it holds of each dimension as [start, stop).
E.held = function (t, most) {
  const axes = E.data.mesh,
    [shape, , dims] = t;
  const total = axes.reduce((n, [, size]) => n * size, 1),
    found = [];
  for (let device = 0; device < Math.min(total, most); device++) {
    const at = {};
    let rest = device;
    for (const [name] of axes) at[name] = 0;
    for (const [name, size] of [...axes].reverse()) {
      at[name] = rest % size;
      rest = Math.floor(rest / size);
    }
    const size = Object.fromEntries(axes);
    const box = dims.map(([over, tile, low, high, wrapped], i) => {
      const d = over.reduce((n, a) => n * size[a] + at[a], 0);
      const start = d * tile + low,
        stop = d * tile + tile + high;
      return wrapped ? [start, stop] : [Math.min(Math.max(start, 0), shape[i]), Math.min(Math.max(stop, 0), shape[i])];
    });
    const piece = dims.map(([over]) => over.reduce((n, a) => n * size[a] + at[a], 0)).join();
    found.push({ device, at, box, piece });
  }
  return { found, total };
};

E.devices = function (t) {
  const MOST = 64,
    [shape, , dims, partial, monoid] = t,
    { found, total } = E.held(t, MOST);
  const axes = E.data.mesh.filter(([, size]) => size > 1);
  const columns = axes.length > 1 ? Math.min(8, axes[axes.length - 1][1]) : Math.min(8, found.length);
  const rows = Math.ceil(found.length / columns);
  const drawn = dims
    .map((d, i) => i)
    .filter((i) => dims[i][0].length)
    .slice(0, 2);
  for (const i of shape.map((n, i) => i).sort((a, b) => shape[b] - shape[a]))
    if (drawn.length < 2 && !drawn.includes(i)) drawn.push(i);
  drawn.sort((a, b) => a - b);
  const [down, across] = drawn.length > 1 ? drawn : [-1, drawn[0] ?? -1];
  const W = Math.min(150, 400 / columns - 8),
    H = down < 0 ? 16 : rows > 2 ? 28 : 48,
    gap = 8,
    top = 13;
  const svg = d3
    .create("svg")
    .attr("class", "devices")
    .attr("viewBox", `0 0 ${columns * (W + gap) + 4} ${rows * (H + gap + top) + 4}`)
    .attr("role", "img")
    .style("max-width", columns * (W + gap) * 1.15 + "px");
  const hues = new Map();
  for (const device of found)
    if (!hues.has(device.piece)) hues.set(device.piece, Math.round((hues.size * 137.508 + 200) % 360));
  const say = (d) =>
    `device ${d.device} (${Object.entries(d.at)
      .map(([a, n]) => `${a}=${n}`)
      .join(", ")}): ` +
    (d.box.length
      ? d.box.map(([a, b], i) => (a === 0 && b === shape[i] ? "all" : `${a}:${b}`)).join(", ")
      : "the value");
  svg.attr(
    "aria-label",
    `What each device holds of ${E.tensorType(t)} at ${E.placementText(t)}; the table below lists it`,
  );
  found.forEach((d, n) => {
    const x = 3 + (n % columns) * (W + gap),
      y = 3 + Math.floor(n / columns) * (H + gap + top);
    const g = svg.append("g").attr("transform", `translate(${x},${y})`);
    g.append("title").text(say(d));
    g.append("text")
      .attr("y", 9)
      .text(
        (axes.length > 1 ? axes.map(([name]) => d.at[name]).join(",") : d.device) + (partial.length ? " partial sum" : ""),
      );
    g.append("rect").attr("class", "whole").attr("y", top).attr("width", W).attr("height", H);
    const clip = ([a, b], size, n) => [Math.max(0, (a / n) * size), Math.min(size, (b / n) * size)];
    const [x0, x1] = across < 0 || !shape[across] ? [0, W] : clip(d.box[across], W, shape[across]);
    const [y0, y1] = down < 0 || !shape[down] ? [0, H] : clip(d.box[down], H, shape[down]);
    g.append("rect")
      .attr("class", "part")
      .attr("x", x0)
      .attr("y", top + y0)
      .attr("width", Math.max(1, x1 - x0))
      .attr("height", Math.max(1, y1 - y0))
      .style("fill", `oklch(var(--chip-l) ${hues.size > 1 ? 0.12 : 0.02} ${hues.get(d.piece)})`)
      .style("stroke-dasharray", partial.length ? "3 2" : null);
  });
  const axisNames = axes.map(([name]) => name).join(",");
  const note = [
    `${hues.size === 1 ? "Every device holds the same part" : `${hues.size} different parts; one colour is one part`}.`,
    drawn.length ? `Drawn: ${down >= 0 ? `dimension ${down} downwards, ` : ""}dimension ${across} across.` : "",
    axes.length > 1 ? `Labels are positions along ${axisNames}.` : "",
    partial.length ? `Each holds a partial sum, to be combined over ${partial.join(", ")} (${monoid}).` : "",
    total > MOST ? `The first ${MOST} of ${total} devices.` : "",
  ]
    .filter(Boolean)
    .join(" ");
  const list = E.el("details", {}, E.el("summary", {}, "As a table"));
  list.addEventListener("toggle", () => {
    if (list.open && list.children.length === 1) {
      list.append(
        E.table(
          "",
          [
            ["device", (d) => String(d.device)],
            [
              "position",
              (d) =>
                Object.entries(d.at)
                  .map(([a, n]) => `${a}=${n}`)
                  .join(" "),
            ],
            ...shape.map((n, i) => [`dim ${i} of ${n}`, (d) => `${d.box[i][0]}:${d.box[i][1]}`]),
          ],
          found,
        ),
      );
    }
  });
  return E.el("div", {}, svg.node(), E.el("p", { class: "note" }, note), list);
};
