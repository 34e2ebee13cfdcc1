// A text that is checked as it is edited: where it first breaks the constraint, which part it breaks, and its word trace.

import { Refusal, askJson } from "../api.js";
import { el, freshId, later, pointsOf, unitsAt } from "../dom.js";
import { marked } from "../explain.js";
import { sentence } from "../problems.js";

const PAUSE_MS = 200;
const WORDS_MAX = 300;

export class Checker {
  /** `constraint()` gives what to check against: null while there is none that compiles. */
  constructor(place, constraint) {
    Object.assign(this, { constraint, control: null });
    const id = freshId("check");
    this.back = el("pre", { class: "code-back", "aria-hidden": "true" });
    this.area = el("textarea", {
      id, rows: 3, spellcheck: "false", placeholder: "Write a text, or generate one and edit it.",
      "aria-describedby": `${id}-verdict`, input: () => this.#edited(), scroll: () => (this.back.scrollTop = this.area.scrollTop),
    });
    this.verdict = el("p", { class: "verdict", id: `${id}-verdict`, role: "status" });
    this.parts = el("ul", { class: "parts-told", "aria-label": "Parts of the constraint" });
    this.words = el("ol", { class: "checked-words", "aria-label": "Word trace: each word, the propositions that hold at it, the state after it" });
    place.append(
      el("div", { class: "field" }, el("label", { for: id }, "Text to check"), el("div", { class: "code prose" }, this.back, this.area)),
      this.verdict, this.parts, this.words);
    this.later = later(PAUSE_MS, () => this.check());
  }

  get text() { return this.area.value; }

  /** Take over a text. */
  write(text) {
    this.area.value = text;
    this.#edited();
  }

  /** Check anew what is written: the text or the constraint is another one. */
  async check() {
    this.later.off();
    this.control?.abort();
    const { text } = this;
    const constraint = this.constraint();
    if (!constraint || (!text && !this.verdict.textContent)) return;
    this.control = new AbortController();
    const { signal } = this.control;
    try {
      const answer = await askJson("POST", "/check", { body: { constraint, text, conjuncts: true }, signal });
      if (!signal.aborted) this.#tell(text, answer);
    } catch (error) {
      if (signal.aborted) return;
      if (!(error instanceof Refusal)) throw error;
      this.#clear();
      this.#say(sentence(error.problem), "bad");
    }
  }

  #edited() {
    this.back.replaceChildren();
    this.verdict.className = "verdict soft";  // of the text before
    this.later();
  }

  #tell(text, answer) {
    this.back.replaceChildren(...marked(text, answer), "\n");
    this.back.scrollTop = this.area.scrollTop;
    if (answer.satisfied) this.#say("✓ It satisfies the constraint.", "good");
    else if (answer.violated_at >= pointsOf(text)) this.#say("✗ It ends too early: more text could still satisfy the constraint.", "bad");
    else this.#say(`✗ It breaks the constraint at character ${answer.violated_at + 1}${before(text, answer.violated_at)}: nothing that follows can mend it.`, "bad");
    const parts = answer.conjuncts.length > 1 ? answer.conjuncts : [];
    this.parts.replaceChildren(...parts.map((part) => partTold(part, text)));
    const items = answer.words.slice(0, WORDS_MAX).map(wordTold);
    if (answer.words.length > WORDS_MAX) items.push(el("li", { class: "soft" }, `and ${answer.words.length - WORDS_MAX} more`));
    this.words.replaceChildren(...items);
  }

  #clear() {
    for (const one of [this.back, this.parts, this.words]) one.replaceChildren();
  }

  #say(text, kind) {
    this.verdict.textContent = text;
    this.verdict.className = `verdict ${kind}`;
  }
}

/** The last word before the fault: of a word that may not stand there the end is seen only in what follows. */
function before(text, points) {
  const word = /\S{1,24}$/u.exec(text.slice(0, unitsAt(text, points)).trimEnd())?.[0];
  return word ? `, after “${word}”` : "";
}

function partTold({ summary, satisfied, violated_at }, text) {
  const early = !satisfied && violated_at >= pointsOf(text);
  const verdict = satisfied ? "holds" : early ? "not yet" : `breaks at character ${violated_at + 1}${before(text, violated_at)}`;
  const kind = satisfied ? "good" : early ? "soft" : "bad";
  return el("li", {}, el("span", { class: kind }, `${satisfied ? "✓" : early ? "…" : "✗"} ${verdict}`), " ", el("code", {}, summary));
}

function wordTold({ text, propositions, state }) {
  const held = propositions.length ? propositions.join(", ") : "–";
  return el("li", {}, el("span", { class: "checked-word" }, text), el("span", { class: propositions.length ? "held" : "held none" }, held),
    el("span", { class: "soft state" }, `q${state}`));
}
