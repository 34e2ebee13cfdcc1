// The details of one node, shown below the lattice.

import { formatProbability, el, formatFigure, plural, tokenName } from "../viewkit.js";

/** The details of a row. */
export function rowCard(row, traits, status, rejected) {
  const facts = [
    ["step", `t = ${row.t}, ${plural(row.budget, "token")} left after it`],
    ["distance", row.finished ? "0: the text has ended" : `${row.distance}: the fewest tokens that still end it`],
    ["state", `q${row.state}`],
    [traits.logProbOnly ? "log-prob" : `${traits.word} before → after`, traits.logProbOnly ? formatFigure(row.log_prob, 2) : `${formatFigure(row.before, 2)} → ${formatFigure(row.score, 2)}`],
    ...(traits.pushes ? [["α", formatFigure(row.alpha, 3)]] : []),
    ["own log-prob", `${formatFigure(row.tokenLogProb, 2)} (${formatProbability(row.tokenLogProb)}), ${formatFigure(row.log_prob, 2)} in all`],
    ["beam", `#${row.index + 1}, ${status}`],
    ...(rejected.length ? [["rejected next", rejected.map((token) => `${tokenName(token.text)} (${formatProbability(token.log_prob)}, ${shortReason(token)})`).join("; ")]] : []),
  ];
  return card(row.text, row.token, facts, "");
}

/** The details of a rejected token; `violation` names the violated conjunct, once it is loaded. */
export function rejectedCard(token, prefix, violation) {
  const facts = [
    ["step", `t = ${token.t}, ${plural(token.budget, "token")} left after it`],
    ["log-prob", `${formatFigure(token.log_prob, 2)} (${formatProbability(token.log_prob)}) → −∞`],
    ["reason", reasonText(token)],
    ...(violation === null ? [] : [["which part", violation]]),
  ];
  return card(prefix + token.text, token.text, facts, "rejected");
}

export function reasonText(token) {
  if (token.reason === "over_budget") return `too far from the end: ${plural(token.distance, "more token")} at least, and only ${token.budget} left`;
  if (token.reason === "violates") return "after it nothing can satisfy the constraint any more";
  if (token.reason === "incomplete") return "the model would end here, but the text does not satisfy the constraint yet";
  return "a special token: it writes no text";
}

export function shortReason(token) {
  if (token.reason === "over_budget") return `d ${token.distance} > ${token.budget}`;
  return { violates: "breaks it", incomplete: "incomplete" }[token.reason] ?? "no text";
}

function card(text, token, facts, kind) {
  const before = text.slice(0, text.length - token.length);
  const items = facts.flatMap(([term, detail]) => [el("dt", {}, term), el("dd", {}, detail)]);
  return el("div", { class: `lattice-facts ${kind}` },
    el("p", { class: "lattice-text" }, kind && el("span", { class: "tag" }, "rejected"), before, el("mark", {}, token || "■ end")), el("dl", {}, ...items));
}
