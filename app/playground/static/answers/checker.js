// Checks a text while it is edited: the first violation, the violated conjuncts and the word trace.

import { RequestError, askJson } from "../api.js";
import { countCharacters, debounce, el, uniqueId, utf16Offset } from "../dom.js";
import { markViolation } from "../explain.js";
import { sentence } from "../problems.js";

const PAUSE_MS = 200;
const WORDS_MAX = 300;

export class Checker {
  /** `constraint()` returns the constraint, or null while none compiles. */
  constructor(container, constraint) {
    Object.assign(this, { constraint, control: null });
    const id = uniqueId("check");
    this.highlights = el("pre", { class: "code-back", "aria-hidden": "true" });
    this.area = el("textarea", {
      id, rows: 3, spellcheck: "false", placeholder: "Write a text, or generate one and edit it.",
      "aria-describedby": `${id}-verdict`, input: () => this.#onEdit(), scroll: () => (this.highlights.scrollTop = this.area.scrollTop),
    });
    this.verdict = el("p", { class: "verdict", id: `${id}-verdict`, role: "status" });
    this.conjuncts = el("ul", { class: "conjuncts", "aria-label": "Parts of the constraint" });
    this.words = el("ol", { class: "checker-words", "aria-label": "Word trace: each word, the propositions that hold at it, the state after it" });
    container.append(
      el("div", { class: "field" }, el("label", { for: id }, "Text to check"), el("div", { class: "code prose" }, this.highlights, this.area)),
      this.verdict, this.conjuncts, this.words);
    this.checkLater = debounce(PAUSE_MS, () => this.check());
  }

  get text() { return this.area.value; }

  /** Replaces the text. */
  write(text) {
    this.area.value = text;
    this.#onEdit();
  }

  /** Checks the current text against the current constraint. */
  async check() {
    this.checkLater.cancel();
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
      if (!(error instanceof RequestError)) throw error;
      this.#clear();
      this.#setVerdict(sentence(error.problem), "bad");
    }
  }

  #onEdit() {
    this.highlights.replaceChildren();
    this.verdict.className = "verdict soft";  // the verdict is about the previous text
    this.checkLater();
  }

  #render(text, answer) {
    this.highlights.replaceChildren(...markViolation(text, answer), "\n");
    this.highlights.scrollTop = this.area.scrollTop;
    if (answer.satisfied) this.#setVerdict(answer.canonical === false ? "✓ It satisfies the constraint, in a spelling that generation does not write." : "✓ It satisfies the constraint.", "good");
    else if (answer.violation && answer.violation.keyword !== "json") this.#setVerdict(`✗ ${answer.violation.path} violates ${answer.violation.keyword}: ${answer.violation.message}.`, "bad");
    else if (answer.violated_at >= countCharacters(text)) this.#setVerdict("✗ It ends too early: more text could still satisfy the constraint.", "bad");
    else this.#setVerdict(`✗ It breaks the constraint at character ${answer.violated_at + 1}${lastWord(text, answer.violated_at)}: no continuation can repair it.`, "bad");
    const conjuncts = answer.conjuncts.length > 1 ? answer.conjuncts : [];
    this.conjuncts.replaceChildren(...conjuncts.map((part) => conjunctItem(part, text)));
    const items = answer.words.slice(0, WORDS_MAX).map(wordItem);
    if (answer.words.length > WORDS_MAX) items.push(el("li", { class: "soft" }, `and ${answer.words.length - WORDS_MAX} more`));
    this.words.replaceChildren(...items);
  }

  #clear() {
    for (const list of [this.highlights, this.conjuncts, this.words]) list.replaceChildren();
  }

  #setVerdict(text, kind) {
    this.verdict.textContent = text;
    this.verdict.className = `verdict ${kind}`;
  }
}

/** A phrase with the last word before the violation: a forbidden word is recognised only after its end. */
function lastWord(text, characters) {
  const word = /\S{1,24}$/u.exec(text.slice(0, utf16Offset(text, characters)).trimEnd())?.[0];
  return word ? `, after “${word}”` : "";
}

function conjunctItem({ summary, satisfied, violated_at }, text) {
  const incomplete = !satisfied && violated_at >= countCharacters(text);
  const verdict = satisfied ? "holds" : incomplete ? "not yet" : `breaks at character ${violated_at + 1}${lastWord(text, violated_at)}`;
  const kind = satisfied ? "good" : incomplete ? "soft" : "bad";
  return el("li", {}, el("span", { class: kind }, `${satisfied ? "✓" : incomplete ? "…" : "✗"} ${verdict}`), " ", el("code", {}, summary));
}

function wordItem({ text, propositions, state }) {
  const propositionText = propositions.length ? propositions.join(", ") : "–";
  return el("li", {}, el("span", { class: "checker-word" }, text), el("span", { class: propositions.length ? "propositions" : "propositions none" }, propositionText),
    el("span", { class: "soft state" }, `q${state}`));
}
