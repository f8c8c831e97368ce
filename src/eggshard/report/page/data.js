"use strict";
// The plan's data: accessors that put texts back.
E.prepare = function (d) {
  const s = d.steps;
  E.count = s.what.length;
  E.maker = new Int32Array(d.values.length).fill(-1);
  E.users = d.values.map(() => []);
  for (let i = 0; i < E.count; i++) {
    for (const v of s.results[i]) E.maker[v] = i;
    for (const v of new Set(s.operands[i])) E.users[v].push(i);
  }
  E.inputOf = new Map(d.inputs.map((v) => [v, "the inputs"]));
  // What goes into the body of a loop or branch comes from its step.
  E.enters = new Map();
  for (const [i, programs] of Object.entries(s.inside))
    for (const [address, , , , inputs] of programs)
      for (const v of inputs) {
        E.inputOf.set(v, "the inputs of " + address);
        E.enters.set(v, +i);
      }
  E.depths = new Uint8Array(E.count);
  s.parent.forEach((p, i) => (E.depths[i] = p < 0 ? 0 : E.depths[p] + 1));
  E.groupOf = new Int32Array(E.count);
  d.groups.forEach(([, start, count], g) => E.groupOf.fill(g, start, start + count));
  E.mask = new Uint8Array(E.count).fill(1);
  E.texts = s.what.map((_, i) => E.searchable(i));
};

E.text = (n) => E.data.texts[n];
E.address = (i) => E.data.steps.address[i];
E.depth = (i) => E.depths[i];
// The steps among some in a row that are in none of the others: what they take is what all of them take.
E.outermost = (start, count) => d3.range(start, start + count).filter((i) => E.data.steps.parent[i] < start);
E.what = (i) => E.text(E.data.steps.what[i]);
E.over = (i) => E.text(E.data.steps.over[i]);
E.title = (i) => E.what(i) + (E.over(i) ? " over " + E.over(i) : "");
E.kind = (i) => E.data.steps.kind[i];
E.seconds = (i) => E.data.steps.seconds[i];
E.bytes = (i) => E.data.steps.bytes[i];
E.tensorOf = (v) => (E.data.values[v][0] < 0 ? null : E.data.tensors[E.data.values[v][0]]);
E.name = (v) => E.text(E.data.values[v][3]);
E.origin = (v) => (E.data.values[v][4] < 0 ? "" : E.text(E.data.values[v][4]));
E.result = (i) => (E.data.steps.results[i].length ? E.tensorOf(E.data.steps.results[i][0]) : null);
E.placementText = (t) => E.text(t[5]);
E.tensorType = (t) => (t[0].length ? t[0].join("\u00d7") : "scalar") + " " + t[1];
E.localType = (v) =>
  E.text(E.data.values[v][1])
    .replace(/^tensor<(.*)>$/, "$1")
    .replace(/x(?=[a-z]\w*$)/, " ")
    .replace(/x/g, "\u00d7");

E.searchable = function (i) {
  const s = E.data.steps,
    words = [`step ${E.address(i)}`, E.title(i), E.text(s.op[i]), E.data.groups[E.groupOf[i]][0]];
  for (const r of s.rules[i]) words.push(E.text(r));
  for (const v of [...s.results[i], ...s.operands[i]]) words.push("%" + v, E.name(v));
  for (const v of s.results[i]) {
    const t = E.tensorOf(v);
    if (t) words.push(E.placementText(t), E.tensorType(t).replace(/\u00d7/g, "x"));
    if (E.data.values[v][4] >= 0) words.push(E.text(E.data.values[v][4]));
  }
  for (const d of s.decisions[i])
    for (const [rule] of E.data.reasons.decisions[d][7]) words.push(E.data.reasons.texts[rule], E.ruleText(E.data.reasons.texts[rule]));
  return words.join(" \n").toLowerCase();
};

// What a rule did, in words; of rules that have none, the name.
E.ruleText = (name) => E.data.words[name] || name;

// A decision with its alternatives, texts put back (plan/reasons.py, packed).
E.decision = function (n) {
  const t = (k) => E.data.reasons.texts[k];
  const [cls, kind, what, tensor, placement, seconds, values, rules, weighed, others, problem, runs] =
    E.data.reasons.decisions[n];
  const parts = (rows) => rows.map(([w, k, c, s]) => ({ what: t(w), kind: t(k), cls: c, seconds: s }));
  return {
    number: n,
    cls,
    kind: t(kind),
    what: t(what),
    tensor: t(tensor),
    placement: t(placement),
    seconds,
    values,
    weighed,
    problem,
    runs,
    rules: rules.map(([r, op]) => [t(r), t(op)]),
    alternatives: others.map(([w, r, own, held, change, leaves, joins, least]) => ({
      what: t(w),
      rules: r.map(t),
      own,
      held,
      change,
      leaves: parts(leaves),
      joins: parts(joins),
      least: !!least,
    })),
  };
};

// What would have to move, alone, for an alternative to be as cheap as the plan (plan/reasons.py, Alternative.flips).
E.flips = function (a) {
  const gap = Math.max(0, a.change),
    found = [],
    kinds = new Map();
  for (const p of a.leaves) {
    if (p.seconds > 0) found.push({ what: p.what, from: p.seconds, to: p.seconds + gap });
    kinds.set(p.kind, (kinds.get(p.kind) || 0) + p.seconds);
  }
  for (const p of a.joins) {
    if (p.seconds > gap) found.push({ what: p.what, from: p.seconds, to: p.seconds - gap });
    kinds.set(p.kind, (kinds.get(p.kind) || 0) - p.seconds);
  }
  for (const [kind, less] of kinds) {
    if (Math.abs(less) > 1e-15 && 1 + gap / less > 0)
      found.push({ what: "every " + kind, from: 1, to: 1 + gap / less, every: true });
  }
  return found.sort((x, y) => Math.abs(Math.log(x.to / x.from)) - Math.abs(Math.log(y.to / y.from)));
};

// The step of a decision, for links: the first whose nearest decision it is, or that it is about at all.
E.stepOf = function (n) {
  const all = E.data.steps.decisions,
    nearest = all.findIndex((some) => some[0] === n);
  return nearest < 0 ? all.findIndex((some) => some.includes(n)) : nearest;
};

// What the plan calls the tensor that a decision is about, and where; "" where it holds none.
E.nameOf = function (d) {
  const v = E.data.values.findIndex((value) => value[2] === d.cls && value[5] === d.problem),
    i = d.problem ? E.stepOf(d.number) : -1,
    inside = i >= 0 && E.data.steps.results[i].some((w) => E.data.values[w][5] === d.problem);
  if (i >= 0 && !inside) return "step " + E.address(i);
  return [v < 0 ? "" : E.name(v), inside ? "in " + E.address(i).replace(/\.\d+$/, "") : ""].join(" ").trim();
};

E.select = function (i, source) {
  if (i < 0 || i >= E.count) return;
  E.state.step = i;
  E.emit("select", i, source);
};
