/** Lets a reader point at the dots of the picture: the tip names the narrative, and its dots in all rows stand out. */
for (const strip of document.querySelectorAll(".picture .strip .plot svg")) {
  const name = strip.closest(".strip").querySelector("bdi")?.textContent;
  for (const dot of strip.querySelectorAll("[data-topic]")) {
    const topic = Number(dot.dataset.topic);
    addLink(dot, topic, () => `${nameTopic(topic)}\n${name}: ${dot.dataset.value}`);
    const twins = () => document.querySelectorAll(`.picture [data-topic="${topic}"]`);
    for (const [event, hot] of [["pointerenter", true], ["pointerleave", false], ["focusin", true], ["focusout", false]])
      dot.addEventListener(event, () => twins().forEach((one) => one.classList.toggle("hot", hot)));
  }
  walkByArrows(strip);
}

/** A section that is folded opens when a link leads into it. */
const unfold = () => document.querySelector(":target")?.closest("details.settings")?.setAttribute("open", "");
addEventListener("hashchange", unfold);
unfold();
