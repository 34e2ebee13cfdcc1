// A text area that shows the position of an error: marked in the text, and by a caret under the line.

import { el, uniqueId } from "../dom.js";

const CONTEXT_CHARS = 36;  // characters shown on each side of the caret in a long line

export class CodeField {
  /** `change` is called when the text is edited. */
  constructor({ label, rows = 2, placeholder = "", hint = "", change = () => {} }) {
    const id = uniqueId("text");
    this.area = el("textarea", {
      id, rows, placeholder, spellcheck: "false", autocapitalize: "off", autocomplete: "off", class: "mono",
      input: () => { this.clear(); change(); }, scroll: () => this.#scrolled(),
    });
    this.back = el("pre", { class: "code-back", "aria-hidden": "true" });
    this.caret = el("pre", { class: "caret", "aria-hidden": "true" });
    this.message = el("p", {});
    this.fault = el("div", { class: "fault", id: `${id}-fault`, role: "status", hidden: true }, this.caret, this.message);
    this.element = el("div", { class: "field" },
      el("label", { for: id }, label, hint && el("span", { class: "hint-inline" }, ` — ${hint}`)),
      el("div", { class: "code" }, this.back, this.area), this.fault);
  }

  get text() { return this.area.value; }

  set text(value) {
    this.area.value = value;
    this.clear();
  }

  /** Shows an error; `offset` is its position in UTF-16 units, or null. */
  show(sentence, offset = null) {
    this.area.setAttribute("aria-invalid", "true");
    this.area.setAttribute("aria-describedby", this.fault.id);
    const at = offset === null ? "" : `Line ${lineOf(this.text, offset)}, column ${columnOf(this.text, offset)}: `;
    this.message.replaceChildren(el("span", { class: "out-of-sight" }, at), sentence);
    this.caret.hidden = offset === null;
    if (offset === null) this.back.replaceChildren();
    else this.#point(offset);
    this.fault.hidden = false;
  }

  clear() {
    this.area.removeAttribute("aria-invalid");
    this.area.removeAttribute("aria-describedby");
    this.back.replaceChildren();
    this.fault.hidden = true;
  }

  /** Replaces the selection by `text`, as if typed. */
  insert(text) {
    this.area.focus();
    this.area.setRangeText(text, this.area.selectionStart, this.area.selectionEnd, "end");
    this.area.dispatchEvent(new Event("input", { bubbles: true }));
  }

  #point(offset) {
    const text = this.text;
    const end = offset + (text.codePointAt(offset) > 0xffff ? 2 : 1);
    const character = text.slice(offset, end).replace(/[\n\r]/, "") || " ";
    const tail = text.slice(character === " " && text[offset] !== " " ? offset : end);
    this.back.replaceChildren(text.slice(0, offset), el("mark", {}, character), tail, "\n");
    this.#scrolled();
    const start = text.lastIndexOf("\n", offset - 1) + 1;
    const stop = (text.indexOf("\n", offset) + text.length + 1) % (text.length + 1) || text.length;
    const from = Math.max(start, offset - CONTEXT_CHARS);
    const before = (from > start ? "…" : "") + text.slice(from, offset);
    const after = text.slice(offset, Math.min(Math.max(stop, offset), offset + CONTEXT_CHARS));
    this.caret.replaceChildren(`${before}${after}\n${" ".repeat([...before].length)}`, el("mark", {}, "^"));
  }

  #scrolled() {
    this.back.scrollTop = this.area.scrollTop;
    this.back.scrollLeft = this.area.scrollLeft;
  }
}

const lineOf = (text, offset) => text.slice(0, offset).split("\n").length;
const columnOf = (text, offset) => [...text.slice(text.lastIndexOf("\n", offset - 1) + 1, offset)].length + 1;
