// Requests of the page in a notebook: they go through a message port to the cell, and from there to the kernel.

import { askThrough, type Answer } from "./model";

interface Answered extends Answer {
  id: number;
}

/** Waits for the port that the cell sends into the frame. All requests then go through it. */
export async function connect(): Promise<void> {
  const port = await new Promise<MessagePort>((resolve) => {
    addEventListener("message", ({ data, ports }) => data === "pathloom" && ports[0] && resolve(ports[0]));
    parent.postMessage("pathloom", "*");
  });
  const waiting = new Map<number, (answer: Answer) => void>();
  let last = 0;
  port.onmessage = ({ data }: MessageEvent<Answered>) => {
    waiting.get(data.id)?.(data);
    waiting.delete(data.id);
  };
  askThrough((path) => new Promise((resolve) => {
    last += 1;
    waiting.set(last, resolve);
    port.postMessage({ id: last, path });
  }));
}
