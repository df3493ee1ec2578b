/**
 * The number of each cited id, the list of quotes of each cited document, the quotes that are listed, and documents that
 * were fetched, by their path.
 */
const cited = new Map();
const entries = new Map();
const quoted = new Set();
const fetched = new Map();
/** The key of the index that the answer is made from. */
let answeredFrom = "";
/** The link that opened the document, and the citation that it shows. */
let opener = null;
let shown = null;
/** A word joiner: no line ends between a sentence and its citation. */
const STAY = "\u2060";
/** What the files to download hold, in their order. */
const CONTENTS = ["the ranking", "the answer", "the narrative"];

/** Cuts a text at places that count characters as Python does, not UTF-16 units as JavaScript does. */
function cutText(text, ...places) {
  const letters = [...text];
  return [...places, letters.length].map((end, n) => clean(letters.slice(n ? places[n - 1] : 0, end).join("")));
}

/** Makes the text of a document, with the cited passage shaded, and in it the quote marked; without a quote, all of it. */
function makeText({ text, segments }, { id, quote }) {
  const segment = segments.find((one) => one.id === id);
  if (!segment && !quote) return [clean(text)];
  const { start, end } = segment ?? quote;
  const [from, to] = quote ? [quote.start, quote.end] : [start, end];
  const [before, lead, marked, rest, after] = cutText(text, start, from, to, end);
  return [before, make("span", { class: "passage" }, lead, make("mark", {}, marked), rest), after];
}

/** Makes a link to a document on the web, which opens beside this page; nothing for another address. */
const makeAddress = (url) =>
  /^https?:\/\//.test(url) ? [" ", make("a", { href: url, target: "_blank", rel: "noopener noreferrer" }, "Open the original")] : [];

async function fetchDocument(id) {
  const path = `page/document?id=${encodeURIComponent(id)}&index=${answeredFrom}`;
  if (!fetched.has(path)) fetched.set(path, await (await send(path)).json());
  return fetched.get(path);
}

/** Marks another link as the one that opened the document. */
function moveOpener(link) {
  opener?.removeAttribute("aria-current");
  opener = link ?? null;
  opener?.setAttribute("aria-current", true);
}

/** Shows a document in place of the sources, with the cited sentence marked, and moves the keyboard there. */
async function showDocument(citation, link) {
  closeDocument();
  moveOpener(link);
  shown = citation;
  const pane = byId("document");
  byId("document-title").replaceChildren(isolate(citation.title || citation.document));
  byId("document-id").replaceChildren(isolate(citation.id));
  byId("text").textContent = "Loading …";
  byId("document-key").hidden = !citation.quote;
  pane.hidden = false;
  link.closest(".sentence")?.classList.add("active");
  const [document, problem] = await fetchDocument(citation.document).then((found) => [found, null], (error) => [null, error]);
  if (shown !== citation) return; // the reader has closed it, or opened another one
  if (problem) {
    byId("text").textContent = `The document could not be read: ${clean(problem.message)}`;
  } else {
    byId("document-id").append(...makeAddress(document.url));
    byId("text").replaceChildren(make("div", { dir: "auto" }, ...makeText(document, citation)));
  }
  for (const one of [pane, opener]) one.scrollIntoView({ block: "nearest" });
  const mark = byId("text").querySelector("mark");
  byId("text").scrollTop = mark ? mark.offsetTop - 60 : 0;
  byId("text").focus({ preventScroll: true });
}

/** Closes the document. If the keyboard was in it, it moves back to the citation that opened it. */
function closeDocument() {
  const [pane, link] = [byId("document"), opener];
  const returns = pane.contains(document.activeElement);
  pane.hidden = true;
  link?.closest(".sentence")?.classList.remove("active");
  moveOpener(null);
  shown = null;
  if (returns) link?.focus();
}

byId("close").addEventListener("click", closeDocument);
document.addEventListener("keydown", (event) => event.key === "Escape" && closeDocument());

/** Makes the numbered link of a citation. */
function makeNumber(citation) {
  const number = cited.get(citation.id);
  const told = `Citation ${number}: ${clean(citation.title || citation.document)}`;
  const show = (link) => (link === opener ? closeDocument() : showDocument(citation, link));
  const title = `${told}\n${clean(citation.id)}`;
  return makeLink(show, { class: "cite", "aria-label": told, title }, `${STAY}${number}`);
}

/** Adds a citation to the sources: an entry for each document, with the number and the text of each quote. */
function listCitation(citation) {
  if (!entries.has(citation.document)) {
    const name = makeLink((link) => showDocument(citation, link), { class: "name" }, isolate(citation.title || citation.document));
    entries.set(citation.document, make("ul", {}));
    byId("cited").append(make("li", {}, name, entries.get(citation.document)));
    byId("sources").hidden = false;
  }
  const quote = citation.quote ? [make("q", { dir: "auto" }, clean(citation.quote.text.replace(/\s+/g, " ")))] : [];
  entries.get(citation.document).append(make("li", {}, makeNumber(citation), ...quote));
}

/** Makes the link of a citation in the answer. The first citation of an id, or of a quote, adds it to the sources. */
function makeCitation(citation) {
  if (!cited.has(citation.id)) cited.set(citation.id, cited.size + 1);
  const key = JSON.stringify([citation.id, citation.quote?.start]);
  if (!quoted.has(key)) listCitation(citation);
  quoted.add(key);
  return makeNumber(citation);
}

function addSentence({ text, citations }) {
  byId("empty").textContent = "";
  byId("sentences").append(make("span", { class: "sentence" }, isolate(text), ...citations.map(makeCitation)), " ");
}

/** Offers files to download. The texts came with the answer, so nobody asks the server again. */
function offerFiles(files) {
  const links = files.map(({ name, text }, place) => {
    const address = URL.createObjectURL(new Blob([text], { type: "text/plain;charset=utf-8" }));
    return make("a", { href: address, download: name }, `Download ${CONTENTS[place]}: ${name}`);
  });
  byId("files").replaceChildren(...links);
  byId("files").hidden = !links.length;
}

function clearAnswer() {
  closeDocument();
  showTip(null);
  byId("sentences").classList.remove("doubtful");
  for (const known of [cited, entries, quoted]) known.clear();
  for (const link of byId("files").children) URL.revokeObjectURL(link.href);
  for (const id of ["sentences", "cited", "files"]) byId(id).replaceChildren();
  for (const id of ["files", "remarks", "sources", "unsure"]) byId(id).hidden = true;
}
