// The page of the agent. It reads the request and its policy, runs the conversation and shows it.

import { RequestError, askJson } from "../api.js";
import { byId, debounce, el, plural } from "../dom.js";
import { initKeyForm, initThemeButton } from "../page-shell.js";
import { sentence } from "../problems.js";
import { Conversation } from "./conversation.js";
import { EventsView } from "./events.js";
import { EXAMPLES } from "./examples.js";

const PAUSE_MS = 250;

class AgentPage {
  constructor() {
    this.events = new EventsView(byId("events"));
    this.conversation = null;
    this.compileLater = debounce(PAUSE_MS, () => this.compile());
    this.#listen();
  }

  async start() { await this.#write(EXAMPLES[0]); }

  /** Compiles the policy and lists its states; shows the error of a rule. */
  async compile() {
    this.compileLater.cancel();
    byId("states").replaceChildren();
    byId("states-sizes").textContent = "";
    try {
      const { rules, tools } = this.#read();
      const { states } = await askJson("POST", "/compile", { body: { policy: { rules }, tools } });
      this.#showLive(`Compiles: ${plural(states.length, "state")}.`, "good");
      byId("states-sizes").textContent = `${plural(states.length, "state")}, each with the shortest past that leads there`;
      byId("states").replaceChildren(stateTable(states));
    } catch (error) {
      this.#showLive(messageOf(error), "bad");
    }
  }

  async run() {
    if (byId("run").disabled) return;
    let request;
    try {
      request = this.#read();
    } catch (error) {
      return this.#showProblem(messageOf(error));
    }
    this.#begin(request);
    const conversation = (this.conversation = new Conversation(request, (step) => this.events.show(step)));
    try {
      this.#end(await conversation.run(), conversation.messages);
    } catch (error) {
      if (conversation.stopped) byId("status").textContent = "Stopped.";
      else this.#showProblem(messageOf(error));
    } finally {
      byId("run").disabled = false;
      byId("stop").disabled = true;
    }
  }

  #begin({ tools }) {
    this.#showProblem("");
    byId("events-hint").hidden = true;
    byId("verdict").textContent = "";
    byId("status").textContent = "Running.";
    byId("run").disabled = true;
    byId("stop").disabled = false;
    this.events.clear(tools);
  }

  #end({ satisfied, conflict, open_rules: open }, messages) {
    const calls = messages.filter((message) => message.tool_calls).length;
    const holds = satisfied && messages.length > 1;  // otherwise the model wrote nothing
    byId("verdict").className = `verdict ${holds ? "good" : "bad"}`;
    byId("verdict").textContent = holds
      ? `✓ All rules hold, after ${plural(calls, "call")} and a reply.`
      : `✗ No next event keeps the rules: ${(conflict.length ? conflict : open).join("; ")}.`;
    byId("status").textContent = "Done.";
  }

  /** The request of the page. Raises a SyntaxError for JSON that does not parse, and a TypeError for tools of another shape. */
  #read() {
    const rules = byId("rules").value.split("\n").map((line) => line.trim()).filter(Boolean);
    const tools = JSON.parse(byId("tools").value || "[]");
    if (!Array.isArray(tools) || tools.some((tool) => typeof tool?.function?.name !== "string")) {
      throw new TypeError('Write the tools as a list of {"type": "function", "function": {"name": …}}.');
    }
    return {
      message: byId("message").value, rules, tools, maxCalls: Number(byId("max-calls").value), choice: byId("choice").value,
      result: byId("result").value, seed: Number(byId("seed").value),
    };
  }

  async #write({ message, meaning, rules, tools, maxCalls, choice, result, seed }) {
    const values = {
      message, rules: rules.join("\n"), tools: toolsText(tools), "max-calls": maxCalls, choice, result, seed,
    };
    for (const [id, value] of Object.entries(values)) byId(id).value = value;
    byId("meaning").textContent = meaning;
    this.#showProblem("");
    await this.compile();
  }

  #listen() {
    initThemeButton(byId("theme"));
    initKeyForm((problem) => this.#showProblem(sentence(problem)), () => this.compile());
    const preset = byId("preset");
    preset.append(el("option", { value: "" }, "Examples…"), ...EXAMPLES.map(({ name }, number) => el("option", { value: number }, name)));
    preset.addEventListener("change", () => preset.value && this.#write(EXAMPLES[preset.value]));
    byId("rules").addEventListener("input", () => (byId("meaning").textContent = ""));
    for (const id of ["rules", "tools"]) byId(id).addEventListener("input", () => this.compileLater());
    byId("run").addEventListener("click", () => this.run());
    byId("stop").addEventListener("click", () => this.conversation.stop());
    document.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
      event.preventDefault();
      this.run();
    });
  }

  #showLive(text, state) {
    byId("live").textContent = text;
    byId("live").className = `live-line ${state}`;
    if (state === "bad") byId("rules").setAttribute("aria-invalid", "true");
    else byId("rules").removeAttribute("aria-invalid");
  }

  #showProblem(text) {
    byId("problem").hidden = !text;
    byId("problem").replaceChildren(el("p", {}, text));
    byId("status").textContent = "";
  }
}

/** A tool a line, because a list of indented JSON would fill the panel. */
const toolsText = (tools) => `[\n${tools.map((tool) => `  ${JSON.stringify(tool)}`).join(",\n")}\n]`;

function messageOf(error) {
  if (error instanceof RequestError) return sentence(error.problem);
  if (error instanceof SyntaxError) return `The tools are no JSON: ${error.message}.`;
  if (error instanceof TypeError) return error.message;
  throw error;
}

function stateTable(states) {
  const heads = ["Past", "Tools", "Reply", "Calls needed"].map((name) => el("th", { scope: "col" }, name));
  const rows = states.map(({ past, tools, reply, calls_needed: calls }) => el("tr", {},
    el("td", {}, past.join(", ") || "(begin)"), el("td", {}, tools.join(", ") || "none"), el("td", {}, reply ? "yes" : "no"),
    el("td", {}, calls === null ? "never" : `${calls}`)));
  return el("table", {}, el("thead", {}, el("tr", {}, ...heads)), el("tbody", {}, ...rows));
}

await new AgentPage().start();
document.documentElement.dataset.ready = "yes";  // all listeners are set
