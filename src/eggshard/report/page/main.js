"use strict";
// Puts the page together: header, filters, views, keys. Views are made when they are first looked at.
E.views = [
  ["overview", "Overview", E.overview],
  [
    "graph",
    "Graph",
    (p) => {
      E.graph = new E.Graph(p);
    },
  ],
  [
    "timeline",
    "Timeline",
    (p) => {
      E.timeline = new E.Timeline(p);
    },
  ],
  [
    "steps",
    "Steps",
    (p) => {
      E.list = new E.Steps(p);
    },
  ],
  ["collectives", "Collectives", E.collectives],
  ["choices", "Choices", E.choices],
  ["compare", "Compare", E.compare],
  ["search", "Search", E.found],
];
E.first = function (from, by) {
  for (let i = from; i >= 0 && i < E.count; i += by) if (E.mask[i]) return i;
  return -1;
};

// To the next step that the filters let through: in the order of the list where that is shown, else of the plan.
E.move = function (by) {
  if (E.state.tab === "steps" && E.order) {
    const now = E.order.indexOf(E.state.step),
      to = E.order[now < 0 ? 0 : now + by];
    if (to !== undefined) E.select(to, "keys");
    return;
  }
  const to = E.state.step < 0 ? E.first(0, 1) : E.first(E.state.step + by, by);
  if (to >= 0) E.select(to, "keys");
};

E.filter = function () {
  const words = E.words();
  const kinds = new Set([...document.querySelectorAll("#kinds button[aria-pressed=true]")].map((b) => b.dataset.kind));
  const placement = document.getElementById("placement").value,
    group = document.getElementById("group").value;
  let count = 0;
  for (let i = 0; i < E.count; i++) {
    const t = E.result(i);
    const fits =
      (!kinds.size || kinds.has(E.kind(i))) &&
      (!placement || (t && E.placementText(t) === placement)) &&
      (!group || E.groupOf[i] === +group) &&
      words.every((w) =>
        w.startsWith("op:")
          ? E.text(E.data.steps.op[i]).toLowerCase() === w.slice(3)
          : w.startsWith("over:")
            ? E.over(i).toLowerCase() === w.slice(5)
            : /^\d+$/.test(w)
              ? E.address(i) === w || E.texts[i].includes("%" + w)
              : E.texts[i].includes(w),
      );
    E.mask[i] = fits ? 1 : 0;
    count += fits;
  }
  E.filtered = count < E.count;
  document.getElementById("count").textContent = E.filtered ? `${count} of ${E.count} steps` : `${E.count} steps`;
  E.emit("filter");
};

E.header = function () {
  const d = E.data,
    t = d.totals,
    b = d.compared && d.compared.totals;
  document.getElementById("name").textContent = d.name;
  document.getElementById("mesh").textContent =
    `${d.mesh.map(([n, s]) => `${n}=${s}`).join(", ")} \u00b7 ${d.mesh.reduce((n, [, s]) => n * s, 1)} devices`;
  const than = (a, c) =>
    b && c && a !== c ? ` ${((100 * a) / c).toFixed(a / c > 0.1 ? 0 : 1)} % of the baseline` : "";
  const known = d.search.bound && d.search.gap !== null;
  const gap = known ? `${(100 * d.search.gap).toFixed(2)} %` : d.search.bound ? "unknown" : "no bound";
  const figures = [
    ["time", E.price(t.seconds), than(t.seconds, b && b.seconds)],
    ["communication", E.price(t.communication), t.hidden ? ` ${E.price(t.hidden)} hidden` : ""],
    ["compute", E.price(t.compute), ""],
    ["received", E.size(t.bytes), than(t.bytes, b && b.bytes)],
    ["collectives", String(d3.sum(Object.values(t.collectives))), ""],
    ["memory", E.size(t.peak), ""],
    ["gap", gap, known ? " to the cheapest of what the rewrites derive" : ""],
  ];
  E.totals(figures);
  if (d.search.fallback) {
    const p = document.getElementById("fallback");
    p.hidden = false;
    p.textContent = "This is the baseline: " + d.search.fallback;
  }
};

E.controls = function () {
  const kinds = d3.rollups(d3.range(E.count), (v) => v.length, E.kind).sort((a, b) => b[1] - a[1]);
  document.getElementById("kinds").append(
    ...kinds.map(([kind, n]) =>
      E.el(
        "button",
        {
          type: "button",
          "data-kind": kind,
          "aria-pressed": "false",
          title: `${n} steps`,
          onclick: (e) => {
            e.currentTarget.setAttribute(
              "aria-pressed",
              String(e.currentTarget.getAttribute("aria-pressed") !== "true"),
            );
            E.filter();
          },
        },
        E.el("span", { class: "dot " + kind }),
        kind,
      ),
    ),
  );
  document
    .getElementById("placement")
    .append(...E.placements.slice(0, 200).map(([text, n]) => E.el("option", { value: text }, `${text} \u00b7 ${n}`)));
  document.getElementById("group").append(...E.data.groups.map(([name], g) => E.el("option", { value: g }, name)));
  document.getElementById("group").parentNode.hidden = E.data.groups.length < 2;
  for (const id of ["placement", "group"]) document.getElementById(id).addEventListener("change", E.filter);
  E.searching(() => {
    const i = E.first(0, 1);
    if (i >= 0) E.select(i, "search");
  });
  document
    .getElementById("filters")
    .addEventListener("reset", () =>
      document.querySelectorAll("#kinds button").forEach((b) => b.setAttribute("aria-pressed", "false")),
    );
};

E.keys = [
  ["/", "search"],
  ["1 \u2013 8", "views"],
  ["j, k", "next and previous step"],
  ["d", "details of the step"],
  ["t", "light or dark"],
  ["c", "clear search and filters"],
  ["?", "this list"],
  ["graph: arrows, Enter", "along the edges; select, or open a part"],
  ["graph, timeline: + \u2212 0", "zoom, and all of it"],
  ["timeline: Left, Right, Home, End", "through the steps"],
  ["steps: Up, Down, Page Up, Page Down, Home, End", "through the rows"],
];

E.explanations = function () {
  return [
    E.el("h3", {}, "Searching"),
    E.el(
      "p",
      {},
      "Words must all occur in a step's op, axes, values (%12), placements, rules or part; quotes keep words together; ",
      E.el("code", {}, "op:all-gather"),
      " and ",
      E.el("code", {}, "over:x"),
      " are exact; a number is a step or a value, 3.body.5 a step in the loop of step 3.",
    ),
    E.el("h3", {}, "Colours"),
    E.el(
      "p",
      {},
      "One colour is one way to cut a tensor over the mesh; white is held by every device. Double borders: partial sums. Dashed: windows.",
    ),
    E.el(
      "div",
      { class: "legend" },
      ...E.placements.slice(0, 24).map(([text]) => {
        const i = d3.range(E.count).find((n) => E.result(n) && E.placementText(E.result(n)) === text);
        return E.chip(E.result(i));
      }),
    ),
    E.el("h3", {}, "Prices"),
    E.el(
      "p",
      {},
      "What an alternative costs more is the difference of two plans' totals under the plan's cost model: with everything else held, and where other decisions may follow.",
    ),
    E.el(
      "details",
      {},
      E.el("summary", {}, "Libraries in this page, and their licences"),
      E.el("pre", { tabindex: "0" }, document.getElementById("notice").textContent),
    ),
  ];
};

Object.assign(E.actions, {
  j: () => E.move(1),
  k: () => E.move(-1),
  d: () => document.getElementById("details").focus(),
});

E.start = async function () {
  await E.open();
  E.prepare(E.data);
  E.prepareColours();
  E.header();
  E.controls();
  E.on("select", (i) => {
    E.details(i);
    E.say(`step ${E.address(i)}, ${E.title(i)}, ${E.price(E.seconds(i))}`);
  });
  E.filter();
  E.details(-1);
  E.show("overview");
  E.ready();
};
E.start();
