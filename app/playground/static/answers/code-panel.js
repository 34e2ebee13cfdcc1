// The request of the page as code: for curl, our Python client and the OpenAI client.

import { copy, el, uniqueId } from "../dom.js";

const STEP = "    ";

/** JSON without invisible characters and characters that change the text direction. */
const json = (value) => JSON.stringify(value).replace(/[\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g,
  (sign) => `\\u${sign.charCodeAt(0).toString(16).padStart(4, "0")}`);

const shell = (text) => `'${text.replace(/'/g, "'\\''")}'`;

/** A JSON value as Python source; long values take several lines. */
function python(value, indent = "") {
  if (value === null) return "None";
  if (value === true) return "True";
  if (value === false) return "False";
  if (typeof value === "string") return json(value);  // every JSON string is a Python string
  if (typeof value !== "object") return String(value);
  const inner = indent + STEP;
  const items = Array.isArray(value)
    ? value.map((item) => python(item, inner))
    : Object.entries(value).map(([name, item]) => `${json(name)}: ${python(item, inner)}`);
  const [open, close] = Array.isArray(value) ? "[]" : "{}";
  const line = open + items.join(", ") + close;
  return line.length + indent.length <= 88 && !line.includes("\n") ? line
    : `${open}\n${items.map((item) => `${inner}${item},\n`).join("")}${indent}${close}`;
}

const keywords = (fields) => Object.entries(fields).map(([name, value]) => `${STEP}${name}=${python(value, STEP)},\n`).join("");

function curl({ base, body, withKey }) {
  const key = withKey ? ' \\\n  -H "Authorization: Bearer $ABS_API_KEY"' : "";
  return `curl -s ${base}/generate \\\n  -H 'Content-Type: application/json'${key} \\\n  -d ${shell(json(body))}\n`;
}

function client({ base, body, withKey }) {
  const { prompt, ...fields } = body;
  return `from abs_client import Client\n\nclient = Client(${python(base)})`
    + `${withKey ? "  # the key is read from ABS_API_KEY" : ""}\nresult = client.generate(\n${STEP}${python(prompt, STEP)},\n${keywords(fields)})\nprint(result.text)\n`;
}

function openai({ base, body, model: shown, withKey }) {
  const { model = shown, prompt, max_tokens, n, ...extensions } = body;
  const key = withKey ? 'os.environ["ABS_API_KEY"]' : '"none"';
  return `${withKey ? "import os\n\n" : ""}from openai import OpenAI\n\nclient = OpenAI(base_url=${python(`${base}/v1`)}, api_key=${key})\n`
    + `completion = client.completions.create(\n${keywords({ model, prompt, max_tokens, n })}${STEP}extra_body=${python(extensions, STEP)},\n)\n`
    + "print(completion.choices[0].text)\n";
}

const SNIPPETS = [["curl", curl], ["Python", client], ["OpenAI client", openai]];

export class CodePanel {
  /** `notify(text)` shows a text in the status line. */
  constructor(container, notify) {
    Object.assign(this, { container, notify });
  }

  /** Shows the request {base, body, model, withKey} as code. */
  show(request) {
    const blocks = SNIPPETS.map(([name, write]) => {
      const text = write(request);
      const title = el("h3", { id: uniqueId("snippet") }, name);
      const button = el("button", { type: "button", "aria-label": `Copy as ${name}`, click: () => this.#copy(text, button, name) }, "Copy");
      return el("section", { "aria-labelledby": title.id, "data-snippet": name },
        el("div", { class: "row" }, title, el("span", { class: "grow" }), button),
        el("pre", { tabindex: "0", role: "region", "aria-labelledby": title.id }, text));
    });
    this.container.replaceChildren(...blocks);
  }

  /** Shows why there is no code. */
  explain(text) { this.container.replaceChildren(el("p", { class: "hint" }, text)); }

  async #copy(text, button, name) {
    await copy(text);
    button.textContent = "Copied";
    this.notify(`Copied as ${name}.`);
    setTimeout(() => (button.textContent = "Copy"), 1500);
  }
}
