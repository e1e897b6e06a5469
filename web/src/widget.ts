// The page in the cell of a notebook, as a widget for anywidget: the same page in a frame, whose requests go to the kernel.

/** What anywidget gives to a widget, as far as it is used here. */
interface Model {
  get(name: string): unknown;
  on(event: string, listener: (value: Answered) => void): void;
  off(event: string, listener: (value: Answered) => void): void;
  send(content: unknown): void;
}

interface Answered {
  view: string;
  id: number;
  status: number;
  body: unknown;
}

/** The address under which the kernel gives the page itself. */
const PAGE = "page";
const PAGE_ID = 0;

function render({ model, el }: { model: Model; el: HTMLElement }): () => void {
  // Several cells may show one widget.
  const view = `${Math.random()}`;
  const frame = document.createElement("iframe");
  frame.title = "Pathloom";
  frame.style.cssText = `display: block; box-sizing: border-box; width: 100%; height: ${String(model.get("height"))}; border: 1px solid #8888`;
  const status = document.createElement("p");
  status.textContent = "Waiting for the kernel. Without one, run the cell again.";
  el.append(status);

  let port: MessagePort | null = null;
  let address = "";
  const show = (page: string) => {
    address = URL.createObjectURL(new Blob([page], { type: "text/html" }));
    frame.src = address;
    el.replaceChildren(frame);
  };
  const answered = (answer: Answered) => {
    if (answer.view !== view) return;
    if (answer.id === PAGE_ID) show(String(answer.body));
    else port?.postMessage(answer);
  };
  // A frame that moves to another place of the notebook loads its page again, which asks for a port again.
  const ready = ({ source, data }: MessageEvent) => {
    if (source !== frame.contentWindow || data !== "pathloom") return;
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = ({ data: { id, path } }) => model.send({ view, id, path });
    port?.close();
    port = port1;
    frame.contentWindow!.postMessage("pathloom", "*", [port2]);
  };
  addEventListener("message", ready);
  model.on("msg:custom", answered);
  model.send({ view, id: PAGE_ID, path: PAGE });
  return () => {
    removeEventListener("message", ready);
    model.off("msg:custom", answered);
    port?.close();
    URL.revokeObjectURL(address);
  };
}

export default { render };
