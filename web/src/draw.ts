// The page of a fabric without a result: its nodes, its cables and the paths between them.

import { address, note } from "./address";
import { byId, count, facts, h, rate, replace, UNKNOWN } from "./dom";
import { Explorer, type Details, type Told } from "./explorer";
import { Unfolded } from "./fold";
import { ask, type Fabric } from "./model";
import { selectionIn, selectionOf } from "./selection";
import { views } from "./views";

interface Range {
  min: number;
  median: number;
  max: number;
}

/** What is shown of the numbers of a fabric. */
interface Summary {
  hosts: number;
  switches: number;
  cables: number;
  shortest_paths: Range | null;
  notes: string[];
}

class FabricDetails implements Details {
  constructor(private readonly fabric: Fabric, private readonly summary: Summary) {}

  async overview(): Promise<Told> {
    const { hosts, switches, cables, shortest_paths: paths, notes } = this.summary;
    const rates = [...new Set(this.fabric.links.rate_bps)].sort((a, b) => a - b).map(rate);
    const several = paths && (paths.min === paths.max ? count(paths.min) : `${count(paths.min)} to ${count(paths.max)}`);
    return {
      title: "Fabric",
      content: [
        facts([["Hosts", count(hosts)], ["Switches", count(switches)], ["Cables", count(cables)], ["Rates", rates.join(", ")],
          ["Shortest paths of two ToRs", several ?? "–"]]),
        ...notes.map((text) => h("p", { class: "hint" }, text)),
        h("p", { class: "hint" }, "Choose a node or a cable, or type two nodes to see all shortest paths between them."),
      ],
    };
  }

  async link(): Promise<Node[]> {
    return [];
  }

  async pair(): Promise<Node[]> {
    return [];
  }

  async flow(): Promise<Told> {
    return { title: "Fabric", content: [h("p", { class: "hint" }, "A fabric without a result has no flows.")] };
  }
}

export async function draw(): Promise<void> {
  const [fabric, summary] = await Promise.all([ask<Fabric & { links: { up: boolean[] } }>("v1/fabric"), ask<Summary>("v1/summary")]);
  document.title = `${fabric.spec} – Pathloom`;
  replace(byId("title"), h("strong", {}, fabric.spec));
  const unfolded = new Unfolded(fabric);
  const explorer = new Explorer(fabric, new FabricDetails(fabric, summary), unfolded, "fabric");
  explorer.onshown = (shown) => note(selectionOf(shown, fabric));
  unfolded.onchange = () => {
    note({ open: unfolded.value });
    explorer.refold();
  };
  const { up } = fabric.links;
  explorer.setFrame(fabric.links.source.map(() => UNKNOWN), (link) => (up[link] === false ? "down" : "up"));
  views([["fabric", "Fabric", explorer.element]], () => {
    const { shown } = address();
    unfolded.take(shown.get("open"), unfolded.mean);
    const selected = selectionIn(shown, fabric);
    if (selected) void explorer.show(selected, false);
  });
}
