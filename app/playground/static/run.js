// Runs a generation: streams its events into the views, shows the answers, and can be stopped.

import { Refusal } from "./api.js";
import { byId, plural, formatNumber } from "./dom.js";
import { Generation } from "./generation.js";

const REJECTED_TOP_K = 5;

export class Run {
  /** `views` has automaton, lattice, tokens, answers and checker; `page` is the Playground. */
  constructor(views, page) {
    Object.assign(this, { views, page, now: null, response: null, constraint: null, trails: null, hash: null });
  }

  /** Generates for {prompt, constraint, options}. */
  async start({ prompt, constraint, options }) {
    const { page } = this;
    this.constraint = constraint;
    this.#begin(options);
    const body = { prompt, constraint, ...options, trace: true, rejected_top_k: REJECTED_TOP_K };
    const generation = (this.now = new Generation(body, {
      compiled: (event) => this.#compiled(event),
      step: (event) => this.#step(event, options),
      restarted: () => (page.setStatus("The worker failed; another one restarts the request."), this.#clear(options)),
    }));
    try {
      const response = await generation.answer();
      if (this.now !== generation) return;
      if (page.isCurrent(response.automaton)) await page.showAutomaton(response.automaton);
      this.#done(response, options);
    } catch (error) {
      if (this.now !== generation) return;
      if (!(error instanceof Refusal)) throw error;
      if (generation.stopped) page.setStatus("Stopped.");
      else page.refuse(error.problem);
    } finally {
      if (this.now === generation) this.#end();
    }
  }

  stop() { this.now?.stop(); }

  #begin(options) {
    this.stop();
    this.#clear(options);
    this.response = null;
    this.page.refuse(null);
    this.page.setStatus("Generating.");
    byId("generate").disabled = true;
    byId("stop").disabled = false;
    Object.assign(byId("progress"), { hidden: false, value: 0, max: options.max_tokens });
    for (const id of ["lattice-hint", "answer-hint"]) byId(id).hidden = true;
  }

  async #compiled({ automaton }) {
    this.hash = automaton;
    if (this.page.isCurrent(automaton)) await this.page.showAutomaton(automaton);
  }

  #clear(options) {
    this.trails = null;
    const { automaton, lattice, tokens, answers } = this.views;
    automaton.mark([], []);
    automaton.path([]);  // removes the path of the previous answer
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
    const drawn = live.length ? live : event.rows;
    if (this.page.shows(this.hash)) automaton.mark([...new Set(drawn.map((row) => row.state))], this.trails[event.rows.indexOf(drawn[0])]);
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
    byId("figures").textContent = `${plural(usage.prompt_tokens, "token")} read, ${formatNumber(usage.completion_tokens)} written${seed} · ${formatNumber(timings.total_ms / 1000)} s`;
    const fewer = response.choices.length < options.n && options.algorithm !== "sample" ? " The beams hold no further distinct answers." : "";
    const other = this.page.isCurrent(response.automaton) ? "" : " The constraint has changed since.";
    this.page.setStatus(`Done: ${plural(response.choices.length, "answer")} in ${formatNumber(timings.total_ms / 1000)} seconds.${fewer}${other}`);
  }

  #end() {
    this.now = null;
    byId("generate").disabled = false;
    byId("stop").disabled = true;
    byId("progress").hidden = true;
  }
}
