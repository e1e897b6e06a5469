// Positions of nodes in a unit square.

import type { Fabric } from "./model";

export interface Layout {
  x: Float32Array;
  y: Float32Array;
  /** Names and vertical positions of the rows, if the fabric is drawn in tiers. */
  rows: { name: string; y: number }[];
  /** Minimum distance between switches, as a share of the width. */
  pitch: number;
  /** Distance between ToRs of the same pod, or between pods of one ToR each, as a share of the width. */
  slot: number;
  /** The pods from left to right, with the positions of their centres and their widths. */
  pods: { pod: number; x: number; width: number }[];
  /** Half the widths of nodes that are drawn as bars, as shares of the width. */
  bars: Map<number, number>;
}

const HOSTS_IN_A_ROW = 4;
/** Distance between pods, in distances between their switches. */
const POD_GAP = 0.7;
/** How far single switches of a tier are below the bar that stands for the others. */
const BELOW_BAR = 0.1;

export function layout(fabric: Fabric): Layout {
  const tiers = new Set(fabric.nodes.map((node) => node.tier));
  const placed = fabric.nodes.filter((node) => node.tier !== "host" && node.position);
  const switches = fabric.nodes.filter((node) => node.tier !== "host");
  if (placed.length === switches.length && placed.length > 1) return asMap(fabric);
  if (tiers.has("aggregation") || tiers.has("core")) return inTiers(fabric);
  return 2 * placed.length >= switches.length && placed.length > 1 ? asMap(fabric) : inACircle(fabric);
}

function empty(fabric: Fabric): Layout {
  const size = fabric.nodes.length;
  return { x: new Float32Array(size), y: new Float32Array(size), rows: [], pitch: 1, slot: 1, pods: [], bars: new Map() };
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
  const present = ["core", "aggregation", "tor", "host"].filter((tier) => of(tier).length > 0);
  const words: Record<string, string> = { core: "core", aggregation: "aggregation", tor: "ToR", host: "hosts" };
  const most = Math.max(1, ...[...hosts.values()].map((list) => list.length));
  const columns = most <= HOSTS_IN_A_ROW ? most : Math.ceil(most / Math.max(2, Math.ceil(most / HOSTS_IN_A_ROW)));
  const many = most > columns;
  const heights: Record<string, number> = { core: 0.03, aggregation: 0.36, tor: many ? 0.7 : 0.76, host: many ? 0.8 : 0.97 };
  if (!present.includes("aggregation")) heights["tor"] = 0.66;
  made.rows = present.map((tier) => ({ name: words[tier]!, y: heights[tier]! + (tier === "host" && many ? 0.08 : 0) }));
  const pods = podsOf(fabric, of("tor"), of("aggregation"));
  const width = placePods(pods, made, heights);
  for (const tor of of("tor")) {
    const own = hosts.get(tor) ?? [];
    const rows = Math.ceil(own.length / columns);
    own.forEach((host, number) => {
      const row = Math.floor(number / columns);
      const inRow = Math.min(columns, own.length - row * columns);
      const column = number % columns;
      made.x[host] = made.x[tor]! + ((column - (inRow - 1) / 2) * 0.8) / columns / width;
      made.y[host] = heights["host"]! + (rows > 1 ? (0.19 * row) / (rows - 1) : 0);
    });
  }
  const inPods = new Set(pods.flatMap((one) => one.aggregations));
  spread(of("aggregation").filter((node) => !inPods.has(node)), fabric, made, heights["aggregation"]!);
  spread(of("core"), fabric, made, heights["core"]!);
  return made;
}

interface Pod {
  pod: number | null;
  tors: number[];
  aggregations: number[];
}

/** Returns the pods with their switches. ToRs without a pod are together at the end. */
function podsOf(fabric: Fabric, tors: number[], aggregations: number[]): Pod[] {
  const pods = new Map<number | null, Pod>();
  for (const tor of tors) {
    const { pod } = fabric.nodes[tor]!;
    if (!pods.has(pod)) pods.set(pod, { pod, tors: [], aggregations: [] });
    pods.get(pod)!.tors.push(tor);
  }
  for (const node of aggregations) {
    const { pod } = fabric.nodes[node]!;
    if (pod !== null) pods.get(pod)?.aggregations.push(node);
  }
  return [...pods.values()].sort((a, b) => (a.pod ?? Infinity) - (b.pod ?? Infinity));
}

/** Places pods side by side, with a gap beside each that has several switches in a tier. Returns the number of slots. */
function placePods(pods: Pod[], made: Layout, heights: Record<string, number>): number {
  const wide = pods.map(({ tors, aggregations }) => Math.max(tors.length, aggregations.length));
  let end = 0;
  const starts = wide.map((slots, index) => {
    if (index > 0 && Math.max(slots, wide[index - 1]!) > 1) end += POD_GAP;
    end += slots;
    return end - slots;
  });
  const total = Math.max(1, end);
  made.pitch = made.slot = 1 / total;
  pods.forEach(({ pod, tors, aggregations }, index) => {
    const at = (place: number, of: number) => (starts[index]! + (wide[index]! * (place + 0.5)) / of) / total;
    for (const [members, y] of [[tors, heights["tor"]!], [aggregations, heights["aggregation"]!]] as const) {
      members.forEach((node, place) => {
        made.x[node] = at(place, members.length);
        made.y[node] = y;
      });
    }
    if (pod !== null) made.pods.push({ pod, x: at(0, 1), width: wide[index]! / total });
  });
  return total;
}

/** Places switches evenly over the whole width. A group of them becomes a bar above the others. */
function spread(switches: number[], fabric: Fabric, made: Layout, y: number): void {
  const isBar = (node: number) => fabric.nodes[node]!.members !== undefined;
  const others = switches.filter((node) => !isBar(node));
  for (const node of switches.filter(isBar)) {
    made.x[node] = 0.5;
    made.y[node] = y;
    made.bars.set(node, 0.5);
  }
  others.forEach((node, index) => {
    made.x[node] = (index + 0.5) / others.length;
    made.y[node] = y + (others.length < switches.length ? BELOW_BAR : 0);
  });
  made.pitch = Math.min(made.pitch, 1 / Math.max(1, others.length));
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
