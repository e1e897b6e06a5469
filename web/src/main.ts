// The same page shows results, fabrics and live controllers. An attribute of the page tells which of them it shows, and
// another one that its requests go through a notebook.

import { byId, h, replace } from "./dom";
import { draw } from "./draw";
import { operate } from "./operate";
import { connect } from "./port";
import { show } from "./show";

async function begin(): Promise<void> {
  const { source, through } = document.documentElement.dataset;
  if (through === "port") await connect();
  await (source === "results" ? show : source === "fabric" ? draw : operate)();
}

begin().catch((problem: unknown) => {
  const text = problem instanceof Error ? problem.message : String(problem);
  replace(byId("view"), h("p", { class: "problem", role: "alert" }, `The page cannot be shown: ${text}`));
});
