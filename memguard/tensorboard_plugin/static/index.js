// What TensorBoard's plugin frame imports: render() is called once.

import { start } from "./app.js";
import { server } from "./server.js";

export async function render() {
  const styles = ["vendor/uPlot.min.css", "app.css"].map((name) => {
    const link = document.createElement("link");
    link.rel = "stylesheet";
    link.href = new URL(name, import.meta.url).href;
    const loaded = new Promise((done) => {
      link.onload = done;
      link.onerror = done;
    });
    document.head.append(link);
    return loaded;
  });
  document.documentElement.lang = "en";
  document.title ||= "Memory";
  await start(server, document.body, Promise.all(styles));
}
