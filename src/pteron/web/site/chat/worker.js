// Runs the language model beside the page, which so never stalls.

import { LanguageModel } from "./language_model.js";

let model;  // a promise
const running = new Map();  // the AbortController of each answer

function load(onProgress) {
  model = LanguageModel.load(new URL(".", self.location.href), onProgress);
  return model;
}

async function start() {
  try {
    const { name, program } = await load((progress) => postMessage({ progress }));
    postMessage({ ready: { name, variant: program.variant } });
  } catch (error) { postMessage({ failed: `${error.message}` }); }
}

async function answer({ id, messages, options }) {
  const controller = new AbortController();
  running.set(id, controller);
  try {
    for await (const event of (await model).answer(messages, { ...options, signal: controller.signal })) {
      postMessage({ id, event });
      await new Promise((resolve) => setTimeout(resolve));  // a message to stop may have come
    }
    postMessage({ id, done: true });
  } catch (error) { postMessage({ id, done: true, error: { name: error.name, message: recover(error) } }); }
  running.delete(id);
}

/** The text of an error. A lost GPU is opened again. */
function recover(error) {
  if (error.name !== "DeviceLost") return error.message;
  load().catch(() => {});  // the next answer reports it
  return "the GPU was lost, and the model is loaded again: send the message again";
}

self.onmessage = ({ data }) => {
  if (data.stop) running.get(data.stop)?.abort();
  else answer(data);
};
start();
