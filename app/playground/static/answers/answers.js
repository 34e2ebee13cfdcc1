// The answers of a generation: a list to select from, and the selected one token by token.

import { el, uniqueId } from "../dom.js";
import { stackTable } from "./stack.js";
import { PROBABILITY_BANDS, formatFigure, formatProbability, legend, plural, probabilityClass, tokenName } from "../viewkit.js";

const WORDS_MAX = 400;
const ORDER = "Best first. The search weighs log-probs by length (see Options), so a longer text may be ahead.";

export class Answers {
  /** `choose(choice, number)` is called for the first answer at once, then for each selected one. */
  constructor(container, choose) {
    Object.assign(this, { container, choose });
  }

  clear() { this.container.replaceChildren(); }

  /** Shows the choices of a response by an algorithm. */
  show(choices, algorithm) {
    const isReordered = algorithm === "banked" && choices.some(({ log_prob }, number) => number && log_prob > choices[number - 1].log_prob);
    const spaced = choices.every((choice) => choice.text.startsWith(" "));  // a word constraint keeps the model's leading space
    const name = uniqueId("answer");
    const items = choices.map((choice, number) => {
      const id = uniqueId("choice");
      const radio = el("input", { type: "radio", name, id, checked: number === 0, change: () => this.choose(choice, number) });
      return el("li", {}, radio, el("label", { for: id },
        el("span", { class: "answer-text" }, choice.text ? tokenName(choice.text.slice(spaced ? 1 : 0)) : "(the empty text)"),
        el("span", { class: "soft small" }, `${choice.satisfied ? "✓ satisfied" : "✗ not satisfied"} · log-prob ${formatFigure(choice.log_prob, 2)}`)));
    });
    this.container.replaceChildren(el("fieldset", {}, el("legend", { class: "out-of-sight" }, "Answers, best first"), el("ul", {}, ...items)),
      isReordered ? el("p", { class: "soft small" }, ORDER) : "");
    this.choose(choices[0], 0);
  }
}

/** Shows an answer token by token: coloured by log-prob, with its word trace and the trace as a table. */
export class TokensView {
  constructor(container) {
    this.container = container;
    container.classList.add("tokens-view");
    this.clear();
  }

  clear() {
    this.container.replaceChildren();
  }

  /**
   * Shows a choice of POST /generate with its trace. `start` is the start state of the automaton, null if not loaded;
   * `budget` is max_tokens.
   */
  show(choice, { start = null, budget = 0 } = {}) {
    if (!choice.trace) {
      this.container.replaceChildren(el("p", { class: "view-note" }, "The request did not ask for a trace."));
      return;
    }
    this.container.replaceChildren(
      this.summary(choice), this.text(choice.trace), this.card,
      legend("Colours of tokens, by the chance that the model gave them", PROBABILITY_BANDS.map(({ name, label }) => [name, label])),
      stackTable(choice.trace, budget) ?? "", ...this.words(choice, start), this.table(choice.trace, start));
    this.describe(choice.trace, 0);
  }

  summary(choice) {
    const written = choice.trace.length;
    const mean = choice.log_prob / Math.max(1, written);
    return el("p", { class: "tokens-summary" },
      `${plural(written, "token")} with the end; log-prob ${formatFigure(choice.log_prob, 2)}, ${formatFigure(mean, 2)} a token; ` +
      `${choice.satisfied ? "re-checked on the finished text: it satisfies the constraint" : "it does not satisfy the constraint"}.`);
  }

  /** The text as one tab stop; arrow keys move from token to token. */
  text(trace) {
    this.card = el("p", { class: "token-card", id: uniqueId("token"), "aria-live": "off" });
    const tokens = trace.map((step, index) => el("span", {
      class: `token ${probabilityClass(step.log_prob)}${step.text === "" ? " token-end" : ""}`, role: "button", tabindex: index ? "-1" : "0",
      "aria-label": this.nameOf(step, index), "data-place": index,
    }, shownText(step.text)));
    const spaced = tokens.flatMap((token, index) => (/^ +\S/.test(trace[index].text) ? [" ", token] : [token]));
    const frame = el("div", { class: "tokens-text", role: "group", "aria-label": "The text, token by token" }, ...spaced);
    const focusToken = (index) => {
      tokens.forEach((token, other) => token.setAttribute("tabindex", other === index ? "0" : "-1"));
      tokens[index].focus();
    };
    const at = (event) => event.target.closest("[data-place]");
    for (const name of ["pointerover", "focusin", "click"]) frame.addEventListener(name, (event) => at(event) && this.describe(trace, Number(at(event).dataset.place)));
    frame.addEventListener("keydown", (event) => {
      const index = Number(at(event)?.dataset.place);
      const next = { ArrowLeft: index - 1, ArrowRight: index + 1, Home: 0, End: tokens.length - 1 }[event.key];
      if (next === undefined || !tokens[next]) return;
      event.preventDefault();
      focusToken(next);
    });
    return frame;
  }

  nameOf(step, index) {
    return `${tokenName(step.text)}, token ${index + 1}, log-prob ${formatFigure(step.log_prob, 2)}, chance ${formatProbability(step.log_prob)}`;
  }

  describe(trace, index) {
    const step = trace[index];
    const pushed = step.alpha ? `, pushed with α ${formatFigure(step.alpha, 2)}` : "";
    const left = step.distance ? `at least ${plural(step.distance, "token")} to the end` : "the text has ended";
    this.card.replaceChildren(
      el("strong", {}, tokenName(step.text)),
      ` token ${index + 1} of ${trace.length}: log-prob ${formatFigure(step.log_prob, 2)} (${formatProbability(step.log_prob)})${pushed}; then q${step.state}, ${left}.`);
  }

  /** The words of the text, each with the propositions that hold and the state after it. */
  words(choice, start) {
    const units = choice.words.slice(0, WORDS_MAX);
    if (!units.length) return [];
    let before = start;
    const items = units.map((unit) => {
      const moved = before !== null && before !== unit.state;
      const labels = unit.propositions.map((letter) => el("span", { class: "holds" }, letter));
      const path = el("span", { class: `word-state${moved ? " moved" : ""}` }, moved ? `q${before} → q${unit.state}` : `q${unit.state}`);
      before = unit.state;
      return el("li", { class: labels.length ? "word labelled" : "word" },
        el("span", { class: "word-text" }, unit.text), el("span", { class: "word-holds" }, ...labels), path);
    });
    const more = choice.words.length - units.length;
    return [
      el("h4", {}, "Word trace"),
      el("ol", {
        class: units.some((unit) => unit.propositions.length) ? "word-trace" : "word-trace unlabelled", tabindex: "0",
        "aria-label": "Word trace: each word, the propositions that hold there, the state after it",
      }, ...items),
      more > 0 ? el("p", { class: "view-note" }, `${plural(more, "more word")}.`) : el("span", { hidden: true }),
    ];
  }

  table(trace, start) {
    const pushed = trace.some((step) => step.alpha !== 0);
    const names = ["t", "token", "q → q′", "d", ...(pushed ? ["α"] : []), "log-prob", "chance", "propositions"];
    let before = start;
    const rows = trace.map((step, index) => {
      const path = `${before === null ? "" : `q${before} `}→ q${step.state}`;
      before = step.state;
      const cell = (text, kind = "figure") => el("td", { class: kind }, text);
      return el("tr", {},
        el("th", { scope: "row" }, String(index + 1)), el("td", { class: `token-cell ${probabilityClass(step.log_prob)}` }, tokenName(step.text)),
        cell(path), cell(String(step.distance)), pushed ? cell(formatFigure(step.alpha, 3)) : null,
        cell(formatFigure(step.log_prob, 3)), cell(formatProbability(step.log_prob)), cell(propositionsOf(step), "propositions"));
    });
    const head = el("tr", {}, ...names.map((name) => el("th", { scope: "col" }, name)));
    return el("details", { class: "token-table" }, el("summary", {}, "Token by token, as a table"),
      el("div", { class: "table-scroll", tabindex: "0", role: "region", "aria-label": "Trace of the tokens" },
        el("table", {}, el("thead", {}, head), el("tbody", {}, ...rows))));
  }
}

/** The propositions of each word that a token completes, "–" for none; empty if it completes no word. */
function propositionsOf(step) {
  return step.propositions.map((labels) => labels.join(" ∧ ") || "–").join(", ");
}

function shownText(text) {
  if (text === "") return "■";
  if (/^ +$/.test(text)) return "␣".repeat(text.length);
  return text.replace(/^ +/, "").replace(/\n/g, "⏎\n").replace(/\t/g, "⇥\t");
}
