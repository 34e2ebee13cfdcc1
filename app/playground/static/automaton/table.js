// The automaton as a table, for screen readers and large automata.

import { edgeLabel } from "./graph.js";
import { el, plural } from "../viewkit.js";

const ROWS_MAX = 300;

/** A closed <details> element whose table is built when it is first opened. */
export function automatonTable(automaton) {
  const fold = el("details", { class: "automaton-table" }, el("summary", {}, "States and transitions as a table"));
  fold.addEventListener("toggle", () => fold.open && fold.append(scroller(automaton)), { once: true });
  return fold;
}

function scroller(automaton) {
  const ways = new Map(automaton.states.map((state) => [state.id, []]));
  for (const edge of automaton.transitions) ways.get(edge.from).push(edge);
  const head = ["state", "tokens to the end", "may end", "leads to"].map((name) => el("th", { scope: "col" }, name));
  const rows = automaton.states.slice(0, ROWS_MAX).map((state) => row(automaton, state, ways.get(state.id)));
  const more = automaton.states.length - rows.length;
  return el("div", { class: "table-scroll", tabindex: "0", role: "region", "aria-label": "States and transitions" },
    el("table", {}, el("thead", {}, el("tr", {}, ...head)), el("tbody", {}, ...rows)),
    more > 0 ? el("p", { class: "view-note" }, `${plural(more, "more state")}: GET /automata/${automaton.automaton} has all of them.`) : null);
}

function row(automaton, state, edges) {
  const alive = (edge) => automaton.states[edge.to].distance !== null;
  const leads = edges.filter(alive).map((edge) => el("li", {}, `${edgeLabel(automaton, edge.letters).full} → q${edge.to}`));
  const lost = edges.length - leads.length;
  if (lost && state.distance !== null) leads.push(el("li", { class: "muted" }, "all else → dead"));
  return el("tr", {},
    el("th", { scope: "row" }, `q${state.id}${state.id === automaton.start ? " (start)" : ""}`),
    el("td", {}, state.distance === null ? "dead" : String(state.distance)),
    el("td", {}, state.accepting ? "yes" : "no"),
    el("td", {}, leads.length ? el("ul", {}, ...leads) : "–"));
}
