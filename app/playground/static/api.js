// Requests to the service that serves this page. A key is stored in the session of this tab only.

import { withModel } from "./models.js";

const KEY = "abs.key";
let keyListener = () => {};

/** An error response: the problem+json of the service, or a problem of ours if it is unreachable. */
export class RequestError extends Error {
  constructor(problem) {
    super(problem.detail ?? problem.code);
    this.problem = problem;
  }
}

/** Calls `listener` when a request is rejected because it has no valid key. */
export function onKeyNeeded(listener) {
  keyListener = listener;
}

export function setKey(text) {
  if (text) sessionStorage.setItem(KEY, text);
  else sessionStorage.removeItem(KEY);
}

/** Whether a text can be sent as a key: fetch allows only these characters in a header. */
export const isKey = (text) => /^[\x21-\x7e]*$/.test(text);

export const hasKey = () => Boolean(sessionStorage.getItem(KEY));

/** The response to a request. Raises RequestError, and the abort of the signal. */
export async function ask(method, path, { body, headers = {}, signal } = {}) {
  const requestHeaders = { ...headers };
  const key = sessionStorage.getItem(KEY);
  if (key) requestHeaders.Authorization = `Bearer ${key}`;
  if (body !== undefined) requestHeaders["Content-Type"] = "application/json";
  const sent = withModel(path, body);
  let response;
  try {
    response = await fetch(path, {
      method, headers: requestHeaders, signal, credentials: "omit", body: sent === undefined ? undefined : JSON.stringify(sent),
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new RequestError({ code: "unreachable" });
  }
  if (response.ok) return response;
  const problem = await problemOf(response);
  if (problem.code === "unauthorized") keyListener();
  throw new RequestError(problem);
}

/** The JSON response of a request. */
export async function askJson(method, path, options) {
  const response = await ask(method, path, options);
  try {
    return await response.json();
  } catch (error) {
    if (options?.signal?.aborted) throw error;
    throw new RequestError({ code: "unreachable" });
  }
}

async function problemOf(response) {
  try {
    const problem = await response.json();
    if (typeof problem?.code === "string") return problem;
    const { error } = problem ?? {};  // the format of errors below /v1
    if (typeof error?.code === "string") return { ...error, detail: error.message };
  } catch {
    // no JSON: a proxy answered
  }
  return { code: "foreign_response", status: response.status };
}
