// The same page shows results and live controllers. An attribute of the page tells which of them serves it.

import { byId, h, replace } from "./dom";
import { operate } from "./operate";
import { show } from "./show";

const begin = document.documentElement.dataset["source"] === "results" ? show : operate;
begin().catch((problem: unknown) => {
  const text = problem instanceof Error ? problem.message : String(problem);
  replace(byId("view"), h("p", { class: "problem", role: "alert" }, `The page cannot be shown: ${text}`));
});
