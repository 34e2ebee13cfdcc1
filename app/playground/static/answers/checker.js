// Checks a text while it is edited: the first violation, the violated conjuncts and the word trace.

import { Refusal, askJson } from "../api.js";
import { el, freshId, later, pointsOf, unitsAt } from "../dom.js";
import { markFault } from "../explain.js";
import { sentence } from "../problems.js";

const PAUSE_MS = 200;
const WORDS_MAX = 300;

export class Checker {
  /** `constraint()` returns the constraint, or null while none compiles. */
  constructor(container, constraint) {
    Object.assign(this, { constraint, control: null });
    const id = freshId("check");
    this.back = el("pre", { class: "code-back", "aria-hidden": "true" });
    this.area = el("textarea", {
      id, rows: 3, spellcheck: "false", placeholder: "Write a text, or generate one and edit it.",
      "aria-describedby": `${id}-verdict`, input: () => this.#edited(), scroll: () => (this.back.scrollTop = this.area.scrollTop),
    });
    this.verdict = el("p", { class: "verdict", id: `${id}-verdict`, role: "status" });
    this.conjuncts = el("ul", { class: "conjuncts", "aria-label": "Parts of the constraint" });
    this.words = el("ol", { class: "checked-words", "aria-label": "Word trace: each word, the propositions that hold at it, the state after it" });
    container.append(
      el("div", { class: "field" }, el("label", { for: id }, "Text to check"), el("div", { class: "code prose" }, this.back, this.area)),
      this.verdict, this.conjuncts, this.words);
    this.later = later(PAUSE_MS, () => this.check());
  }

  get text() { return this.area.value; }

  /** Replaces the text. */
  write(text) {
    this.area.value = text;
    this.#edited();
  }

  /** Checks the current text against the current constraint. */
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
      if (!signal.aborted) this.#render(text, answer);
    } catch (error) {
      if (signal.aborted) return;
      if (!(error instanceof Refusal)) throw error;
      this.#clear();
      this.#setVerdict(sentence(error.problem), "bad");
    }
  }

  #edited() {
    this.back.replaceChildren();
    this.verdict.className = "verdict soft";  // the verdict is about the previous text
    this.later();
  }

  #render(text, answer) {
    this.back.replaceChildren(...markFault(text, answer), "\n");
    this.back.scrollTop = this.area.scrollTop;
    if (answer.satisfied) this.#setVerdict("✓ It satisfies the constraint.", "good");
    else if (answer.violated_at >= pointsOf(text)) this.#setVerdict("✗ It ends too early: more text could still satisfy the constraint.", "bad");
    else this.#setVerdict(`✗ It breaks the constraint at character ${answer.violated_at + 1}${before(text, answer.violated_at)}: no continuation can repair it.`, "bad");
    const conjuncts = answer.conjuncts.length > 1 ? answer.conjuncts : [];
    this.conjuncts.replaceChildren(...conjuncts.map((part) => conjunctItem(part, text)));
    const items = answer.words.slice(0, WORDS_MAX).map(wordItem);
    if (answer.words.length > WORDS_MAX) items.push(el("li", { class: "soft" }, `and ${answer.words.length - WORDS_MAX} more`));
    this.words.replaceChildren(...items);
  }

  #clear() {
    for (const list of [this.back, this.conjuncts, this.words]) list.replaceChildren();
  }

  #setVerdict(text, kind) {
    this.verdict.textContent = text;
    this.verdict.className = `verdict ${kind}`;
  }
}

/** The last word before the violation: a forbidden word is recognised only after its end. */
function before(text, points) {
  const word = /\S{1,24}$/u.exec(text.slice(0, unitsAt(text, points)).trimEnd())?.[0];
  return word ? `, after “${word}”` : "";
}

function conjunctItem({ summary, satisfied, violated_at }, text) {
  const early = !satisfied && violated_at >= pointsOf(text);
  const verdict = satisfied ? "holds" : early ? "not yet" : `breaks at character ${violated_at + 1}${before(text, violated_at)}`;
  const kind = satisfied ? "good" : early ? "soft" : "bad";
  return el("li", {}, el("span", { class: kind }, `${satisfied ? "✓" : early ? "…" : "✗"} ${verdict}`), " ", el("code", {}, summary));
}

function wordItem({ text, propositions, state }) {
  const propositionText = propositions.length ? propositions.join(", ") : "–";
  return el("li", {}, el("span", { class: "checked-word" }, text), el("span", { class: propositions.length ? "propositions" : "propositions none" }, propositionText),
    el("span", { class: "soft state" }, `q${state}`));
}
