// The stack of a grammar along an answer: the rules that are open after each token, and where the text has to close.

import { el, tokenName } from "../viewkit.js";

/** The first token after which all tokens that are left are needed; -1 if some were spare to the end. */
export function closingFrom(trace, budget) {
  return trace.findIndex((step, index) => step.distance > 0 && step.distance === budget - index - 1);
}

/** The stack after each token of a trace, null if it has none. `budget` is max_tokens. */
export function stackTable(trace, budget) {
  if (!trace.some((step) => step.stack)) return null;
  const closing = closingFrom(trace, budget);
  const rows = trace.map((step, index) => el("tr", { class: closing >= 0 && index >= closing ? "closing" : null },
    el("th", { scope: "row" }, String(index + 1)), el("td", { class: "token-cell" }, tokenName(step.text)),
    el("td", {}, (step.stack ?? []).join(" › ") || "–"), el("td", { class: "figure" }, String(step.distance)),
    el("td", { class: "figure" }, String(budget - index - 1))));
  const head = ["t", "token", "open rules, the innermost last", "d", "left"].map((name) => el("th", { scope: "col" }, name));
  const note = closing < 0 ? "The text was finished with tokens to spare."
    : `After token ${closing + 1} every token that is left is needed: from there on the text has to close.`;
  return el("details", { class: "token-table stack-table", open: true }, el("summary", {}, "Stack and distance"),
    el("p", { class: "view-note" }, note),
    el("div", { class: "table-scroll", tabindex: "0", role: "region", "aria-label": "The stack after each token" },
      el("table", {}, el("thead", {}, el("tr", {}, ...head)), el("tbody", {}, ...rows))));
}
