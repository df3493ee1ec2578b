const STEPS = new Map([
  ["queries", ["Queries", "query", "queries"]],
  ["rankings", ["Rankings", "document", "documents"]],
  ["grades", ["Grades", "grade", "grades"]],
  ["chosen", ["Chosen", "document", "documents"]],
  ["answer", ["Answer", "sentence", "sentences"]],
]);
const TICK_MS = 100;

/**
 * The state of the steps: the one under way, and when it began by the clock of this page; the server's seconds at the
 * end of the last step, and at the last sentence.
 */
const steps = { items: new Map(), current: "", began: 0, ticking: 0, last: 0, spoken: 0 };
/** The means to stop the request under way, or null. */
let running = null;

const tellSeconds = (seconds) => `${seconds < 10 ? seconds.toFixed(1) : Math.round(seconds)} s`;

function drawSteps() {
  const items = [...STEPS].map(([name, [title]]) => {
    const told = make("small", {});
    const item = make("li", {}, make("b", {}, title), told);
    steps.items.set(name, { item, told });
    return item;
  });
  byId("steps").replaceChildren(...items);
}

/** Begins a step. Its seconds run until it ends. */
function beginStep(name) {
  steps.current = name;
  steps.began = performance.now();
  steps.items.get(name).item.setAttribute("aria-current", "step");
  clearInterval(steps.ticking);
  steps.ticking = setInterval(() => {
    steps.items.get(name).told.textContent = tellSeconds((performance.now() - steps.began) / 1000);
  }, TICK_MS);
}

/** Tells how many things a step made, in two parts: the number and the noun. */
function tellCount(name, number) {
  const [, one, more] = STEPS.get(name);
  return [number.toLocaleString("en"), number === 1 ? one : more];
}

/** Draws the queries, with their number in their step. */
function drawQueries() {
  const [number, noun] = tellCount("queries", known.queries.length);
  const { told } = steps.items.get("queries");
  told.querySelector(".number").textContent = number;
  told.querySelector(".noun").textContent = ` ${noun} · `;
  byId("queries").hidden = false;
  byId("query-list").replaceChildren(...known.queries.map(({ question }) => make("li", {}, isolate(question))));
}

/** Ends a step, with the number of things that it made, and the server's seconds since the request began. */
function endStep(name, number, seconds) {
  const { item, told } = steps.items.get(name);
  const made = tellCount(name, number);
  clearInterval(steps.ticking);
  for (const one of steps.items.values()) one.item.removeAttribute("aria-current");
  item.className = "made";
  const parts = [make("span", { class: "number" }, made[0]), make("span", { class: "noun" }, ` ${made[1]} · `)];
  told.replaceChildren(...parts, make("span", {}, tellSeconds(seconds - steps.last)));
  steps.last = seconds;
  byId("state").textContent = `${STEPS.get(name)[0]}: ${made.join(" ")}`;
}

const ACTS = {
  queries({ seconds, queries }) {
    known.queries = queries;
    endStep("queries", queries.length, seconds);
    drawQueries();
    beginStep("rankings");
  },
  rankings({ seconds, rankings, fused, documents }) {
    addRankings(rankings);
    drawQueries();
    known.fused = fused;
    addDocuments(documents);
    endStep("rankings", new Set([...fused, ...Object.values(rankings).flat()]).size, seconds);
    beginStep("grades");
  },
  grades({ seconds, grades, documents }) {
    addGrades(grades);
    addDocuments(documents);
    endStep("grades", grades.length, seconds);
    beginStep("chosen");
  },
  chosen({ seconds, documents }) {
    known.chosen = documents.map((one) => one.id);
    addDocuments(documents);
    if (steps.current === "grades") {
      steps.items.get("grades").item.className = "left";
      steps.items.get("grades").told.textContent = "not made";
    }
    endStep("chosen", documents.length, seconds);
    beginStep("answer");
  },
  research({ query, action, result, notes }) {
    const told = [query, action, notes ? `${notes} ${notes === 1 ? "note" : "notes"}` : ""].filter(Boolean).join(" · ");
    byId("research").hidden = false;
    byId("path").append(make("li", {}, isolate(told), result ? make("small", {}, " ", isolate(result)) : ""));
  },
  sentence({ seconds, ...sentence }) {
    steps.spoken = seconds;
    addSentence(sentence);
  },
  done({ seconds, files, fallbacks, doubt }) {
    const sentences = byId("sentences").children.length;
    if (!sentences) byId("empty").textContent = "No answer was found.";
    endStep("answer", sentences, steps.spoken || seconds);
    offerFiles(files);
    byId("unsure").textContent = doubt ? `${doubt} These are the closest ones:` : "";
    byId("unsure").hidden = !doubt;
    byId("sentences").classList.toggle("doubtful", Boolean(doubt));
    byId("remarks").querySelector("ul").replaceChildren(...fallbacks.map(({ step, reason }) => make("li", {}, `${step}: `, isolate(reason))));
    byId("remarks").hidden = !fallbacks.length;
    steps.current = "";
  },
  error({ message }) {
    throw new Error(message);
  },
};

function tellProblem(text) {
  byId("problem").textContent = clean(text);
  byId("problem").hidden = !text;
}

function clearPage() {
  Object.assign(known, { queries: [], rankings: new Map(), fused: [], chosen: [], allRows: false });
  known.titles.clear();
  known.grades.clear();
  clearAnswer();
  known.firsts.clear();
  byId("remarks").open = false;
  byId("path").replaceChildren();
  for (const id of ["research", "queries", "documents"]) byId(id).hidden = true;
  byId("found").hidden = false;
  byId("empty").textContent = "The answer appears here, sentence by sentence.";
  Object.assign(steps, { last: 0, spoken: 0 });
  tellProblem("");
  drawSteps();
}

/** Offers to answer or to stop. The keyboard moves from the button that goes to the one that comes. */
function showRunning(isRunning) {
  const [gone, come] = isRunning ? [byId("ask"), byId("stop")] : [byId("stop"), byId("ask")];
  const moves = document.activeElement === gone;
  byId("ask").disabled = isRunning;
  byId("stop").hidden = !isRunning;
  byId("keys").hidden = isRunning;
  if (moves) come.focus();
}

/** Asks for an answer, and shows each step as it arrives. A problem is told at the top of the page. */
async function ask() {
  if (running) return;
  if (!byId("narrative").value.trim()) {
    tellProblem("Write a question or a request in the field above.");
    byId("narrative").focus();
    return;
  }
  running = new AbortController();
  byId("start").open = false;
  remember(byId("narrative").value);
  clearPage();
  showRunning(true);
  beginStep("queries");
  try {
    const reply = await send("v1/answers", {
      method: "POST",
      headers: { "Content-Type": "application/json", Accept: "text/event-stream" },
      body: JSON.stringify({ narrative: byId("narrative").value }),
      signal: running.signal,
    });
    answeredFrom = reply.headers.get(INDEX_HEADER);
    if (answeredFrom !== facts.index) showFacts(); // the token is right now, or the index is another one
    await readEvents(reply, (name, value) => ACTS[name]?.(value));
    if (steps.current) throw new Error("The server ended the reply before the answer was whole.");
  } catch (error) {
    if (steps.current) { // else the answer is whole
      steps.items.get(steps.current).item.classList.add("broken");
      byId("empty").textContent = byId("sentences").children.length ? "The answer is not whole." : "There is no answer.";
      tellProblem(running.signal.aborted ? "You stopped the answer." : error.message);
    }
    running.abort();
  }
  clearInterval(steps.ticking);
  steps.items.get(steps.current)?.item.removeAttribute("aria-current");
  running = null;
  showRunning(false);
}

byId("form").addEventListener("submit", (event) => {
  event.preventDefault();
  ask();
});
byId("narrative").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) byId("form").requestSubmit();
});
byId("stop").addEventListener("click", () => running?.abort());
byId("token").addEventListener("change", () => facts.name || showFacts());
showFacts();
