// Types and functions that both sources of data (results and live controllers) share.

export interface FabricNode {
  name: string;
  tier: "host" | "tor" | "aggregation" | "core";
  pod: number | null;
  position: [number, number] | null;
  /** Number of nodes that this one stands for, if it is a group. */
  members?: number;
}

/** Links 2n and 2n + 1 are the two directions of one cable. */
export interface Fabric {
  spec: string;
  nodes: FabricNode[];
  links: { source: number[]; target: number[]; rate_bps: number[]; id?: string[]; /** Cables of each bundle. */ count?: number[] };
}

/** Utilisation of each link in one time step, in per mille, or `UNKNOWN`. */
export type Frame = ArrayLike<number>;

export type LinkState = "up" | "down" | "draining" | "drained";

export type Selection = { kind: "node"; index: number } | { kind: "link"; index: number };

/** What can be selected in a folded fabric: a node, a link, a group of nodes, or the bundle between two of them. */
export type Target = Selection | { kind: "group"; key: string } | { kind: "bundle"; ends: [string, string] };

/** All shortest paths from one node to another. */
export interface Pair {
  kind: "pair";
  from: number;
  to: number;
}

/** A path that is drawn above the links. */
export interface Way {
  links: number[];
  colour: number;
}

export const linkName = (fabric: Fabric, link: number): string =>
  `${fabric.nodes[fabric.links.source[link]!]!.name} → ${fabric.nodes[fabric.links.target[link]!]!.name}`;

/** Finds nodes and links by names. */
export class Names {
  readonly nodes: Map<string, number>;
  private readonly links = new Map<string, number>();

  constructor(private readonly fabric: Fabric) {
    this.nodes = new Map(fabric.nodes.map((node, index) => [node.name, index]));
    fabric.links.source.forEach((source, link) => {
      const key = `${source} ${fabric.links.target[link]}`;
      if (!this.links.has(key)) this.links.set(key, link);
    });
  }

  /** Returns the links between consecutive nodes. Links that the fabric does not have are omitted. */
  along(names: string[]): number[] {
    const found: number[] = [];
    for (let place = 1; place < names.length; place++) {
      const ends = [names[place - 1]!, names[place]!].map((name) => this.nodes.get(name));
      const link = this.links.get(ends.join(" "));
      if (link !== undefined) found.push(link);
    }
    return found;
  }

  /** Returns link and paths between two named nodes, and nodes whose names contain the first word; about `most` in all. */
  find(word: string, most: number): (Selection | Pair)[] {
    const found: (Selection | Pair)[] = [];
    const parts = word.toLowerCase().split(/[\s,→>-]+/).filter(Boolean);
    if (parts.length === 0) return found;
    if (parts.length === 2) {
      const [from, to] = parts.map((part) => this.nodes.get(part));
      const link = this.links.get(`${from} ${to}`);
      if (link !== undefined) found.push({ kind: "link", index: link });
      if (from !== undefined && to !== undefined && from !== to) found.push({ kind: "pair", from, to });
    }
    for (const [index, node] of this.fabric.nodes.entries()) {
      if (found.length >= most) break;
      if (node.name.toLowerCase().includes(parts[0]!)) found.push({ kind: "node", index });
    }
    return found;
  }
}

/** Error of a request that the server refused, with the message of the server. */
export class Refused extends Error {
  constructor(readonly status: number, detail: string) {
    super(detail);
  }
}

/** Status and content of an answer. */
export interface Answer {
  status: number;
  body: unknown;
}

/** Carries requests to the source of data: over HTTP, unless the page is in a notebook. */
let carry = async (path: string, options: RequestInit): Promise<Answer> => {
  const answer = await fetch(path, options);
  return { status: answer.status, body: await answer.json().catch(() => null) };
};

/** Requests take another way from now on. */
export function askThrough(other: (path: string) => Promise<Answer>): void {
  carry = other;
}

export async function ask<T>(path: string, options: RequestInit = {}): Promise<T> {
  const { status, body } = await carry(path, options);
  if (status >= 200 && status < 300) return body as T;
  const problem = body as { detail?: string; way_out?: string; expected?: string } | null;
  const more = [problem?.expected && `expected ${problem.expected}`, problem?.way_out].filter(Boolean).join("; ");
  throw new Refused(status, [problem?.detail ?? `status ${status}`, more].filter(Boolean).join(" – "));
}
