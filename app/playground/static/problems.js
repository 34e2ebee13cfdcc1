// Error texts: one table from the code of an error to a text that says what is wrong and what to do, with the figures of
// the response. The codes are those of the table in docs/errors.md.

const number = (value) => Number(value).toLocaleString("en-US", { maximumFractionDigits: 1 });

function retryAdvice(problem) {
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
const quotedList = (names) => names.map((name) => `“${name}”`).join(", ");
const capitalize = (text) => text.charAt(0).toUpperCase() + text.slice(1);
const withFullStop = (text) => capitalize(/[.!?]$/.test(text) ? text : `${text}.`);

const LIMITS = {  // what to make smaller, by the name of the limit
  compile_s_max: "compiling it takes too long; make the formula, the counts or the schema smaller",
  dfa_states_max: "it has too many states; make counts and lengths smaller, or nest less",
  table_bytes_max: "its tables are too large; make counts and lengths smaller",
  propositions_max: "it names too many different words; leave some out",
  letters_max: "too many of its propositions can hold together; leave some out",
  nfa_positions_max: "its pattern is too long once repeats are written out; make the repeats smaller",
  bdd_nodes_max: "the formula branches too much; write it with fewer parts",
  nesting_depth_max: "its brackets nest too deep; write it flatter",
  grammar_chars_max: "its grammar is too long; leave rules out",
  check_steps_max: "its grammar is too ambiguous for so long a text; make the text shorter or the grammar unambiguous",
  exit_distances_max: "a part that counts is combined with a grammar or nested JSON; make its counts smaller",
  parts_max: "it combines too many constraints; leave some out",
  automaton_view_cells_max: "its automaton is too large to be drawn; generating answers still works",
};

export const SENTENCES = {
  invalid_json: () => "The request is not valid JSON. Reload the page and try again.",
  malformed_request: () => "A proxy is altering requests. Try without it.",
  unauthorized: () => "The service needs a valid API key. Enter one above.",
  forbidden: (p) => `Your key lacks the scope “${p.scope ?? "generate"}”. Enter a key that has it above, or request one from the operator.`,
  origin_refused: () => "The service rejects requests from this address. Open the page at the service's own "
    + "address, or let the operator add this one to ABS_ALLOWED_ORIGINS.",
  host_refused: () => "The service rejects this host name. Open the page at a host name in ABS_ALLOWED_HOSTS.",
  unknown_automaton: () => "The service no longer stores this automaton. Edit the constraint or generate again to compile it.",
  unknown_model: (p) => `This model is not served here${p.served ? `; choose ${p.served.replaceAll(", ", " or ")}` : ""}.`,
  unknown_job: () => "The service no longer stores this request. Generate again.",
  not_found: () => "The service has no such path. Reload the page to get its current version.",
  method_not_allowed: () => "The service does not support this request. Reload the page to get its current version.",
  body_too_large: (p) => `The request is too long${p.cap ? `: the limit is ${bytes(p.cap)}` : ""}. `
    + "Shorten the prompt or the constraint.",
  unsupported_media_type: () => "A proxy is altering the type of requests. Open the service at its own address.",
  headers_too_large: (p) => `The request headers are too long${limit(p)}. Clear the cookies of this address.`,
  request_timeout: (p) => `The request did not arrive within ${number(p.timeout_s ?? 30)} seconds. Check the connection and try again.`,
  constraint_syntax: (p) => {
    const detail = withFullStop(p.detail ?? "the constraint does not parse");
    return p.expected && !detail.includes(p.expected) ? `${detail} Expected: ${p.expected}.` : detail;
  },
  constraint_unsatisfiable: (p) => {
    if (p.past?.length) return `After ${p.past.join(", ")}${p.left_out?.past ? ` and ${p.left_out.past} more` : ""} no next event keeps these rules: ${p.conflict.join("; ")}. Change or drop one.`;
    if (p.characters?.length) return `The model has no tokens that write ${quotedList(p.characters)}. Use other characters.`;
    return `${withFullStop(p.detail ?? "no text satisfies the constraint")} Change or drop ${p.conflict?.length > 1 ? "one" : "a part of it"}.`;
  },
  constraint_too_large: (p) => `The constraint is too large: ${LIMITS[p.limit] ?? "make it shorter"}${limit(p)}.`,
  unsupported: (p) => p.construct?.startsWith("picture of ") ? withFullStop(p.detail) : `${withFullStop(p.detail ?? `${p.construct} is not supported`)} Write the constraint without it.`,
  budget_too_small: (p) => p.min_tokens === undefined
    ? "No answer satisfies the constraint within max_tokens. Raise max_tokens, or change the constraint."
    : `Set max_tokens to ${p.min_tokens_at_least === undefined ? "at least " : ""}${number(p.min_tokens)}: `
      + `no answer of fewer than ${number(p.min_tokens_at_least ?? p.min_tokens)} tokens satisfies the constraint.`,
  undecided: (p) => p.min_tokens === undefined
    ? "The search for a text that satisfies the constraint ended without a result. Drop a part of the constraint."
    : `Set max_tokens to ${number(p.min_tokens)}: whether a shorter answer satisfies the constraint was not decided.`,
  answer_too_large: (p) => `The answer would be too long to be sent${limit(p)}. Request fewer tokens or answers.`,
  prompt_violates: (p) => `The prompt itself breaks the constraint${p.position === undefined ? "" : ` at character ${number(p.position + 1)}`}. `
    + "Change it there, or apply the constraint to the answer only.",
  request_too_large: (p) => `The request may need ${bytes(p.needed_bytes)} of memory; all requests share ${bytes(p.memory_bytes)}. `
    + "Use fewer beams, fewer tokens or a shorter prompt.",
  context_length_exceeded: (p) => `The model reads ${number(p.context_length)} tokens; the prompt has ${number(p.prompt_tokens)} and `
    + `max_tokens adds ${number(p.max_tokens)}. Shorten the prompt or lower max_tokens.`,
  invalid_request: (p) => {
    if (p.errors?.length) return `Change ${p.errors.map((error) => `${error.path}: ${error.message}`).join("; ")}.`;
    if (p.limit) return `Lower ${p.path ?? "a field"}: at most ${number(p.cap)}${p.path === p.limit ? "" : ` (${p.limit})`}.`;
    return `${withFullStop(p.detail ?? "a field is out of its range")} Change it and try again.`;
  },
  unknown_field: (p) => `Change ${(p.errors ?? []).map((error) => `${error.path}: ${error.message}`).join("; ") || "the fields"}.`,
  idempotency_mismatch: () => "An earlier request used the same Idempotency-Key. Generate again.",
  rate_limited: (p) => `Your key has reached a rate limit${limit(p)}. ${retryAdvice(p)}`,
  draining: (p) => `The service is shutting down. ${retryAdvice(p)}`,
  storage_down: (p) => `The service cannot reach its storage. ${retryAdvice(p)}`,
  queue_full: (p) => `The queue is full${limit(p)}. ${retryAdvice(p)}`,
  deadline_unreachable: (p) => `The answer would take ${p.wait_s === undefined ? "" : `${number(p.wait_s)} seconds, `}longer than its timeout. `
    + `Request fewer tokens or beams. ${retryAdvice(p)}`,
  not_ready: (p) => `The service is not ready${p.reasons?.length ? ` (${p.reasons.join("; ")})` : ""}. ${retryAdvice(p)}`,
  model_unavailable: (p) => `The model is unavailable; its log has the reason. ${retryAdvice(p)}`,
  cancelled: () => "The request was cancelled. Generate again.",
  memory_taken: (p) => `Other requests use the model's memory. Use fewer beams or tokens. ${retryAdvice(p)}`,
  out_of_memory: (p) => `The model's device ran out of memory${p.needed_bytes ? ` (${bytes(p.needed_bytes)} were needed)` : ""}. `
    + "Use fewer beams, fewer tokens or a shorter prompt.",
  internal: (p) => `The service has an internal error. Try again, or report the id ${p.request_id ?? "in the log"} to the operator.`,
  replay_rejected: (p) => `An answer failed its final check and was withheld. Try other options, and report the id ${p.request_id ?? "in the log"}.`,
  worker_lost: (p) => `The request failed on ${number(p.attempts ?? 3)} workers. Use fewer beams or tokens, and tell the operator.`,
  deadline: (p) => `The answer took longer than ${number(p.timeout_s ?? 60)} seconds. Request fewer tokens or beams.`,
};

const PAGE_SENTENCES = {  // errors of the page, if no service answered
  unreachable: () => "The service cannot be reached. Check that it runs and try again.",
  foreign_response: (p) => `A proxy answered with status ${p.status}. Open the service at its own address.`,
  stream_lost: () => "The connection to the service broke and could not be resumed. Generate again.",
  bad_link: () => "This link is broken or of another version. Request a new one, or start with an example.",
  unserved_model: (p) => `This service does not serve “${p.wanted}”, the model of the link: “${p.used}” is used instead.`,
};

/** The text for an error (problem+json). An unknown code, of a later version, is shown with the service's own text. */
export function sentence(problem) {
  const write = [SENTENCES, PAGE_SENTENCES].find((table) => Object.hasOwn(table, problem.code))?.[problem.code];
  return write ? write(problem) : `${withFullStop(problem.detail ?? problem.title ?? "The service rejected the request")} Change the request and try again.`;
}
