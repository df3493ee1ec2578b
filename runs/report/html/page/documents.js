const FIRST_ROWS = 20;
/** Ranks up to these are shaded in three steps where nobody graded. */
const SHADED_RANKS = [10, 30, 100];

const plural = (number, noun) => `${number} ${noun}${number === 1 ? "" : "s"}`;
/** Ranks in ascending order, 0 (not found) last. */
const compareRanks = (one, other) => (one || Infinity) - (other || Infinity) || 0;

/** Reads numbers in letters: digits to base 26, of which the last one of each number is in lower case. */
const readLetters = (letters) =>
  letters.match(/[A-Z]*[a-z]/g).map((number) => [...number.toLowerCase()].reduce((sum, one) => sum * 26 + one.charCodeAt(0) - 97, 0));

/** The documents of a run for a narrative: each with its row, its ranks, and its places, one for each query. */
function readDocuments(run) {
  const table = run.querySelector(".heat");
  const systems = table.dataset.systems.split(" ").filter(Boolean);
  const stride = systems.length + 2;
  const documents = [...table.tBodies[0].rows].map((row) => {
    const [last, fused, chosen, judged, ...flat] = readLetters(row.dataset.n);
    const places = [];
    for (let at = 0; at < flat.length; at += stride) {
      const [grade, hybrid, ...ranks] = flat.slice(at, at + stride);
      places.push({ grade: grade ? (grade - 1) / 10 : -1, hybrid, ranks });
    }
    return { row, last, fused, chosen, judged: judged - 1, places, title: row.querySelector("bdi").textContent };
  });
  const queries = [...run.querySelectorAll(".queries > li")].map((item) => item.firstChild.textContent);
  const graded = documents.some((one) => one.places.some((place) => place.grade >= 0));
  return { table, systems, documents, queries, graded };
}

function shade({ grade, hybrid }, graded) {
  if (grade >= 0) return `g${Math.floor(grade)}`;
  const step = SHADED_RANKS.findIndex((rank) => hybrid && hybrid <= rank);
  return graded || step < 0 ? "" : `r${SHADED_RANKS.length - step}`;
}

function tellPlace(found, document, query) {
  const { grade, hybrid, ranks } = document.places[query];
  const rank = (number) => (number ? `rank ${number}` : "not found");
  const lists = found.systems.map((system, n) => `${system} ${rank(ranks[n])}`);
  const lines = [`${document.title}`, `Query ${query + 1}: ${found.queries[query]}`];
  if (found.graded) lines.push(grade >= 0 ? `Grade ${grade}` : "Not graded");
  return [...lines, [...lists, `together ${rank(hybrid)}`].join(", ")].join("\n");
}

/** The columns beside the title: a heading, an explanation, the text of a cell, and the order of documents. */
function listColumns(found) {
  const some = (key) => found.documents.some((one) => one[key]);
  const columns = [["#", "rank in the last ranking", "last"]];
  if (some("chosen")) columns.push(["Fused", "rank in the fusion over queries", "fused"]);
  const own = columns.map(([name, tell, key]) => ({
    name, tell, key, show: (one) => one[key] || "–", compare: (one, other) => compareRanks(one[key], other[key]),
  }));
  if (found.documents.some((one) => one.judged >= 0)) {
    const show = (one) => (one.judged < 0 ? "" : one.judged);
    own.push({ name: "Judged", tell: "grade in the judgments", key: "judged", show, compare: (one, other) => other.judged - one.judged });
  }
  const queries = found.queries.map((question, query) => ({
    name: String(query + 1),
    tell: `query ${query + 1}: ${question}`,
    query,
    compare: (one, other) =>
      other.places[query].grade - one.places[query].grade ||
      compareRanks(one.places[query].hybrid, other.places[query].hybrid),
  }));
  return [...own, ...queries];
}

function makeCell(found, document, column) {
  if (column.query === undefined) return make("td", { class: column.key }, String(column.show(document)));
  const place = document.places[column.query];
  const cell = make("td", { class: `place ${shade(place, found.graded)}` }, place.hybrid ? String(place.hybrid) : "");
  return addStop(cell, () => tellPlace(found, document, column.query));
}

function addColumns(found) {
  const { table, documents } = found;
  const columns = listColumns(found);
  const titles = { name: "Document", tell: "title", compare: (one, other) => one.title.localeCompare(other.title) };
  const sort = (column, head) => {
    for (const one of table.tHead.rows[0].cells) one.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", "ascending");
    table.tBodies[0].append(...[...documents].sort(column.compare).map((one) => one.row));
  };
  const heads = [columns[0], titles, ...columns.slice(1)].map((column) => {
    const button = make("button", { type: "button", title: `Sort by ${column.tell}` }, column.name);
    const head = make("th", { scope: "col" }, button);
    button.addEventListener("click", () => sort(column, head));
    return head;
  });
  heads[0].setAttribute("aria-sort", "ascending");
  table.prepend(make("thead", {}, make("tr", {}, ...heads)));
  for (const one of documents) {
    const [last, ...others] = columns.map((column) => makeCell(found, one, column));
    one.row.prepend(last);
    one.row.append(...others);
    one.row.classList.toggle("chosen", one.chosen > 0);
    one.row.querySelector("th").scope = "row";
  }
  walkByArrows(table, () => found.queries.length);
}

/** Hides the rows after the first ones, unless they are chosen, and adds a button that shows them. */
function foldRows({ table, documents }) {
  const folded = documents.filter((one, n) => n >= FIRST_ROWS && !one.chosen);
  if (!folded.length) return;
  const button = make("button", { type: "button" });
  const fold = (hidden) => {
    for (const one of folded) one.row.hidden = hidden;
    button.textContent = hidden ? `Show all ${documents.length} documents` : "Show fewer documents";
  };
  button.addEventListener("click", () => fold(!folded[0].row.hidden));
  fold(true);
  table.parentElement.after(make("p", {}, button));
}

function makeLegend({ graded, documents }) {
  const entry = (shown, text) => make("span", {}, make("i", { class: shown }), text);
  const grades = ["grade 0", "1", "2", "3"].map((text, grade) => entry(`g${grade}`, text));
  const entries = graded ? [...grades, entry("", "not graded")] : [entry("r3", "rank 1 to 10"), entry("r2", "to 30"), entry("r1", "to 100")];
  if (documents.some((one) => one.chosen)) entries.push(entry("bar", "chosen"));
  const text =
    "Lines: the best rank of a document by each system and by all together, and its rank over all queries. " +
    "Table: a column for each query, and in it the document's rank. Point at a line or a cell for more.";
  return make("div", {}, make("p", { class: "note" }, text), make("p", { class: "legend" }, ...entries));
}

/** Shows the documents of a run when its narrative is opened for the first time. */
function showDocuments(run) {
  if (run.querySelector(".heat thead")) return;
  const found = readDocuments(run);
  if (!found.documents.length) return;
  addColumns(found);
  foldRows(found);
  if (!found.queries.length) return;
  found.table.parentElement.before(makeLegend(found));
  linkRows(found.documents);
  onWidth(run.querySelector(".moves"), () => drawMoves(found, run.querySelector(".moves")));
}
