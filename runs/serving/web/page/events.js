/** Reads the server-sent events of a reply, and calls `act` with the name and the value of each. */
async function readEvents(reply, act) {
  const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read().catch(() => {
      throw new Error("The connection to the server broke off.");
    });
    if (done) return;
    const blocks = (rest + value).split(/\r\n\r\n|\n\n/);
    rest = blocks.pop();
    for (const block of blocks) {
      const fields = new Map(block.split(/\r?\n/).map((line) => line.match(/^(\w*): ?(.*)$/s)?.slice(1) ?? []));
      if (fields.has("data")) act(fields.get("event"), JSON.parse(fields.get("data")));
    }
  }
}

/** The header of a reply with the key of the index that it was made from. Updates may replace that index. */
const INDEX_HEADER = "Keystone-Index";

/** The headers of every request: the token of the server, if a reader has given one. */
const makeHeaders = (more = {}) => ({ ...more, ...(byId("token").value && { Authorization: `Bearer ${byId("token").value}` }) });

/** Sends a request. A reply that tells of an error becomes an `Error` with the server's own words. */
async function send(path, options = {}) {
  const reply = await fetch(path, { ...options, headers: makeHeaders(options.headers) }).catch((error) => {
    throw options.signal?.aborted ? error : new Error("The server cannot be reached.");
  });
  if (reply.ok) return reply;
  if (reply.status === 401) {
    byId("token-line").hidden = false;
    byId("token").type = "password";
  }
  const message = await reply.json().then(({ error }) => error, () => "");
  throw new Error(message || `The server replied with status ${reply.status}.`);
}
