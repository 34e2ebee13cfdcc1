// Compiles the constraint after each pause in typing, shows errors at their position and explains it in words.

import { Refusal, askJson } from "./api.js";
import { el, later, plural, formatNumber } from "./dom.js";
import { Unfinished } from "./forms/basic.js";
import { sentence } from "./problems.js";

const PAUSE_MS = 250;
const IDLE_MS = 600;
const SHOWN_SENTENCES = 8;
const LOCATED = ["constraint_syntax", "unsupported"];

export class Live {
  /**
   * `form` is the ConstraintForm. Callbacks: `compiled(answer, constraint)` after a compilation, `idle(answer)` after a
   * longer pause in typing, `broken()` if there is no automaton, `example(text)` when a sample is selected.
   */
  constructor(container, form, callbacks) {
    Object.assign(this, { form, callbacks, answer: null, constraint: null, problem: null, control: null });
    this.line = el("p", { class: "live-line", role: "status" });
    this.words = el("div", { class: "explained", hidden: true });
    container.append(this.line, this.words);
    this.touched = later(PAUSE_MS, () => this.compile());
    this.explainLater = later(IDLE_MS, () => this.#explain());
    this.againLater = null;
  }

  /** Called after each edit. */
  edited() {
    this.#forget();
    this.touched();
  }

  /** Compiles the current constraint; resolves to the answer, or null if there is none. */
  async compile() {
    this.#forget();
    this.form.clear();
    this.problem = null;
    let constraint;
    try {
      constraint = this.form.read();
    } catch (error) {
      if (!(error instanceof Unfinished)) throw error;
      this.callbacks.broken();
      this.#setStatus(error.message, "waits");
      return null;
    }
    return await this.#ask(constraint);
  }

  /** Shows an error of the constraint at its position; returns whether it is one. */
  locate(problem) {
    if (!LOCATED.includes(problem.code)) return false;
    this.form.show(problem.field ?? "", sentence(problem), problem.position ?? null);
    return true;
  }

  async #ask(constraint) {
    this.control = new AbortController();
    const { signal } = this.control;
    this.line.classList.add("busy");
    try {
      const answer = await askJson("POST", "/compile", { body: { constraint, explain: false }, signal });
      if (signal.aborted) return null;
      Object.assign(this, { answer, constraint });
      this.#setStatus(`Compiles: ${plural(answer.states, "state")}, ${plural(answer.letters, "letter")}; an answer takes at least ${plural(answer.min_tokens, "token")}.`, "good");
      this.callbacks.compiled(answer, constraint);
      this.explainLater();
      return answer;
    } catch (error) {
      if (signal.aborted) return null;
      if (!(error instanceof Refusal)) throw error;
      this.#refused(error.problem);
      return null;
    }
  }

  #refused(problem) {
    const located = this.locate(problem);
    this.problem = located ? null : problem;  // an error without a position is also shown beside the button
    this.callbacks.broken();
    this.words.hidden = true;
    this.#setStatus(located ? "It does not compile yet." : sentence(problem), "bad");
    if (problem.retry_after_s !== undefined) {
      this.againLater = setTimeout(() => this.compile(), problem.retry_after_s * 1000);
    }
  }

  async #explain() {
    const { signal } = this.control;
    this.callbacks.idle(this.answer);
    try {
      const { explanation } = await askJson("POST", "/compile", { body: { constraint: this.constraint, explain: true }, signal });
      if (!signal.aborted && explanation) this.#renderExplanation(explanation);
    } catch (error) {
      if (!signal.aborted && !(error instanceof Refusal)) throw error;  // the explanation is optional
    }
  }

  #renderExplanation({ sentences, shortest, samples }) {
    const texts = [...(shortest === null ? [] : [["shortest", shortest]]), ...samples.map((sample) => ["sample", sample])];
    const items = texts.map(([kind, text]) => el("li", {},
      el("button", { type: "button", class: "sample", title: "Put it into the checker", click: () => this.callbacks.example(text) },
        el("span", { class: "soft small" }, kind), " ", el("span", { class: "mono" }, text || "(the empty text)"))));
    this.words.replaceChildren(
      el("p", {}, sentences[0]),
      el("details", {}, el("summary", {}, "More"),
        ...sentences.slice(1, SHOWN_SENTENCES).map((one) => el("p", {}, one)),
        el("p", {}, `Compiled in ${formatNumber(this.answer.compile_ms, 1)} ms${this.answer.cached ? ", cached" : ""}.`)),
      el("ul", { class: "samples", "aria-label": "Texts that are accepted" }, ...items));
    this.words.hidden = false;
  }

  #setStatus(text, kind) {
    this.line.textContent = text;
    this.line.className = `live-line ${kind}`;
  }

  /** Cancels the requests of the previous constraint. */
  #forget() {
    this.control?.abort();
    this.touched.off();
    this.explainLater.off();
    clearTimeout(this.againLater);
  }
}
