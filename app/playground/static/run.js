// A generation as the page shows it: streams into the views, fills the answers, can be stopped.

import { Refusal } from "./api.js";
import { byId, plural, shown } from "./dom.js";
import { Generation } from "./generation.js";

const REJECTED_TOP_K = 5;

export class Run {
  /** `views` has automaton, lattice, tokens, answers, checker; `page` the means to say things. */
  constructor(views, page) {
    Object.assign(this, { views, page, now: null, response: null, constraint: null, trails: null, hash: null });
  }

  /** Generate for {prompt, constraint, options}. */
  async start({ prompt, constraint, options }) {
    const { page } = this;
    this.constraint = constraint;
    this.#begin(options);
    const body = { prompt, constraint, ...options, trace: true, rejected_top_k: REJECTED_TOP_K };
    const mine = (this.now = new Generation(body, {
      compiled: (event) => this.#compiled(event),
      step: (event) => this.#step(event, options),
      restarted: () => (page.say("The worker failed; another one restarts the request."), this.#clear(options)),
    }));
    try {
      const response = await mine.answer();
      if (this.now !== mine) return;
      if (page.asks(response.automaton)) await page.showAutomaton(response.automaton);
      this.#done(response, options);
    } catch (error) {
      if (this.now !== mine) return;
      if (!(error instanceof Refusal)) throw error;
      if (mine.stopped) page.say("Stopped.");
      else page.refuse(error.problem);
    } finally {
      if (this.now === mine) this.#end();
    }
  }

  stop() { this.now?.stop(); }

  #begin(options) {
    this.stop();
    this.#clear(options);
    this.response = null;
    this.page.refuse(null);
    this.page.say("Generating.");
    byId("generate").disabled = true;
    byId("stop").disabled = false;
    Object.assign(byId("progress"), { hidden: false, value: 0, max: options.max_tokens });
    for (const id of ["lattice-hint", "answer-hint"]) byId(id).hidden = true;
  }

  async #compiled({ automaton }) {
    this.hash = automaton;
    if (this.page.asks(automaton)) await this.page.showAutomaton(automaton);
  }

  #clear(options) {
    this.trails = null;
    const { automaton, lattice, tokens, answers } = this.views;
    automaton.mark([], []);
    automaton.path([]);  // not that of the answer before
    lattice.reset({ algorithm: options.algorithm, maxTokens: options.max_tokens });
    tokens.clear();
    answers.clear();
    byId("steps").textContent = byId("figures").textContent = "";
  }

  #step(event, options) {
    const { lattice, automaton } = this.views;
    lattice.step(event);
    this.trails = event.rows.map((row) => [...(this.trails?.[row.parent] ?? []), row.state]);
    const live = event.rows.filter((row) => !row.finished);
    const shown = live.length ? live : event.rows;
    if (this.page.shows(this.hash)) automaton.mark([...new Set(shown.map((row) => row.state))], this.trails[event.rows.indexOf(shown[0])]);
    byId("progress").value = event.step;
    byId("steps").textContent = `step ${event.step} of at most ${options.max_tokens}, ${plural(live.length, "text")} alive`;
  }

  #done(response, options) {
    this.response = response;
    const { usage, timings } = response;
    byId("steps").textContent = byId("steps").textContent.replace(/^step (\d+).*/, "$1 steps");
    this.views.lattice.done(response);
    this.views.answers.show(response.choices);
    const seed = response.seed === null ? "" : ` · seed ${response.seed}`;
    byId("figures").textContent = `${plural(usage.prompt_tokens, "token")} read, ${shown(usage.completion_tokens)} written${seed} · ${shown(timings.total_ms / 1000)} s`;
    const few = response.choices.length < options.n && options.algorithm !== "sample" ? " There are no further ones among the beams." : "";
    const other = this.page.asks(response.automaton) ? "" : " The constraint was another one when you asked.";
    this.page.say(`Done: ${plural(response.choices.length, "answer")} in ${shown(timings.total_ms / 1000)} seconds.${few}${other}`);
  }

  #end() {
    this.now = null;
    byId("generate").disabled = false;
    byId("stop").disabled = true;
    byId("progress").hidden = true;
  }
}
