/** The most questions that this browser keeps of an index. */
const MOST_QUESTIONS = 10;
/** What is known about the index: the reply to `page/index`. */
let facts = {};
/** The last question that was asked, perhaps before the index was known. */
let asked = "";

const getKey = () => `keystone questions ${facts.name}`;

/** Reads the last questions of this browser, the latest one first. A browser that keeps nothing has none. */
function readQuestions() {
  try {
    const kept = JSON.parse(localStorage.getItem(getKey()));
    return Array.isArray(kept) ? kept.filter((one) => typeof one === "string" && one.trim()) : [];
  } catch {
    return [];
  }
}

function keepQuestions(questions) {
  try {
    if (questions.length) localStorage.setItem(getKey(), JSON.stringify(questions.slice(0, MOST_QUESTIONS)));
    else localStorage.removeItem(getKey());
  } catch { /* the browser keeps nothing */ }
  drawQuestions();
}

/** Keeps a question as the latest one, in place of an equal one. */
function remember(text) {
  asked = text.trim();
  if (facts.name && asked) keepQuestions([asked, ...readQuestions().filter((one) => one !== asked)]);
}

/** Makes a button that asks a question. */
function makeQuestion(text) {
  const button = make("button", { type: "button", class: "question" }, isolate(text));
  button.addEventListener("click", () => {
    if (running) return;
    byId("narrative").value = text;
    byId("ask").focus();
    ask();
  });
  return button;
}

/** Makes the button that removes a question. The keyboard moves to the next one. */
function makeRemover(text, place) {
  const remover = make("button", { type: "button", class: "remove", "aria-label": `Remove: ${clean(text)}` }, "\u00d7");
  remover.addEventListener("click", () => {
    keepQuestions(readQuestions().filter((one) => one !== text));
    const left = byId("past").querySelectorAll(".remove");
    (left[Math.min(place, left.length - 1)] ?? byId("narrative")).focus();
  });
  return remover;
}

function drawQuestions() {
  const kept = readQuestions();
  const items = kept.map((text, place) => make("li", {}, makeQuestion(text), makeRemover(text, place)));
  byId("past").querySelector("ul").replaceChildren(...items);
  byId("past").hidden = !kept.length;
  byId("start").hidden = !facts.answers || !(kept.length || facts.narratives.length);
}

/** Says what is indexed, and offers narratives made from it. Without the right token, it waits for one. */
async function showFacts() {
  try {
    const reply = await send("page/index");
    facts = { ...(await reply.json()), index: reply.headers.get(INDEX_HEADER) };
  } catch (error) {
    tellProblem(error.message);
    return;
  }
  if (!running) tellProblem(facts.answers ? "" : "This server gives no answers: its index has no embeddings, or its settings ask for none. Programs can search it by REST.");
  const rows = [
    ["Index", facts.name],
    ["Documents", facts.documents?.toLocaleString("en") ?? "unknown"],
    [facts.languages.length > 1 ? "Languages" : "Language", facts.languages.join(", ") || "unknown"],
    ["Answers by", facts.model ?? "rules, no language model"],
  ];
  byId("index").replaceChildren(...rows.map(([term, value]) => make("div", {}, make("dt", {}, term), make("dd", {}, isolate(value)))));
  byId("index").hidden = false;
  byId("examples").querySelector("ul").replaceChildren(...facts.narratives.map((text) => make("li", {}, makeQuestion(text))));
  byId("examples").hidden = !facts.narratives.length;
  drawQuestions();
  if (asked) remember(asked);
}

byId("forget").addEventListener("click", () => {
  keepQuestions([]);
  byId("narrative").focus();
});
