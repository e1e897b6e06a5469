// Folds a large fabric into a small one: one node for each tier of a pod, one bundle for all cables between two nodes.

import { UNKNOWN } from "./dom";
import type { Fabric, FabricNode, Frame, LinkState } from "./model";

/** A fabric with more switches than this is folded at first. */
const LARGE = 100;
/** A fabric with more switches than this can be folded. */
const SMALL = 20;

const switchesOf = (fabric: Fabric): number => fabric.nodes.filter(({ tier }) => tier !== "host").length;

const NOUNS: Record<FabricNode["tier"], string> = { core: "core switches", aggregation: "aggregation switches", tor: "ToRs", host: "hosts" };

/**
 * The unit of each node. A unit is folded and unfolded as a whole: a pod, a tier above the pods, or the hosts of a ToR
 * without a pod. A ToR without a pod has none, and is never folded.
 */
function unitsOf(fabric: Fabric): (string | null)[] {
  const tors = new Map<number, string>();
  fabric.links.source.forEach((source, link) => {
    const other = fabric.nodes[fabric.links.target[link]!]!;
    if (other.tier !== "host" && !tors.has(source)) tors.set(source, other.name);
  });
  return fabric.nodes.map(({ tier, pod }, node) => {
    if (pod !== null) return `pod-${pod}`;
    if (tier === "host") return tors.has(node) ? `tor-${tors.get(node)}` : null;
    return tier === "tor" ? null : tier;
  });
}

/** A unit in words. */
export const unitName = (unit: string): string =>
  unit.startsWith("pod-") ? `pod ${unit.slice(4)}` : unit.startsWith("tor-") ? `hosts of ${unit.slice(4)}` : NOUNS[unit as FabricNode["tier"]];

/** Which units are unfolded, and what a bundle shows. All views share it. */
export class Unfolded {
  /** Whether bundles have the colour of the mean of their cables, in place of that of the fullest. */
  mean = false;
  readonly unitOf: (string | null)[];
  /** Whether the fabric can be folded: it has tiers, and more than a few switches. */
  readonly foldable: boolean;
  onchange: () => void = () => {};
  private readonly all: Set<string>;
  private readonly initial: string;
  private open: Set<string>;

  constructor(fabric: Fabric) {
    this.unitOf = unitsOf(fabric);
    const switches = switchesOf(fabric);
    this.foldable = switches > SMALL && fabric.nodes.some(({ tier }) => tier === "core" || tier === "aggregation");
    this.all = new Set(this.foldable ? this.unitOf.filter((unit) => unit !== null) : []);
    this.open = this.foldable && switches > LARGE ? new Set() : new Set(this.all);
    this.initial = this.text;
  }

  has(unit: string | null): boolean {
    return unit === null || !this.all.has(unit) || this.open.has(unit);
  }

  get units(): string[] {
    return [...this.open];
  }

  get everything(): boolean {
    return this.open.size === this.all.size;
  }

  /** Unfolds or folds a unit; null stands for all of them. */
  set(unit: string | null, open: boolean): void {
    for (const one of unit === null ? this.all : [unit]) {
      if (open && this.all.has(one)) this.open.add(one);
      else this.open.delete(one);
    }
    this.onchange();
  }

  setMean(mean: boolean): void {
    this.mean = mean;
    this.onchange();
  }

  /** What is unfolded, as a value of the address; null if it is what the fabric begins with. */
  get value(): string | null {
    return this.text === this.initial ? null : this.text;
  }

  /** Takes what is unfolded from a value of the address, if it has one. Unknown units are ignored. */
  take(value: string | null, mean: boolean): void {
    const wanted = value ?? this.text;
    if (mean !== this.mean) this.setMean(mean);
    if (wanted === this.text) return;
    const named = wanted.split(",").map(decoded);
    this.open = wanted === "all" ? new Set(this.all) : new Set(named.filter((unit) => this.all.has(unit)));
    this.onchange();
  }

  private get text(): string {
    if (this.everything) return "all";
    return this.open.size === 0 ? "none" : [...this.open].map(encodeURIComponent).sort().join(",");
  }
}

/** A fabric in which some nodes stand for groups of nodes, and some links for bundles of links. */
export interface Folded {
  fabric: Fabric;
  /** The nodes and links of the whole fabric that each node and link stands for. */
  nodes: number[][];
  links: number[][];
  /** The node and link that stands for each of the whole fabric, or -1 if it is not shown. */
  nodeOf: Int32Array;
  linkOf: Int32Array;
  /** The name of each node, or the key of its group. It is the same as long as the group exists. */
  keys: string[];
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** What is drawn by itself (`keep`), although its unit is folded; and what is drawn at all (`only`; null: everything). */
export interface Lens {
  keep: ReadonlySet<number>;
  only: ReadonlySet<number> | null;
}

export function fold(fabric: Fabric, unfolded: Unfolded, { keep, only }: Lens): Folded {
  const groups = new Map<string, number[]>();
  fabric.nodes.forEach(({ tier, name }, node) => {
    if (only && !only.has(node)) return;
    const unit = unfolded.unitOf[node]!;
    const alone = only !== null || keep.has(node) || unfolded.has(unit);
    const key = alone ? `=${name}` : `${unit}/${tier}`;
    groups.set(key, [...(groups.get(key) ?? []), node]);
  });
  const nodes = [...groups.values()];
  if (nodes.length === fabric.nodes.length) return whole(fabric);
  const keys = [...groups.keys()].map((key, place) => (nodes[place]!.length > 1 ? key : fabric.nodes[nodes[place]![0]!]!.name));
  const nodeOf = new Int32Array(fabric.nodes.length).fill(-1);
  nodes.forEach((members, group) => members.forEach((node) => (nodeOf[node] = group)));
  const { links, linkOf } = bundles(fabric, nodeOf);
  const sum = (members: number[]) => members.reduce((total, link) => total + fabric.links.rate_bps[link]!, 0);
  const ends = (side: "source" | "target") => links.map(([first]) => nodeOf[fabric.links[side][first!]!]!);
  const small: Fabric = {
    spec: fabric.spec,
    nodes: nodes.map((members) => nodeFor(fabric, members, unfolded.unitOf)),
    links: { source: ends("source"), target: ends("target"), rate_bps: links.map(sum), count: links.map(({ length }) => length) },
  };
  return { fabric: small, nodes, links, nodeOf, linkOf, keys };
}

/** The folding that folds nothing. */
function whole(fabric: Fabric): Folded {
  const one = <T>(list: T[]): number[][] => list.map((_, index) => [index]);
  const same = (list: unknown[]) => Int32Array.from(list, (_, index) => index);
  const { nodes, links: { source } } = fabric;
  return { fabric, nodes: one(nodes), links: one(source), nodeOf: same(nodes), linkOf: same(source), keys: nodes.map(({ name }) => name) };
}

function nodeFor(fabric: Fabric, members: number[], unitOf: (string | null)[]): FabricNode {
  const first = fabric.nodes[members[0]!]!;
  if (members.length === 1) return first;
  const unit = unitOf[members[0]!]!;
  const what = `${members.length} ${NOUNS[first.tier]}`;
  const name = unit.startsWith("tor-") ? `${what} of ${unit.slice(4)}` : unit.startsWith("pod-") ? `${what} of ${unitName(unit)}` : what;
  return { ...first, name, position: null, members: members.length };
}

/** Links of the same two nodes are one bundle in each direction; bundles 2n and 2n + 1 are the two directions. */
function bundles(fabric: Fabric, nodeOf: Int32Array): { links: number[][]; linkOf: Int32Array } {
  const { source, target } = fabric.links;
  const known = new Map<string, number>();
  const links: number[][] = [];
  const linkOf = Int32Array.from(source, (from, link) => {
    const [a, b] = [nodeOf[from]!, nodeOf[target[link]!]!];
    if (a < 0 || b < 0 || a === b) return -1;
    const key = a < b ? `${a} ${b}` : `${b} ${a}`;
    if (!known.has(key)) known.set(key, links.push([], []) - 2);
    const bundle = known.get(key)! + (a < b ? 0 : 1);
    links[bundle]!.push(link);
    return bundle;
  });
  return { links, linkOf };
}

/** The utilisation of each bundle: the highest of its links that are up, or their mean. */
export function frameOf({ links, fabric }: Folded, frame: Frame, states: (link: number) => LinkState, mean: boolean): Frame {
  if (fabric.links.count === undefined) return frame;
  return Uint16Array.from(links, (members) => {
    let [known, sum, most] = [0, 0, 0];
    for (const link of members) {
      const value = frame[link] ?? 0;
      if (value === UNKNOWN || states(link) === "down") continue;
      known += 1;
      sum += value;
      if (value > most) most = value;
    }
    return known === 0 ? UNKNOWN : mean ? Math.round(sum / known) : most;
  });
}

/** The state of a bundle: that of its links if they all have the same, otherwise `up`. */
export function stateOf(members: number[], states: (link: number) => LinkState): LinkState {
  const first = states(members[0] ?? -1);
  return members.every((link) => states(link) === first) ? first : "up";
}

/** The shortest paths from one node to another: their nodes, the links of each hop, and how many they are. */
export function between(fabric: Fabric, from: number, to: number): { nodes: Set<number>; hops: number[][]; paths: number } {
  const { source, target } = fabric.links;
  const outOf: number[][] = fabric.nodes.map(() => []);
  source.forEach((node, link) => outOf[node]!.push(link));
  const seen = new Set([from]);
  const count = new Map([[from, 1]]);
  const into = new Map<number, number[]>();
  for (let edge = [from]; edge.length > 0 && !seen.has(to); ) {
    const next = new Set<number>();
    for (const node of edge) {
      // Hosts forward nothing.
      if (node !== from && fabric.nodes[node]!.tier === "host") continue;
      for (const link of outOf[node]!) {
        const other = target[link]!;
        if (seen.has(other)) continue;
        next.add(other);
        count.set(other, (count.get(other) ?? 0) + count.get(node)!);
        into.set(other, [...(into.get(other) ?? []), link]);
      }
    }
    edge = [...next];
    edge.forEach((node) => seen.add(node));
  }
  const nodes = new Set([from, to]);
  const hops: number[][] = [];
  for (let edge = new Set([to]); edge.size > 0 && from !== to; ) {
    const links = [...edge].flatMap((node) => into.get(node) ?? []);
    edge = new Set(links.map((link) => source[link]!));
    edge.forEach((node) => nodes.add(node));
    if (links.length > 0) hops.unshift(links);
  }
  return { nodes, hops, paths: from === to ? 0 : (count.get(to) ?? 0) };
}

/** The first `most` shortest paths, as links from hop to hop, and how many there are. */
export function shortestPaths(fabric: Fabric, from: number, to: number, most: number): { found: number[][]; paths: number } {
  const { source, target } = fabric.links;
  const { hops, paths } = between(fabric, from, to);
  let found: number[][] = hops.length === 0 ? [] : hops[0]!.map((link) => [link]);
  for (const links of hops.slice(1)) {
    // Every beginning leads to the end, because hops have only links of shortest paths.
    found = found.flatMap((path) => links.filter((link) => source[link] === target[path.at(-1)!]).map((link) => [...path, link])).slice(0, most);
  }
  return { found: found.slice(0, most), paths };
}
