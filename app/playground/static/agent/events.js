// The events of a conversation as cards, each with the wanted, the allowed and the written event.

import { el, plural } from "../dom.js";

export function eventText({ call, text }) {
  if (!call) return text ? `reply: ${text}` : "an empty reply";
  return call.arguments === "{}" ? `call ${call.name}` : `call ${call.name} ${call.arguments}`;
}

export class EventsView {
  /** `tools` are those of the request, as `show` compares their parameters with the allowed ones. */
  constructor(list) {
    Object.assign(this, { list, cards: new Map(), tools: [] });
  }

  clear(tools) {
    this.tools = tools;
    this.cards.clear();
    this.list.replaceChildren();
  }

  /** Shows a step of the conversation in place of its earlier card. */
  show(step) {
    if (!this.cards.has(step.number)) {
      this.cards.set(step.number, el("li", { class: "event" }));
      this.list.append(this.cards.get(step.number));
    }
    const facts = el("dl", { class: "event-facts" },
      ...fact("To be met", this.#open(step)),
      ...fact("Wanted", step.wanted ? this.#wanted(step) : [el("span", { class: "soft" }, "…")]),
      ...fact("Allowed", this.#allowed(step)),
      ...fact("Written", [step.event ? el("strong", { class: "event-text" }, eventText(step.event)) : el("span", { class: "soft" }, "…")]));
    this.cards.get(step.number).replaceChildren(el("h3", {}, `Event ${step.number} · ${budget(step)}`), facts);
  }

  /** The obligations. The policy lets no event happen after which the calls that are left are too few for them. */
  #open({ decision: { open_rules: rules }, left }) {
    if (!rules.length) return [el("span", { class: "soft" }, "nothing: a reply may end the conversation")];
    return [el("span", { class: "event-text" }, rules.join("; ")), " ", el("span", { class: "soft" }, `within ${plural(left, "call")}`)];
  }

  #wanted({ wanted, verdict }) {
    const rules = verdict.allowed ? "" : `${verdict.rules.join("; ")} ${verdict.reason}`.trim();
    return [
      el("span", { class: "event-text" }, eventText(wanted)), " ",
      el("span", { class: verdict.allowed ? "good" : "bad" }, verdict.allowed ? "✓ allowed" : `✗ not allowed: ${rules}`),
    ];
  }

  #allowed({ decision }) {
    const items = this.tools.map(({ function: { name } }) => nextEvent(name, name in decision.tools));
    const list = el("ul", { class: "next-events", "aria-label": "Next events" }, ...items, nextEvent("reply", decision.reply));
    const narrowed = this.tools.filter(({ function: { name, parameters } }) => name in decision.tools && hasConditions(decision.tools[name], parameters));
    const details = narrowed.map(({ function: { name } }) => el("details", {},
      el("summary", {}, `Arguments of ${name} that the rules allow`),
      el("pre", { tabindex: "0" }, JSON.stringify(decision.tools[name], null, 2))));
    return [list, ...details];
  }
}

const fact = (name, content) => [el("dt", {}, name), el("dd", {}, ...content)];

const nextEvent = (name, allowed) => el("li", { class: allowed ? "" : "excluded" }, `${allowed ? "✓" : "✗"} ${name}`);

function budget({ left, decision }) {
  const needed = decision.calls_needed ? `, ${decision.calls_needed} needed before a reply` : "";
  return `${plural(left, "call")} left${needed}`;
}

/** Whether a schema of the policy differs from the tool's own parameters. */
function hasConditions(schema, parameters) {
  const empty = { type: "object", properties: {}, additionalProperties: false };
  return JSON.stringify(schema) !== JSON.stringify(parameters ?? empty);
}
