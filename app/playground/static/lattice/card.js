// The details of one node, shown below the lattice.

import { chance, el, figure, plural, tokenName } from "../viewkit.js";

/** The details of a row. */
export function rowCard(row, kinds, fate, refused) {
  const facts = [
    ["step", `t = ${row.t}, ${plural(row.budget, "token")} left after it`],
    ["distance", row.finished ? "0: the text has ended" : `${row.distance}: the fewest tokens that still end it`],
    ["state", `q${row.state}`],
    [kinds.logProbOnly ? "log-prob" : `${kinds.word} before → after`, kinds.logProbOnly ? figure(row.log_prob, 2) : `${figure(row.before, 2)} → ${figure(row.score, 2)}`],
    ...(kinds.pushes ? [["α", figure(row.alpha, 3)]] : []),
    ["own log-prob", `${figure(row.tokenLogProb, 2)} (${chance(row.tokenLogProb)}), ${figure(row.log_prob, 2)} in all`],
    ["beam", `#${row.index + 1}, ${fate}`],
    ...(refused.length ? [["refused next", refused.map((token) => `${tokenName(token.text)} (${chance(token.log_prob)}, ${shortReason(token)})`).join("; ")]] : []),
  ];
  return card(row.text, row.token, facts, "");
}

/** The details of a rejected token; `broken` names the violated conjunct, once it is loaded. */
export function refusedCard(token, prefix, broken) {
  const facts = [
    ["step", `t = ${token.t}, ${plural(token.budget, "token")} left after it`],
    ["log-prob", `${figure(token.log_prob, 2)} (${chance(token.log_prob)}) → −∞`],
    ["reason", reasonWords(token)],
    ...(broken === null ? [] : [["which part", broken]]),
  ];
  return card(prefix + token.text, token.text, facts, "refused");
}

export function reasonWords(token) {
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
  const items = facts.flatMap(([term, words]) => [el("dt", {}, term), el("dd", {}, words)]);
  return el("div", { class: `lattice-facts ${kind}` },
    el("p", { class: "lattice-text" }, kind && el("span", { class: "tag" }, "refused"), before, el("mark", {}, token || "■ end")), el("dl", {}, ...items));
}
