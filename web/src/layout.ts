// Positions of nodes in a unit square.

import type { Fabric } from "./model";

export interface Layout {
  x: Float32Array;
  y: Float32Array;
  /** Names and vertical positions of the rows, if the fabric is drawn in tiers. */
  rows: { name: string; y: number }[];
  /** Minimum distance between switches, as a share of the width. */
  pitch: number;
}

const HOSTS_IN_A_ROW = 4;

export function layout(fabric: Fabric): Layout {
  const tiers = new Set(fabric.nodes.map((node) => node.tier));
  if (tiers.has("aggregation") || tiers.has("core")) return inTiers(fabric);
  const placed = fabric.nodes.filter((node) => node.tier !== "host" && node.position);
  const switches = fabric.nodes.filter((node) => node.tier !== "host");
  return 2 * placed.length >= switches.length && placed.length > 1 ? asMap(fabric) : inACircle(fabric);
}

function empty(fabric: Fabric): Layout {
  const size = fabric.nodes.length;
  return { x: new Float32Array(size), y: new Float32Array(size), rows: [], pitch: 1 };
}

/** Returns the hosts of each switch. */
function hostsOf(fabric: Fabric): Map<number, number[]> {
  const found = new Map<number, number[]>();
  const seen = new Set<number>();
  fabric.links.source.forEach((source, link) => {
    const target = fabric.links.target[link]!;
    if (fabric.nodes[source]!.tier !== "host" || fabric.nodes[target]!.tier === "host" || seen.has(source)) return;
    seen.add(source);
    found.set(target, [...(found.get(target) ?? []), source]);
  });
  return found;
}

function inTiers(fabric: Fabric): Layout {
  const made = empty(fabric);
  const hosts = hostsOf(fabric);
  const of = (tier: string) => fabric.nodes.flatMap((node, index) => (node.tier === tier ? [index] : []));
  const podOf = (node: number) => fabric.nodes[node]!.pod ?? Number.MAX_SAFE_INTEGER;
  const tors = of("tor").sort((a, b) => podOf(a) - podOf(b) || a - b);
  const present = ["core", "aggregation", "tor", "host"].filter((tier) => of(tier).length > 0);
  const words: Record<string, string> = { core: "core", aggregation: "aggregation", tor: "ToR", host: "hosts" };
  const most = Math.max(1, ...[...hosts.values()].map((list) => list.length));
  const columns = most <= HOSTS_IN_A_ROW ? most : Math.ceil(most / Math.max(2, Math.ceil(most / HOSTS_IN_A_ROW)));
  const many = most > columns;
  const heights: Record<string, number> = { core: 0.03, aggregation: 0.36, tor: many ? 0.7 : 0.76, host: many ? 0.8 : 0.97 };
  if (!present.includes("aggregation")) heights["tor"] = 0.66;
  made.rows = present.map((tier) => ({ name: words[tier]!, y: heights[tier]! + (tier === "host" && many ? 0.08 : 0) }));
  // ToRs are placed side by side, with a gap between pods.
  let place = 0;
  let last: number | null = null;
  const slots = tors.map((tor) => {
    const pod = podOf(tor);
    if (last !== null) place += pod === last ? 1 : 1.7;
    last = pod;
    return place;
  });
  const width = place + 1;
  made.pitch = 1 / width;
  tors.forEach((tor, index) => {
    made.x[tor] = (slots[index]! + 0.5) / width;
    made.y[tor] = heights["tor"]!;
    const own = hosts.get(tor) ?? [];
    const rows = Math.ceil(own.length / columns);
    own.forEach((host, number) => {
      const row = Math.floor(number / columns);
      const inRow = Math.min(columns, own.length - row * columns);
      const column = number % columns;
      made.x[host] = made.x[tor]! + ((column - (inRow - 1) / 2) * 0.8) / columns / width;
      made.y[host] = heights["host"]! + (rows > 1 ? (0.19 * row) / (rows - 1) : 0);
    });
  });
  spread(of("aggregation"), fabric, made, heights["aggregation"]!, tors);
  spread(of("core"), fabric, made, heights["core"]!, []);
  return made;
}

/** Places switches evenly over the width of their pod, or over the whole width. */
function spread(switches: number[], fabric: Fabric, made: Layout, y: number, tors: number[]): void {
  const groups = new Map<number | null, number[]>();
  for (const node of switches) {
    const pod = tors.some((tor) => fabric.nodes[tor]!.pod === fabric.nodes[node]!.pod) ? fabric.nodes[node]!.pod : null;
    groups.set(pod, [...(groups.get(pod) ?? []), node]);
  }
  for (const [pod, members] of groups) {
    const below = pod === null ? [] : tors.filter((tor) => fabric.nodes[tor]!.pod === pod).map((tor) => made.x[tor]!);
    const [left, right] = below.length ? [Math.min(...below), Math.max(...below)] : [0, 1];
    const even = below.length === members.length;
    members.forEach((node, index) => {
      const share = even && members.length > 1 ? index / (members.length - 1) : (index + 0.5) / members.length;
      made.x[node] = left + (right - left) * share;
      made.y[node] = y;
    });
    made.pitch = Math.min(made.pitch, (right - left) / Math.max(1, members.length - (even ? 1 : 0)) || 1);
  }
}

function asMap(fabric: Fabric): Layout {
  const made = empty(fabric);
  const known = fabric.nodes.flatMap((node) => (node.tier !== "host" && node.position ? [node.position] : []));
  const range = (axis: 0 | 1) => {
    const values = known.map((position) => position[axis]);
    return [Math.min(...values), Math.max(...values)] as const;
  };
  const [[left, right], [bottom, top]] = [range(0), range(1)];
  let unplaced = 0;
  fabric.nodes.forEach((node, index) => {
    if (node.tier === "host") return;
    const [x, y] = node.position ?? [left + (right - left) * ((unplaced++ % 10) / 9), bottom];
    made.x[index] = 0.06 + (0.88 * (x - left)) / (right - left || 1);
    made.y[index] = 0.94 - (0.88 * (y - bottom)) / (top - bottom || 1);
  });
  fanOut(fabric, made);
  made.pitch = 0.6 / Math.sqrt(known.length);
  return made;
}

function inACircle(fabric: Fabric): Layout {
  const made = empty(fabric);
  const switches = fabric.nodes.flatMap((node, index) => (node.tier !== "host" ? [index] : []));
  switches.forEach((node, index) => {
    const angle = (2 * Math.PI * index) / switches.length - Math.PI / 2;
    made.x[node] = 0.5 + 0.42 * Math.cos(angle);
    made.y[node] = 0.5 + 0.42 * Math.sin(angle);
  });
  fanOut(fabric, made);
  made.pitch = Math.min(0.5, 2.4 / switches.length);
  return made;
}

/** Places hosts around their switch, on the side away from the centre. */
function fanOut(fabric: Fabric, made: Layout): void {
  for (const [node, hosts] of hostsOf(fabric)) {
    const angle = Math.atan2(made.y[node]! - 0.5, made.x[node]! - 0.5);
    const step = Math.min(0.5, (2 * Math.PI) / hosts.length);
    hosts.forEach((host, index) => {
      const turn = angle + step * (index - (hosts.length - 1) / 2);
      made.x[host] = made.x[node]! + 0.045 * Math.cos(turn);
      made.y[host] = made.y[node]! + 0.045 * Math.sin(turn);
    });
  }
}
