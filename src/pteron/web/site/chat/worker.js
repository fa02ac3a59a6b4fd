// Runs the language model beside the page, which so never stalls.

import { LanguageModel } from "./language_model.js";

let model = null;
const running = new Map();  // the AbortController of each answer

async function load() {
  try {
    model = await LanguageModel.load(new URL(".", self.location.href), (progress) => postMessage({ progress }));
    postMessage({ ready: { name: model.name, variant: model.program.variant } });
  } catch (error) { postMessage({ failed: `${error.message}` }); }
}

async function answer({ id, messages, options }) {
  const controller = new AbortController();
  running.set(id, controller);
  try {
    for await (const event of model.answer(messages, { ...options, signal: controller.signal })) {
      postMessage({ id, event });
      await new Promise((resolve) => setTimeout(resolve));  // a message to stop may have come
    }
    postMessage({ id, done: true });
  } catch (error) { postMessage({ id, done: true, error: { name: error.name, message: error.message } }); }
  running.delete(id);
}

self.onmessage = ({ data }) => {
  if (data.stop) running.get(data.stop)?.abort();
  else answer(data);
};
load();
