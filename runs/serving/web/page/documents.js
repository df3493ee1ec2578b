const FIRST_ROWS = 20;
/** Ranks up to these are shaded in three steps where nobody graded. */
const SHADED_RANKS = [10, 30, 100];

/**
 * What is known about the narrative: the queries shown, for each query the one that is shown for it, the best documents
 * of each query and of all, titles by document, grades by document and query, and the documents that were chosen.
 */
const known = {
  queries: [], firsts: new Map(), rankings: new Map(), fused: [], titles: new Map(), grades: new Map(), chosen: [],
  allRows: false,
};

const OBEYED = /[\0-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]/g;
/** Shows control characters and overrides of the direction of writing as escapes. */
const clean = (text) => text.replace(/\r\n/g, "\n").replace(OBEYED, (one) => `\\u${one.charCodeAt(0).toString(16).padStart(4, "0")}`);
const isolate = (text) => make("bdi", {}, clean(text));

/** Makes a link that acts on this page. Unlike a button, it breaks and stays on its line as text does. */
function makeLink(act, attributes, ...children) {
  const link = make("a", { href: "#document", ...attributes }, ...children);
  link.addEventListener("click", (event) => {
    event.preventDefault();
    act(link);
  });
  return link;
}

const getTitle = (id) => known.titles.get(id) || id;
const getGrade = (id, query) => known.grades.get(id)?.get(query.id);
/** The rank of a document in the list of a query, from 1; 0 if the list lacks it. */
const getRank = (id, query) => (known.rankings.get(query.id) ?? []).indexOf(id) + 1;

function shade(rank, grade) {
  if (grade !== undefined) return `g${Math.floor(grade)}`;
  const step = SHADED_RANKS.findIndex((most) => rank && rank <= most);
  return known.grades.size || step < 0 ? "" : `r${SHADED_RANKS.length - step}`;
}

function makeCell(id, query, place) {
  const rank = getRank(id, query);
  const grade = getGrade(id, query);
  const told = grade === undefined ? [] : [make("span", { class: "unseen" }, ` grade ${grade}`)];
  const cell = make("td", { class: `place ${shade(rank, grade)}` }, rank ? String(rank) : "", ...told);
  const lines = [
    clean(getTitle(id)), `Query ${place + 1}: ${clean(query.question)}`,
    rank ? `rank ${rank}` : `not among the first ${known.rankings.get(query.id)?.length ?? 0}`,
    ...(known.grades.size ? [grade === undefined ? "not graded" : `grade ${grade}`] : []),
  ];
  return addStop(cell, () => lines.join("\n"));
}

function makeRow(id) {
  const show = (link) => showDocument({ id, document: id, title: getTitle(id) }, link);
  const name = makeLink(show, { class: "name" }, isolate(getTitle(id)));
  const rank = String(known.fused.indexOf(id) + 1 || "–");
  const row = make("tr", known.chosen.includes(id) ? { class: "chosen" } : {}, make("td", { class: "last" }, rank));
  row.dataset.id = id;
  row.append(make("th", { scope: "row" }, name), ...known.queries.map((query, n) => makeCell(id, query, n)));
  return row;
}

/** The documents in the order of the table: those chosen, then those of the fused ranking, then others with grades. */
const orderDocuments = () =>
  [...new Set([...known.chosen, ...known.fused, ...known.grades.keys()])].filter((id) => known.titles.has(id));

function makeLegend() {
  const entry = (shown, text) => make("span", {}, make("i", { class: shown }), text);
  const grades = [entry("g0", "grade 0"), entry("g1", "1"), entry("g2", "2"), entry("g3", "3"), entry("", "not graded")];
  const ranks = [entry("r3", "rank 1 to 10"), entry("r2", "to 30"), entry("r1", "to 100")];
  return [...(known.grades.size ? grades : ranks), ...(known.chosen.length ? [entry("bar", "chosen")] : [])];
}

/** Finds the row and the column of an element of the table; null for an element elsewhere. */
function findPlace(element) {
  const cell = element?.closest("#heat tbody :is(td, th)");
  return cell && { id: cell.parentElement.dataset.id, column: cell.cellIndex };
}

/** Finds what a reader can come to at a place of the table: the link of a title, or a cell. */
function findAt(place) {
  const row = place && [...byId("heat").tBodies[0].rows].find((one) => one.dataset.id === place.id);
  const cell = row?.cells[place.column];
  return cell?.querySelector("a") ?? cell;
}

/** Draws the table. The keyboard stays at its cell, and a document stays open for its new link. */
function drawTable() {
  showTip(null); // its cell goes
  const [focused, opened] = [document.activeElement, opener].map(findPlace);
  const documents = orderDocuments();
  const most = known.allRows ? documents.length : Math.max(FIRST_ROWS, known.chosen.length);
  const head = (text, told) => make("th", { scope: "col", title: told }, text);
  const heads = known.queries.map((query, n) => head(String(n + 1), clean(query.question)));
  byId("heat").tHead.replaceChildren(
    make("tr", {}, head("#", "rank in the fusion of all queries"), head("Document", "title"), ...heads),
  );
  byId("heat").tBodies[0].replaceChildren(...documents.slice(0, most).map(makeRow));
  byId("legend").replaceChildren(...makeLegend());
  byId("all").hidden = documents.length <= most;
  const left = documents.length - most;
  byId("all").textContent = `Show ${left} more ${left === 1 ? "document" : "documents"}`;
  if (opened) moveOpener(findAt(opened));
  const found = findAt(focused);
  const stop = found?.matches(".stop") ? found : byId("heat").querySelector(".stop");
  stop?.setAttribute("tabindex", 0);
  if (focused) (found ?? stop)?.focus({ preventScroll: true });
}

byId("all").addEventListener("click", () => {
  const shown = byId("heat").tBodies[0].rows.length;
  known.allRows = true;
  drawTable();
  byId("heat").tBodies[0].rows[shown].querySelector("a").focus(); // the button goes
});
walkByArrows(byId("heat"), () => known.queries.length);

/** Adds the rankings of the queries. Of queries with the same words and the same ranks, the page shows the first. */
function addRankings(rankings) {
  known.rankings = new Map(Object.entries(rankings));
  const shown = new Map();
  for (const query of known.queries) {
    const key = JSON.stringify([query.question, rankings[query.id]]);
    if (!shown.has(key)) shown.set(key, query);
    known.firsts.set(query.id, shown.get(key).id);
  }
  known.queries = [...shown.values()];
}

/** Adds the titles of documents, and draws the table with all that is known by now. */
function addDocuments(documents) {
  for (const { id, title } of documents) known.titles.set(id, title);
  byId("documents").hidden = false;
  drawTable();
}

function addGrades(grades) {
  for (const { query, document, grade } of grades) {
    if (!known.grades.has(document)) known.grades.set(document, new Map());
    known.grades.get(document).set(known.firsts.get(query), grade);
  }
}
