"use strict";

const SHAPES = new Set(["svg", "g", "path", "line", "rect", "circle", "text"]);

/** Makes an element or a shape. Children that are texts stay texts. */
function make(tag, attributes = {}, ...children) {
  const made = SHAPES.has(tag)
    ? document.createElementNS("http://www.w3.org/2000/svg", tag)
    : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

const byId = (id) => document.getElementById(id);

/** Functions that make the text of the tip about an element. */
const told = new WeakMap();

/** Makes an element a stop of the arrow keys. When a reader points at it or comes to it, the tip tells about it. */
function addStop(made, tell) {
  told.set(made, tell);
  made.classList.add("stop");
  made.setAttribute("tabindex", -1);
  return made;
}

/** Lets the Tab key reach the first stop of a plot, and arrow keys walk from stop to stop. `columns` is for tables. */
function walkByArrows(plot, columns = () => 1) {
  const list = () => [...plot.querySelectorAll(".stop")].filter((stop) => !stop.closest("[hidden]"));
  const enter = (stop) => {
    plot.querySelectorAll('.stop[tabindex="0"]').forEach((one) => one.setAttribute("tabindex", -1));
    stop?.setAttribute("tabindex", 0);
  };
  enter(list()[0]);
  plot.addEventListener("keydown", (event) => {
    const stops = list();
    const place = stops.indexOf(event.target);
    const moves = {
      ArrowRight: place + 1, ArrowLeft: place - 1, ArrowDown: place + columns(), ArrowUp: place - columns(),
      Home: 0, End: stops.length - 1,
    };
    if (place < 0 || !(event.key in moves)) return;
    event.preventDefault();
    const next = stops[moves[event.key]];
    if (!next) return;
    enter(next);
    next.focus();
  });
}

/** Shows the tip beside an element, or hides it. */
function showTip(target) {
  const tip = byId("tip");
  tip.hidden = !target;
  if (!target) return;
  tip.textContent = told.get(target)();
  const box = target.getBoundingClientRect();
  const left = Math.min(Math.max(box.left + box.width / 2 - tip.offsetWidth / 2, 8), innerWidth - tip.offsetWidth - 8);
  const above = box.top - tip.offsetHeight - 8;
  tip.style.left = `${left}px`;
  tip.style.top = `${above > 8 ? above : Math.min(box.bottom + 8, innerHeight - tip.offsetHeight - 8)}px`;
}

/** Calls `act` with each element to which the keyboard comes, or at which a reader points by moving the pointer. */
function onAttention(act) {
  let [x, y] = [-1, -1];
  document.addEventListener("focusin", (event) => act(event.target));
  document.addEventListener("pointerover", (event) => {
    const moved = event.clientX !== x || event.clientY !== y;
    [x, y] = [event.clientX, event.clientY];
    if (moved) act(event.target); // else the page moved below the pointer
  });
  document.addEventListener("pointermove", (event) => ([x, y] = [event.clientX, event.clientY]));
}

onAttention((target) => showTip(target.closest(".stop")));
document.addEventListener("keydown", (event) => event.key === "Escape" && showTip(null));

/** Calls `draw` when an element is first shown, and whenever it is shown with another width. */
function onWidth(shown, draw) {
  let width = 0;
  new ResizeObserver(() => {
    if (shown.clientWidth === 0 || shown.clientWidth === width) return;
    width = shown.clientWidth;
    draw();
  }).observe(shown);
}
