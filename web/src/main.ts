// The page serves results and live controllers; the page itself says which of them it comes from.

import { byId, h, replace } from "./dom";
import { operate } from "./operate";
import { show } from "./show";

const begin = document.documentElement.dataset["source"] === "results" ? show : operate;
begin().catch((problem: unknown) => {
  const text = problem instanceof Error ? problem.message : String(problem);
  replace(byId("view"), h("p", { class: "problem", role: "alert" }, `The page cannot be shown: ${text}`));
});
