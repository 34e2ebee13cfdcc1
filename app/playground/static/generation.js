// Sends a request for text: streams it, resumes a broken stream, and cancels it. The server-sent events are read from a
// fetch response, because EventSource can neither POST nor send a key.

import { RequestError, ask, askJson } from "./api.js";

const RETRY_MS = 1_000;
const RESUMES_MAX = 8;  // consecutive ones without an event
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

export class Generation {
  /** `handlers` has a method for each event: compiled, step, restarted. */
  constructor(body, handlers) {
    this.body = { ...body, stream: true };
    this.handlers = handlers;
    this.jobId = null;
    this.lastId = "";
    this.retryMs = RETRY_MS;
    this.stopped = false;
    this.control = new AbortController();
  }

  /** The response of POST /generate. Raises RequestError, with the code "cancelled" after `stop`. */
  async answer() {
    try {
      let response = await ask("POST", "/generate", { body: this.body, signal: this.control.signal });
      this.jobId = response.headers.get("x-job-id");
      for (let attempts = 0; ;) {
        const part = await this.#read(response);
        if (part.answer) return part.answer;
        attempts = part.events ? 1 : attempts + 1;
        response = await this.#resume(attempts);
        if (response.status === 204) return await this.#storedAnswer();
      }
    } catch (error) {
      if (this.stopped) throw new RequestError({ code: "cancelled" });
      throw error;
    }
  }

  /** Cancels the request, and its job in the service. */
  stop() {
    this.stopped = true;
    this.control.abort();
    if (this.jobId) ask("DELETE", `/jobs/${this.jobId}`).catch(() => {});
  }

  /** Reads a stream to its end: {answer, events}, the answer if it arrived and the number of events. */
  async #read(response) {
    let events = 0;
    try {
      for await (const { event, data, id, retry } of eventsOf(response)) {
        if (this.stopped) throw new RequestError({ code: "cancelled" });
        if (retry !== undefined) this.retryMs = retry;
        if (data === null) continue;
        if (id) this.lastId = id;
        events += 1;
        if (event === "done") return { answer: JSON.parse(data), events };
        if (event === "error") throw new RequestError(JSON.parse(data));
        if (event === "reconnect") break;
        this.handlers[event]?.(JSON.parse(data));
      }
    } catch (error) {
      if (error instanceof RequestError || this.stopped) throw error;  // anything else is a broken connection
    }
    return { events };
  }

  /** Resumes the stream after the last event. */
  async #resume(attempts) {
    for (; ; attempts += 1) {
      if (!this.jobId || attempts > RESUMES_MAX) throw new RequestError({ code: "stream_lost" });
      await pause(this.retryMs);
      const headers = this.lastId ? { "Last-Event-ID": this.lastId } : {};
      try {
        return await ask("GET", `/jobs/${this.jobId}/events`, { headers, signal: this.control.signal });
      } catch (error) {
        const code = error instanceof RequestError ? error.problem.code : "";
        if (!["unreachable", "foreign_response", "draining", "storage_down", "not_ready"].includes(code)) throw error;
      }
    }
  }

  /** The answer of a job whose last event was already read. */
  async #storedAnswer() {
    const job = await askJson("GET", `/jobs/${this.jobId}`, { signal: this.control.signal });
    if (job.result) return job.result;
    throw new RequestError(job.error ?? { code: "stream_lost" });
  }
}

/** Yields {event, data, id, retry} of a stream. Raises what reading the response raises. */
export async function* eventsOf(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let buffer = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      buffer += value;
      const blocks = buffer.split(/\r\n\r\n|\n\n|\r\r/);
      buffer = blocks.pop();
      for (const block of blocks) {
        const event = parseEvent(block);
        if (event) yield event;
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

function parseEvent(block) {
  const fields = {};
  const data = [];
  for (const line of block.split(/\r\n|\n|\r/)) {
    const colon = line.indexOf(":");
    if (colon === 0) continue;  // a comment, sent as keep-alive
    const name = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (name === "data") data.push(value);
    else fields[name] = value;
  }
  if (!data.length && fields.retry === undefined) return null;
  return {
    event: fields.event ?? "message", data: data.length ? data.join("\n") : null, id: fields.id,
    retry: /^\d+$/.test(fields.retry ?? "") ? Number(fields.retry) : undefined,
  };
}
