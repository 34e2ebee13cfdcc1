// Requests to the service that this page came from. The key, where one is needed, lives in this tab's session alone.

const KEY = "abs.key";
let asksForKey = () => {};

/** What the service refused: the body of its problem+json, or one of ours where it could not be reached. */
export class Refusal extends Error {
  constructor(problem) {
    super(problem.detail ?? problem.code);
    this.problem = problem;
  }
}

/** Calls `listener` whenever a request was refused for want of a key. */
export function onKeyNeeded(listener) {
  asksForKey = listener;
}

export function setKey(text) {
  if (text) sessionStorage.setItem(KEY, text);
  else sessionStorage.removeItem(KEY);
}

/** Whether a text can be sent as a key at all: as a header, fetch takes no other characters. */
export const isKey = (text) => /^[\x21-\x7e]*$/.test(text);

export const hasKey = () => Boolean(sessionStorage.getItem(KEY));

/** The response to a request. Raises Refusal, and the abort of the signal. */
export async function ask(method, path, { body, headers = {}, signal } = {}) {
  const sent = { ...headers };
  const key = sessionStorage.getItem(KEY);
  if (key) sent.Authorization = `Bearer ${key}`;
  if (body !== undefined) sent["Content-Type"] = "application/json";
  let response;
  try {
    response = await fetch(path, {
      method, headers: sent, signal, credentials: "omit", body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Refusal({ code: "unreachable" });
  }
  if (response.ok) return response;
  const problem = await problemOf(response);
  if (problem.code === "unauthorized") asksForKey();
  throw new Refusal(problem);
}

/** The JSON that a request is answered by. */
export async function askJson(method, path, options) {
  const response = await ask(method, path, options);
  try {
    return await response.json();
  } catch (error) {
    if (options?.signal?.aborted) throw error;
    throw new Refusal({ code: "unreachable" });
  }
}

async function problemOf(response) {
  try {
    const problem = await response.json();
    if (typeof problem?.code === "string") return problem;
    const { error } = problem ?? {};  // below /v1 in the shape that OpenAI's clients read
    if (typeof error?.code === "string") return { ...error, detail: error.message };
  } catch {
    // no JSON: somebody between us and the service answered
  }
  return { code: "not_ours", status: response.status };
}
