/** The values of the measures: for each run (null without a ranking) and measure a value for each narrative, or null. */
const values = JSON.parse(byId("values")?.textContent ?? "null");
const topics = [...document.querySelectorAll(".topic")];
const runNames = [...document.querySelectorAll("#overview thead bdi")].map((name) => name.textContent);
const measuredRuns = values ? values.flatMap((own, run) => (own ? [run] : [])) : [];

const nameTopic = (topic) => {
  const text = topics[topic].querySelector(".narrative").textContent;
  return `${topics[topic].querySelector("b").textContent}: ${text.length > 140 ? `${text.slice(0, 140)} …` : text}`;
};
const getMeasure = () => Number(byId("measure").value);
const getValue = (run, topic) => values[run][getMeasure()][topic];
const tellValues = (topic) =>
  [nameTopic(topic), ...measuredRuns.map((run) => `${runNames[run]} ${getValue(run, topic).toFixed(4)}`)].join("\n");

/** The numbers of the narratives that are judged, in the chosen order. */
function orderTopics(order) {
  const [first, last] = [measuredRuns[0], measuredRuns.at(-1)];
  const keys = {
    topic: (topic) => topic,
    value: (topic) => -getValue(last, topic),
    difference: (topic) => getValue(first, topic) - getValue(last, topic),
  };
  const judged = topics.map((_, topic) => topic).filter((topic) => getValue(last, topic) !== null);
  return judged.sort((one, other) => keys[order](one) - keys[order](other));
}

/** Opens a narrative and goes to it. */
function openTopic(topic) {
  topics[topic].hidden = false;
  topics[topic].open = true;
  topics[topic].scrollIntoView();
  topics[topic].querySelector("summary").focus({ preventScroll: true });
}

function addLink(shape, topic) {
  addStop(shape, () => tellValues(topic));
  shape.setAttribute("role", "link");
  shape.setAttribute("aria-label", nameTopic(topic));
  shape.addEventListener("click", () => openTopic(topic));
  shape.addEventListener("keydown", (event) => {
    if (event.key !== "Enter") return;
    event.preventDefault(); // else the key closes the narrative again
    openTopic(topic);
  });
  return shape;
}

/** Draws lines and numbers from 0 to 1 at `place(value)`. */
const drawGrid = (place, draw) => [0, 0.25, 0.5, 0.75, 1].flatMap((value) => draw(value, place(value)));

function drawBars() {
  const [width, height, margin] = [byId("bars").clientWidth, 200, 30];
  const order = orderTopics(byId("order").value);
  const step = (width - margin) / order.length;
  const bar = Math.min((step * 0.8) / measuredRuns.length, 18);
  const up = (value) => height - value * height;
  const svg = make("svg", { width, height: height + 20, role: "group", "aria-label": "Values of each narrative" });
  svg.append(...drawGrid(up, (value, y) => [
    make("line", { class: "axis", x1: margin, x2: width, y1: y, y2: y }),
    make("text", { x: margin - 6, y: y + 4, "text-anchor": "end" }, String(value)),
  ]));
  order.forEach((topic, place) => {
    const x = margin + step * place;
    const start = x + (step - bar * measuredRuns.length) / 2;
    const bars = measuredRuns.map((run, n) => {
      const value = getValue(run, topic);
      const box = { x: start + bar * n, y: up(value), width: Math.max(bar - 1, 1), height: value * height };
      return make("rect", { class: `bar run${run % 7}`, ...box });
    });
    const label = step > 24 ? [make("text", { x: x + step / 2, y: height + 15, "text-anchor": "middle" }, topics[topic].querySelector("b").textContent)] : [];
    svg.append(addLink(make("g", {}, make("rect", { class: "hit", x, y: 0, width: step, height }), ...bars, ...label), topic));
  });
  byId("bars").replaceChildren(svg);
  walkByArrows(svg);
}

function drawScatter() {
  const [across, up] = ["across", "up"].map((id) => Number(byId(id).value));
  const [side, margin] = [Math.min(byId("scatter").clientWidth - 50, 380), 34];
  const [x, y] = [(value) => margin + value * side, (value) => side - value * side + 8];
  const svg = make("svg", { width: side + 50, height: side + 50, role: "group", "aria-label": "Run against run" });
  svg.append(...drawGrid(x, (value, at) => [
    make("line", { class: "axis", x1: at, x2: at, y1: y(0), y2: y(1) }),
    make("line", { class: "axis", x1: x(0), x2: x(1), y1: y(value), y2: y(value) }),
    make("text", { x: at, y: y(0) + 16, "text-anchor": "middle" }, String(value)),
    make("text", { x: margin - 6, y: y(value) + 4, "text-anchor": "end" }, String(value)),
  ]));
  svg.append(make("line", { class: "axis", x1: x(0), y1: y(0), x2: x(1), y2: y(1) }));
  svg.append(make("text", { x: x(1), y: y(0) + 34, "text-anchor": "end" }, `${runNames[across]} →`));
  svg.append(make("text", { x: x(0) + 6, y: y(1) + 14 }, `↑ ${runNames[up]}`));
  const judged = orderTopics("topic");
  for (const topic of judged) {
    const place = { cx: x(getValue(across, topic)), cy: y(getValue(up, topic)) };
    svg.append(addLink(make("circle", { class: "dot", r: 5, ...place }), topic));
  }
  const better = judged.filter((topic) => getValue(up, topic) > getValue(across, topic)).length;
  const worse = judged.filter((topic) => getValue(up, topic) < getValue(across, topic)).length;
  const counts = `${runNames[up]} is higher for ${better}, lower for ${worse}, equal for ${judged.length - better - worse}.`;
  byId("scatter").replaceChildren(svg, make("p", { class: "note" }, counts));
  walkByArrows(svg);
}

function drawPlots() {
  drawBars();
  if (byId("scatter")) drawScatter();
}

if (values) {
  for (const id of ["measure", "order", "across", "up"]) byId(id)?.addEventListener("change", drawPlots);
  onWidth(byId("measures"), drawPlots);
}
