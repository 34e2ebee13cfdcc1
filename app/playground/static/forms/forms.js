// The constraint as a form: a tab for each kind; the parts of a combination are forms too.

import { el, uniqueId, labelField } from "../dom.js";
import { ChoiceForm, GrammarForm, InfillForm, LengthForm, RegexForm, IncompleteForm } from "./basic.js";
import { BuilderForm } from "./builder.js";
import { RawForm, SchemaForm } from "./json.js";
import { markTab, tabByKey } from "../tabs.js";
import { KeywordsForm, LtlfForm } from "./words.js";

const LENGTHS = ["min_words", "max_words", "max_chars", "sentences"];
const KINDS = new Map();  // filled below, because combinations refer to all kinds

/** Whether two JSON values are equal; the order of names does not matter. */
export function same(item, other) {
  if (typeof item !== "object" || typeof other !== "object" || item === null || other === null) return item === other;
  const names = Object.keys(item);
  return Array.isArray(item) === Array.isArray(other) && names.length === Object.keys(other).length
    && names.every((name) => Object.hasOwn(other, name) && same(item[name], other[name]));
}

function kindOf(constraint) {
  for (const kind of ["ltlf", "regex", "keywords", "infill", "json_schema", "grammar", "choice"]) if (kind in constraint) return kind;
  if (["all", "any", "not"].some((name) => name in constraint)) return "combine";
  return LENGTHS.some((name) => name in constraint) ? "length" : "json";
}

/** A form with a selectable kind; each kind keeps its input. */
class AnyForm {
  constructor(change, body) {
    this.change = change;
    this.body = body;
    this.forms = new Map();
    this.kind = "ltlf";
  }

  get form() {
    if (!this.forms.has(this.kind)) this.forms.set(this.kind, new (KINDS.get(this.kind).Form)(this.change));
    return this.forms.get(this.kind);
  }

  choose(kind) {
    const constraint = this.#readOrNull();
    const continues = kind === "json" || (kind === "ltlf" && this.kind === "build");
    this.kind = kind;
    if (continues && constraint) this.form.write(constraint);  // as JSON, or as the formula that the rules make
    this.body.replaceChildren(this.form.element);
  }

  read() { return this.form.read(); }

  /** Shows a constraint in the form of its kind, or as JSON if that form cannot express it. */
  write(constraint) {
    this.kind = kindOf(constraint);
    try {
      this.form.write(constraint);
      if (!same(this.form.read(), constraint)) throw new IncompleteForm("another constraint");
    } catch {
      this.kind = "json";
      this.form.write(constraint);
    }
    this.body.replaceChildren(this.form.element);
  }

  show(path, sentence, position) { this.form.show(path, sentence, position); }

  clear() { this.form.clear(); }

  #readOrNull() {
    try {
      return this.kind === "json" ? null : this.form.read();
    } catch {
      return null;
    }
  }
}

/** One part of a combination. `path` is its path in the constraint, as the service names it. */
class Part extends AnyForm {
  constructor(combination) {
    super(combination.change, el("div", {}));
    this.path = "";
    this.select = el("select", { change: () => (this.choose(this.select.value), combination.change()) });
    for (const [kind, { title }] of KINDS) this.select.append(el("option", { value: kind }, title));
    const id = uniqueId("negated");
    this.negated = el("input", { type: "checkbox", id, change: combination.change });
    this.element = el("fieldset", { class: "part" },
      el("legend", { class: "out-of-sight" }, "Part of the combination"),
      el("div", { class: "row" },
        el("span", { class: "tick" }, this.negated, el("label", { for: id }, "not")),
        el("span", { class: "grow" }, labelField("kind of this part", this.select, { class: "field bare" })),
        el("button", { type: "button", class: "plain", "aria-label": "Remove this part", click: () => combination.remove(this) }, "✕")),
      this.body);
    this.choose("ltlf");
  }

  read() { return this.negated.checked ? { not: super.read() } : super.read(); }

  write(constraint) {
    const keys = Object.keys(constraint);
    this.negated.checked = keys.length === 1 && keys[0] === "not";
    super.write(this.negated.checked ? constraint.not : constraint);
    this.select.value = this.kind;
  }
}

class CombineForm {
  constructor(change) {
    this.change = change;
    this.parts = [];
    this.mode = el("select", { change }, el("option", { value: "all" }, "all of these hold"),
      el("option", { value: "any" }, "at least one of these holds"));
    this.list = el("div", { class: "parts" });
    this.fault = el("p", { class: "fault", role: "status", hidden: true });
    const add = el("button", { type: "button", click: () => (this.#add().select.focus(), this.change()) }, "+ part");
    this.element = el("div", { class: "form" }, labelField("Such that", this.mode), this.list, this.fault, add);
    this.#add();
    this.#add();
  }

  read() {
    const isSingle = this.parts.length === 1;
    this.parts.forEach((part, number) => {
      const path = [...(isSingle ? [] : [this.mode.value, number]), ...(part.negated.checked ? ["not"] : [])];
      part.path = path.join(".");
    });
    if (isSingle) return this.parts[0].read();
    return { [this.mode.value]: this.parts.map((part) => part.read()) };
  }

  write(constraint) {
    const mode = ["all", "any"].find((name) => name in constraint);
    this.parts = [];
    this.list.replaceChildren();
    if (mode) this.mode.value = mode;
    for (const part of mode ? constraint[mode] : [constraint]) this.#add().write(part);
  }

  show(path, sentence, position) {
    const part = this.parts.find((item) => !item.path || path === item.path || path.startsWith(`${item.path}.`));
    if (part) {
      part.show(path.slice(part.path ? part.path.length + 1 : 0), sentence, position);
      return;
    }
    this.fault.textContent = sentence;
    this.fault.hidden = false;
  }

  clear() {
    this.fault.hidden = true;
    for (const part of this.parts) part.clear();
  }

  remove(part) {
    this.parts = this.parts.filter((item) => item !== part);
    part.element.remove();
    if (!this.parts.length) this.#add();
    this.parts[0].select.focus();
    this.change();
  }

  #add() {
    const part = new Part(this);
    this.parts.push(part);
    this.list.append(part.element);
    return part;
  }
}

for (const [kind, title, Form] of [
  ["build", "Build", BuilderForm], ["ltlf", "Formula", LtlfForm], ["regex", "Regex", RegexForm], ["keywords", "Keywords", KeywordsForm],
  ["infill", "Infill", InfillForm], ["json_schema", "Schema", SchemaForm], ["grammar", "Grammar", GrammarForm],
  ["choice", "Choice", ChoiceForm],
  ["length", "Length", LengthForm], ["combine", "Combine", CombineForm], ["json", "Raw", RawForm],
]) KINDS.set(kind, { title, Form });

/** The constraint, with a tab for each kind. */
export class ConstraintForm extends AnyForm {
  constructor(container, change) {
    const panel = el("div", { role: "tabpanel", id: uniqueId("kind"), tabindex: "-1" });
    super(change, panel);
    this.tabs = new Map();
    const list = el("div", { class: "tabs", role: "tablist", "aria-label": "Kind of constraint", keydown: (event) => this.#onKey(event) });
    for (const [kind, { title }] of KINDS) {
      const tab = el("button", {
        type: "button", role: "tab", id: uniqueId("tab"), "aria-controls": panel.id, click: () => (this.choose(kind), change()),
      }, title);
      this.tabs.set(kind, tab);
      list.append(tab);
    }
    container.append(list, panel);
    this.choose("ltlf");
  }

  choose(kind) {
    super.choose(kind);
    this.#updateTabs();
  }

  write(constraint) {
    super.write(constraint);
    this.#updateTabs();
  }

  #updateTabs() {
    for (const [kind, tab] of this.tabs) markTab(tab, kind === this.kind);
    this.body.setAttribute("aria-labelledby", this.tabs.get(this.kind).id);
  }

  #onKey(event) {
    const kind = tabByKey(event.key, [...this.tabs.keys()], this.kind);
    if (!kind) return;
    event.preventDefault();
    this.choose(kind);
    this.tabs.get(kind).focus();
    this.change();
  }
}
