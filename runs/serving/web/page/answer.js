/** The number of each cited id, the entry of each cited document in the list, and documents that were fetched, by id. */
const cited = new Map();
const entries = new Map();
const fetched = new Map();
/** The link that opened the document, and the citation that it shows. */
let opener = null;
let shown = null;
/** A word joiner: no line ends between a sentence and its citation. */
const STAY = "\u2060";
/** What the files to download hold, in their order. */
const CONTENTS = ["the ranking", "the answer", "the narrative"];

/** Cuts a text at places that count characters as Python does, not UTF-16 units as JavaScript does. */
function cutText(text, start, end) {
  const letters = [...text];
  return [letters.slice(0, start), letters.slice(start, end), letters.slice(end)].map((part) => clean(part.join("")));
}

async function fetchDocument(id) {
  if (!fetched.has(id)) fetched.set(id, await (await send(`page/document?id=${encodeURIComponent(id)}`)).json());
  return fetched.get(id);
}

/** Marks another link as the one that opened the document. */
function moveOpener(link) {
  opener?.removeAttribute("aria-current");
  opener = link ?? null;
  opener?.setAttribute("aria-current", true);
}

/** Shows a document beside the answer, with the cited segment marked, and moves the keyboard there. */
async function showDocument(citation, link) {
  closeDocument();
  moveOpener(link);
  shown = citation;
  const pane = byId("document");
  byId("document-title").replaceChildren(isolate(citation.title || citation.document));
  byId("document-id").replaceChildren(isolate(citation.id));
  byId("text").textContent = "Loading …";
  pane.hidden = false;
  link.closest(".sentence")?.classList.add("active");
  const [document, problem] = await fetchDocument(citation.document).then((found) => [found, null], (error) => [null, error]);
  if (shown !== citation) return; // the reader has closed it, or opened another one
  if (problem) {
    byId("text").textContent = `The document could not be read: ${clean(problem.message)}`;
  } else {
    const segment = document.segments.find((one) => one.id === citation.id);
    const [before, marked, after] = segment ? cutText(document.text, segment.start, segment.end) : [clean(document.text), "", ""];
    byId("text").replaceChildren(make("div", { dir: "auto" }, before, ...(marked ? [make("mark", {}, marked)] : []), after));
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

/** Adds a citation to the list below the answer: an entry for each document, with the numbers of its segments. */
function listCitation(citation) {
  if (!entries.has(citation.document)) {
    const name = makeLink((link) => showDocument(citation, link), { class: "name" }, isolate(citation.title || citation.document));
    entries.set(citation.document, make("li", {}, name));
    byId("cited").append(entries.get(citation.document));
    byId("cited-head").hidden = false;
  }
  entries.get(citation.document).append(makeNumber(citation));
}

/** Makes the link of a citation in the answer. The first citation of an id adds it to the list below the answer. */
function makeCitation(citation) {
  if (!cited.has(citation.id)) {
    cited.set(citation.id, cited.size + 1);
    listCitation(citation);
  }
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
  cited.clear();
  entries.clear();
  for (const link of byId("files").children) URL.revokeObjectURL(link.href);
  for (const id of ["sentences", "cited", "files"]) byId(id).replaceChildren();
  for (const id of ["files", "remarks", "cited-head"]) byId(id).hidden = true;
}
