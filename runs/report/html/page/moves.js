const MOVES_HEIGHT = 240;
const MARGIN = 28;
const RANK_LABELS = [1, 3, 10, 30, 100, 300, 1000, 3000];

const bestRank = (ranks) => Math.min(...ranks.filter(Boolean), Infinity);

/** The stages of a run, and the rank of a document in each, Infinity where it is in no list. */
function listStages({ systems, documents }) {
  const chosen = documents.some((one) => one.chosen);
  const names = [...systems, "together", "over queries", ...(chosen ? ["chosen"] : [])];
  const trace = (one) => [
    ...systems.map((_, n) => bestRank(one.places.map((place) => place.ranks[n]))),
    bestRank(one.places.map((place) => place.hybrid)),
    one.fused || Infinity,
    ...(chosen ? [one.last || Infinity] : []),
  ];
  return { names, trace, isMarked: (one) => (chosen ? one.chosen > 0 : one.last > 0 && one.last <= 10) };
}

function drawStages(names, across, down, most) {
  const last = names.length - 1;
  const stages = names.flatMap((name, stage) => [
    make("line", { class: "axis", x1: across(stage), x2: across(stage), y1: down(1), y2: MOVES_HEIGHT }),
    make("text", {
      x: stage === 0 ? 0 : stage === last ? across(last) + MARGIN : across(stage),
      y: 9,
      "text-anchor": stage === 0 ? "start" : stage === last ? "end" : "middle",
    }, name),
  ]);
  const ranks = RANK_LABELS.filter((rank) => rank <= most).map((rank) =>
    make("text", { x: MARGIN - 6, y: down(rank) + 4, "text-anchor": "end" }, String(rank)),
  );
  return [...stages, ...ranks];
}

/** Draws how each document moved: its best rank by each system and by all together, then over queries, then last. */
function drawMoves(found, box) {
  const { names, trace, isMarked } = listStages(found);
  const width = box.clientWidth;
  const most = Math.max(...found.documents.flatMap(trace).filter(Number.isFinite), 10);
  const across = (stage) => MARGIN + ((width - 2 * MARGIN) * stage) / (names.length - 1);
  const down = (rank) => 22 + ((MOVES_HEIGHT - 30) * Math.log(rank)) / Math.log(most);
  const svg = make("svg", { width, height: MOVES_HEIGHT, role: "group", "aria-label": "Ranks from stage to stage" });
  svg.append(...drawStages(names, across, down, most));
  const painted = [...found.documents].sort((one, other) => isMarked(one) - isMarked(other) || compareRanks(other.last, one.last));
  for (const one of painted) {
    const ranks = trace(one);
    const points = ranks.flatMap((rank, stage) => (Number.isFinite(rank) ? [`${across(stage)},${down(rank)}`] : []));
    if (points.length < 2) continue;
    const d = `M${points.join("L")}`;
    one.line = make("g", {}, make("path", { class: "wide", d }), make("path", { class: isMarked(one) ? "move chosen" : "move", d }));
    const tell = () => [one.title, ...ranks.map((rank, n) => `${names[n]}: ${Number.isFinite(rank) ? rank : "not found"}`)];
    svg.append(addStop(one.line, () => tell().join("\n")));
    highlight(one.line, () => one.row);
  }
  box.replaceChildren(svg);
  walkByArrows(svg);
}

/** Highlights the element that `find` returns, while a reader points at another one or comes to it. */
function highlight(source, find) {
  for (const [name, hot] of [["pointerenter", true], ["pointerleave", false], ["focusin", true], ["focusout", false]])
    source.addEventListener(name, () => find()?.classList.toggle("hot", hot));
}

/** Highlights the line of a document together with its row. */
function linkRows(documents) {
  for (const one of documents) highlight(one.row, () => one.line);
}
