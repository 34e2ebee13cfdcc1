// A conversation under a policy. Before each event it requests the allowed events, and the model's answer without the policy.

import { askJson } from "../api.js";
import { plural } from "../dom.js";

/** The call or the reply of an answer: {call: {id, name, arguments} | null, text}. */
function eventOf({ choices: [{ message }] }) {
  const [call] = message.tool_calls ?? [];
  return call ? { call: { id: call.id, ...call.function }, text: "" } : { call: null, text: message.content ?? "" };
}

function turnsOf({ call, text }, result) {
  if (!call) return [{ role: "assistant", content: text }];
  const { id, name, arguments: values } = call;
  return [
    { role: "assistant", content: null, tool_calls: [{ id, type: "function", function: { name, arguments: values } }] },
    { role: "tool", tool_call_id: id, content: result },
  ];
}

export class Conversation {
  /**
   * `request` is {message, tools, rules, maxCalls, choice, result, seed}. `onStep(step)` gets each step when it begins
   * and after each answer: {number, left, decision, wanted, verdict, event}.
   */
  constructor(request, onStep) {
    Object.assign(this, { request, onStep, control: new AbortController() });
    this.messages = [{ role: "user", content: request.message }];
  }

  get stopped() { return this.control.signal.aborted; }

  stop() { this.control.abort(); }

  /** Runs until the model replies or no event is allowed. Returns the answer of POST /check to the conversation. */
  async run() {
    for (let number = 1, left = this.request.maxCalls; ; number += 1, left -= 1) {
      const step = { number, left, decision: await this.#decision(this.messages, left) };
      if (!step.decision.reply && !Object.keys(step.decision.tools).length) return step.decision;
      this.onStep(step);
      step.wanted = eventOf(await this.#chat(this.request.choice, number));
      step.verdict = await this.#verdict(step);
      this.onStep(step);
      const required = this.request.choice === "required" && Object.keys(step.decision.tools).length > 0;
      step.event = eventOf(await this.#chat(required ? "required" : "auto", number, { policy: this.#policy(left) }));
      this.messages.push(...turnsOf(step.event, this.request.result));
      this.onStep(step);
      if (!step.event.call) return await this.#decision(this.messages, left);
    }
  }

  /** Whether the policy allows the wanted event; if not, why. */
  async #verdict({ wanted, decision, left }) {
    const { call } = wanted;
    if (!call) return decision.reply ? { allowed: true } : { allowed: false, rules: decision.open_rules, reason: "would stay unmet" };
    const schema = decision.tools[call.name];
    if (schema) {
      const { satisfied } = await this.#post("/check", { constraint: { json_schema: schema }, text: call.arguments });
      if (satisfied) return { allowed: true };
    }
    if (left === 0) return { allowed: false, rules: [], reason: "no call is left" };
    const after = await this.#decision([...this.messages, ...turnsOf(wanted, this.request.result)], left - 1);
    const broken = after.broken.filter(({ event }) => event !== null).map(({ rule }) => rule);
    if (broken.length) return { allowed: false, rules: broken, reason: "would be broken" };
    const rules = after.conflict.length ? after.conflict : after.open_rules;
    return { allowed: false, rules, reason: `could not be met within ${plural(left - 1, "more call")}` };
  }

  #policy(left) { return { rules: this.request.rules, max_calls: left }; }

  #decision(messages, left) {
    return this.#post("/check", { policy: this.#policy(left), tools: this.request.tools, messages });
  }

  #chat(choice, number, fields = {}) {
    const { tools, seed } = this.request;
    return this.#post("/v1/chat/completions", {
      messages: this.messages, tools, tool_choice: choice, parallel_tool_calls: false, seed: seed + number, ...fields,
    });
  }

  #post(path, body) { return askJson("POST", path, { body, signal: this.control.signal }); }
}
