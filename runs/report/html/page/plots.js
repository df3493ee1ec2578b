/** The values of the measures: for each run (null without a ranking) and measure a value for each narrative, or null. */
const values = JSON.parse(byId("values")?.textContent ?? "null");
const topics = [...document.querySelectorAll(".topic")];
const runNames = [...document.querySelectorAll("#settings .facts:not(.keys) thead bdi")].map((name) => name.textContent);
const measuredRuns = values ? values.flatMap((own, run) => (own ? [run] : [])) : [];

const getId = (topic) => topics[topic].querySelector("b").textContent;
const nameTopic = (topic) => {
  const text = topics[topic].querySelector(".narrative").textContent;
  return `${getId(topic)}: ${text.length > 140 ? `${text.slice(0, 140)} …` : text}`;
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

function addLink(shape, topic, tell = () => tellValues(topic)) {
  addStop(shape, tell);
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

/** Draws lines and numbers at five values between two, at `place(value)`. */
const drawGrid = (least, most, place, draw) =>
  [0, 0.25, 0.5, 0.75, 1].map((share) => least + share * (most - least)).flatMap((value) => draw(Number(value.toFixed(2)), place(value)));

/** The bars of a narrative: one for each run, or one for the last run minus the first, in the colour of the higher. */
function listBars(topic, differ) {
  if (!differ) return measuredRuns.map((run) => ({ run, value: getValue(run, topic) }));
  const [first, last] = [measuredRuns[0], measuredRuns.at(-1)];
  const value = getValue(last, topic) - getValue(first, topic);
  return [{ run: value < 0 ? first : last, value }];
}

function drawBars() {
  const [width, height, margin] = [byId("bars").clientWidth, 200, 36];
  const differ = byId("order").value === "difference";
  const order = orderTopics(byId("order").value);
  const bars = order.map((topic) => listBars(topic, differ));
  const most = differ ? Math.max(0.05, ...bars.map(([bar]) => Math.abs(bar.value))) : 1;
  const least = differ ? -most : 0;
  const up = (value) => (height * (most - value)) / (most - least);
  const step = (width - margin) / order.length;
  const named = step > 7 * Math.max(2, ...order.map((topic) => getId(topic).length));
  const svg = make("svg", { width, height: height + 20, role: "group", "aria-label": "Values of each narrative" });
  svg.append(...drawGrid(least, most, up, (value, y) => [
    make("line", { class: "axis", x1: margin, x2: width, y1: y, y2: y }),
    make("text", { x: margin - 6, y: y + 4, "text-anchor": "end" }, String(value)),
  ]));
  order.forEach((topic, place) => {
    const x = margin + step * place;
    const wide = Math.min((step * 0.8) / bars[place].length, 18);
    const start = x + (step - wide * bars[place].length) / 2;
    const shapes = bars[place].map(({ run, value }, n) => {
      const [top, bottom] = [up(Math.max(value, 0)), up(Math.min(value, 0))];
      return make("rect", { class: `bar run${run % 7}`, x: start + wide * n, y: top, width: Math.max(wide - 1, 1), height: bottom - top });
    });
    const label = named ? [make("text", { x: x + step / 2, y: height + 15, "text-anchor": "middle" }, getId(topic))] : [];
    svg.append(addLink(make("g", {}, make("rect", { class: "hit", x, y: 0, width: step, height }), ...shapes, ...label), topic));
  });
  byId("bars").replaceChildren(svg);
  walkByArrows(svg);
}

function drawScatter() {
  const [across, up] = ["across", "up"].map((id) => Number(byId(id).value));
  const [side, margin] = [Math.min(byId("scatter").clientWidth - 50, 380), 34];
  const [x, y] = [(value) => margin + value * side, (value) => side - value * side + 8];
  const svg = make("svg", { width: side + 50, height: side + 50, role: "group", "aria-label": "Run against run" });
  svg.append(...drawGrid(0, 1, x, (value, at) => [
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
  onWidth(byId("plots"), drawPlots);
}
