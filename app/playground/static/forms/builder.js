// A builder of formulas for those who know none: rules in words, and the formula that they make.

import { el, labelField, uniqueId } from "../dom.js";
import { IncompleteForm, numberInput, numberOf, split } from "./basic.js";

const RESERVED = new Set(("true false last end start first tt ff xor trigger triggers triggered and or implies imp iff equiv until release releases unless weak_until strong_release "
  + "since next wx wnext weak_next weaknext not never once yesterday weak_yesterday weakyesterday previous previously historically finally eventually sometimes future globally always henceforth").split(" "));
const COUNT_MAX = 12;

/** A word as a formula names it. Marks such as a comma have names of their own. */
function nameOf(word) {
  if (/^[a-z]{2,}$/.test(word) && !RESERVED.has(word)) return word;
  return `"${word.replace(/\\/g, "\\\\").replace(/"/g, '\\"')}"`;
}

/** Words separated by commas; alternatives of one word are separated by a slash. */
const wordsOf = (text) => split(text).map((part) => part.split("/").map((word) => word.trim()).filter(Boolean).map(nameOf)).filter((names) => names.length);

const anyOf = (names) => (names.length === 1 ? names[0] : `(${names.join(" | ")})`);
const inOrder = (words) => words.reduceRight((rest, word) => (rest ? `F(${anyOf(word)} & X(${rest}))` : `F(${anyOf(word)})`), "");
const times = (word, count) => inOrder(Array(count).fill(word));
const each = (words, write) => words.map(write).join(" & ");

const RULES = {
  contains: { title: "contains", hint: "dog, ball", write: (words) => each(words, (word) => `F(${anyOf(word)})`) },
  order: { title: "has in this order", hint: "dog, ball/toy", write: inOrder },
  never: { title: "never has", hint: "man, woman", write: (words) => `G(${each(words.flat(), (name) => `!${name}`)})` },
  most: { title: "has at most", hint: "dog", counts: true, write: (words, { count }) => each(words, (word) => `!${times(word, count + 1)}`) },
  once: { title: "has exactly once", hint: "dog", write: (words) => each(words, (word) => `${times(word, 1)} & !${times(word, 2)}`) },
  then: { title: "whenever it has", hint: "man", later: true, write: (words, { later }) => each(words, (word) => `G(${anyOf(word)} -> X(${each(later, (after) => `F(${anyOf(after)})`)}))`) },
};

class Rule {
  constructor(form, kind, text = "") {
    this.kind = el("select", { "aria-label": "Rule", change: () => (this.#update(), form.change()) },
      ...Object.entries(RULES).map(([name, { title }]) => el("option", { value: name }, title)));
    this.count = numberInput(form.change, { "aria-label": "How many times", value: "2", max: COUNT_MAX });
    this.words = el("input", { "aria-label": "Words", spellcheck: "false", autocapitalize: "off", input: form.change, value: text });
    this.later = el("input", { "aria-label": "Words that follow later", spellcheck: "false", autocapitalize: "off", placeholder: "dog", input: form.change });
    this.times = el("span", { class: "soft small" }, "times");
    this.then = el("span", { class: "soft small" }, "then later");
    this.kind.value = kind;
    this.element = el("li", { class: "rule" }, this.kind, this.count, this.times, this.words, this.then, this.later,
      el("button", { type: "button", class: "plain", "aria-label": "Remove this rule", click: () => form.remove(this) }, "✕"));
    this.#update();
  }

  /** The formula of the rule; empty while a word is missing. */
  formula() {
    const { counts, later: hasLater, write } = RULES[this.kind.value];
    const [words, later] = [wordsOf(this.words.value), wordsOf(this.later.value)];
    const count = Math.min(COUNT_MAX, Math.max(0, Math.trunc(numberOf(this.count) ?? 1)));
    if (!words.length || (hasLater && !later.length)) return "";
    return write(words, { count: counts ? count : 1, later });
  }

  #update() {
    const { counts, later, hint } = RULES[this.kind.value];
    for (const part of [this.count, this.times]) part.hidden = !counts;
    for (const part of [this.then, this.later]) part.hidden = !later;
    this.words.placeholder = hint;
  }
}

export class BuilderForm {
  constructor(change) {
    this.change = () => (this.#show(), change());
    this.rules = [];
    this.list = el("ul", { class: "rules" });
    this.formula = el("output", { id: uniqueId("formula"), class: "built mono" });
    this.fault = el("p", { class: "fault", role: "status", hidden: true });
    const add = el("button", { type: "button", click: () => this.#add("contains").words.focus() }, "+ rule");
    this.element = el("div", { class: "form" },
      el("p", { class: "soft small" }, "The text … (commas between words, a slash between alternatives)"), this.list,
      el("div", { class: "row" }, add), labelField("Formula; its tab continues it", this.formula), this.fault);
    this.#add("order", "dog, ball");
    this.#add("never", "man");
    this.#show();
  }

  read() {
    const formula = this.#formula();
    if (!formula) throw new IncompleteForm("Write a word into a rule, such as dog.");
    return { ltlf: formula };
  }

  /** Rules are not read out of a formula. */
  write() { throw new IncompleteForm("A formula has no rules."); }

  show(path, sentence) {
    this.fault.textContent = sentence;
    this.fault.hidden = false;
  }

  clear() { this.fault.hidden = true; }

  remove(rule) {
    this.rules = this.rules.filter((other) => other !== rule);
    rule.element.remove();
    (this.rules.at(-1) ?? this.#add("contains")).words.focus();
    this.change();
  }

  #add(kind, text) {
    const rule = new Rule(this, kind, text);
    this.rules.push(rule);
    this.list.append(rule.element);
    return rule;
  }

  #formula() { return this.rules.map((rule) => rule.formula()).filter(Boolean).join(" & "); }

  #show() {
    this.clear();
    this.formula.value = this.#formula() || "–";
  }
}
