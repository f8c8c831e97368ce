"use strict";
// The page of a propagation: values by line, conflicts, and reshards; choosing a decision marks what it decided.
E.views = [
  ["values", "Values", (panel) => E.rows(panel, "values")],
  ["conflicts", "Conflicts", (panel) => E.rows(panel, "conflicts")],
  ["reshards", "Reshards", (panel) => E.rows(panel, "moved")],
];
E.keys = [
  ["/", "search"],
  ["1 \u2013 3", "views"],
  ["d", "decisions"],
  ["t", "light or dark"],
  ["c", "clear the search"],
  ["?", "this list"],
];
E.actions.d = () => document.getElementById("details").focus();
const MOST = 1500; // rows that are drawn at first

E.explanations = () => [
  E.el("h3", {}, "Searching"),
  E.el(
    "p",
    {},
    "Words must all occur in a row: its op, type, sharding, line, or who decided an axis; quotes keep words together.",
  ),
  E.el("h3", {}, "Decisions"),
  E.el(
    "p",
    {},
    "A decision is a sharding that the program states: of an argument, a result, a constraint or a manual ",
    "computation. Every other axis was propagated from one. One colour is one decision; choosing it marks all rows ",
    "in which it decided an axis.",
  ),
];

const named = (axes) => Object.values(axes).flat();

// Rows with the text that is searched, and the decisions that they are about.
E.prepare = function (d) {
  E.decisions = new Map();
  const count = (names, what) => {
    for (const name of new Set(names)) {
      if (!E.decisions.has(name)) E.decisions.set(name, { name, values: 0, kept: 0, rejected: 0 });
      E.decisions.get(name)[what]++;
    }
  };
  for (const row of d.values) count(named(row.axes), "values");
  for (const row of d.conflicts) {
    count(named(row.kept), "kept");
    count(named(row.rejected), "rejected");
  }
  E.numbers = new Map([...E.decisions.keys()].map((name, n) => [name, n]));
  const bytes = (a, b) => b.bytes - a.bytes;
  d.conflicts.sort(bytes);
  d.moved.sort(bytes);
  for (const row of [...d.values, ...d.conflicts, ...d.moved])
    row.text = Object.values(row)
      .map((cell) => (typeof cell === "object" ? Object.entries(cell).flat(2).join(" ") : cell))
      .join(" \n")
      .toLowerCase();
  // Lines in the order in which they first occur, each with its values in the text's order.
  const lines = new Map();
  for (const row of d.values) {
    const line = row.where || (row.value.startsWith("argument ") ? "arguments" : "no line");
    if (!lines.has(line)) lines.set(line, []);
    lines.get(line).push(Object.assign(row, { line }));
  }
  d.values = [...lines.values()].flat();
};

// The button of a decision, which names its axes.
E.decision = function (name, axes) {
  const n = E.numbers.get(name);
  return E.el(
    "button",
    {
      type: "button",
      class: "chip",
      style: `--hue:${(47 + 137.5 * n) % 360}`, // by the golden angle, no two of a few are alike
      "data-decision": n,
      "aria-pressed": String(E.state.decision === n),
      onclick: () => E.mark(E.state.decision === n ? -1 : n),
    },
    axes ? `${axes.join(", ")}: ${name}` : name,
  );
};

// The decisions behind some axes; nobody says what it means that there are none.
E.by = function (axes, nobody) {
  const by = new Map();
  for (const [axis, names] of Object.entries(axes)) {
    const all = [names].flat();
    for (const name of all.length ? all : [""]) by.set(name, [...(by.get(name) || []), axis]);
  }
  const note = (text) => E.el("span", { class: "note" }, text);
  const chip = (name, which) => (name ? E.decision(name, which) : note(`${which.join(", ")}: nobody`));
  const chips = [...by].flatMap(([name, which]) => [chip(name, which), " "]);
  return E.el("span", {}, ...(chips.length ? chips : [note(nobody)]));
};

const mono = (text) => E.el("code", {}, text);
E.columns = {
  values: [
    ["value", (r) => r.value],
    ["type", (r) => mono(r.type.replace(/^tensor<(.*)>$/, "$1"))],
    ["sharding", (r) => mono(r.sharding)],
    ["decided by", (r) => E.by(r.axes, "nobody")],
  ],
  conflicts: [
    ["op", (r) => r.op],
    ["at", (r) => r.what],
    ["value's sharding", (r) => mono(r.sharding)],
    ["op's sharding", (r) => mono(r.used)],
    ["computes with", (r) => E.by(r.kept, "the op itself")],
    ["not with", (r) => E.by(r.rejected, "whole")],
    ["received", (r) => E.size(r.bytes), true],
    ["line", (r) => r.where],
  ],
  moved: [
    ["op", (r) => r.op],
    ["moves", (r) => r.what],
    ["from", (r) => mono(r.had)],
    ["to", (r) => mono(r.wanted)],
    ["received", (r) => E.size(r.bytes), true],
    ["line", (r) => r.where],
  ],
};
E.captions = {
  values: "Every value that has a sharding, by the line that wrote it.",
  conflicts:
    "Where an op computes with the axes of one decision, and not with those that another one gave the value. A value " +
    "is whole where its sharding has none of the axes. Received: by the busiest device, for this reshard alone.",
  moved: "Reshards that are left, those in a row as one. Received: by the busiest device.",
};

E.rows = function (panel, kind) {
  let most = MOST;
  const box = E.el("div", { class: "pad", tabindex: "0" }); // keys scroll it
  panel.append(box);
  const draw = () => {
    const words = E.words(),
      rows = E.data[kind].filter((row) => words.every((w) => row.text.includes(w))),
      some = rows.slice(0, most),
      table = E.table(E.captions[kind], E.columns[kind], some);
    if (kind === "values") E.group(table, some);
    const nothing = E.data[kind].length ? "Nothing fits the search." : "There are none.";
    box.replaceChildren(rows.length ? table : E.el("p", {}, nothing));
    if (rows.length > most)
      box.append(
        E.el(
          "button",
          {
            type: "button",
            onclick: () => {
              most += MOST;
              draw();
            },
          },
          `Show ${Math.min(MOST, rows.length - most)} more`,
        ),
      );
    E.marks();
  };
  E.on("filter", draw);
  draw();
};

// A heading in front of each line's rows.
E.group = function (table, rows) {
  [...table.tBodies[0].rows].forEach((tr, i) => {
    if (i && rows[i].line === rows[i - 1].line) return;
    const heading = { scope: "rowgroup", class: "group", colspan: tr.cells.length };
    tr.before(E.el("tr", {}, E.el("th", heading, rows[i].line)));
  });
};

E.filter = function () {
  const words = E.words(),
    fits = (kind) => E.data[kind].filter((row) => words.every((w) => row.text.includes(w))).length;
  document.getElementById("count").textContent =
    `${fits("values")} values, ${fits("conflicts")} conflicts, ${fits("moved")} reshards`;
  E.emit("filter");
};

E.mark = function (n) {
  E.state.decision = n;
  E.marks();
  const found = [...E.decisions.values()][n];
  E.say(found ? `${found.name}: ${found.values} values` : "no decision is chosen");
  const first = document.querySelector("[role=tabpanel]:not([hidden]) tr.marked");
  if (first && !first.contains(document.activeElement)) first.scrollIntoView({ block: "nearest" });
};

E.marks = function () {
  for (const button of document.querySelectorAll("[data-decision]"))
    button.setAttribute("aria-pressed", String(+button.dataset.decision === E.state.decision));
  for (const tr of document.querySelectorAll("#views tbody tr"))
    tr.classList.toggle("marked", !!tr.querySelector("[data-decision][aria-pressed=true]"));
};

E.start = async function () {
  E.state.decision = -1;
  await E.open();
  E.prepare(E.data);
  const d = E.data;
  document.getElementById("name").textContent = d.name;
  document.getElementById("mesh").textContent = "who decided each sharding";
  E.totals([
    ["values", String(d.values.length)],
    ["decisions", String(E.decisions.size)],
    ["conflicts", String(d.conflicts.length)],
    ["reshards", String(d.moved.length)],
    ["received", E.size(d.moved.reduce((sum, row) => sum + row.bytes, 0)), " step by step"],
  ]);
  E.searching(() => {});
  document.getElementById("details").append(
    E.el("h2", {}, "Decisions"),
    E.el("p", { class: "note" }, "Choosing one marks all that it decided."),
    E.table(
      "",
      [
        ["decision", (r) => E.decision(r.name)],
        ["values", (r) => String(r.values), true],
        ["won", (r) => String(r.kept), true],
        ["lost", (r) => String(r.rejected), true],
      ],
      [...E.decisions.values()].sort((a, b) => b.values - a.values),
    ),
  );
  E.show("values");
  E.filter();
  E.ready();
};
E.start();
