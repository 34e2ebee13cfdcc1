// The automaton as a graph to draw: which states are shown, what stands on the edges, the DOT text.

const LABEL_SYMBOLS_MAX = 12;
const LABEL_CHARS_MAX = 60;
const LINE_CHARS = 20;
const WAY_BEGIN = 8; // of a path that is itself too long
const WAY_END = 40;
const NEIGHBOURS_MAX = 3; // of a state on the path, where the rest is folded away
export const READABLE_STATES = 60;
export const READABLE_EDGES = 180;
export const DRAWN_STATES_MAX = 200;
export const DRAWN_EDGES_MAX = 700;

/** What an edge reads: { short, full, collapsed }. */
export function edgeLabel(automaton, letters) {
  const names = letterNames(automaton);
  const ways = automaton.kind === "words" ? formulas(automaton, letters) : [];
  ways.push(listed(letters.map((letter) => names[letter]), automaton.kind));
  const rest = without(automaton.letters.length, letters);
  if (rest.length === 0) ways.push({ text: "anything", symbols: 1 });
  else if (automaton.kind !== "words") {
    const but = listed(rest.map((letter) => names[letter]), automaton.kind);
    ways.push({ text: `any but ${but.text}`, symbols: but.symbols });
  }
  ways.sort((one, two) => one.text.length - two.text.length);
  const best = ways[0];
  const collapsed = best.symbols > LABEL_SYMBOLS_MAX || best.text.length > LABEL_CHARS_MAX;
  const full = automaton.kind === "words" ? best.text : listed(letters.map((letter) => names[letter]), automaton.kind).text;
  return { short: collapsed ? classLabel(letters, names, automaton.kind) : best.text, full, collapsed };
}

/** A class of many letters, by its first few and its size. */
function classLabel(letters, names, kind) {
  const first = letters.slice(0, 2).map((letter) => names[letter]).join(kind === "words" ? " | " : " ");
  const shown = first.length > 24 ? `${first.slice(0, 23)}…` : first;
  return `${shown} … (${letters.length} ${kind === "labels" ? "labels" : "letters"})`;
}

function listed(found, kind) {
  return { text: found.join(kind === "characters" ? " " : " | "), symbols: found.length };
}

function without(count, letters) {
  const held = new Set(letters);
  return [...Array(count).keys()].filter((letter) => !held.has(letter));
}

function letterNames(automaton) {
  if (automaton.kind === "words") return automaton.letters.map((held) => held.join(" ∧ ") || "other");
  return automaton.letters.map(([name]) => (/^'[^ ']'$/.test(name) ? name[1] : name));
}

/** A set of letters over propositions as a formula, where one of two simple shapes says it: p ∨ q, ¬p ∧ ¬q. */
function formulas(automaton, letters) {
  const holders = new Map();
  automaton.letters.forEach((held, letter) => held.forEach((name) => holders.set(name, [...(holders.get(name) ?? []), letter])));
  const ways = [];
  const all = automaton.letters.length;
  for (const [set, join, sign] of [[letters, " ∨ ", ""], [without(all, letters), " ∧ ", "¬"]]) {
    const within = new Set(set);
    const names = [...holders.keys()].filter((name) => holders.get(name).every((letter) => within.has(letter)));
    const covered = new Set(names.flatMap((name) => holders.get(name)));
    if (names.length && covered.size === within.size) ways.push({ text: names.map((name) => sign + name).join(join), symbols: names.length });
  }
  return ways;
}

/** The states to draw: all that live (and the dead if asked), or a path with its nearest neighbours. */
export function shownStates(automaton, { dead, folded, trail }) {
  const drawable = automaton.states.filter((state) => dead || state.distance !== null);
  if (!folded) return new Set(drawable.map((state) => state.id));
  const way = [...new Set(trail.length ? trail : shortestWay(automaton))];
  const kept = new Set([automaton.start, ...(way.length > READABLE_STATES ? [...way.slice(0, WAY_BEGIN), ...way.slice(-WAY_END)] : way)]);
  const allowed = new Set(drawable.map((state) => state.id));
  for (const id of [...kept]) {
    const near = automaton.transitions.filter((edge) => edge.from === id && allowed.has(edge.to) && !kept.has(edge.to))
      .sort((one, two) => rank(automaton, one.to) - rank(automaton, two.to));
    if (kept.size < READABLE_STATES) near.slice(0, NEIGHBOURS_MAX).forEach((edge) => kept.add(edge.to));
  }
  return kept;
}

/** The steps between those states of a way that are drawn; `texts` has what is written by each. */
export function stepsOf(shown, way, texts = []) {
  const steps = [];
  for (let place = 1, last = shown.has(way[0]) ? 0 : -1; place < way.length; place += 1) {
    if (!shown.has(way[place])) continue;
    const text = texts.length && place === last + 1 ? texts[place - 1] : "";
    if (last >= 0) steps.push({ from: way[last], to: way[place], text });
    last = place;
  }
  return steps;
}

/** Whether an edge tells nothing: the space before an answer, which can be passed over in any state by name alone. */
function passesOver(automaton, { from, to, letters }) {
  return from === to && letters.length === 1 && automaton.letters[letters[0]][0] === "(a leading space)";
}

function rank(automaton, id) {
  return automaton.states[id].distance ?? Infinity;
}

/** States from the start to the nearest end. */
function shortestWay(automaton) {
  const way = [automaton.start];
  const came = new Map([[automaton.start, null]]);
  for (const id of way) {
    if (automaton.states[id].accepting) {
      const back = [];
      for (let at = id; at !== null; at = came.get(at)) back.unshift(at);
      return back;
    }
    for (const edge of automaton.transitions) {
      if (edge.from === id && !came.has(edge.to)) {
        came.set(edge.to, id);
        way.push(edge.to);
      }
    }
  }
  return [automaton.start];
}

/**
 * The DOT text of the shown states, and the edges by the ids that the picture gives them. `steps` are those of a text where
 * the rest is folded away: { from, to, text }; one of several characters is a dashed edge past the states between.
 */
export function toDot(automaton, shown, furthest, classOf, steps = []) {
  const edges = new Map();
  const lines = [
    "digraph automaton {", '  bgcolor="transparent"; rankdir=LR; nodesep=0.3; ranksep=0.45; pad=0.15;',
    '  node [shape=circle, fixedsize=true, width=0.72, fontname="Helvetica", fontsize=13];',
    '  edge [fontname="Helvetica", fontsize=12.5, arrowsize=0.7];',
  ];
  if (shown.has(automaton.start)) lines.push('  begin [shape=point, width=0.08, class="begin"];', `  begin -> ${automaton.start};`);
  for (const id of shown) {
    const { distance, accepting } = automaton.states[id];
    const shape = accepting ? "doublecircle, width=0.62" : "circle";
    const words = distance === null ? "dead" : `d ${distance}`;
    lines.push(`  ${id} [id="state-${id}", label="q${id}\\n${words}", shape=${shape}, class="${classOf(distance, furthest)}"];`);
  }
  const hidden = new Map();
  for (const edge of automaton.transitions) {
    if (!shown.has(edge.from)) continue;
    if (!shown.has(edge.to)) {
      if (automaton.states[edge.to].distance !== null) hidden.set(edge.from, (hidden.get(edge.from) ?? 0) + 1);
      continue;
    }
    if (passesOver(automaton, edge)) continue;
    const label = edgeLabel(automaton, edge.letters);
    const name = `edge-${edge.from}-${edge.to}`;
    edges.set(name, { ...edge, ...label });
    lines.push(`  ${edge.from} -> ${edge.to} [id="${name}", label=${quoted(wrapped(label.short))}, class="${label.collapsed ? "collapsed" : "plain"}"];`);
  }
  for (const { from, to, text } of steps) {
    const name = `edge-${from}-${to}`;
    if (from === to || edges.has(name)) continue;
    const full = `${text ? `“${text}”, ` : ""}past states that are not drawn`;
    edges.set(name, { from, to, letters: [], short: text || "…", full, collapsed: true });
    lines.push(`  ${from} -> ${to} [id="${name}", label=${quoted(wrapped(text || "…"))}, style=dashed, class="leap"];`);
  }
  for (const [id, count] of hidden) {
    lines.push(`  more${id} [shape=plaintext, fixedsize=false, label="+${count}", class="more"];`, `  ${id} -> more${id} [style=dashed, arrowhead=none, class="more"];`);
  }
  return { dot: [...lines, "}"].join("\n"), edges };
}

/** Lines of a label, broken where its parts meet. */
function wrapped(text) {
  const lines = [""];
  for (const part of text.split(/(?<=[ ])/)) {
    if (lines.at(-1).length && (lines.at(-1) + part).length > LINE_CHARS + 1) lines.push("");
    lines[lines.length - 1] += part;
  }
  return lines.map((line) => line.trim());
}

/** A DOT string: Graphviz reads backslashes, quotes and entities. */
function quoted(lines) {
  const control = /[\u0000-\u001f\u007f-\u009f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]/g;
  const escape = (line) => line.replace(/\\/g, "\\\\").replace(/"/g, '\\"').replace(/&/g, "&amp;")
    .replace(control, (sign) => `\\\\u${sign.charCodeAt(0).toString(16).padStart(4, "0")}`);
  return `"${lines.map((line) => ` ${escape(line)} `).join("\\n")}"`;
}
