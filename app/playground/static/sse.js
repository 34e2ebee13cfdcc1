// Reads server-sent events from a fetch response, because EventSource can neither POST nor send a key.

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
        const event = parsed(block);
        if (event) yield event;
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

function parsed(block) {
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
