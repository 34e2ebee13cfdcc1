// The answer above the fold: its text with the words that satisfy, what it used of the budget, its distances, and what the
// same model writes without the constraint.

import { RequestError, askJson } from "../api.js";
import { countCharacters, el, formatNumber } from "../dom.js";
import { markViolation } from "../explain.js";
import { chosenModel } from "../models.js";
import { sentence } from "../problems.js";
import { plural, tokenName } from "../viewkit.js";

const CHART_TOKENS_MAX = 80;  // of an answer whose distances are drawn

export class Result {
  constructor(container) {
    this.container = container;
    this.control = null;
    this.baseline = { key: "", answer: null };  // the last answer without a constraint
    this.text = el("p", { class: "result-text" });
    this.verdict = el("p", { class: "result-verdict" });
    this.plainText = el("p", { class: "result-text" });
    this.plainVerdict = el("p", { class: "result-verdict" });
    this.chart = el("div", { class: "distances" });
    this.note = el("p", { class: "soft small", hidden: true }, "The answer to the request before your change.");
    container.replaceChildren(
      el("section", { class: "result-half constrained" }, el("h3", {}, "With the constraint"), this.text, this.verdict, this.note),
      el("section", { class: "result-half unconstrained" }, el("h3", {}, "The same model without it"), this.plainText, this.plainVerdict),
      this.chart);
  }

  /** Begins a run of {prompt, constraint, options}: the answer without the constraint is requested beside it. */
  start(request) {
    this.control?.abort();
    this.control = new AbortController();
    this.container.hidden = false;
    this.#setOutdated(false);
    for (const part of [this.text, this.verdict, this.chart]) part.replaceChildren();
    this.#compare(request, this.control.signal);
  }

  /** Stops the request for the answer without the constraint. */
  stop() { this.control?.abort(); }

  /** The request was changed: what is shown, or still written, answers the one before. */
  outdate() { this.#setOutdated(true); }

  /** Shows the text that the search ranks first so far. */
  progress(text) {
    this.text.className = "result-text soft";
    this.text.replaceChildren(text.replace(/^ /, ""), "…");
  }

  /** Shows why there is no answer. */
  fail(text) {
    this.text.className = "result-text soft";
    this.text.replaceChildren(text);
  }

  /** Shows a choice of the response. `leastBudget` is null if it is not known. */
  show(choice, { budget, leastBudget }) {
    this.text.className = "result-text";
    this.text.replaceChildren(...(choice.text ? markedWords(choice) : ["(the empty text)"]));
    const used = choice.trace ? `, ${formatNumber(choice.trace.length)} of ${plural(budget, "token")}` : "";
    setVerdict(this.verdict, choice.satisfied, `${choice.satisfied ? "satisfied" : "not satisfied"}${used}`);
    if (leastBudget !== null) this.verdict.append(el("span", { class: "least" }, ` · least budget ${formatNumber(leastBudget)}`));
    this.chart.replaceChildren(...(choice.trace ? distances(choice.trace, budget, leastBudget) : []));
  }

  #setOutdated(isOutdated) {
    this.note.hidden = !isOutdated;
    this.container.classList.toggle("outdated", isOutdated);
  }

  async #compare({ prompt, constraint, options }, signal) {
    const key = JSON.stringify([chosenModel(), prompt, options.max_tokens]);
    this.plainText.className = "result-text soft";
    this.plainText.replaceChildren("…");
    this.plainVerdict.replaceChildren();
    try {
      if (this.baseline.key !== key) this.baseline = { key, answer: await complete(prompt, options.max_tokens, signal) };
      const { text, cut, tokens } = this.baseline.answer;
      const checked = options.scope === "full" ? prompt + text : text.trim();
      const check = await askJson("POST", "/check", { body: { constraint, text: checked }, signal });
      signal.throwIfAborted();
      this.plainText.className = "result-text";
      this.plainText.replaceChildren(...(checked ? markViolation(checked, check) : ["(the empty text)"]));
      const used = `, ${cut ? "cut after" : "ended after"} ${plural(tokens, "token")}`;
      setVerdict(this.plainVerdict, check.satisfied, `${plainVerdict(check, checked)}${used}`);
    } catch (error) {
      if (signal.aborted) {
        if (signal === this.control.signal) this.plainText.replaceChildren("(stopped)");  // a later run writes its own text
        return;
      }
      if (!(error instanceof RequestError)) throw error;
      this.plainText.replaceChildren(sentence(error.problem));
    }
  }
}

/** The most probable next tokens, one after the other, up to the budget. */
async function complete(prompt, max_tokens, signal) {
  const body = { prompt, max_tokens, temperature: 0 };
  const { choices: [choice], usage } = await askJson("POST", "/v1/completions", { body, signal });
  return { text: choice.text, cut: choice.finish_reason === "length", tokens: usage.completion_tokens };
}

function setVerdict(element, isSatisfied, text) {
  element.className = `result-verdict ${isSatisfied ? "good" : "bad"}`;
  element.replaceChildren(`${isSatisfied ? "✓" : "✗"} ${text}`);
}

function plainVerdict(check, text) {
  if (check.satisfied) return "satisfied by chance";
  return check.violated_at === null || check.violated_at < countCharacters(text) ? "breaks it" : "does not satisfy it";
}

/** The text with each word marked at which propositions hold. */
function markedWords(choice) {
  const parts = [];
  let at = 0;
  for (const { text, propositions } of choice.words) {
    const start = choice.text.indexOf(text, at);
    if (start < 0) break;
    if (propositions.length) {
      parts.push(choice.text.slice(at, start), el("mark", { class: "holds-here", title: propositions.join(", ") }, text));
      at = start + text.length;
    } else if (start > at || text) {
      parts.push(choice.text.slice(at, start + text.length));
      at = start + text.length;
    }
  }
  return [...parts, choice.text.slice(at)];
}

/** A chart: for each token the tokens that are left after it, and how many of them are needed at least. */
function distances(trace, budget, leastBudget) {
  if (trace.length > CHART_TOKENS_MAX) return [];
  const steps = trace.map(({ text, distance }, index) => ({ name: tokenName(text), distance, left: budget - index - 1 }));
  if (leastBudget !== null) steps.unshift({ name: "start", distance: leastBudget, left: budget });
  const columns = steps.map(({ name, distance, left }) => {
    const bar = el("span", { class: "distance-left" }, el("span", { class: "distance-needed" }));
    bar.style.setProperty("--left", left / budget);
    bar.firstChild.style.setProperty("--needed", left ? distance / left : 0);
    const words = `“${name}”: at least ${plural(distance, "more token")}, ${formatNumber(left)} left`;
    return el("li", { class: distance === left && left ? "every" : null, title: words }, el("span", { class: "distance-bars", "aria-hidden": "true" }, bar),
      el("span", { class: "distance-figure", "aria-hidden": "true" }, String(distance)),
      el("span", { class: "distance-token", "aria-hidden": "true" }, name), el("span", { class: "out-of-sight" }, words));
  });
  return [
    el("p", { class: "soft small" }, "Tokens still needed (blue) and left (grey) after each token of the answer:"),
    el("ol", { class: "distance-chart", tabindex: "0", "aria-label": "Distance to the end after each token" }, ...columns),
  ];
}
