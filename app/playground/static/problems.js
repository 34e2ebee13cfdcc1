// What every refusal of the service means for whoever reads it: one table from its code to a sentence that says what to
// change, with the body's own figures. The codes are those of the table in docs/errors.md.

const number = (value) => Number(value).toLocaleString("en-US", { maximumFractionDigits: 1 });

function again(problem) {
  const seconds = problem.retry_after_s;
  if (seconds === undefined) return "Try again in a moment.";
  return `Try again in ${number(seconds)} second${seconds === 1 ? "" : "s"}.`;
}

function bytes(value) {
  const units = ["bytes", "KiB", "MiB", "GiB"];
  let rank = 0;
  while (value >= 1024 && rank < units.length - 1) [value, rank] = [value / 1024, rank + 1];
  return `${number(value)} ${units[rank]}`;
}

const limit = (problem) => (problem.limit ? ` (${problem.limit} is ${number(problem.cap)})` : "");
const listed = (names) => names.map((name) => `“${name}”`).join(", ");
const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);
const ended = (text) => capital(/[.!?]$/.test(text) ? text : `${text}.`);

const LIMITS = {  // what to make smaller, by the name of the setting
  compile_s_max: "it took too long; make the formula, the counts or the schema smaller",
  dfa_states_max: "it has too many states; make counts and lengths smaller, or split what is nested",
  table_bytes_max: "its tables are too large; make counts and lengths smaller",
  propositions_max: "it names too many different words; leave some out",
  letters_max: "too many of its words can hold together; leave some out",
  nfa_positions_max: "its pattern is too long once repeats are written out; make the repeats smaller",
  bdd_nodes_max: "the formula branches too much; write it with fewer parts",
  nesting_depth_max: "its brackets nest too deep; write it flatter",
  parts_max: "it combines too many constraints; leave some out",
  automaton_view_cells_max: "its automaton is too large to be drawn; answers can be generated all the same",
};

export const SENTENCES = {
  invalid_json: () => "What was sent is not JSON. Reload the page and try again.",
  malformed_request: () => "Something between this page and the service spoils requests. Try without the proxy.",
  unauthorized: () => "The service needs a key that is in force. Enter one above.",
  forbidden: (p) => `Your key lacks the scope “${p.scope ?? "generate"}”. Enter a key that has it above, or ask for one.`,
  origin_refused: () => "The service does not take requests from this address. Open the page at the service's own "
    + "address, or have the operator add this one to ABS_ALLOWED_ORIGINS.",
  host_refused: () => "The service does not answer to this host name. Open the page at a name that is listed in ABS_ALLOWED_HOSTS.",
  unknown_automaton: () => "The service no longer has this automaton. Edit the constraint or generate again: it is compiled anew.",
  unknown_model: (p) => `This model is not served here${p.served ? `; choose ${p.served}` : ""}.`,
  unknown_job: () => "The service no longer knows this request, since answers are kept for a time only. Generate again.",
  not_found: () => "The service has no such path. Reload the page: it may be of another version.",
  method_not_allowed: () => "The service does not take this kind of request. Reload the page: it may be of another version.",
  body_too_large: (p) => `All together is too long${p.cap ? `: at most ${bytes(p.cap)} may be sent` : ""}. `
    + "Shorten the prompt or the constraint.",
  unsupported_media_type: () => "A proxy changes what this page sends. Open the service at its own address.",
  headers_too_large: (p) => `The browser sends too long a header${limit(p)}. Clear the cookies of this address.`,
  request_timeout: (p) => `The request did not arrive within ${number(p.timeout_s ?? 30)} seconds. Check the line and try again.`,
  constraint_syntax: (p) => {
    const detail = ended(p.detail ?? "the constraint does not parse");
    return p.expected && !detail.includes(p.expected) ? `${detail} Expected: ${p.expected}.` : detail;
  },
  constraint_unsatisfiable: (p) => {
    if (p.conflict?.length) return `No text can meet all of this: ${p.conflict.join(" and ")} contradict each other. Change or drop one.`;
    if (p.characters?.length) return `The model has no tokens that write ${listed(p.characters)}. Do without.`;
    return "No text can meet this constraint. Change or drop a part of it.";
  },
  constraint_too_large: (p) => `The constraint is too large: ${LIMITS[p.limit] ?? "make it shorter"}${limit(p)}.`,
  unsupported: (p) => `${ended(p.detail ?? `${p.construct} is not supported`)} Write it without that.`,
  budget_too_small: (p) => `Set max_tokens to at least ${number(p.min_tokens)}: no shorter answer can meet the constraint.`,
  answer_too_large: (p) => `The answer would be longer than may be sent${limit(p)}. Ask for fewer tokens or answers.`,
  prompt_violates: (p) => `The prompt itself breaks the constraint${p.position === undefined ? "" : ` at character ${number(p.position + 1)}`}. `
    + "Change it there, or let only the answer have to satisfy.",
  request_too_large: (p) => `This could need ${bytes(p.needed_bytes)} of memory, and all requests share ${bytes(p.memory_bytes)}. `
    + "Take fewer beams, fewer tokens or a shorter prompt.",
  prompt_too_long: (p) => `The model reads ${number(p.context_length)} tokens; the prompt has ${number(p.prompt_tokens)} and `
    + `max_tokens adds ${number(p.max_tokens)}. Shorten the prompt or lower max_tokens.`,
  invalid_request: (p) => {
    if (p.errors?.length) return `Change ${p.errors.map((error) => `${error.path}: ${error.message}`).join("; ")}.`;
    if (p.limit) return `Lower ${p.path ?? "a field"}: at most ${number(p.cap)}${p.path === p.limit ? "" : ` (${p.limit})`}.`;
    return `${ended(p.detail ?? "a field is out of its range")} Change it and try again.`;
  },
  idempotency_mismatch: () => "Another request was sent under the same name before. Generate again.",
  rate_limited: (p) => `Your key may not ask for more just now${limit(p)}. ${again(p)}`,
  draining: (p) => `The service is about to stop; another takes its place. ${again(p)}`,
  storage_down: (p) => `The service cannot reach its storage. ${again(p)}`,
  too_many_connections: (p) => `Too many connections are open. Close other tabs of this page. ${again(p)}`,
  queue_full: (p) => `Too many requests wait${limit(p)}. ${again(p)}`,
  deadline_unreachable: (p) => `The answer would take ${number(p.wait_s)} seconds now, longer than its timeout of ${number(p.timeout_s)}. `
    + `Ask for fewer tokens or beams. ${again(p)}`,
  not_ready: (p) => `The service is not ready${p.reasons?.length ? ` (${p.reasons.join("; ")})` : ""}. ${again(p)}`,
  model_unavailable: (p) => `The model cannot be used; the operator's log says why. ${again(p)}`,
  cancelled: () => "The request was called off. Generate again.",
  memory_taken: (p) => `Other requests hold the model's memory. Take fewer beams or tokens, or wait. ${again(p)}`,
  out_of_memory: (p) => `The model's device ran out of memory${p.needed_bytes ? ` (${bytes(p.needed_bytes)} were needed)` : ""}. `
    + "Take fewer beams, fewer tokens or a shorter prompt.",
  internal: (p) => `Something failed in the service. Try again; if it stays, give the operator the id ${p.request_id ?? "in the log"}.`,
  replay_rejected: (p) => `An answer failed its last check and was withheld. Try other options, and report the id ${p.request_id ?? "in the log"}.`,
  worker_lost: (p) => `In all ${number(p.attempts ?? 3)} workers died of this request. Take fewer beams or tokens, and tell the operator.`,
  deadline: (p) => `The answer took longer than ${number(p.timeout_s ?? 60)} seconds. Ask for fewer tokens or beams.`,
};

const OURS = {  // what no service says: where none was reached
  unreachable: () => "The service cannot be reached. See that it runs and try again.",
  not_ours: (p) => `Something between this page and the service answered with status ${p.status}. Open the service at its own address.`,
  stream_lost: () => "The line to the service broke and could not be taken up again. Generate again.",
  bad_link: () => "This link is broken or of another version. Ask for it anew, or begin with an example.",
};

/** A refusal (problem+json) as a sentence. Codes of a later version are told in the service's own words. */
export function sentence(problem) {
  const told = [SENTENCES, OURS].find((table) => Object.hasOwn(table, problem.code))?.[problem.code];
  return told ? told(problem) : `${ended(problem.detail ?? problem.title ?? "The service refused")} Change the request and try again.`;
}
