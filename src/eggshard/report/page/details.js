"use strict";
// The selected step: facts, who holds what, why, what else, and what would flip the choice.
E.details = function (i) {
  const pane = document.getElementById("details"),
    s = E.data.steps;
  if (i < 0) {
    pane.replaceChildren(
      E.el("h2", {}, "No step selected"),
      E.el(
        "p",
        {},
        "Choose a step in the graph, the timeline or the list; ",
        E.el("kbd", {}, "j"),
        " and ",
        E.el("kbd", {}, "k"),
        " go through them.",
      ),
    );
    return;
  }
  const results = s.results[i],
    operands = s.operands[i],
    decisions = s.decisions[i].map(E.decision);
  const value = (v) => {
    const t = E.tensorOf(v),
      made = E.maker[v];
    const from = made >= 0 ? E.stepLink(made, `step ${E.address(made)}`) : E.inputOf.get(v) || "";
    return E.el(
      "li",
      {},
      E.el("code", { title: E.origin(v) }, E.name(v)),
      " ",
      E.localType(v),
      " ",
      E.chip(t),
      from && made !== i ? " of " : "",
      made !== i ? from : "",
    );
  };
  const users = [...new Set(results.flatMap((v) => E.users[v]))];
  const outputs = E.data.outputs
    .map((v, n) => [v, n])
    .filter(([v]) => results.includes(v))
    .map(([, n]) => n);
  const facts = [
    ["time", `${E.price(E.seconds(i))} (${E.price(s.start[i])} \u2013 ${E.price(s.end[i])})`],
    E.bytes(i) ? ["received", `${E.size(E.bytes(i))} by the busiest device`] : null,
    ["held", `${E.size(s.alive[i])} of shards on each device meanwhile`],
    s.hidden[i] > 0 ? ["hidden", `${E.price(s.hidden[i])} behind computing`] : null,
    s.times[i] > 1
      ? ["runs", `${s.times[i]} times, ${E.price(E.seconds(i) / s.times[i])} each; time and bytes are of all`]
      : null,
    s.parent[i] >= 0 ? ["in", E.stepLink(s.parent[i])] : null,
    ["part", E.data.groups[E.groupOf[i]][0]],
  ].filter(Boolean);
  const pictured = results.length ? results[0] : operands[0];
  const choices = [...new Set([...results, ...operands])].filter((v) => E.tensorOf(v));
  const picture = E.el("div", {});
  const draw = (v) =>
    picture.replaceChildren(E.tensorOf(v) ? E.devices(E.tensorOf(v)) : E.el("p", { class: "note" }, "not known"));
  const pick = E.el(
    "select",
    { "aria-label": "Tensor shown", onchange: (e) => draw(+e.target.value) },
    ...choices.map((v) =>
      E.el(
        "option",
        { value: v, selected: v === pictured },
        `${results.includes(v) ? "result" : "operand"} ${E.name(v)} ${E.tensorType(E.tensorOf(v))} ${E.placementText(E.tensorOf(v))}`,
      ),
    ),
  );
  if (pictured !== undefined) draw(pictured);
  pane.replaceChildren(
    E.el(
      "div",
      { class: "nav" },
      E.el(
        "h2",
        { id: "details-title" },
        E.el("span", { class: "dot " + E.kind(i) }),
        `step ${E.address(i)} \u00b7 ${E.title(i)}`,
      ),
      E.el(
        "span",
        {},
        E.el("button", { type: "button", "aria-label": "Previous step", onclick: () => E.move(-1) }, "\u2191"),
        " ",
        E.el("button", { type: "button", "aria-label": "Next step", onclick: () => E.move(1) }, "\u2193"),
      ),
    ),
    E.el("dl", { class: "facts" }, ...facts.flatMap(([name, text]) => [E.el("dt", {}, name), E.el("dd", {}, text)])),
    E.el("h3", {}, "Takes"),
    operands.length ? E.el("ul", {}, ...operands.map(value)) : E.el("p", { class: "note" }, "nothing"),
    E.el("h3", {}, "Gives"),
    E.el("ul", {}, ...results.map(value)),
    E.el(
      "p",
      { class: "note" },
      users.length || outputs.length ? "to " : "",
      ...users.slice(0, 12).flatMap((u, n) => [n ? ", " : "", E.stepLink(u, `${E.address(u)} ${E.what(u)}`)]),
      users.length > 12 ? ` and ${users.length - 12} more` : "",
      outputs.length ? `${users.length ? " and " : ""}output ${outputs.map((n) => E.text(E.data.output_names[n])).join(", ")}` : "",
    ),
    choices.length ? E.el("h3", {}, "Who holds what") : "",
    choices.length ? pick : "",
    picture,
    E.el("h3", {}, "Why"),
    E.el("ul", { class: "why", id: "why" }, ...s.why[i].map((line) => E.el("li", {}, E.micro(E.text(line))))),
    ...(s.inside[i] ? E.inside(s.inside[i]) : []),
    E.el("h3", {}, "What else"),
    ...(decisions.length
      ? decisions.map(E.whatElse)
      : [
          E.el(
            "p",
            { class: "note" },
            "Nothing was decided here: see above.",
          ),
        ]),
    decisions.length && E.data.reasons.note ? E.el("p", { class: "note" }, "Prices: " + E.data.reasons.note + ".") : "",
  );
  pane.scrollTop = 0;
};

// The device programs in a loop or branch: their steps, each a link.
E.inside = (programs) => [
  E.el("h3", {}, "Inside"),
  ...programs.map(([address, first, count, times]) => {
    const rows = d3.range(first, first + count).filter((i) => E.data.steps.parent[i] === E.data.steps.parent[first]);
    const box = E.el("details", {}, E.el("summary", {}, `${address}: ${rows.length} steps, ${times} times`));
    box.addEventListener("toggle", () => {
      if (box.open && box.children.length === 1)
        box.append(
          E.table(
            "",
            [
              ["step", (i) => `${E.address(i)} ${E.what(i)}`],
              ["over", (i) => E.over(i)],
              ["time", (i) => E.price(E.seconds(i)), true],
            ],
            rows,
            (i) => E.select(i, "inside"),
          ),
        );
    });
    return box;
  }),
];

E.whatElse = function (decision) {
  const box = E.el("section", { class: "decision" }),
    flips = E.el("div", { class: "flips", "aria-live": "polite" });
  const others = decision.alternatives;
  box.append(
    E.el(
      "h4",
      {},
      decision.what,
      " ",
      E.el(
        "span",
        { class: "note" },
        `${E.price(decision.seconds)}, ${decision.weighed} alternative${decision.weighed === 1 ? "" : "s"} priced` +
          (E.data.reasons.unit ? `, in ${E.data.reasons.unit}` : "") +
          (decision.runs > 1 ? `, all ${decision.runs} runs together` : ""),
      ),
    ),
  );
  if (!others.length) {
    box.append(E.el("p", { class: "note" }, decision.weighed ? "No plan has one of them, all else held." : "There was no other way."));
    return box;
  }
  const rows = others.map((a, n) =>
    E.el(
      "tr",
      { "aria-selected": n === 0 ? "true" : "false" },
      E.el(
        "td",
        {},
        E.el(
          "button",
          {
            class: "link",
            type: "button",
            "aria-label": `Show what would flip the choice to ${a.what}`,
            onclick: () => show(n),
          },
          a.what,
        ),
        a.rules.length ? E.el("div", { class: "note" }, [...new Set(a.rules.map(E.ruleText))].join("; ")) : "",
      ),
      E.el("td", { class: "number more" }, (a.least ? "\u2265 " : "+") + E.price(Math.max(0, a.change))),
      E.el("td", { class: "number" }, "+" + E.price(Math.max(0, a.held))),
    ),
  );
  const show = (n) => {
    rows.forEach((row, k) => row.setAttribute("aria-selected", String(k === n)));
    const a = others[n],
      list = E.flips(a);
    const part = (p) => E.el("li", {}, `${p.what} `, E.el("span", { class: "note" }, E.price(p.seconds)));
    flips.replaceChildren(
      E.el("strong", {}, "To flip to "),
      E.el("span", {}, a.what),
      list.length ? ", one of these prices has to move:" : ": no single price can move that far.",
      list.length
        ? E.el(
            "table",
            {},
            E.el(
              "tbody",
              {},
              ...list
                .slice(0, 6)
                .map((f) =>
                  E.el(
                    "tr",
                    {},
                    E.el("td", {}, f.what),
                    E.el("td", { class: "number" }, f.every ? "" : `${E.price(f.from)} \u2192 ${E.price(f.to)}`),
                    E.el("td", { class: "number" }, E.moved(f, true)),
                  ),
                ),
            ),
          )
        : "",
      E.el(
        "details",
        {},
        E.el("summary", {}, `What would go (${a.leaves.length}) and come (${a.joins.length})`),
        E.el("p", {}, "goes"),
        E.el("ul", {}, ...a.leaves.map(part)),
        E.el("p", {}, "comes"),
        E.el("ul", {}, ...a.joins.map(part)),
      ),
    );
  };
  show(0);
  box.append(
    E.el(
      "table",
      {},
      E.el(
        "thead",
        {},
        E.el(
          "tr",
          {},
          E.el("th", { scope: "col" }, "alternative"),
          E.el(
            "th",
            { scope: "col", class: "number", title: "what the plan would cost more where other decisions may follow" },
            "more",
          ),
          E.el("th", { scope: "col", class: "number" }, "all else held"),
        ),
      ),
      E.el("tbody", {}, ...rows),
    ),
    decision.weighed > others.length
      ? E.el("p", { class: "note" }, `and ${decision.weighed - others.length} more, none of them cheaper all else held`)
      : "",
    flips,
  );
  return box;
};
