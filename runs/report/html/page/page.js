const COMMON_WORDS = new Set(
  ("about after also been before being both could does each from have here into just like made many more most much must " +
    "only other over same should some such than that their them then there these they this those through under used " +
    "using very were what when where which while will with within would your").split(" "),
);
const words = new Intl.Segmenter(undefined, { granularity: "word" });

/** The part of a word that its forms share; empty for a word that says nothing of its own. */
function findStem(word) {
  const plain = word.toLowerCase();
  const short = /^\p{Script=Latin}+$/u.test(plain) && plain.length < 4;
  return short || COMMON_WORDS.has(plain) ? "" : plain.slice(0, 6);
}

const splitWords = (text) => [...words.segment(text)];

/** Marks the words of a cited text that the sentence has, too. */
function markWords(paragraph, stems) {
  const parts = splitWords(paragraph.textContent).map(({ segment, isWordLike }) =>
    isWordLike && stems.has(findStem(segment)) ? make("mark", {}, segment) : segment,
  );
  paragraph.replaceChildren(...parts);
}

/** Scrolls to the stretch of the cited texts that has the most different marked words. */
function scrollToSupport(cited) {
  const marks = [...cited.querySelectorAll("li:not([hidden]) mark")];
  const count = ({ offsetTop }) => {
    const near = marks.filter((one) => one.offsetTop >= offsetTop && one.offsetTop < offsetTop + 120);
    return new Set(near.map((one) => findStem(one.textContent))).size;
  };
  const best = marks.reduce((one, other) => (one && count(one) >= count(other) ? one : other), null);
  cited.scrollTop = best ? best.offsetTop - 60 : 0;
}

/** Shows the texts that a sentence cites, and no others. */
function showCited(sentence) {
  const answer = sentence.closest(".answer");
  const places = new Set(sentence.dataset.cited.split(" ").filter(Boolean).map(Number));
  const found = splitWords(sentence.querySelector("bdi").textContent).filter((one) => one.isWordLike);
  const stems = new Set(found.map((one) => findStem(one.segment)).filter(Boolean));
  answer.querySelector(".active")?.classList.remove("active");
  sentence.classList.add("active");
  [...answer.querySelector(".cited").children].forEach((item, place) => {
    item.hidden = !places.has(place);
    if (!item.hidden) markWords(item.querySelector("p"), stems);
  });
  scrollToSupport(answer.querySelector(".cited"));
}

onAttention((target) => {
  const sentence = target.closest(".sentence");
  if (sentence && !sentence.classList.contains("active")) showCited(sentence);
});

document.addEventListener("toggle", (event) => {
  const topic = event.target.closest(".topic");
  if (topic?.open) topic.querySelectorAll(".run[open]").forEach(showDocuments);
}, true);

/** The texts of each narrative in lower case, without numbers of tables; made at the first search. */
const searched = new Map();

function readTexts(topic) {
  if (!searched.has(topic)) {
    const parts = topic.querySelectorAll("summary, .queries > li, tbody th, .sentences, .cited > li, .steps li");
    searched.set(topic, [...parts].map((part) => part.textContent.toLowerCase()).join("\n"));
  }
  return searched.get(topic);
}

function search() {
  const wanted = byId("search").value.toLowerCase().split(/\s+/).filter(Boolean);
  for (const topic of topics) topic.hidden = !wanted.every((word) => readTexts(topic).includes(word));
  const shown = topics.filter((topic) => !topic.hidden).length;
  byId("count").value = wanted.length ? `${shown} of ${plural(topics.length, "narrative")}` : plural(shown, "narrative");
}

function sortTopics() {
  const first = byId("sort").value === "value" ? orderTopics("value").reverse() : [];
  byId("topics").append(...[...new Set([...first, ...topics.keys()])].map((topic) => topics[topic]));
}

byId("search").addEventListener("input", search);
byId("sort").addEventListener("change", sortTopics);
byId("measure")?.addEventListener("change", sortTopics);
for (const [id, open] of [["open", true], ["close", false]]) {
  byId(id).addEventListener("click", () => topics.filter((one) => !one.hidden).forEach((one) => (one.open = open)));
}
document.addEventListener("keydown", (event) => {
  if (event.key !== "/" || event.target.closest("input, select")) return;
  event.preventDefault();
  byId("search").focus();
});
