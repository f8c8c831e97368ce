"use strict";
// The other views: collectives, close choices, comparisons, and how the plan was found.
E.collectives = function (panel) {
  const rows = new Map();
  for (let i = 0; i < E.count; i++) {
    if (E.kind(i) !== "collective") continue;
    const op = E.text(E.data.steps.op[i]),
      key = op + "|" + E.over(i);
    const row =
      rows.get(key) ||
      rows.set(key, { op, over: E.over(i), count: 0, bytes: 0, seconds: 0, hidden: 0, largest: i }).get(key);
    row.count++;
    row.bytes += E.bytes(i);
    row.seconds += E.seconds(i);
    row.hidden += E.data.steps.hidden[i];
    if (E.seconds(i) > E.seconds(row.largest)) row.largest = i;
  }
  const list = [...rows.values()].sort((a, b) => b.seconds - a.seconds),
    total = E.data.totals.seconds || 1;
  const box = E.el("div", { class: "pad" });
  if (!list.length) {
    box.append(E.el("p", {}, "This plan does not communicate."));
    panel.append(box);
    return;
  }
  box.append(
    E.table(
      "Collectives by kind and axes, those in loops counted by their runs; choosing one filters the steps to it.",
      [
        ["collective", (r) => r.op],
        ["over", (r) => r.over || "\u2013"],
        ["steps", (r) => String(r.count), true],
        ["received", (r) => E.size(r.bytes), true],
        ["time", (r) => E.price(r.seconds), true],
        ["hidden", (r) => (r.hidden ? E.price(r.hidden) : "\u2013"), true],
        ["of the plan", (r) => `${((100 * r.seconds) / total).toFixed(1)} %`, true],
        ["dearest", (r) => E.stepLink(r.largest, `step ${E.address(r.largest)}, ${E.price(E.seconds(r.largest))}`)],
      ],
      list,
      (r) => {
        E.search(`op:${r.op} over:${r.over}`);
        E.say(`${r.count} steps`);
      },
    ),
  );
  const issued = Object.entries(E.data.totals.collectives)
    .map(([k, n]) => `${n} ${k}`)
    .join(", ");
  box.append(
    E.el(
      "p",
      { class: "note" },
      `Issued in all, loops counted by their trips: ${issued}. Bytes are received by the busiest device, step by step.`,
    ),
  );
  const dear = d3
    .range(E.count)
    .filter((i) => E.kind(i) === "collective")
    .sort((a, b) => E.seconds(b) - E.seconds(a))
    .slice(0, 200);
  box.append(
    E.el("h2", {}, "The dearest"),
    E.table(
      "",
      [
        ["step", (i) => `${E.address(i)} ${E.title(i)}`],
        ["placement", (i) => E.chip(E.result(i))],
        ["received", (i) => E.size(E.bytes(i)), true],
        ["time", (i) => E.price(E.seconds(i)), true],
      ],
      dear,
      (i) => E.select(i, "table"),
    ),
  );
  panel.append(box);
};

E.choices = function (panel) {
  const box = E.el("div", { class: "pad" }),
    all = E.data.reasons.decisions;
  if (!all.length) {
    box.append(E.el("p", {}, E.data.reasons.note || "Nothing was decided."));
    panel.append(box);
    return;
  }
  const rows = all
    .map((_, n) => n)
    .filter((n) => all[n][9].length)
    .map((n) => {
      const d = E.decision(n),
        best = d3.least(d.alternatives, (a) => a.change);
      return { d, best, factor: E.flips(best)[0] };
    });
  const tie = (r) => r.best.change <= 1e-4 * E.data.totals.seconds;
  const orders = [
    [
      "closest",
      "Closest to flipping",
      (r) => (tie(r) || !r.factor ? Infinity : Math.abs(Math.log(r.factor.to / r.factor.from))),
    ],
    ["dearest", "Most at stake", (r) => -Math.max(0, r.best.change)],
    ["ties", "Ties", (r) => (tie(r) ? -r.d.seconds : Infinity)],
  ];
  const unit = E.data.reasons.unit ? `, their prices in ${E.data.reasons.unit}` : "";
  let order = orders[0],
    most = 60;
  const body = E.el("div", {});
  const draw = () => {
    const some = d3.sort(rows, order[2]);
    body.replaceChildren(
      E.table(
        `${rows.length} decisions that have alternatives${unit}. Ties: another way within 0.01 % of the plan's time.`,
        [
          ["decision", (r) => r.d.what],
          ["of", (r) => `${E.nameOf(r.d)} ${r.d.tensor.replace(/^tensor<(.*)>$/, "$1")}`.trim()],
          ["next best", (r) => r.best.what],
          ["costs more", (r) => (r.best.least ? "\u2265 " : "+") + E.price(Math.max(0, r.best.change)), true],
          ["flips if", (r) => (r.factor ? `${r.factor.what} ${E.moved(r.factor)}` : "\u2013")],
        ],
        some.slice(0, most),
        (r) => {
          const i = E.stepOf(r.d.number);
          if (i >= 0) E.select(i, "table");
        },
      ),
    );
    if (some.length > most)
      body.append(
        E.el(
          "button",
          {
            type: "button",
            onclick: () => {
              most += 200;
              draw();
            },
          },
          `Show ${Math.min(200, some.length - most)} more`,
        ),
      );
  };
  const buttons = orders.map((o) =>
    E.el(
      "button",
      {
        type: "button",
        "aria-pressed": String(o === order),
        onclick: () => {
          order = o;
          buttons.forEach((b, k) => b.setAttribute("aria-pressed", String(orders[k] === o)));
          draw();
        },
      },
      o[1],
    ),
  );
  box.append(
    E.el("div", { class: "bar" }, "Order ", ...buttons),
    body,
    E.data.reasons.note ? E.el("p", { class: "note" }, "Prices: " + E.data.reasons.note + ".") : "",
  );
  draw();
  panel.append(box);
};

/** One compiled program's collectives, step by step. */
function executed(title, compiled) {
  if (!compiled.steps.length) return E.el("div", {}, E.el("h4", {}, title), E.el("p", {}, "No collectives."));
  return E.el(
    "div",
    {},
    E.el("h4", {}, title),
    E.table(
      "",
      [
        ["collective", (r) => r[0]],
        ["of", (r) => E.el("code", {}, r[7] || "\u2013")],
        ["size", (r) => `${r[1]} ${E.size(r[2])}`, true],
        ["devices", (r) => String(r[3]), true],
        ["times", (r) => String(r[6]), true],
        ["bytes", (r) => E.size(r[4]), true],
        ["time", (r) => E.price(r[5]), true],
      ],
      compiled.steps,
    ),
  );
}

E.compare = function (panel) {
  const box = E.el("div", { class: "pad" }),
    c = E.data.compared,
    x = E.data.xla;
  const ratio = (a, b) => (a === b ? "=" : b ? (a / b).toPrecision(3) + "\u00d7" : "\u2013");
  if (c) {
    box.append(
      E.el("h2", {}, "Against the baseline"),
      E.el(
        "p",
        { class: "note" },
        "The baseline takes the propagated shardings as they are and reshards every op on its own.",
      ),
      E.table(
        "",
        [
          ["", (r) => r[0]],
          ["plan", (r) => E.micro(r[3]), true],
          ["baseline", (r) => E.micro(r[4]), true],
          ["plan / baseline", (r) => ratio(r[1], r[2]), true],
        ],
        c.figures,
      ),
    );
  } else {
    box.append(
      E.el(
        "p",
        {},
        "There is no baseline to compare with: this plan is the baseline, or was read from JSON, which does not hold it.",
      ),
    );
  }
  box.append(E.el("h2", {}, "Against XLA"));
  if (x) {
    const kinds = [...new Set([...Object.keys(x.plan.collectives), ...Object.keys(x.xla.collectives)])].sort();
    const rows = [
      ["wire bytes, step by step", "wire_bytes", E.size],
      ["wire bytes, busiest device", "busiest_device_bytes", E.size],
      ["modelled time, as compiled", "modelled_seconds", E.price],
      ["  communication", "communication", E.price],
      ["  compute", "compute", E.price],
      ["flops", "flops", E.count3],
      ["memory traffic", "memory_traffic", E.size],
      ["temporaries", "temporary_bytes", E.size],
      ["arguments, results, temporaries", "peak_bytes", E.size],
      ["compile time", "compile_seconds", E.duration],
    ].map(([name, key, show]) => [name, x.plan[key], x.xla[key], show]);
    rows.splice(2, 0, ...kinds.map((k) => [k, x.plan.collectives[k] || 0, x.xla.collectives[k] || 0, String]));
    box.append(
      E.el(
        "p",
        { class: "note" },
        "Both compiled, counted by one reader from the compiled programs, and priced by the plan's cost model.",
      ),
      E.table(
        "",
        [
          ["per device", (r) => r[0]],
          ["plan", (r) => r[3](r[1]), true],
          ["XLA", (r) => r[3](r[2]), true],
          ["plan / XLA", (r) => ratio(r[1], r[2]), true],
        ],
        rows,
      ),
      E.el("h3", {}, "Collectives, in the order in which they are executed"),
      E.el(
        "p",
        { class: "note" },
        "Size is that of the result on a device; bytes and time are of one execution. XLA's are named by the ops of ",
        "the program that they were made of, the plan's by their steps.",
      ),
      E.el("div", { class: "beside" }, executed("The plan", x.plan), executed("XLA", x.xla)),
    );
  } else {
    box.append(
      E.el(
        "p",
        {},
        "Not compared. ",
        E.el("code", {}, "plan.report(path, plan.compare_with_xla())"),
        " compiles both and puts them here.",
      ),
    );
  }
  if (c) {
    box.append(E.el("h2", {}, "Step by step"), E.el("h3", {}, `Steps: ${c.same} of ${E.count} are the same`));
    let all = false;
    const list = E.el("div", {});
    const draw = () =>
      list.replaceChildren(
        E.table(
          "",
          [
            [
              "",
              (r) =>
                r[0] && r[1]
                  ? r[0][1] === r[1][1] && r[0][2] === r[1][2]
                    ? "same"
                    : "otherwise"
                  : r[0]
                    ? "only the plan"
                    : "only the baseline",
            ],
            ["plan", (r) => (r[0] ? E.stepLink(E.data.steps.address.indexOf(r[0][0]), `${r[0][0]} ${E.text(r[0][1])}`) : "")],
            ["baseline", (r) => (r[1] ? `${r[1][0]} ${E.text(r[1][1])}` : "")],
            [
              "placement",
              (r) =>
                r[0] && r[1] && r[0][2] !== r[1][2]
                  ? `${E.text(r[0][2])}, not ${E.text(r[1][2]).replace(/^tensor<[^>]*> /, "")}`
                  : E.text((r[0] || r[1])[2]),
            ],
            ["received", (r) => ((r[0] || r[1])[3] ? E.size((r[0] || r[1])[3]) : "\u2013"), true],
            ["time", (r) => E.price((r[0] || r[1])[4]), true],
          ],
          c.rows.filter((r) => all || !(r[0] && r[1]) || r[0][1] !== r[1][1] || r[0][2] !== r[1][2]).slice(0, 1500),
        ),
      );
    const toggle = E.el(
      "button",
      {
        type: "button",
        "aria-pressed": "false",
        onclick: () => {
          all = !all;
          toggle.setAttribute("aria-pressed", String(all));
          draw();
        },
      },
      "Show equal steps too",
    );
    box.append(toggle, list, c.left_out ? E.el("p", { class: "note" }, `${c.left_out} equal steps are left out.`) : "");
    draw();
  }
  panel.append(box);
};

E.found = function (panel) {
  const s = E.data.search,
    box = E.el("div", { class: "pad" });
  const stages = Object.entries(s.seconds),
    rules = Object.entries(s.rules).sort((a, b) => b[1] - a[1]);
  box.append(
    E.el("h2", {}, "How the plan was found"),
    E.el("p", {}, E.data.headline.split("\n").slice(1).join(" ")),
    E.el(
      "dl",
      { class: "facts" },
      ...[
        ["method", s.method],
        ["certificate", s.certificate],
        ["bound", E.price(s.bound)],
        ["gap", s.gap === null ? "unknown" : `${(100 * s.gap).toFixed(2)} %`],
        ["within the search", `${(100 * s.searchGap).toFixed(2)} %`],
        ["e-graph", `${s.classes} classes, ${s.nodes} nodes`],
        ["sums", s.exact ? "kept as they are" : "may be reassociated"],
        ["prices", s.model],
      ].flatMap(([k, v]) => [E.el("dt", {}, k), E.el("dd", {}, String(v))]),
    ),
  );
  if (stages.length)
    box.append(
      E.el("h3", {}, "Time of each stage"),
      E.table(
        "",
        [
          ["stage", (r) => r[0]],
          ["time", (r) => E.duration(r[1]), true],
        ],
        stages,
      ),
    );
  if (rules.length)
    box.append(
      E.el("h3", {}, "Rules that matched"),
      E.table(
        "",
        [
          ["rule", (r) => r[0]],
          ["what it does", (r) => E.ruleText(r[0])],
          ["matches", (r) => String(r[1]), true],
        ],
        rules,
        (r) => E.search(r[0]),
      ),
    );
  if (s.notes.length)
    box.append(
      E.el("h3", {}, "Notes of the search"),
      E.el("ul", {}, ...s.notes.map((n) => E.el("li", { class: "mono" }, n))),
    );
  panel.append(box);
};
