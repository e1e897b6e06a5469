// What the address shows: `#VIEW?scheme=…&run=…&at=…`. Whoever opens it sees the same view, time and selection.

/** The view, and what it shows. */
export function address(): { view: string; shown: URLSearchParams } {
  const [view, shown] = location.hash.slice(1).split("?", 2);
  return { view: view ?? "", shown: new URLSearchParams(shown ?? "") };
}

let due = 0;
let values: Record<string, string | number | null> = {};

/** Writes values into the address; null removes one. Browsers allow few changes per second, so they are collected. */
export function note(changed: Record<string, string | number | null>): void {
  values = { ...values, ...changed };
  clearTimeout(due);
  due = window.setTimeout(() => {
    const { view, shown } = address();
    for (const [name, value] of Object.entries(values)) {
      if (value === null) shown.delete(name);
      else shown.set(name, String(value));
    }
    history.replaceState(null, "", `#${view || "fabric"}?${shown}`);
  }, 250);
}
