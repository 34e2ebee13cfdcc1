// An answer token by token: coloured by log-prob, its word trace, and the trace as a table.

import { CHANCES, chance, chanceClass, el, figure, freshId, legend, plural, tokenName } from "../viewkit.js";

const WORDS_MAX = 400;

export class TokensView {
  constructor(container) {
    this.container = container;
    container.classList.add("tokens-view");
    this.clear();
  }

  clear() {
    this.container.replaceChildren();
  }

  /** Show a choice of POST /generate with its trace; `start` is the automaton's first state, if known. */
  show(choice, { start = null } = {}) {
    if (!choice.trace) {
      this.container.replaceChildren(el("p", { class: "view-note" }, "No trace was asked for."));
      return;
    }
    this.container.replaceChildren(
      this.summary(choice), this.text(choice.trace), this.card,
      legend("Colours of tokens, by the chance that the model gave them", CHANCES.map(({ name, label }) => [name, label])),
      ...this.words(choice, start), this.table(choice.trace, start));
    this.tell(choice.trace, 0);
  }

  summary(choice) {
    const written = choice.trace.length;
    const mean = choice.log_prob / Math.max(1, written);
    return el("p", { class: "tokens-summary" },
      `${plural(written, "token")} with the end; log-prob ${figure(choice.log_prob, 2)}, ${figure(mean, 2)} a token; ` +
      `${choice.satisfied ? "re-checked on the finished text: it satisfies the constraint" : "it does not satisfy the constraint"}.`);
  }

  /** The text, one stop of the Tab key; arrow keys go from token to token. */
  text(trace) {
    this.card = el("p", { class: "token-card", id: freshId("token"), "aria-live": "off" });
    const tokens = trace.map((step, place) => el("span", {
      class: `token ${chanceClass(step.log_prob)}${step.text === "" ? " token-end" : ""}`, role: "button", tabindex: place ? "-1" : "0",
      "aria-label": this.nameOf(step, place), "data-place": place,
    }, shownText(step.text)));
    const spaced = tokens.flatMap((token, place) => (/^ +\S/.test(trace[place].text) ? [" ", token] : [token]));
    const frame = el("div", { class: "tokens-text", role: "group", "aria-label": "The text, token by token" }, ...spaced);
    const stand = (place) => {
      tokens.forEach((token, other) => token.setAttribute("tabindex", other === place ? "0" : "-1"));
      tokens[place].focus();
    };
    const at = (event) => event.target.closest("[data-place]");
    for (const name of ["pointerover", "focusin", "click"]) frame.addEventListener(name, (event) => at(event) && this.tell(trace, Number(at(event).dataset.place)));
    frame.addEventListener("keydown", (event) => {
      const place = Number(at(event)?.dataset.place);
      const next = { ArrowLeft: place - 1, ArrowRight: place + 1, Home: 0, End: tokens.length - 1 }[event.key];
      if (next === undefined || !tokens[next]) return;
      event.preventDefault();
      stand(next);
    });
    return frame;
  }

  nameOf(step, place) {
    return `${tokenName(step.text)}, token ${place + 1}, log-prob ${figure(step.log_prob, 2)}, chance ${chance(step.log_prob)}`;
  }

  tell(trace, place) {
    const step = trace[place];
    const pushed = step.alpha ? `, pushed with α ${figure(step.alpha, 2)}` : "";
    const left = step.distance ? `at least ${plural(step.distance, "token")} to the end` : "the text has ended";
    this.card.replaceChildren(
      el("strong", {}, tokenName(step.text)),
      ` token ${place + 1} of ${trace.length}: log-prob ${figure(step.log_prob, 2)} (${chance(step.log_prob)})${pushed}; then q${step.state}, ${left}.`);
  }

  /** The units of the text with what holds at each and the state after it. */
  words(choice, start) {
    const units = choice.words.slice(0, WORDS_MAX);
    if (!units.length) return [];
    let before = start;
    const items = units.map((unit) => {
      const moved = before !== null && before !== unit.state;
      const held = unit.propositions.map((letter) => el("span", { class: "holds" }, letter));
      const way = el("span", { class: `word-state${moved ? " moved" : ""}` }, moved ? `q${before} → q${unit.state}` : `q${unit.state}`);
      before = unit.state;
      return el("li", { class: held.length ? "word telling" : "word" },
        el("span", { class: "word-text" }, unit.text), el("span", { class: "word-holds" }, ...held), way);
    });
    const more = choice.words.length - units.length;
    return [
      el("h4", {}, "Word trace"),
      el("ol", {
        class: units.some((unit) => unit.propositions.length) ? "word-trace" : "word-trace silent", tabindex: "0",
        "aria-label": "Word trace: each word, the propositions that hold there, the state after it",
      }, ...items),
      more > 0 ? el("p", { class: "view-note" }, `${plural(more, "more word")}.`) : el("span", { hidden: true }),
    ];
  }

  table(trace, start) {
    const pushed = trace.some((step) => step.alpha !== 0);
    const names = ["t", "token", "q → q′", "d", ...(pushed ? ["α"] : []), "log-prob", "chance", "propositions"];
    let before = start;
    const rows = trace.map((step, place) => {
      const way = `${before === null ? "" : `q${before} `}→ q${step.state}`;
      before = step.state;
      const cell = (text, kind = "figure") => el("td", { class: kind }, text);
      return el("tr", {},
        el("th", { scope: "row" }, String(place + 1)), el("td", { class: `token-cell ${chanceClass(step.log_prob)}` }, tokenName(step.text)),
        cell(way), cell(String(step.distance)), pushed ? cell(figure(step.alpha, 3)) : null,
        cell(figure(step.log_prob, 3)), cell(chance(step.log_prob)), cell(propositionsOf(step), "propositions"));
    });
    const head = el("tr", {}, ...names.map((name) => el("th", { scope: "col" }, name)));
    return el("details", { class: "token-table" }, el("summary", {}, "Token by token, as a table"),
      el("div", { class: "table-scroll", tabindex: "0", role: "region", "aria-label": "Trace of the tokens" },
        el("table", {}, el("thead", {}, head), el("tbody", {}, ...rows))));
  }
}

/** What the words that a token completes hold: "coffee", "–" where nothing, nothing where it completes none. */
function propositionsOf(step) {
  return step.propositions.map((held) => held.join(" ∧ ") || "–").join(", ");
}

function shownText(text) {
  if (text === "") return "■";
  if (/^ +$/.test(text)) return "␣".repeat(text.length);
  return text.replace(/^ +/, "").replace(/\n/g, "⏎\n").replace(/\t/g, "⇥\t");
}
