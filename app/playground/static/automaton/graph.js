// The automaton as a graph: visible states, edge labels and the DOT text.

const LABEL_SYMBOLS_MAX = 12;
const LABEL_CHARS_MAX = 60;
const LINE_CHARS = 20;
const PATH_HEAD = 8; // states shown at the start of a long path
const PATH_TAIL = 40;
const NEIGHBOURS_MAX = 3; // shown of each state on the path in a folded picture
export const READABLE_STATES = 60;
export const READABLE_EDGES = 180;
export const DRAWN_STATES_MAX = 200;
export const DRAWN_EDGES_MAX = 700;

/** The labels of an edge: { short, full, collapsed }. */
export function edgeLabel(automaton, letters) {
  const names = letterNames(automaton);
  const candidates = automaton.kind === "words" ? propositionFormulas(automaton, letters) : [];
  candidates.push(joinNames(letters.map((letter) => names[letter]), automaton.kind));
  const others = complement(automaton.letters.length, letters);
  if (others.length === 0) candidates.push({ text: "anything", symbols: 1 });
  else if (automaton.kind !== "words") {
    const exception = joinNames(others.map((letter) => names[letter]), automaton.kind);
    candidates.push({ text: `any but ${exception.text}`, symbols: exception.symbols });
  }
  candidates.sort((a, b) => a.text.length - b.text.length);
  const best = candidates[0];
  const collapsed = best.symbols > LABEL_SYMBOLS_MAX || best.text.length > LABEL_CHARS_MAX;
  const full = automaton.kind === "words" ? best.text : joinNames(letters.map((letter) => names[letter]), automaton.kind).text;
  return { short: collapsed ? classLabel(letters, names, automaton.kind) : best.text, full, collapsed };
}

/** A label for a large set of letters: its first ones and its size. */
function classLabel(letters, names, kind) {
  const first = letters.slice(0, 2).map((letter) => names[letter]).join(kind === "words" ? " | " : " ");
  const visible = first.length > 24 ? `${first.slice(0, 23)}…` : first;
  return `${visible} … (${letters.length} ${kind === "labels" ? "labels" : "letters"})`;
}

function joinNames(items, kind) {
  return { text: items.join(kind === "characters" ? " " : " | "), symbols: items.length };
}

function complement(count, letters) {
  const props = new Set(letters);
  return [...Array(count).keys()].filter((letter) => !props.has(letter));
}

function letterNames(automaton) {
  if (automaton.kind === "words") return automaton.letters.map((props) => props.join(" ∧ ") || "other");
  return automaton.letters.map(([name]) => (/^'[^ ']'$/.test(name) ? name[1] : name));
}

/** A set of letters over propositions as a formula of the form p ∨ q or ¬p ∧ ¬q, if it has one. */
function propositionFormulas(automaton, letters) {
  const lettersOf = new Map();
  automaton.letters.forEach((props, letter) => props.forEach((name) => lettersOf.set(name, [...(lettersOf.get(name) ?? []), letter])));
  const candidates = [];
  const all = automaton.letters.length;
  for (const [set, join, sign] of [[letters, " ∨ ", ""], [complement(all, letters), " ∧ ", "¬"]]) {
    const members = new Set(set);
    const names = [...lettersOf.keys()].filter((name) => lettersOf.get(name).every((letter) => members.has(letter)));
    const union = new Set(names.flatMap((name) => lettersOf.get(name)));
    if (names.length && union.size === members.size) candidates.push({ text: names.map((name) => sign + name).join(join), symbols: names.length });
  }
  return candidates;
}

/**
 * The states to draw: all live ones (dead ones on request), or a path with its nearest neighbours. `levels` is how many
 * transitions the neighbours are away from the path; `found` is a state that is drawn in any case, null for none.
 */
export function visibleStates(automaton, { dead, folded, trail, levels = 1, found = null }) {
  const drawable = automaton.states.filter((state) => dead || state.distance !== null || state.id === found);
  if (!folded) return new Set(drawable.map((state) => state.id));
  const path = [...new Set(found !== null ? pathTo(automaton, (id) => id === found) : trail.length ? trail : shortestPath(automaton))];
  const visible = new Set([automaton.start, ...(path.length > READABLE_STATES ? [...path.slice(0, PATH_HEAD), ...path.slice(-PATH_TAIL)] : path)]);
  const allowed = new Set(drawable.map((state) => state.id));
  let ring = [...visible];
  for (let level = 0; level < levels; level += 1) {
    const before = visible.size;
    for (const id of ring) {
      const near = automaton.transitions.filter((edge) => edge.from === id && allowed.has(edge.to) && !visible.has(edge.to))
        .sort((a, b) => rank(automaton, a.to) - rank(automaton, b.to));
      if (visible.size < READABLE_STATES) near.slice(0, NEIGHBOURS_MAX).forEach((edge) => visible.add(edge.to));
    }
    ring = [...visible].slice(before);
  }
  return visible;
}

/** The edges between the visible states of a path; `texts` has the text of each step of the path. */
export function pathEdges(visible, path, texts = []) {
  const steps = [];
  for (let index = 1, last = visible.has(path[0]) ? 0 : -1; index < path.length; index += 1) {
    if (!visible.has(path[index])) continue;
    const text = texts.length && index === last + 1 ? texts[index - 1] : "";
    if (last >= 0) steps.push({ from: path[last], to: path[index], text });
    last = index;
  }
  return steps;
}

/** Whether an edge is only for the space before an answer, and is left out of the picture. */
function isLeadingSpaceLoop(automaton, { from, to, letters }) {
  return from === to && letters.length === 1 && automaton.letters[letters[0]][0] === "(a leading space)";
}

function rank(automaton, id) {
  return automaton.states[id].distance ?? Infinity;
}

const shortestPath = (automaton) => pathTo(automaton, (id) => automaton.states[id].accepting);

/** The states of a shortest path from the start to the first state that `ends` accepts; the start alone without one. */
function pathTo(automaton, ends) {
  const queue = [automaton.start];
  const predecessors = new Map([[automaton.start, null]]);
  for (const id of queue) {
    if (ends(id)) {
      const path = [];
      for (let at = id; at !== null; at = predecessors.get(at)) path.unshift(at);
      return path;
    }
    for (const edge of automaton.transitions) {
      if (edge.from === id && !predecessors.has(edge.to)) {
        predecessors.set(edge.to, id);
        queue.push(edge.to);
      }
    }
  }
  return [automaton.start];
}

/**
 * The DOT text of the visible states, and the edges by their ids in the picture. `steps` are the edges of a text in a folded
 * picture: { from, to, text }; an edge of several characters is dashed and skips the states between.
 */
export function toDot(automaton, visible, maxDistance, classOf, steps = []) {
  const edges = new Map();
  const lines = [
    "digraph automaton {", '  bgcolor="transparent"; rankdir=LR; nodesep=0.3; ranksep=0.45; pad=0.15;',
    '  node [shape=circle, fixedsize=true, width=0.72, fontname="Helvetica", fontsize=13];',
    '  edge [fontname="Helvetica", fontsize=12.5, arrowsize=0.7];',
  ];
  if (visible.has(automaton.start)) lines.push('  begin [shape=point, width=0.08, class="begin"];', `  begin -> ${automaton.start};`);
  for (const id of visible) {
    const { distance, accepting } = automaton.states[id];
    const shape = accepting ? "doublecircle, width=0.62" : "circle";
    const words = distance === null ? "dead" : `d ${distance}`;
    lines.push(`  ${id} [id="state-${id}", label="q${id}\\n${words}", shape=${shape}, class="${classOf(distance, maxDistance)}"];`);
  }
  const hidden = new Map();
  for (const edge of automaton.transitions) {
    if (!visible.has(edge.from)) continue;
    if (!visible.has(edge.to)) {
      if (automaton.states[edge.to].distance !== null) hidden.set(edge.from, (hidden.get(edge.from) ?? 0) + 1);
      continue;
    }
    if (isLeadingSpaceLoop(automaton, edge)) continue;
    const label = edgeLabel(automaton, edge.letters);
    const name = `edge-${edge.from}-${edge.to}`;
    edges.set(name, { ...edge, ...label });
    lines.push(`  ${edge.from} -> ${edge.to} [id="${name}", label=${dotString(wrapLabel(label.short))}, class="${label.collapsed ? "collapsed" : "plain"}"];`);
  }
  for (const { from, to, text } of steps) {
    const name = `edge-${from}-${to}`;
    if (from === to || edges.has(name)) continue;
    const full = `${text ? `“${text}”, ` : ""}past states that are not drawn`;
    edges.set(name, { from, to, letters: [], short: text || "…", full, collapsed: true });
    lines.push(`  ${from} -> ${to} [id="${name}", label=${dotString(wrapLabel(text || "…"))}, style=dashed, class="leap"];`);
  }
  for (const [id, count] of hidden) {
    lines.push(`  more${id} [shape=plaintext, fixedsize=false, label="+${count}", class="more"];`, `  ${id} -> more${id} [style=dashed, arrowhead=none, class="more"];`);
  }
  return { dot: [...lines, "}"].join("\n"), edges };
}

/** Breaks a label into lines between its parts. */
function wrapLabel(text) {
  const lines = [""];
  for (const part of text.split(/(?<=[ ])/)) {
    if (lines.at(-1).length && (lines.at(-1) + part).length > LINE_CHARS + 1) lines.push("");
    lines[lines.length - 1] += part;
  }
  return lines.map((line) => line.trim());
}

/** A DOT string, with backslashes, quotes and entities escaped. */
function dotString(lines) {
  const control = /[\u0000-\u001f\u007f-\u009f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]/g;
  const escape = (line) => line.replace(/\\/g, "\\\\").replace(/"/g, '\\"').replace(/&/g, "&amp;")
    .replace(control, (sign) => `\\\\u${sign.charCodeAt(0).toString(16).padStart(4, "0")}`);
  return `"${lines.map((line) => ` ${escape(line)} `).join("\\n")}"`;
}
