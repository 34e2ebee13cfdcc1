// The dialog "Copy as code": the request for a shell, our Python client and the OpenAI client.

import { copy, el, freshId } from "../dom.js";
import { SNIPPETS } from "./snippets.js";

export class CodeDialog {
  /** `notify(text)` shows a text in the status line. */
  constructor(dialog, notify) {
    Object.assign(this, { dialog, notify });
  }

  /** Shows the request {base, body, model, withKey} as code. */
  show(request) {
    const blocks = SNIPPETS.map(([name, write]) => {
      const text = write(request);
      const title = el("h3", { id: freshId("snippet") }, name);
      const button = el("button", { type: "button", "aria-label": `Copy as ${name}`, click: () => this.#copy(text, button, name) }, "Copy");
      return el("section", { "aria-labelledby": title.id, "data-snippet": name },
        el("div", { class: "row" }, title, el("span", { class: "grow" }), button),
        el("pre", { tabindex: "0", role: "region", "aria-labelledby": title.id }, text));
    });
    const close = el("button", { type: "button", class: "plain", "aria-label": "Close", click: () => this.dialog.close() }, "✕");
    this.dialog.replaceChildren(
      el("div", { class: "row" }, el("h2", { class: "grow" }, "This request as code"), close), ...blocks);
    this.dialog.showModal();
  }

  async #copy(text, button, name) {
    await copy(text);
    button.textContent = "Copied";
    this.notify(`Copied as ${name}.`);
    setTimeout(() => (button.textContent = "Copy"), 1500);
  }
}
