// The legend of the picture of a fabric.

import { scale } from "./colours";
import { h } from "./dom";
import type { Shows } from "./explorer";

/** Creates the legend of colours and dashes. `folded` tells whether the fabric can be folded. */
export function legend(shows: Shows, folded: boolean): HTMLElement {
  const steps = h("span", { class: "scale", "aria-hidden": "true" });
  const paint = () => steps.replaceChildren(...scale().map((colour) => {
    const step = h("i");
    step.style.background = colour;
    return step;
  }));
  paint();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", paint);
  return h(
    "p", { class: "legend" },
    shows !== "fabric" && [h("span", {}, "utilisation 0 % "), steps, h("span", {}, " 100 %")],
    h("span", {}, h("i", { class: "dash down", "aria-hidden": "true" }), " down"),
    shows === "live" && h("span", {}, h("i", { class: "dash drained", "aria-hidden": "true" }), " out of service"),
    shows !== "fabric" && h("span", { class: "quiet" }, "The half of a cable near a node shows what the node sends."),
    folded && h("span", { class: "quiet" }, "A number tells how many cables a bundle has."),
  );
}
