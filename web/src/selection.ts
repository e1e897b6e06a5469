// What is selected, as values of the address.

import type { Shown } from "./explorer";
import type { Fabric } from "./model";

/** Separates the two ends of a bundle, or the two nodes of a pair. */
const TO = " to ";

/** The selection as values of the address; null for those that it does not have. */
export function selectionOf(shown: Shown, { nodes }: Fabric): Record<string, string | number | null> {
  return {
    node: shown.kind === "node" ? nodes[shown.index]!.name : null,
    link: shown.kind === "link" ? shown.index : null,
    flow: shown.kind === "flow" ? shown.flow : null,
    group: shown.kind === "group" ? shown.key : null,
    bundle: shown.kind === "bundle" ? shown.ends.join(TO) : null,
    pair: shown.kind === "pair" ? [shown.from, shown.to].map((node) => nodes[node]!.name).join(TO) : null,
  };
}

/** The selection that an address has. */
export function selectionIn(values: URLSearchParams, { nodes, links }: Fabric): Shown | null {
  const nodeOf = (name: string | null | undefined) => nodes.findIndex((node) => node.name === name);
  const node = nodeOf(values.get("node"));
  if (node >= 0) return { kind: "node", index: node };
  const link = Number(values.get("link") ?? NaN);
  if (Number.isInteger(link) && link in links.source) return { kind: "link", index: link };
  const flow = values.get("flow");
  if (flow !== null && /^\d+$/.test(flow)) return { kind: "flow", flow };
  const group = values.get("group");
  if (group) return { kind: "group", key: group };
  const [from, to] = values.get("bundle")?.split(TO) ?? [];
  if (from && to) return { kind: "bundle", ends: [from, to] };
  const [source, target] = (values.get("pair")?.split(TO) ?? []).map(nodeOf);
  return source !== undefined && target !== undefined && source >= 0 && target >= 0 ? { kind: "pair", from: source, to: target } : null;
}
