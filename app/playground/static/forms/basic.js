// Forms for one constraint each. A form has `element`; `read()`, which returns the constraint or raises IncompleteForm;
// `write(constraint)`; `show(path, sentence, position)`, which shows an error at its position; and `clear()`. Positions count
// characters as the service does.

import { CodeField } from "./code-field.js";
import { el, labelField, checkBox, utf16Offset } from "../dom.js";

/** Raised by an incomplete form; the message says what is missing. */
export class IncompleteForm extends Error {}

/** The items of a comma-separated list. */
export const split = (text) => text.split(",").map((part) => part.trim()).filter(Boolean);

/** A form with one text, with or without the choice of a leading space. */
export class TextForm {
  constructor(change, { name, label, hint, rows = 3, placeholder, emptyMessage, leading = true }) {
    Object.assign(this, { name, emptyMessage });
    this.field = new CodeField({ label, hint, rows, placeholder, change });
    this.forbid = leading ? checkBox("no leading space, not even one that is stripped", change) : null;
    this.element = el("div", { class: "form" }, this.field.element, this.forbid?.element);
  }

  read() {
    if (!this.field.text.trim()) throw new IncompleteForm(this.emptyMessage);
    return { [this.name]: this.value(this.field.text), ...this.leading() };
  }

  value(text) { return text; }

  text(value) { return value; }

  leading() { return this.forbid?.box.checked ? { leading_space: "forbid" } : {}; }

  write(constraint) {
    this.field.text = this.text(constraint[this.name]);
    if (this.forbid) this.forbid.box.checked = constraint.leading_space === "forbid";
  }

  show(path, sentence, position) {
    this.field.show(sentence, position === null ? null : utf16Offset(this.field.text, position));
  }

  clear() { this.field.clear(); }
}

export class RegexForm extends TextForm {
  constructor(change) {
    super(change, {
      name: "regex", label: "Pattern", hint: "the whole text, as Python's re.fullmatch says",
      placeholder: "[A-Z][a-z ]+\\.", emptyMessage: "Write a pattern, such as [A-Z][a-z ]+\\.",
    });
  }
}

export class InfillForm extends TextForm {
  constructor(change) {
    super(change, {
      name: "infill", label: "Text with gaps", placeholder: "A man is <|infill_word|> a dog.",
      emptyMessage: "Write a text with gaps.",
    });
    const gaps = { word: "<|infill_word|>", "few words": "<|infill_ngram|>", sentence: "<|infill_sentence|>", pattern: "<|infill:[0-9]+|>" };
    const buttons = Object.entries(gaps).map(([name, gap]) =>
      el("button", { type: "button", click: () => this.field.insert(gap), title: gap }, `+ ${name}`));
    this.element.prepend(el("div", { class: "row", role: "group", "aria-label": "Insert a gap" }, ...buttons));
  }
}

export class ChoiceForm extends TextForm {
  constructor(change) {
    super(change, {
      name: "choice", label: "Choices", hint: "one on each line", placeholder: "yes\nno", emptyMessage: "Write the choices, one on each line.",
    });
  }

  value(text) { return text.split("\n").filter((line) => line !== ""); }

  text(value) { return value.join("\n"); }
}

export class GrammarForm extends TextForm {
  constructor(change) {
    super(change, {
      name: "grammar", label: "Grammar", hint: "the whole text is one that it derives", rows: 9,
      placeholder: 'start: "(" start* ")" | /[0-9]+/', emptyMessage: "Write a grammar.",
    });
    this.syntax = el("select", { change },
      el("option", { value: "lark" }, "Lark"), el("option", { value: "gbnf" }, "GBNF (llama.cpp)"), el("option", { value: "ebnf" }, "EBNF (W3C or ISO)"));
    this.element.prepend(labelField("syntax", this.syntax));
  }

  read() { return { ...super.read(), syntax: this.syntax.value }; }

  write(constraint) {
    super.write(constraint);
    this.syntax.value = constraint.syntax;
  }
}

const BOUNDS = [
  ["min_words", "words, at least"], ["max_words", "words, at most"], ["max_chars", "characters, at most"],
  ["sentences.min", "sentences, at least"], ["sentences.max", "sentences, at most"],
];

/** An optional integer. */
export function numberInput(change, attributes = {}) {
  return el("input", { type: "number", min: 0, step: 1, inputmode: "numeric", input: change, ...attributes });
}

export const numberOf = (input) => (input.value === "" ? undefined : Number(input.value));

export class LengthForm {
  constructor(change) {
    this.inputs = new Map(BOUNDS.map(([name]) => [name, numberInput(() => (this.clear(), change()))]));
    this.fault = el("p", { class: "fault", role: "status", hidden: true });
    const fields = BOUNDS.map(([name, label]) => labelField(label, this.inputs.get(name)));
    this.element = el("div", { class: "form" }, el("div", { class: "grid-fields" }, ...fields), this.fault);
  }

  read() {
    const values = Object.fromEntries([...this.inputs].map(([name, input]) => [name, numberOf(input)]));
    const { "sentences.min": min, "sentences.max": max, ...bounds } = values;
    const constraint = Object.fromEntries(Object.entries(bounds).filter(([, value]) => value !== undefined));
    if (min !== undefined && min === max) constraint.sentences = min;
    else if (min !== undefined || max !== undefined) {
      constraint.sentences = { ...(min === undefined ? {} : { min }), ...(max === undefined ? {} : { max }) };
    }
    if (!Object.keys(constraint).length) throw new IncompleteForm("Give at least one bound.");
    return constraint;
  }

  write(constraint) {
    const sentences = constraint.sentences;
    const bounds = typeof sentences === "number" ? { min: sentences, max: sentences } : sentences ?? {};
    for (const [name, input] of this.inputs) {
      const value = name.startsWith("sentences.") ? bounds[name.slice(10)] : constraint[name];
      input.value = value ?? "";
    }
    this.clear();
  }

  show(path, sentence) {
    (this.inputs.get(path) ?? this.inputs.get(`${path}.min`))?.setAttribute("aria-invalid", "true");
    this.fault.textContent = sentence;
    this.fault.hidden = false;
  }

  clear() {
    for (const input of this.inputs.values()) input.removeAttribute("aria-invalid");
    this.fault.hidden = true;
  }
}
