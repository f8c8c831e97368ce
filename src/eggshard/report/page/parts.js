"use strict";
// Groups in groups, so that no node ever opens into more than FEW others.
E.parts = function () {
  const FEW = 120,
    leaf = (i) => ({ step: i, start: i, count: 1 });
  const cut = (label, start, count, within) => {
    const node = { label, start, count, children: null };
    if (within && within.length) {
      node.make = () => folded(within.map((run) => cut(...run)));
      return node;
    }
    // The programs in a loop or branch are a part each, behind its step.
    node.make = () => {
      const items = chained(E.outermost(start, count)).flatMap((node) =>
        node.step === undefined
          ? [node]
          : [
              node,
              ...(E.data.steps.inside[node.step] || []).filter(([, , n]) => n).map(([name, first, n]) => cut(name, first, n)),
            ],
      );
      if (items.length <= FEW) return items;
      const pieces = Math.min(60, Math.ceil(items.length / 40)),
        ends = d3.range(pieces + 1).map((k) => Math.round((k * items.length) / pieces));
      return ends.slice(1).map((end, k) => {
        const some = items.slice(ends[k], end),
          behind = some[some.length - 1],
          last = behind.children ? behind.children[behind.children.length - 1] : behind;
        return E.bundle(some, `steps ${E.address(some[0].start)}\u2013${E.address(last.start)}`);
      });
    };
    return node;
  };
  const nodes = E.data.groups.map((run) => cut(...run));
  if (nodes.length === 1) return Object.assign(nodes[0], { label: "all steps" });
  return { label: "all steps", start: 0, count: E.count, children: folded(nodes) };

  // Element-wise steps that compilers fuse are one node, unless nothing else is there.
  function chained(steps) {
    const fused = E.data.steps.fused,
      runs = [];
    for (const i of steps) {
      const run = runs[runs.length - 1];
      if (run && fused[i] >= 0 && fused[i] === fused[run[0]]) run.push(i);
      else runs.push([i]);
    }
    return runs.length < 2
      ? steps.map(leaf)
      : runs.map((run) => (run.length < 2 ? leaf(run[0]) : E.bundle(run.map(leaf), fusedLabel(run))));
  }
  function fusedLabel(run) {
    const names = [...new Set(run.map((i) => E.text(E.data.steps.op[i])))];
    return `fused: ${names.slice(0, 3).join(", ")}${names.length > 3 ? ", \u2026" : ""}`;
  }

  // Equal parts in a row are one node: the layers of a model.
  function folded(nodes) {
    const runs = [];
    for (const node of nodes) {
      const run = runs[runs.length - 1];
      if (run && run[0].count === node.count) run.push(node);
      else runs.push([node]);
    }
    nodes = runs.flatMap((run) =>
      run.length < 4
        ? run
        : [E.bundle(run, `${run.length} equal parts: ${run[0].label} \u2026 ${run[run.length - 1].label}`)],
    );
    while (nodes.length > 60) {
      const parts = [];
      for (let k = 0; k < nodes.length; k += 12) {
        const some = nodes.slice(k, k + 12);
        parts.push(E.bundle(some, `${some[0].label} \u2026 ${some[some.length - 1].label}`));
      }
      nodes = parts;
    }
    return nodes;
  }
};

// Nodes in a row as one.
E.bundle = function (nodes, label) {
  const [first, last] = [nodes[0], nodes[nodes.length - 1]];
  return { label, start: first.start, count: last.start + last.count - first.start, children: nodes };
};
