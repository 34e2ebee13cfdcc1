// The constraint while it is being written: compiled after each pause, its faults shown where they are, what it means in words.

import { Refusal, askJson } from "./api.js";
import { el, later, plural, shown } from "./dom.js";
import { Unfinished } from "./forms/basic.js";
import { sentence } from "./problems.js";

const PAUSE_MS = 250;
const IDLE_MS = 600;
const SHOWN_SENTENCES = 8;
const LOCATED = ["constraint_syntax", "unsupported"];

export class Live {
  /**
   * `form` is the ConstraintForm. Called back: `compiled(answer, constraint)` whenever one compiles, `idle(answer)` once
   * nobody has written for a while, `broken()` where there is no automaton to show, `example(text)` when one is chosen.
   */
  constructor(place, form, hear) {
    Object.assign(this, { form, hear, answer: null, constraint: null, problem: null, control: null });
    this.line = el("p", { class: "live-line", role: "status" });
    this.words = el("div", { class: "explained", hidden: true });
    place.append(this.line, this.words);
    this.touched = later(PAUSE_MS, () => this.compile());
    this.explainLater = later(IDLE_MS, () => this.#explain());
    this.againLater = null;
  }

  /** Something was edited. */
  edited() {
    this.#forget();
    this.touched();
  }

  /** Compile what is written; the answer, or null where there is none yet. */
  async compile() {
    this.#forget();
    this.form.clear();
    this.problem = null;
    let constraint;
    try {
      constraint = this.form.read();
    } catch (error) {
      if (!(error instanceof Unfinished)) throw error;
      this.hear.broken();
      this.#say(error.message, "waits");
      return null;
    }
    return await this.#ask(constraint);
  }

  /** Show a refusal that is about the constraint at its place; whether it was one. */
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
      this.#say(`Compiles: ${plural(answer.states, "state")}, ${plural(answer.letters, "letter")}; an answer takes at least ${plural(answer.min_tokens, "token")}.`, "good");
      this.hear.compiled(answer, constraint);
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
    this.problem = located ? null : problem;  // what is not about the constraint's text is told where it was asked for too
    this.hear.broken();
    this.words.hidden = true;
    this.#say(located ? "It does not compile yet." : sentence(problem), "bad");
    if (problem.retry_after_s !== undefined) {
      this.againLater = setTimeout(() => this.compile(), problem.retry_after_s * 1000);
    }
  }

  async #explain() {
    const { signal } = this.control;
    this.hear.idle(this.answer);
    try {
      const { explanation } = await askJson("POST", "/compile", { body: { constraint: this.constraint, explain: true }, signal });
      if (!signal.aborted && explanation) this.#tell(explanation);
    } catch (error) {
      if (!signal.aborted && !(error instanceof Refusal)) throw error;  // the automaton is there without its words
    }
  }

  #tell({ sentences, shortest, samples }) {
    const texts = [...(shortest === null ? [] : [["shortest", shortest]]), ...samples.map((sample) => ["sample", sample])];
    const items = texts.map(([kind, text]) => el("li", {},
      el("button", { type: "button", class: "sample", title: "Put it into the checker", click: () => this.hear.example(text) },
        el("span", { class: "soft small" }, kind), " ", el("span", { class: "mono" }, text || "(the empty text)"))));
    this.words.replaceChildren(
      el("p", {}, sentences[0]),
      el("details", {}, el("summary", {}, "More about it"),
        ...sentences.slice(1, SHOWN_SENTENCES).map((one) => el("p", {}, one)),
        el("p", {}, `Compiled in ${shown(this.answer.compile_ms, 1)} ms${this.answer.cached ? ", some time ago" : ""}.`)),
      el("ul", { class: "samples", "aria-label": "Texts that are accepted" }, ...items));
    this.words.hidden = false;
  }

  #say(text, kind) {
    this.line.textContent = text;
    this.line.className = `live-line ${kind}`;
  }

  /** What was under way is about another constraint. */
  #forget() {
    this.control?.abort();
    this.touched.off();
    this.explainLater.off();
    clearTimeout(this.againLater);
  }
}
