// A text area that shows where its text is at fault: marked in the text itself, and by a caret under the line.

import { el, freshId } from "../dom.js";

const AROUND = 36;  // characters of a long line shown to each side of the caret

export class CodeField {
  /** `change` is called when the text is edited. */
  constructor({ label, rows = 2, placeholder = "", hint = "", change = () => {} }) {
    const id = freshId("text");
    this.area = el("textarea", {
      id, rows, placeholder, spellcheck: "false", autocapitalize: "off", autocomplete: "off", class: "mono",
      input: () => { this.clear(); change(); }, scroll: () => this.#scrolled(),
    });
    this.back = el("pre", { class: "code-back", "aria-hidden": "true" });
    this.caret = el("pre", { class: "caret", "aria-hidden": "true" });
    this.told = el("p", {});
    this.fault = el("div", { class: "fault", id: `${id}-fault`, role: "status", hidden: true }, this.caret, this.told);
    this.element = el("div", { class: "field" },
      el("label", { for: id }, label, hint && el("span", { class: "hint-inline" }, ` — ${hint}`)),
      el("div", { class: "code" }, this.back, this.area), this.fault);
  }

  get text() { return this.area.value; }

  set text(value) {
    this.area.value = value;
    this.clear();
  }

  /** Show a sentence, and where a fault is: `place` counts UTF-16 units; null where the fault has no place. */
  show(sentence, place = null) {
    this.area.setAttribute("aria-invalid", "true");
    this.area.setAttribute("aria-describedby", this.fault.id);
    const at = place === null ? "" : `Line ${lineOf(this.text, place)}, column ${columnOf(this.text, place)}: `;
    this.told.replaceChildren(el("span", { class: "out-of-sight" }, at), sentence);
    this.caret.hidden = place === null;
    if (place === null) this.back.replaceChildren();
    else this.#point(place);
    this.fault.hidden = false;
  }

  clear() {
    this.area.removeAttribute("aria-invalid");
    this.area.removeAttribute("aria-describedby");
    this.back.replaceChildren();
    this.fault.hidden = true;
  }

  /** Put `text` in place of what is selected, as if it were typed. */
  insert(text) {
    this.area.focus();
    this.area.setRangeText(text, this.area.selectionStart, this.area.selectionEnd, "end");
    this.area.dispatchEvent(new Event("input", { bubbles: true }));
  }

  #point(place) {
    const text = this.text;
    const end = place + (text.codePointAt(place) > 0xffff ? 2 : 1);
    const here = text.slice(place, end).replace(/[\n\r]/, "") || " ";
    const rest = text.slice(here === " " && text[place] !== " " ? place : end);
    this.back.replaceChildren(text.slice(0, place), el("mark", {}, here), rest, "\n");
    this.#scrolled();
    const start = text.lastIndexOf("\n", place - 1) + 1;
    const stop = (text.indexOf("\n", place) + text.length + 1) % (text.length + 1) || text.length;
    const from = Math.max(start, place - AROUND);
    const before = (from > start ? "…" : "") + text.slice(from, place);
    const after = text.slice(place, Math.min(Math.max(stop, place), place + AROUND));
    this.caret.replaceChildren(`${before}${after}\n${" ".repeat([...before].length)}`, el("mark", {}, "^"));
  }

  #scrolled() {
    this.back.scrollTop = this.area.scrollTop;
    this.back.scrollLeft = this.area.scrollLeft;
  }
}

const lineOf = (text, place) => text.slice(0, place).split("\n").length;
const columnOf = (text, place) => [...text.slice(text.lastIndexOf("\n", place - 1) + 1, place)].length + 1;
