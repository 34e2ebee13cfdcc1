// Server-sent events of a response that fetch reads: EventSource can neither POST nor send a key.

/** Yields {event, data, id, retry} of a stream, whatever its chunks; ends where it does. Raises what reading raises. */
export async function* eventsOf(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      rest += value;
      const blocks = rest.split(/\r\n\r\n|\n\n|\r\r/);
      rest = blocks.pop();
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
    if (colon === 0) continue;  // a comment, sent to keep the line open
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
