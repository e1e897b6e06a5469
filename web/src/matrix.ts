// The cables between two tiers as a table: a row for each switch of the lower tier, a column for each of the upper one.

import type { Unfolded } from "./fold";
import type { Fabric } from "./model";

const TIERS = ["host", "tor", "aggregation", "core"] as const;
/** With more switches above, the columns are the cables of each row. */
const MOST_COLUMNS = 64;

/** The two directions of a cable: up is away from the hosts; within a tier, it is away from the switch of the row. */
export interface Cable {
  up: number;
  down: number;
}

export interface Row {
  name: string;
  /** The pod that the row stands for as a whole, or the pod that must be unfolded for the row to be shown. */
  unit: string | null;
  isPod: boolean;
  /** Cables of each column. */
  cells: Cable[][];
}

export interface Table {
  /** The two tiers, as in the address. */
  key: string;
  title: string;
  /** What a column is, if it is not named after a switch but numbered. */
  numbered: string | null;
  columns: string[];
  rows: Row[];
}

interface End extends Cable {
  row: number;
  other: number;
}

/** Returns a table for each two tiers that have cables between them, the highest first. */
export function tables(fabric: Fabric, unfolded: Unfolded): Table[] {
  const level = fabric.nodes.map(({ tier }) => TIERS.indexOf(tier));
  const found = new Map<string, End[]>();
  fabric.links.source.forEach((source, up) => {
    const target = fabric.links.target[up]!;
    const [low, high] = [level[source]!, level[target]!];
    if (low > high) return;
    const key = `${TIERS[low]}-${TIERS[high]}`;
    // The cables of hosts have rows for switches, because there are fewer of them.
    const [row, other] = low === 0 ? [target, source] : [source, target];
    found.set(key, [...(found.get(key) ?? []), { row, other, up, down: up ^ 1 }]);
  });
  const height = (key: string) => key.split("-").reduce((sum, tier) => sum + TIERS.indexOf(tier as (typeof TIERS)[number]), 0);
  return [...found].sort(([a], [b]) => height(b) - height(a)).map(([key, ends]) => table(fabric, unfolded, key, ends));
}

function table(fabric: Fabric, unfolded: Unfolded, key: string, ends: End[]): Table {
  const words: Record<string, string> = { host: "hosts", tor: "ToRs", aggregation: "aggregation", core: "core" };
  const [low, high] = key.split("-") as [string, string];
  const others = [...new Set(ends.map(({ other }) => other))].sort((a, b) => a - b);
  const inside = ends.every(({ row, other }) => fabric.nodes[row]!.pod !== null && fabric.nodes[row]!.pod === fabric.nodes[other]!.pod);
  const byNumber = inside || low === "host" || low === high || others.length > MOST_COLUMNS;
  const ofRow = new Map<number, End[]>();
  for (const end of ends) ofRow.set(end.row, [...(ofRow.get(end.row) ?? []), end]);
  const place = new Map(others.map((other, column) => [other, column]));
  const width = byNumber ? Math.max(...[...ofRow.values()].map((list) => list.length)) : others.length;
  const cellsOf = (list: End[]): Cable[][] => {
    const cells: Cable[][] = Array.from({ length: width }, () => []);
    [...list].sort((a, b) => a.other - b.other).forEach((end, number) => cells[byNumber ? number : place.get(end.other)!]!.push(end));
    return cells;
  };
  const podOf = (node: number) => fabric.nodes[node]!.pod ?? Infinity;
  const rows: Row[] = [];
  for (const node of [...ofRow.keys()].sort((a, b) => podOf(a) - podOf(b) || a - b)) {
    const { name, pod } = fabric.nodes[node]!;
    const unit = pod !== null && unfolded.foldable ? `pod-${pod}` : null;
    if (unit && rows.at(-1)?.unit !== unit) rows.push({ name: `pod ${pod}`, unit, isPod: true, cells: cellsOf([]) });
    const cells = cellsOf(ofRow.get(node)!);
    rows.push({ name, unit, isPod: false, cells });
    if (unit) rows.findLast(({ isPod }) => isPod)!.cells.forEach((cell, column) => cell.push(...cells[column]!));
  }
  const columns = byNumber ? Array.from({ length: width }, (_, number) => String(number + 1)) : others.map((other) => fabric.nodes[other]!.name);
  const numbered = !byNumber ? null : low === "host" ? "host" : low === high ? "cable" : `${words[high]} switch`;
  return { key, numbered, title: low === high ? `between ${words[low]}` : `${words[low]} and ${words[high]}`, columns, rows };
}
