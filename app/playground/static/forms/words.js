// The forms of constraints over words: a formula with the meaning of its names, and keywords.

import { CodeField } from "./code-field.js";
import { el, labelField, checkBox, utf16Offset } from "../dom.js";
import { IncompleteForm, numberInput, numberOf, split } from "./basic.js";

const OPERATORS = ["F( )", "G( )", "X( )", " U ", "!", " & ", " | ", " -> "];

/** A name in a formula, and its words or pattern. */
class Proposition {
  constructor(change, remove) {
    this.name = el("input", { class: "mono", spellcheck: "false", input: change });
    this.kind = el("select", { change }, el("option", { value: "words" }, "words"), el("option", { value: "regex" }, "a pattern"));
    this.meaning = new CodeField({ label: "stands for", rows: 1, placeholder: "dog, puppy, guinea pig", change });
    this.caseSensitive = checkBox("case-sensitive", change);
    this.element = el("div", { class: "proposition" },
      labelField("name", this.name), labelField("by", this.kind), this.meaning.element, this.caseSensitive.element,
      el("button", { type: "button", class: "plain", click: () => remove(this), "aria-label": "Remove this name" }, "✕"));
  }

  read() {
    if (this.kind.value === "regex") return { regex: this.meaning.text };
    const words = split(this.meaning.text);
    return this.caseSensitive.box.checked ? { words, case_sensitive: true } : words;
  }

  write(name, value) {
    this.name.value = name;
    this.kind.value = value.regex === undefined ? "words" : "regex";
    this.meaning.text = value.regex ?? (Array.isArray(value) ? value : value.words ?? []).join(", ");
    this.caseSensitive.box.checked = value.case_sensitive === true;
    return this;
  }
}

export class LtlfForm {
  constructor(change) {
    this.change = change;
    this.field = new CodeField({
      label: "Formula", hint: "LTLf over the words of the text", rows: 3, placeholder: "F(dog & X(F(ball)))", change,
    });
    const buttons = OPERATORS.map((operator) => el("button", {
      type: "button", class: "plain mono", click: () => this.#insert(operator), "aria-label": `Insert ${operator.trim()}`,
    }, operator.replace("( )", "").trim()));
    this.rows = [];
    this.list = el("div", {});
    const add = el("button", { type: "button", click: () => this.#add().name.focus() }, "+ name");
    this.names = el("details", {}, el("summary", {}, "Names that stand for several words"), this.list, add);
    this.element = el("div", { class: "form" },
      el("div", { class: "row operators", role: "group", "aria-label": "Insert an operator" }, ...buttons), this.field.element, this.names);
  }

  read() {
    if (!this.field.text.trim()) throw new IncompleteForm("Write a formula, such as F(dog): some word of the text is “dog”.");
    const rows = this.rows.filter((row) => row.name.value.trim());
    if (!rows.length) return { ltlf: this.field.text };
    return { ltlf: this.field.text, propositions: Object.fromEntries(rows.map((row) => [row.name.value.trim(), row.read()])) };
  }

  write(constraint) {
    this.field.text = constraint.ltlf;
    this.rows = [];
    this.list.replaceChildren();
    for (const [name, value] of Object.entries(constraint.propositions ?? {})) this.#add().write(name, value);
    this.names.open = this.rows.length > 0;
  }

  show(path, sentence, position) {
    const row = this.rows.find((item) => path.startsWith(`propositions.${item.name.value.trim()}`));
    const field = row ? row.meaning : this.field;
    if (row) this.names.open = true;
    field.show(sentence, position === null ? null : utf16Offset(field.text, position));
  }

  clear() {
    for (const field of [this.field, ...this.rows.map((row) => row.meaning)]) field.clear();
  }

  #add() {
    const row = new Proposition(this.change, (proposition) => {
      this.rows = this.rows.filter((item) => item !== proposition);
      proposition.element.remove();
      this.change();
    });
    this.rows.push(row);
    this.list.append(row.element);
    return row;
  }

  /** Inserts an operator; one with brackets encloses the selection. */
  #insert(operator) {
    const { area } = this.field;
    const selection = area.value.slice(area.selectionStart, area.selectionEnd);
    this.field.insert(operator.includes("( )") ? operator.replace(" )", `${selection})`) : selection + operator);
    if (operator.includes("( )") && !selection) area.setSelectionRange(area.selectionEnd - 1, area.selectionEnd - 1);
  }
}

class Concept {
  constructor(form) {
    this.forms = el("input", {
      "aria-label": "Keyword and its further forms, separated by commas", placeholder: "catch, catches, caught", spellcheck: "false",
      input: form.change, keydown: (event) => form.onEnter(event, this),
    });
    this.min = numberInput(form.change, { "aria-label": "minimum number of occurrences", placeholder: "1" });
    this.max = numberInput(form.change, { "aria-label": "maximum number of occurrences", placeholder: "∞" });
    this.element = el("li", { class: "concept" }, this.forms, this.min, this.max,
      el("button", { type: "button", class: "plain", click: () => form.moveUp(this), "aria-label": "Move up" }, "↑"),
      el("button", { type: "button", class: "plain", click: () => form.remove(this), "aria-label": "Remove" }, "✕"));
  }

  read() {
    const forms = split(this.forms.value);
    const [min, max] = [numberOf(this.min), numberOf(this.max)];
    if (min === undefined && max === undefined) return forms.length === 1 ? forms[0] : forms;
    return { forms, ...(min === undefined ? {} : { min }), ...(max === undefined ? {} : { max }) };
  }

  write(value) {
    const hasCounts = typeof value === "object" && !Array.isArray(value);
    this.forms.value = [hasCounts ? value.forms : value].flat().join(", ");
    this.min.value = (hasCounts ? value.min : undefined) ?? "";
    this.max.value = (hasCounts ? value.max : undefined) ?? "";
    return this;
  }
}

const FLAGS = [["ordered", "in this order"], ["none", "none of these"], ["inflect", "in every inflected form"], ["case_sensitive", "case-sensitive"]];

export class KeywordsForm {
  constructor(change) {
    this.change = () => (this.clear(), change());
    this.concepts = [];
    this.list = el("ol", { class: "concepts" });
    this.fault = el("p", { class: "fault", role: "status", hidden: true });
    this.flags = new Map(FLAGS.map(([name, text]) => [name, checkBox(text, this.change)]));
    const add = el("button", { type: "button", click: () => this.#add().forms.focus() }, "+ keyword");
    const ticks = [...this.flags.values()].map((flag) => flag.element);
    this.element = el("div", { class: "form" },
      el("div", { class: "concept soft small", "aria-hidden": "true" },
        el("span", {}, "Keyword, further forms"), el("span", {}, "min"), el("span", {}, "max")),
      this.list, this.fault, add, el("div", { class: "row ticks" }, ...ticks));
    this.#add();
  }

  read() {
    const keywords = this.concepts.filter((item) => split(item.forms.value).length).map((item) => item.read());
    if (!keywords.length) throw new IncompleteForm("Write a keyword, such as dog.");
    const flags = [...this.flags].filter(([, flag]) => flag.box.checked).map(([name]) => [name, true]);
    return { keywords, ...Object.fromEntries(flags) };
  }

  write(constraint) {
    this.concepts = [];
    this.list.replaceChildren();
    for (const value of constraint.keywords) this.#add().write(value);
    for (const [name, flag] of this.flags) flag.box.checked = constraint[name] === true;
    this.clear();
  }

  show(path, sentence) {
    const filled = this.concepts.filter((item) => split(item.forms.value).length);
    filled[Number(/^keywords\.(\d+)/.exec(path)?.[1] ?? -1)]?.forms.setAttribute("aria-invalid", "true");
    this.fault.textContent = sentence;
    this.fault.hidden = false;
  }

  clear() {
    for (const item of this.concepts) item.forms.removeAttribute("aria-invalid");
    this.fault.hidden = true;
  }

  /** Enter moves to the next keyword. */
  onEnter(event, concept) {
    if (event.key !== "Enter" || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    (this.concepts[this.concepts.indexOf(concept) + 1] ?? this.#add()).forms.focus();
  }

  moveUp(concept) {
    const index = this.concepts.indexOf(concept);
    if (index < 1) return;
    this.concepts.splice(index - 1, 2, concept, this.concepts[index - 1]);
    concept.element.previousElementSibling.before(concept.element);
    concept.element.querySelector("button").focus();
    this.change();
  }

  remove(concept) {
    const index = this.concepts.indexOf(concept);
    this.concepts.splice(index, 1);
    concept.element.remove();
    (this.concepts[index] ?? this.concepts[index - 1] ?? this.#add()).forms.focus();
    this.change();
  }

  #add() {
    const concept = new Concept(this);
    this.concepts.push(concept);
    this.list.append(concept.element);
    return concept;
  }
}
