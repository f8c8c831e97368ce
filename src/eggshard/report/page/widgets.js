"use strict";
// Small helpers: elements, numbers for people, tables.
E.el = function (tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false)
      node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.filter((c) => c !== null && c !== undefined && c !== false));
  return node;
};

E.duration = function (s) {
  if (!s) return "0 s";
  const size = Math.abs(s);
  for (const [unit, scale] of [
    ["s", 1],
    ["ms", 1e-3],
    ["\u00b5s", 1e-6],
  ])
    if (size >= 0.9995 * scale) return `${+(s / scale).toPrecision(3)} ${unit}`;
  return `${+(s / 1e-9).toPrecision(3)} ns`;
};

// A price, in the unit of the cost model: seconds, unless it states another.
E.price = function (p) {
  const { name, each } = E.data.search.unit;
  if (name === "seconds") return E.duration(p);
  const count = p / each;
  return name === "bytes" ? E.size(Math.round(10 * count) / 10) : `${+count.toPrecision(4)} ${name}`;
};

E.size = function (n) {
  for (const unit of ["B", "KiB", "MiB", "GiB"]) {
    if (Math.abs(n) < 1024 || unit === "GiB")
      return unit === "B" || Number.isInteger(n) ? `${Math.round(n)} ${unit}` : `${n.toFixed(1)} ${unit}`;
    n /= 1024;
  }
};
// How far a price has to move: in percent, or as a factor where that is much.
E.moved = function (f, short) {
  const x = f.to / f.from,
    by =
      x > 3 ? `\u00d7 ${+x.toPrecision(3)}` : `${x > 1 ? "+" : "\u2212"}${+(100 * Math.abs(x - 1)).toPrecision(3)} %`;
  return short || f.every ? by : `${E.price(f.from)} ${by}`;
};
E.micro = (text) => text.replace(/(\d) us\b/g, "$1 \u00b5s");
E.times = (x) => (x >= 100 ? Math.round(x) : +x.toPrecision(3)) + "\u00d7";
E.count3 = (n) => (n >= 1e4 ? n.toPrecision(4).replace("e+", "e") : String(+n.toPrecision(4)));

E.stepLink = (i, text) =>
  E.el(
    "button",
    { class: "link", type: "button", onclick: () => E.select(i, "link") },
    text || `step ${E.address(i)} ${E.title(i)}`,
  );

// A table: columns are [title, cell(row), number?]; onrow(row) when one is chosen by pointer or key.
E.table = function (caption, columns, rows, onrow) {
  const body = rows.map((row) => {
    const cells = columns.map(([, cell, number]) => E.el("td", { class: number ? "number" : null }, cell(row)));
    if (!onrow) return E.el("tr", {}, ...cells);
    const first = cells[0];
    first.replaceChildren(
      E.el("button", { class: "link", type: "button", onclick: () => onrow(row) }, ...first.childNodes),
    );
    return E.el("tr", {}, ...cells);
  });
  const head = columns.map(([title, , number]) => title ? E.el("th", { scope: "col", class: number ? "number" : null }, title) : E.el("td"));
  return E.el(
    "table",
    {},
    caption ? E.el("caption", {}, caption) : null,
    E.el("thead", {}, E.el("tr", {}, ...head)),
    E.el("tbody", {}, ...body),
  );
};

E.say = (text) => {
  document.getElementById("live").textContent = text;
};

E.tip = function (text, x, y) {
  const tip = document.getElementById("tip");
  tip.hidden = !text;
  if (!text) return;
  tip.textContent = text;
  tip.style.left = Math.min(x + 12, innerWidth - tip.offsetWidth - 8) + "px";
  tip.style.top = Math.min(y + 14, innerHeight - tip.offsetHeight - 8) + "px";
};
