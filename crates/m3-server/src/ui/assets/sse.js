// Server-sent events of an answer to a POST, which the browser's own EventSource cannot ask for.

/** The data of each event, in order; comments (heartbeats) are left out. */
export async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      rest += done ? "\n\n" : value;
      const parts = rest.split(/\r?\n\r?\n/);
      rest = parts.pop();
      for (const part of parts) {
        const lines = part.split(/\r?\n/).filter((line) => line.startsWith("data:"));
        if (lines.length) yield lines.map((line) => line.slice(line[5] === " " ? 6 : 5)).join("\n");
      }
      if (done) return;
    }
  } finally {
    // Whoever stops reading closes the connection, which aborts the request.
    reader.cancel().catch(() => {});
  }
}
